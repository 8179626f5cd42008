-- One row per model that was evaluated, in the order of training: its attempts at the test side.
-- Attempts count as often as they were made; those that the machine failed are none. Executable is
-- what ran and gave an answer, right or wrong; success is correct everywhere and not quarantined.
-- Intervals of shares are Wilson's, 95 %, over attempts. Speedups are over eager: a task counts once,
-- with the geometric mean of its correct attempts in quiet sessions; intervals of mean and geomean
-- are 1.96 standard errors over tasks, that of the median is by order statistics, as in leaderboard.
WITH held_out AS (
    SELECT DISTINCT task_labels.task_id, task_labels.family
    FROM task_labels
    INNER JOIN splits
        ON splits.suite = task_labels.suite AND splits.family = task_labels.family
    WHERE splits.split = 'test'
),
attempts AS (
    SELECT generations.policy_id, held_out.family, generations.task_id, generations.kernel_id
    FROM generations
    INNER JOIN held_out ON held_out.task_id = generations.task_id
    WHERE generations.finish_reason IS DISTINCT FROM 'error'
),
judged AS (
    SELECT
        outcomes.kernel_id, outcomes.task_id,
        bool_or(outcomes.status IN ('correct', 'incorrect')) AS executable,
        bool_and(outcomes.correct) AND NOT bool_or(quarantined.kernel_id IS NOT NULL) AS correct
    FROM outcomes
    LEFT JOIN quarantined ON quarantined.kernel_id = outcomes.kernel_id
    GROUP BY outcomes.kernel_id, outcomes.task_id
),
known AS (
    SELECT
        attempts.policy_id, attempts.family, attempts.task_id, attempts.kernel_id,
        judged.kernel_id IS NOT NULL OR attempts.kernel_id IS NULL AS decided,
        coalesce(judged.executable, false) AS executable,
        coalesce(judged.correct, false) AS correct,
        speedups.speedup
    FROM attempts
    LEFT JOIN judged
        ON judged.kernel_id = attempts.kernel_id AND judged.task_id = attempts.task_id
    LEFT JOIN scored_speedups AS speedups
        ON
            speedups.kernel_id = attempts.kernel_id
            AND speedups.task_id = attempts.task_id
            AND speedups.baseline = 'eager'
            AND judged.correct
),
shares AS (
    SELECT
        policy_id,
        count(*) AS attempts,
        count(*) FILTER (WHERE NOT decided) AS pending,
        count(DISTINCT task_id) AS tasks,
        count(kernel_id) AS with_code,
        count(*) FILTER (WHERE executable) AS executable,
        count(*) FILTER (WHERE correct) AS success,
        count(DISTINCT kernel_id) AS unique_kernels,
        count(DISTINCT kernel_id) FILTER (WHERE correct) AS unique_correct,
        count(DISTINCT task_id) FILTER (WHERE correct) AS solved
    FROM known
    GROUP BY policy_id
),
families AS (
    SELECT policy_id, min(attempts) AS least_in_a_family
    FROM (SELECT policy_id, family, count(*) AS attempts FROM known GROUP BY policy_id, family)
    GROUP BY policy_id
),
of_task AS (
    SELECT policy_id, task_id, avg(ln(speedup)) AS logarithm, exp(avg(ln(speedup))) AS speedup
    FROM known
    WHERE speedup IS NOT NULL
    GROUP BY policy_id, task_id
),
speed AS (
    SELECT
        policy_id,
        count(*) AS n,
        avg(speedup) AS mean,
        1.96 * stddev_samp(speedup) / sqrt(count(*)) AS mean_half,
        avg(logarithm) AS logarithm,
        1.96 * stddev_samp(logarithm) / sqrt(count(*)) AS logarithm_half,
        quantile_cont(speedup, 0.5) AS median,
        list_sort(list(speedup)) AS sorted,
        greatest(1, floor((count(*) + 1) / 2 - 0.979982 * sqrt(count(*) - 0.473576)))::BIGINT AS r
    FROM of_task
    GROUP BY policy_id
)
SELECT
    CASE policies.stage
        WHEN 'base' THEN 'base'
        WHEN 'sft' THEN 'stage 1'
        WHEN 'self-supervised' THEN 'stages 1 + 2'
        WHEN 'contrastive' THEN 'stages 1 + 2 + 3'
    END AS stages,
    CASE policies.stage
        WHEN 'contrastive' THEN json_extract_string(policies.config, '$.config.arm')
    END AS arm,
    CASE policies.stage
        WHEN 'contrastive' THEN json_extract_string(policies.config, '$.config.seed')
    END AS seed,
    policies."name" AS policy,
    shares.attempts,
    families.least_in_a_family,
    shares.pending,
    shares.with_code,
    shares.executable,
    shares.success,
    shares.unique_kernels,
    shares.unique_correct,
    shares.solved,
    shares.tasks,
    round(shares.executable / shares.attempts, 4) AS executable_rate,
    round(
        greatest(0, shares.executable + 1.9207 - 1.96 * sqrt(
            shares.executable * (shares.attempts - shares.executable) / shares.attempts + 0.9604
        )) / (shares.attempts + 3.8416), 4
    ) AS executable_low,
    round(
        (shares.executable + 1.9207 + 1.96 * sqrt(
            shares.executable * (shares.attempts - shares.executable) / shares.attempts + 0.9604
        )) / (shares.attempts + 3.8416), 4
    ) AS executable_high,
    round(shares.success / shares.attempts, 4) AS success_rate,
    round(
        greatest(0, shares.success + 1.9207 - 1.96 * sqrt(
            shares.success * (shares.attempts - shares.success) / shares.attempts + 0.9604
        )) / (shares.attempts + 3.8416), 4
    ) AS success_low,
    round(
        (shares.success + 1.9207 + 1.96 * sqrt(
            shares.success * (shares.attempts - shares.success) / shares.attempts + 0.9604
        )) / (shares.attempts + 3.8416), 4
    ) AS success_high,
    speed.n,
    round(speed.mean, 3) AS mean,
    round(speed.mean - speed.mean_half, 3) AS mean_low,
    round(speed.mean + speed.mean_half, 3) AS mean_high,
    round(exp(speed.logarithm), 3) AS geomean,
    round(exp(speed.logarithm - speed.logarithm_half), 3) AS geomean_low,
    round(exp(speed.logarithm + speed.logarithm_half), 3) AS geomean_high,
    round(speed.median, 3) AS median,
    round(speed.sorted[speed.r], 3) AS median_low,
    round(speed.sorted[speed.n + 1 - speed.r], 3) AS median_high
FROM shares
INNER JOIN policies ON policies.policy_id = shares.policy_id
INNER JOIN families ON families.policy_id = shares.policy_id
LEFT JOIN speed ON speed.policy_id = shares.policy_id
WHERE policies.stage IS NOT NULL
ORDER BY
    list_position(['base', 'sft', 'self-supervised', 'contrastive'], policies.stage),
    policies."round" NULLS FIRST, seed, arm, policy
