-- One row per technique, bound, level of a suite, device and baseline: speedups of its kernels.
-- A technique wins where lift_low is above 1. The speedups of one task are averaged first
-- (geometrically), and the intervals are those of the mean over tasks, by Student's t on
-- logarithms (lift: as in Welch's test, with the degrees of freedom of the smaller group). This is
-- an association, not an effect: kernels that use a technique differ in other ways too. Rows of
-- fewer than 5 tasks are left out. Tasks without a profile that names a bound are in no row
-- (profiles).
--
-- key columns: technique, bound, suite, device, baseline, lift, lift_low, lift_high, tasks
-- bound: what the tasks are limited by on the device at best: memory or compute (profiles)
-- tasks: number of tasks with a kernel that uses the technique
-- kernels: number of kernels that use it, on one task each
-- geomean: geometric mean over these tasks of the speedups of the kernels that use it (a ratio)
-- geomean_low: lower end of the 95 % interval of geomean (a ratio)
-- geomean_high: upper end of the 95 % interval of geomean (a ratio)
-- tasks_without: number of tasks with a kernel that does not use it
-- geomean_without: geometric mean over these tasks of the speedups of the kernels that do not use
--   it (a ratio); NULL for fewer than 5 tasks
-- lift: geomean / geomean_without
-- lift_low: lower end of the 95 % interval of lift
-- lift_high: upper end of the 95 % interval of lift
WITH bounds AS (
    SELECT
        profiles.task_id, profiles.device,
        CASE
            WHEN 2 * count(*) FILTER (WHERE profiles.bound = 'memory') >= count(*) THEN 'memory'
            ELSE 'compute'
        END AS bound
    FROM profiles
    SEMI JOIN scored_workloads
        ON
            scored_workloads.task_id = profiles.task_id
            AND scored_workloads.device = profiles.device
            AND scored_workloads.workload_id = profiles.workload_id
    WHERE profiles.bound IS NOT NULL
    GROUP BY profiles.task_id, profiles.device
),
speeds AS (
    SELECT
        speedups.task_id, speedups.device, speedups.baseline, speedups.techniques,
        ln(speedups.speedup) AS log_speedup,
        {
            'suite': names.suite, 'suite_revision': names.suite_revision,
            'level': names."level", 'bound': bounds.bound
        } AS place
    FROM technique_speedups AS speedups
    INNER JOIN bounds
        ON bounds.task_id = speedups.task_id AND bounds.device = speedups.device
    INNER JOIN task_names AS names ON names.task_id = speedups.task_id
),
seen AS (
    SELECT DISTINCT place, device, baseline, unnest(techniques) AS technique
    FROM speeds
),
-- One row per technique and task: its kernels with the technique, or those without.
results AS (
    SELECT
        seen.place, seen.device, seen.baseline, seen.technique, speeds.task_id,
        list_contains(speeds.techniques, seen.technique) AS uses,
        count(*) AS kernels,
        avg(speeds.log_speedup) AS mean
    FROM seen
    INNER JOIN speeds
        ON
            speeds.place = seen.place
            AND speeds.device = seen.device
            AND speeds.baseline = seen.baseline
    GROUP BY ALL
),
groups AS (
    SELECT
        place, device, baseline, technique, uses,
        count(*) AS tasks,
        sum(kernels)::BIGINT AS kernels,
        avg(mean) AS mean,
        var_samp(mean) / count(*) AS variance
    FROM results
    GROUP BY ALL
    HAVING count(*) >= 5
),
-- Student's quantile by its expansion.
errors AS (
    SELECT
        *,
        1.959964 + 2.372271 / (tasks - 1) + 2.822502 / (tasks - 1) ** 2
        + 2.555857 / (tasks - 1) ** 3 AS quantile
    FROM groups
)
SELECT
    used.technique,
    used.place.bound AS bound,
    used.place.suite AS suite,
    used.place.suite_revision AS suite_revision,
    used.place."level" AS "level",
    used.device,
    used.baseline,
    used.tasks,
    used.kernels,
    exp(used.mean) AS geomean,
    exp(used.mean - used.quantile * sqrt(used.variance)) AS geomean_low,
    exp(used.mean + used.quantile * sqrt(used.variance)) AS geomean_high,
    other.tasks AS tasks_without,
    exp(other.mean) AS geomean_without,
    exp(used.mean - other.mean) AS lift,
    exp(
        used.mean - other.mean
        - greatest(used.quantile, other.quantile) * sqrt(used.variance + other.variance)
    ) AS lift_low,
    exp(
        used.mean - other.mean
        + greatest(used.quantile, other.quantile) * sqrt(used.variance + other.variance)
    ) AS lift_high
FROM errors AS used
LEFT JOIN errors AS other
    ON
        other.place = used.place
        AND other.device = used.device
        AND other.baseline = used.baseline
        AND other.technique = used.technique
        AND NOT other.uses
WHERE used.uses
ORDER BY
    used.device, used.baseline, suite, suite_revision, "level", bound, lift DESC NULLS LAST,
    used.technique
