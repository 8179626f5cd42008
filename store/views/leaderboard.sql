-- One row per suite, revision, level, device, baseline and author: the columns of CUDA-L1's tables.
-- level NULL stands for all levels, and policy 'any' for the best kernel of all authors. Figures
-- are over n tasks, with one best kernel each, and sessions pool in their speedups. success counts
-- tasks with a correct kernel and faster counts tasks with a speedup above 1.01x, both out of
-- tasks. pending counts tasks that wait for a verdict and are in no figure. weak counts trivial
-- tasks (weak_tasks), which no other figure includes by default. mean_with_degenerate is the mean
-- including them; mean_without_degenerate is the mean without them, even if --include-trivial adds
-- them to all other figures. Each mean is given
-- twice: over the n measured tasks, and over all tasks with 1.0 for each task without a speedup.
-- clock and precision are those that rank the tasks (default_clocks); several are a list.
-- p50_low and p50_high are the exact 95 % order-statistic interval of the median over tasks (rank
-- by the formula in speedups, with two tails of 5 %); below 6 tasks they are the smallest and
-- largest value.
--
-- key columns: suite, level, device, baseline, policy, p50, p50_low, p50_high, n, tasks
-- n: number of tasks with a speedup
-- sessions: number of timing sessions behind all of them
WITH results AS (
    SELECT
        suite, suite_revision, "level", device, baseline, policy_id, policy,
        count(*) FILTER (WHERE decided AND NOT left_out) AS tasks,
        count(*) FILTER (WHERE NOT decided AND NOT left_out) AS pending,
        count(*) FILTER (WHERE correct AND NOT left_out) AS success,
        count(*) FILTER (WHERE speedup > 1.01 AND NOT left_out) AS faster,
        count(speedup) FILTER (WHERE NOT left_out) AS n,
        (sum(sessions) FILTER (WHERE NOT left_out))::BIGINT AS sessions,
        avg(speedup) FILTER (WHERE NOT left_out) AS mean,
        max(speedup) FILTER (WHERE NOT left_out) AS max,
        quantile_cont(speedup, 0.75) FILTER (WHERE NOT left_out) AS p75,
        quantile_cont(speedup, 0.5) FILTER (WHERE NOT left_out) AS p50,
        quantile_cont(speedup, 0.25) FILTER (WHERE NOT left_out) AS p25,
        list_sort(list(speedup) FILTER (WHERE speedup IS NOT NULL AND NOT left_out)) AS sorted,
        exp(avg(ln(speedup)) FILTER (WHERE NOT left_out)) AS geomean,
        avg(coalesce(speedup, 1.0)) FILTER (WHERE decided AND NOT left_out) AS mean_missing_as_1,
        exp(avg(ln(coalesce(speedup, 1.0))) FILTER (WHERE decided AND NOT left_out))
            AS geomean_missing_as_1,
        avg(speedup) FILTER (WHERE NOT degenerate) AS mean_without_degenerate,
        avg(speedup) AS mean_with_degenerate,
        count(*) FILTER (WHERE left_out) AS weak,
        string_agg(DISTINCT clock, ', ' ORDER BY clock) AS clock,
        string_agg(DISTINCT "precision", ', ' ORDER BY "precision") AS "precision"
    FROM task_results
    GROUP BY suite, suite_revision, "level", device, baseline, policy_id, policy
),
ranked AS (
    SELECT
        *, greatest(1, floor((n + 1) / 2 - 0.979982 * sqrt(greatest(n, 1) - 0.473576)))::BIGINT AS r
    FROM results
)
SELECT
    suite, suite_revision, "level", device, baseline, policy_id, policy,
    mean, max, p75, p50, p25, success, faster, tasks, n, sessions, pending, geomean,
    sorted[r] AS p50_low,
    sorted[n + 1 - r] AS p50_high,
    mean_missing_as_1, geomean_missing_as_1, mean_without_degenerate, mean_with_degenerate, weak,
    clock, "precision"
FROM ranked
ORDER BY
    suite, suite_revision, "level" NULLS FIRST, device, baseline,
    policy_id IS NULL, policy, policy_id
