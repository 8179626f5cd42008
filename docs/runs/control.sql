-- Eager in a second process, timed as if it were a kernel: one row per version of the judge's rules, GPU
-- or processor, and clock, for quiet and for noisy sessions, and for tasks on which eager takes less than
-- 0.1 ms (short) and others. won and lost count sessions whose 95 % interval of the median ratio lies
-- above 1.01 or below 0.99, by order statistics. These are the intervals of the samples alone, without
-- the spread of sessions. A contended session counts as noisy. apart is how far a session's median ratio
-- is from 1, as the logarithm's absolute value.
WITH eager AS (
    SELECT evaluation_id, clock, min(list_median(samples_ms)) AS ms
    FROM timings
    WHERE arm = 'eager'
    GROUP BY evaluation_id, clock
),
controls AS (
    SELECT
        evaluations.evaluator_version AS version,
        devices."name" AS device,
        timings.clock,
        timings.noisy OR coalesce(list_contains(evaluations.flags, 'contended'), false) AS noisy,
        eager.ms < 0.1 AS short,
        list_sort(timings.control_ratios) AS ratios,
        len(timings.control_ratios) AS n,
        greatest(
            1,
            floor(
                (len(timings.control_ratios) + 1) / 2
                - 0.979982 * sqrt(len(timings.control_ratios) - 0.473576)
            )
        )::BIGINT AS r
    FROM timings
    INNER JOIN evaluations ON evaluations.evaluation_id = timings.evaluation_id
    INNER JOIN devices ON devices.device_id = timings.device_id
    INNER JOIN eager
        ON
            eager.evaluation_id = timings.evaluation_id
            AND eager.clock IS NOT DISTINCT FROM timings.clock
    WHERE timings.arm = 'kernel' AND len(timings.control_ratios) >= 6
)
SELECT
    version,
    device,
    clock,
    noisy,
    short,
    count(*) AS sessions,
    count(*) FILTER (WHERE ratios[r] > 1.01) AS won,
    count(*) FILTER (WHERE ratios[n + 1 - r] < 0.99) AS lost,
    round(count(*) FILTER (WHERE ratios[r] > 1.01) / count(*), 4) AS won_share,
    round(quantile_cont(abs(ln(list_median(ratios))), 0.5), 4) AS apart_p50,
    round(quantile_cont(abs(ln(list_median(ratios))), 0.95), 4) AS apart_p95
FROM controls
GROUP BY version, device, clock, noisy, short
ORDER BY version, device DESC, clock, noisy, short
