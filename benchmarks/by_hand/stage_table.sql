-- What an expert would write over the Parquet files for: the stage table.
WITH held AS (
    SELECT DISTINCT kernel_id FROM findings JOIN (
        SELECT finding_id, arg_max(decision, created_at) AS decision FROM standings GROUP BY ALL
    ) USING (finding_id)
    WHERE decision = 'confirmed'
),
newest AS (
    SELECT kernel_id, task_id, workload_id, device_id, evaluator, max(evaluator_version) AS version
    FROM evaluations WHERE status <> 'evaluator_error' GROUP BY ALL
),
judged AS (
    SELECT kernel_id, task_id, workload_id, device_id, bool_and(status = 'correct') AS correct
    FROM evaluations JOIN newest USING (kernel_id, task_id, workload_id, device_id, evaluator)
    WHERE evaluator_version = version AND status <> 'evaluator_error'
    GROUP BY ALL
),
sessions AS (
    SELECT
        k.session_id, k.evaluation_id, k.task_id, k.kernel_id, k.workload_id, k.device_id,
        k.created_at,
        list_sort([b.samples_ms[i]::DOUBLE / k.samples_ms[i] FOR i IN range(1, len(k.samples_ms) + 1)])
            AS ratios
    FROM timings AS k
    JOIN timings AS b ON b.session_id = k.session_id AND b.cache = k.cache AND b.arm = 'eager'
    WHERE k.arm = 'kernel' AND NOT coalesce(k.disturbed, k.noisy)
),
scored AS (
    SELECT
        *,
        exp((ln(ratios[(len(ratios) + 1) // 2]) + ln(ratios[len(ratios) // 2 + 1])) / 2) AS speedup,
        ratios[greatest(
            1, floor((len(ratios) + 1) / 2 - 1.182809063 * sqrt(len(ratios) - 0.766024854))
        )::INT] AS speedup_low
    FROM sessions
    JOIN judged USING (kernel_id, task_id, workload_id, device_id)
    JOIN (SELECT evaluation_id, status FROM evaluations) USING (evaluation_id)
    WHERE correct AND status = 'correct' AND kernel_id NOT IN (FROM held)
),
latest AS (
    SELECT * FROM scored
    QUALIFY row_number() OVER (
        PARTITION BY kernel_id, task_id, workload_id, device_id ORDER BY created_at DESC, session_id DESC
    ) = 1
),
best AS (
    SELECT policy_id, task_id, arg_max(speedup, speedup_low) AS speedup
    FROM latest JOIN (SELECT DISTINCT kernel_id, task_id, policy_id FROM generations) USING (kernel_id, task_id)
    GROUP BY ALL
)
SELECT
    policy_id, count(*) AS n, avg(speedup) AS mean, max(speedup) AS max,
    quantile_cont(speedup, 0.75) AS p75, quantile_cont(speedup, 0.5) AS p50,
    quantile_cont(speedup, 0.25) AS p25, exp(avg(ln(speedup))) AS geomean,
    count(*) FILTER (WHERE speedup > 1.01) AS faster
FROM best
GROUP BY policy_id
ORDER BY policy_id
