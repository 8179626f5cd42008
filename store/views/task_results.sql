-- One row per labeled task, level, device, baseline and author: the author's result on the task.
-- leaderboard and fast_p read this view. A task is listed once under its level and once under level
-- NULL, which stands for all levels; every author is listed under its own name and under author
-- 'any'. decided is false while kernels of the author wait for a verdict on the device: such a task
-- is pending, neither solved nor missing. An attempt without a kernel is decided on every device. A
-- nonequivalent kernel does not solve a task. left_out: the task is trivial (weak_tasks) and in no
-- figure of leaderboard and fast_p. speedup is that of the best kernel (by lower bound) at the
-- workload that scores the task; it is NULL if no correct kernel has a quiet session against the
-- baseline. baseline is NULL if the device has verdicts only.
--
-- key columns: task_id, policy, device, baseline, correct, speedup, kernel_id
-- left_out: whether the task is trivial and in no figure of leaderboard and fast_p
-- decided: whether no kernel of the author waits for a verdict on the device
-- correct: whether the author has a correct kernel for the task
-- kernel_id: best kernel; NULL if none has a speedup
WITH attempted AS (
    SELECT policy_id, task_id, bool_or(has_kernel) AS has_kernel
    FROM (
        SELECT policy_id, task_id, true AS has_kernel FROM attempted_tasks
        UNION ALL
        SELECT unnest([policy_id, NULL]) AS policy_id, task_id, false AS has_kernel
        FROM (SELECT DISTINCT policy_id, task_id FROM generations WHERE kernel_id IS NULL)
    )
    GROUP BY policy_id, task_id
),
judged AS (
    SELECT
        judged_places.policy_id, judged_places.task_id, judged_places.device,
        solved_places.kernel_id IS NOT NULL AS correct
    FROM judged_places
    INNER JOIN scored_workloads
        ON
            scored_workloads.task_id = judged_places.task_id
            AND scored_workloads.device = judged_places.device
            AND scored_workloads.workload_id = judged_places.workload_id
    LEFT JOIN solved_places
        ON
            solved_places.policy_id IS NOT DISTINCT FROM judged_places.policy_id
            AND solved_places.task_id = judged_places.task_id
            AND solved_places.workload_id = judged_places.workload_id
            AND solved_places.device = judged_places.device
),
best AS (
    SELECT
        leading_speedups.policy_id, leading_speedups.task_id, leading_speedups.device,
        leading_speedups.baseline, leading_speedups.kernel_id, leading_speedups.speedup,
        leading_speedups.sessions, leading_speedups.clock, leading_speedups."precision"
    FROM leading_speedups
    INNER JOIN scored_workloads
        ON
            scored_workloads.task_id = leading_speedups.task_id
            AND scored_workloads.device = leading_speedups.device
            AND scored_workloads.workload_id = leading_speedups.workload_id
    INNER JOIN default_clocks
        ON
            default_clocks.task_id = leading_speedups.task_id
            AND default_clocks.workload_id = leading_speedups.workload_id
            AND default_clocks.device = leading_speedups.device
            AND default_clocks.baseline = leading_speedups.baseline
            AND default_clocks.clock = leading_speedups.clock
            AND default_clocks."precision" = leading_speedups."precision"
),
labels AS (
    SELECT
        suite, suite_revision, task_id, "level",
        coalesce(bool_or(degenerate), false)
        OR task_id IN (SELECT task_id FROM weak_workloads) AS degenerate,
        task_id IN (SELECT task_id FROM weak_tasks) AS left_out
    FROM (SELECT * REPLACE (unnest([NULL, "level"]) AS "level") FROM counted_labels)
    GROUP BY suite, suite_revision, task_id, "level"
),
-- Where a policy has been judged at all; a device that never saw it says nothing about it.
places AS (
    SELECT DISTINCT labels.suite, labels.suite_revision, judged.policy_id, judged.device
    FROM judged
    INNER JOIN labels ON labels.task_id = judged.task_id
    UNION
    -- Who never wrote a kernel for a suite has failed wherever it was judged: no place would hide
    -- the weakest policy from the very table that compares it.
    SELECT silent.suite, silent.suite_revision, silent.policy_id, judged.device
    FROM (
        SELECT labels.suite, labels.suite_revision, attempted.policy_id
        FROM attempted
        INNER JOIN labels ON labels.task_id = attempted.task_id
        GROUP BY labels.suite, labels.suite_revision, attempted.policy_id
        HAVING NOT bool_or(attempted.has_kernel)
    ) AS silent
    INNER JOIN labels
        ON labels.suite = silent.suite AND labels.suite_revision = silent.suite_revision
    INNER JOIN judged ON judged.task_id = labels.task_id
),
baselines AS (
    SELECT DISTINCT labels.suite, labels.suite_revision, best.device, best.baseline
    FROM best
    INNER JOIN labels ON labels.task_id = best.task_id
)
SELECT
    labels.suite,
    labels.suite_revision,
    labels."level",
    labels.task_id,
    places.device,
    baselines.baseline,
    places.policy_id,
    CASE WHEN places.policy_id IS NULL THEN 'any' ELSE policies."name" END AS policy,
    labels.degenerate,
    labels.left_out,
    judged.task_id IS NOT NULL OR NOT attempted.has_kernel AS decided,
    coalesce(judged.correct, false) AS correct,
    best.kernel_id,
    best.speedup,
    best.sessions,
    best.clock,
    best."precision"
FROM places
LEFT JOIN baselines
    ON
        baselines.suite = places.suite
        AND baselines.suite_revision = places.suite_revision
        AND baselines.device = places.device
INNER JOIN labels
    ON labels.suite = places.suite AND labels.suite_revision = places.suite_revision
INNER JOIN attempted
    ON
        attempted.task_id = labels.task_id
        AND attempted.policy_id IS NOT DISTINCT FROM places.policy_id
LEFT JOIN judged
    ON
        judged.task_id = labels.task_id
        AND judged.device = places.device
        AND judged.policy_id IS NOT DISTINCT FROM places.policy_id
LEFT JOIN best
    ON
        best.task_id = labels.task_id
        AND best.device = places.device
        AND best.baseline = baselines.baseline
        AND best.policy_id IS NOT DISTINCT FROM places.policy_id
LEFT JOIN policies ON policies.policy_id = places.policy_id
