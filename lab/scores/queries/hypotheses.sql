-- H2a, H2b and H1', in this order: right scores over another arm; and over `constant` where there are
-- units of it. The unit is a test task with a training. low and high are the 95 % t interval of the ratio, p is two-sided. flipped_p is that of
-- 99,999 random flips of the signs of task means. accepted: the gate is passed, and this interval and
-- those before it lie above 1. Reads `units` and `gate_passed`; t_quantile and t_tail are functions
-- of figures.py.
WITH compared (place, hypothesis, arm) AS (
    VALUES
        (1, 'H2a', 'reversed'), (2, 'H2b', 'no_scores'), (3, 'H1''', 'other_task'),
        (4, 'none stated', 'constant')
),
differences AS (
    SELECT
        compared.place, compared.hypothesis, compared.arm, units.task_id, units.seed,
        units.score - other.score AS difference
    FROM compared
    INNER JOIN units AS other ON other.arm = compared.arm
    INNER JOIN units
        ON units.arm = 'right' AND units.task_id = other.task_id AND units.seed = other.seed
),
centered AS (
    SELECT
        *,
        avg(difference) OVER (PARTITION BY place) AS mean,
        avg(difference) OVER (PARTITION BY place, task_id) AS task_mean,
        avg(difference) OVER (PARTITION BY place, seed) AS seed_mean
    FROM differences
),
squares AS (
    -- The two-way table without replication: mean squares of tasks, trainings, and the rest.
    SELECT
        place, hypothesis, arm, mean,
        count(DISTINCT task_id) AS tasks,
        count(DISTINCT seed) AS trainings,
        sum((task_mean - mean) ** 2) / (tasks - 1) AS ms_tasks,
        CASE WHEN trainings > 1 THEN sum((seed_mean - mean) ** 2) / (trainings - 1) ELSE 0 END
            AS ms_trainings,
        CASE
            WHEN trainings > 1
                THEN sum((difference - task_mean - seed_mean + mean) ** 2)
                    / ((tasks - 1) * (trainings - 1))
            ELSE 0
        END AS ms_rest
    FROM centered
    GROUP BY place, hypothesis, arm, mean
),
errors AS (
    SELECT
        *,
        greatest(ms_tasks, ms_rest) AS ms_larger,
        (ms_larger + greatest(ms_trainings - ms_rest, 0)) / (tasks * trainings) AS variance,
        CASE
            WHEN ms_trainings <= ms_rest THEN tasks - 1
            ELSE
                (ms_larger + ms_trainings - ms_rest) ** 2 / (
                    ms_larger ** 2 / (tasks - 1)
                    + ms_trainings ** 2 / (trainings - 1)
                    + ms_rest ** 2 / ((tasks - 1) * (trainings - 1))
                )
        END AS df
    FROM squares
),
task_means AS (
    SELECT DISTINCT
        place, task_id, task_mean,
        dense_rank() OVER (PARTITION BY place ORDER BY task_id) - 1 AS bit
    FROM centered
),
flips AS (
    SELECT
        task_means.place, signs.draw,
        sum(
            task_means.task_mean
            * (2 * ((signs.bits >> task_means.bit::INTEGER) & 1)::INTEGER - 1)
        ) AS total
    FROM task_means
    CROSS JOIN (
        SELECT
            range AS draw,
            -- 62 bits: a shift into the sign is an error.
            (md5_number_lower('flip ' || range) >> 2)::BIGINT AS bits
        FROM range(99999)
    ) AS signs
    GROUP BY task_means.place, signs.draw
),
checks AS (
    SELECT
        flips.place,
        (1 + count(*) FILTER (WHERE abs(flips.total) >= abs(observed.total) - 1e-12)) / 100000
            AS flipped_p
    FROM flips
    INNER JOIN (
        SELECT place, sum(task_mean) AS total
        FROM task_means
        GROUP BY place
    ) AS observed ON observed.place = flips.place
    GROUP BY flips.place
),
intervals AS (
    SELECT
        errors.*, checks.flipped_p,
        sqrt(errors.variance) AS error,
        errors.mean - t_quantile(0.975, errors.df) * error AS low,
        errors.mean + t_quantile(0.975, errors.df) * error AS high
    FROM errors
    INNER JOIN checks ON checks.place = errors.place
)
SELECT
    hypothesis,
    'right over ' || arm AS compared,
    tasks, trainings,
    round(exp(mean), 4) AS ratio,
    round(exp(low), 4) AS low,
    round(exp(high), 4) AS high,
    round(error, 4) AS standard_error,
    round(df, 2) AS df,
    round(2 * t_tail(abs(mean) / error, df), 5) AS p,
    round(flipped_p, 5) AS flipped_p,
    gate_passed.passed AND bool_and(intervals.low > 0) OVER (ORDER BY place) AS accepted
FROM intervals
CROSS JOIN gate_passed
ORDER BY place
