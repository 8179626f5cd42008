-- One row per run, step, device and reward rule: the figures of a learning curve.
-- device is each device on which kernels of the run were judged and rule is each rule that rewarded
-- the run; both are NULL if there is none. success counts attempts whose kernel is correct at every
-- workload of the device, equivalent to the task, and not quarantined. pending counts attempts that
-- wait for a verdict by the full protocol; success_share leaves them out, and is NULL if every kernel
-- waits. Speedups are over eager, at the workload that scores the task. new_kernels counts kernels
-- that these attempts wrote first: if it falls, the policy repeats itself. entropy is the trainer's
-- metric for the step, where it has rewards.
--
-- key columns: run, step, device, reward_mean, attempts, success_share, speedup_p50, faster
-- rule: reward rule; NULL if no rule rewarded the run
-- rewarded: number of rewarded attempts
-- reward_mean: mean reward before smoothing
-- reward_std: standard deviation of the rewards before smoothing
-- smoothed_mean: mean reward after smoothing
-- zero_variance_groups: number of groups whose rewards are all equal, which teach nothing
-- groups: number of groups of attempts
-- with_kernel: number of attempts whose answer contains a kernel
-- pending: number of attempts that wait for a verdict by the full protocol
-- success: number of attempts whose kernel is correct
-- success_share: success / attempts that do not wait (0 to 1); NULL if every kernel waits
-- quarantined: number of attempts with a quarantined kernel
-- unique_kernels: number of different kernels
-- new_kernels: number of kernels that these attempts wrote first
-- timed: number of attempts whose kernel has a speedup
-- speedup_p50: median speedup over eager (a ratio)
-- speedup_geomean: geometric mean of the speedups over eager (a ratio)
-- speedup_max: largest speedup over eager (a ratio)
-- faster: number of attempts with a speedup above 1.01
-- entropy: entropy of the policy as the trainer reports it; NULL without that metric
WITH devices_of AS (
    SELECT DISTINCT run_steps.run_id, outcomes.device
    FROM run_steps
    INNER JOIN outcomes
        ON outcomes.kernel_id = run_steps.kernel_id AND outcomes.task_id = run_steps.task_id
),
verdict_of AS (
    SELECT kernel_id, task_id, device, bool_and(correct) AS correct
    FROM outcomes
    GROUP BY kernel_id, task_id, device
),
attempts AS (
    SELECT
        run_steps.run_id,
        run_steps.step,
        devices_of.device,
        run_steps.generation_id,
        run_steps.group_id,
        run_steps.kernel_id,
        run_steps.kernel_id IS NOT NULL AND verdict_of.correct IS NULL AS pending,
        coalesce(verdict_of.correct, false)
        AND quarantined.kernel_id IS NULL
        AND nonequivalent.kernel_id IS NULL AS success,
        quarantined.kernel_id IS NOT NULL AS quarantined,
        scored_speedups.speedup,
        authors.generation_id IS NOT DISTINCT FROM run_steps.generation_id AS first_of_kernel,
        generations.prompt_tokens,
        generations.completion_tokens,
        generations.cost_usd
    FROM run_steps
    INNER JOIN generations ON generations.generation_id = run_steps.generation_id
    LEFT JOIN devices_of ON devices_of.run_id = run_steps.run_id
    LEFT JOIN verdict_of
        ON
            verdict_of.kernel_id = run_steps.kernel_id
            AND verdict_of.task_id = run_steps.task_id
            AND verdict_of.device = devices_of.device
    LEFT JOIN quarantined ON quarantined.kernel_id = run_steps.kernel_id
    LEFT JOIN nonequivalent
        ON
            nonequivalent.kernel_id = run_steps.kernel_id
            AND nonequivalent.task_id = run_steps.task_id
    LEFT JOIN scored_speedups
        ON
            scored_speedups.kernel_id = run_steps.kernel_id
            AND scored_speedups.task_id = run_steps.task_id
            AND scored_speedups.device = devices_of.device
            AND scored_speedups.baseline = 'eager'
    LEFT JOIN authors
        ON authors.kernel_id = run_steps.kernel_id AND authors.task_id = run_steps.task_id
),
steps AS (
    SELECT
        run_id, step, device,
        count(*) AS attempts,
        count(DISTINCT group_id) AS groups,
        count(kernel_id) AS with_kernel,
        count(*) FILTER (WHERE pending) AS pending,
        count(*) FILTER (WHERE success) AS success,
        count(*) FILTER (WHERE quarantined) AS quarantined,
        count(DISTINCT kernel_id) AS unique_kernels,
        count(*) FILTER (WHERE first_of_kernel) AS new_kernels,
        count(speedup) AS timed,
        quantile_cont(speedup, 0.5) AS speedup_p50,
        exp(avg(ln(speedup))) AS speedup_geomean,
        max(speedup) AS speedup_max,
        count(*) FILTER (WHERE speedup > 1.01) AS faster,
        sum(prompt_tokens)::BIGINT AS prompt_tokens,
        sum(completion_tokens)::BIGINT AS completion_tokens,
        sum(cost_usd) AS cost_usd
    FROM attempts
    GROUP BY run_id, step, device
),
rewarded AS (
    SELECT
        run_id, rule, rule_version, step,
        count(*) AS rewarded,
        avg("raw") AS reward_mean,
        -- NULL if the square of a reward is out of range, which would end the query.
        CASE WHEN max(abs("raw")) < 1e150
            THEN stddev_pop("raw") FILTER (WHERE abs("raw") < 1e150) END AS reward_std,
        avg(smoothed) AS smoothed_mean
    FROM rewards
    GROUP BY run_id, rule, rule_version, step
),
flat_groups AS (
    SELECT rewards.run_id, rewards.rule, rewards.rule_version, rewards.step, run_steps.group_id
    FROM rewards
    INNER JOIN run_steps
        ON
            run_steps.generation_id = rewards.generation_id
            AND run_steps.run_id = rewards.run_id
    GROUP BY
        rewards.run_id, rewards.rule, rewards.rule_version, rewards.step, run_steps.group_id
    HAVING min(rewards.smoothed) = max(rewards.smoothed)
),
flat AS (
    SELECT run_id, rule, rule_version, step, count(*) AS zero_variance_groups
    FROM flat_groups
    GROUP BY run_id, rule, rule_version, step
),
rules AS (
    SELECT DISTINCT run_id, rule, rule_version
    FROM rewarded
),
entropies AS (
    SELECT run_id, step, avg("value") AS entropy
    FROM metrics
    WHERE string_split("name", '/')[-1] = 'entropy'
    GROUP BY run_id, step
)
SELECT
    steps.run_id,
    runs."name" AS run,
    runs.kind,
    steps.step,
    steps.device,
    rules.rule,
    rules.rule_version,
    rewarded.rewarded,
    rewarded.reward_mean,
    rewarded.reward_std,
    rewarded.smoothed_mean,
    CASE WHEN rewarded.rewarded > 0 THEN coalesce(flat.zero_variance_groups, 0) END
        AS zero_variance_groups,
    steps.attempts,
    steps.groups,
    steps.with_kernel,
    steps.pending,
    steps.success,
    CASE WHEN steps.pending = 0 OR steps.pending < steps.with_kernel
        THEN steps.success / (steps.attempts - steps.pending) END AS success_share,
    steps.quarantined,
    steps.unique_kernels,
    steps.new_kernels,
    steps.timed,
    steps.speedup_p50,
    steps.speedup_geomean,
    steps.speedup_max,
    steps.faster,
    entropies.entropy,
    steps.prompt_tokens,
    steps.completion_tokens,
    steps.cost_usd
FROM steps
INNER JOIN runs ON runs.run_id = steps.run_id
LEFT JOIN rules ON rules.run_id = steps.run_id
LEFT JOIN rewarded
    ON
        rewarded.run_id = steps.run_id
        AND rewarded.rule = rules.rule
        AND rewarded.rule_version = rules.rule_version
        AND rewarded.step = steps.step
LEFT JOIN flat
    ON
        flat.run_id = steps.run_id
        AND flat.rule = rules.rule
        AND flat.rule_version = rules.rule_version
        AND flat.step = steps.step
-- Rewards are given while a step is made, metrics are logged once it is: under the next number.
LEFT JOIN entropies
    ON entropies.run_id = rewarded.run_id AND entropies.step = rewarded.step + 1
ORDER BY
    runs.started_at, steps.run_id, steps.device, rules.rule, rules.rule_version, steps.step
