-- Single answers of stage 3 to its prompts, by step and arm: a speedup below 1, and no correct kernel,
-- count as 1. Only prompts of train tasks count. ratio compares the geometric mean with that of arm none on
-- the same tasks and seeds; low and high are the 2.5 % and 97.5 % quantiles of 2,000 bootstrap
-- replicates that draw tasks of a seed with replacement. best_shown is the geometric mean of the
-- fastest exemplar of each prompt, and beats_shown the share of answers that are over 2 % faster than
-- it. Speedups are those over eager by the full protocol, or else by the protocol training.
WITH speeds AS (
    SELECT kernel_id, task_id, min(speedup) AS speedup
    FROM (
        SELECT kernel_id, task_id, speedup FROM scored_speedups WHERE baseline = 'eager'
        UNION ALL
        SELECT kernel_id, task_id, speedup
        FROM training_speedups
        ANTI JOIN outcomes USING (kernel_id, task_id)
        WHERE baseline = 'eager'
    )
    GROUP BY kernel_id, task_id
),
answers AS (
    SELECT
        regexp_extract(generations.namespace, '^stage3/([a-z]+)/', 1) AS arm,
        regexp_extract(generations.namespace, '^stage3/[a-z]+/(\d+)', 1) AS seed,
        generations.step, generations.task_id, generations.generation_id,
        generations.exemplar_kernel_ids,
        greatest(coalesce(speeds.speedup, 1), 1) AS speedup
    FROM generations
    INNER JOIN task_names ON task_names.task_id = generations.task_id
    LEFT JOIN speeds
        ON speeds.kernel_id = generations.kernel_id AND speeds.task_id = generations.task_id
    WHERE starts_with(generations.namespace, 'stage3/') AND task_names.split = 'train'
),
shown AS (
    SELECT exemplars.generation_id, max(speeds.speedup) AS speedup
    FROM (
        SELECT generation_id, task_id, unnest(exemplar_kernel_ids) AS kernel_id FROM answers
    ) AS exemplars
    INNER JOIN speeds
        ON speeds.kernel_id = exemplars.kernel_id AND speeds.task_id = exemplars.task_id
    GROUP BY exemplars.generation_id
),
groups AS (
    SELECT
        answers.step, answers.arm, answers.seed, answers.task_id,
        count(*) AS answers,
        avg(ln(answers.speedup)) AS gain,
        avg(ln(shown.speedup)) AS shown,
        avg(CAST(answers.speedup > 1.02 * shown.speedup AS INTEGER)) AS beats_shown
    FROM answers
    LEFT JOIN shown ON shown.generation_id = answers.generation_id
    GROUP BY answers.step, answers.arm, answers.seed, answers.task_id
),
gains AS (
    SELECT
        groups.step, groups.arm, groups.gain - bare.gain AS gain,
        row_number() OVER (
            PARTITION BY groups.step, groups.arm ORDER BY groups.seed, groups.task_id
        ) - 1 AS place,
        count(*) OVER (PARTITION BY groups.step, groups.arm) AS size
    FROM groups
    INNER JOIN groups AS bare
        ON
            bare.arm = 'none'
            AND bare.step = groups.step
            AND bare.seed = groups.seed
            AND bare.task_id = groups.task_id
    WHERE groups.arm <> 'none'
),
replicates AS (
    SELECT gains.step, gains.arm, draws.replicate, avg(gains.gain) AS gain
    FROM (
        SELECT
            sizes.step, sizes.arm, replicates.replicate,
            (
                md5_number_lower(concat_ws(':', replicates.replicate, slots.slot)) % sizes.size
            )::BIGINT AS place
        FROM (SELECT DISTINCT step, arm, size FROM gains) AS sizes
        CROSS JOIN (SELECT unnest(range(2000)) AS replicate) AS replicates
        INNER JOIN (SELECT unnest(range(1000)) AS slot) AS slots ON slots.slot < sizes.size
    ) AS draws
    INNER JOIN gains
        ON gains.step = draws.step AND gains.arm = draws.arm AND gains.place = draws.place
    GROUP BY gains.step, gains.arm, draws.replicate
),
intervals AS (
    SELECT
        step, arm,
        exp(quantile_cont(gain, 0.025)) AS low, exp(quantile_cont(gain, 0.975)) AS high
    FROM replicates
    GROUP BY step, arm
),
ratios AS (
    SELECT step, arm, exp(avg(gain)) AS ratio FROM gains GROUP BY step, arm
)
SELECT
    groups.step, groups.arm,
    count(*) AS prompts,
    sum(groups.answers)::BIGINT AS answers,
    round(exp(avg(groups.gain)), 4) AS geomean,
    round(any_value(ratios.ratio), 4) AS ratio,
    round(any_value(intervals.low), 4) AS low,
    round(any_value(intervals.high), 4) AS high,
    round(exp(avg(groups.shown)), 4) AS best_shown,
    round(avg(groups.beats_shown), 4) AS beats_shown
FROM groups
LEFT JOIN ratios ON ratios.step = groups.step AND ratios.arm = groups.arm
LEFT JOIN intervals ON intervals.step = groups.step AND intervals.arm = groups.arm
GROUP BY groups.step, groups.arm
ORDER BY groups.step, groups.arm
