-- One row per published speedup and device on which this lake judged the kernel: both compared.
-- Of several devices of one name, one that found the kernel wrong counts, else the newest session.
-- Measured speedups are those at the workload that scores the task. holds is true if the kernel is
-- correct there and the claim lies inside the measured interval, or the measured speedup is within
-- 10 % of the claim. holds is false for a kernel with a failing verdict, and NULL if a correct
-- kernel has no quiet session. exceeded: the claim does not hold because the kernel is faster than
-- claimed. falls: on the GPU that the claim is about, the kernel is wrong or slower than claimed;
-- falls is NULL on any other GPU, which says nothing about the claim. A claim is neither confirmed
-- nor refuted if the task is trivial (weak, weak_tasks) or if a correct kernel computes another
-- function (equivalent is false, nonequivalent): the measured speedup, holds, exceeded and falls
-- are then NULL. device is the measured device and gpu is the GPU in the claim.
--
-- key columns: task, gpu, claimed, measured, measured_low, measured_high, n, status, holds
-- claim_id: claim (table claims)
-- ratio: measured / claimed
-- weak: whether the task is trivial, so that nothing is compared
-- holds: whether the claim holds
-- exceeded: whether the kernel is faster than claimed, beyond what holds allows
-- same_gpu: whether the claim is about the measured device model
-- falls: whether the claim fails on the GPU that it is about; NULL on another GPU
SELECT
    claimed.claim_id,
    claimed.task_id,
    claimed.suite,
    claimed.suite_revision,
    claimed."level",
    claimed.task,
    claimed.kernel_id,
    claimed."source",
    claimed.source_revision,
    claimed.gpu,
    claimed.baseline,
    claimed.speedup AS claimed,
    outcomes.device,
    scored_workloads.workload,
    outcomes.status,
    outcomes.reason,
    measured.speedup AS measured,
    measured.speedup_low AS measured_low,
    measured.speedup_high AS measured_high,
    measured.n,
    measured.speedup / claimed.speedup AS ratio,
    nonequivalent.kernel_id IS NULL AS equivalent,
    weak_tasks.task_id IS NOT NULL AS weak,
    CASE
        WHEN weak_tasks.task_id IS NOT NULL THEN NULL
        WHEN NOT outcomes.correct THEN false
        ELSE
            claimed.speedup BETWEEN measured.speedup_low AND measured.speedup_high
            OR abs(measured.speedup / claimed.speedup - 1) <= 0.1
    END AS holds,
    CASE
        WHEN
            weak_tasks.task_id IS NULL
            AND (nonequivalent.kernel_id IS NULL OR NOT outcomes.correct)
            THEN coalesce(measured.speedup > claimed.speedup AND NOT holds, false)
    END AS exceeded,
    coalesce(lower(outcomes.device) = lower(claimed.gpu), false) AS same_gpu,
    CASE WHEN same_gpu THEN NOT holds AND NOT exceeded END AS falls,
    quarantined.kernel_id IS NOT NULL AS quarantined
FROM claimed_speedups AS claimed
INNER JOIN outcomes
    ON outcomes.kernel_id = claimed.kernel_id AND outcomes.task_id = claimed.task_id
INNER JOIN scored_workloads
    ON
        scored_workloads.task_id = outcomes.task_id
        AND scored_workloads.device = outcomes.device
        AND scored_workloads.workload_id = outcomes.workload_id
LEFT JOIN nonequivalent
    ON nonequivalent.kernel_id = claimed.kernel_id AND nonequivalent.task_id = claimed.task_id
LEFT JOIN weak_tasks ON weak_tasks.task_id = claimed.task_id
LEFT JOIN kernel_speedups AS measured
    ON
        measured.kernel_id = claimed.kernel_id
        AND measured.task_id = claimed.task_id
        AND measured.baseline = claimed.baseline
        AND measured.workload_id = outcomes.workload_id
        AND measured.device_id = outcomes.device_id
        AND measured.equivalent
        -- An equality: with a condition on the left side alone, DuckDB would compare all pairs.
        AND measured.equivalent = (weak_tasks.task_id IS NULL)
LEFT JOIN quarantined ON quarantined.kernel_id = claimed.kernel_id
QUALIFY row_number() OVER (
    PARTITION BY claimed.claim_id, outcomes.device
    ORDER BY
        outcomes.correct, measured.measured_at DESC NULLS LAST, outcomes.last_judged_at DESC,
        outcomes.device_id
) = 1
