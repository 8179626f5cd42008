-- One row per kernel, task, workload and device: the verdict of all evaluators together.
-- A kernel is correct if every evaluator that judged it says so; one failing verdict is enough to
-- fail it. The verdicts are those by torch_default. If no device of this name has judged the kernel by
-- torch_default, those by all other precisions count. A kernel that any precision has rejected for
-- cheating fails. A device has no row if its own verdicts do not count. elsewhere: the verdicts were
-- pulled, and this lake has judged the kernel on another device (counted_evaluations).
-- evaluation_id is the evaluation that decides the verdict.
--
-- key columns: kernel_id, device, status, reason, last_judged_at
-- evaluators: number of evaluators that judged the kernel
-- evaluator: evaluator that decides the verdict
WITH verdict_structs AS (
    SELECT
        *,
        "precision" = 'torch_default' OR status = 'rejected' AS by_default,
        {
            'failed': status <> 'correct', 'last_judged_at': last_judged_at,
            'evaluator': evaluator, 'status': status, 'reason': reason,
            'evaluation_id': evaluation_id
        } AS verdict
    FROM verdicts
),
grouped AS (
    SELECT
        kernel_id, task_id, workload_id, device_id, device,
        bool_or(bool_or("precision" = 'torch_default')) OVER (
            PARTITION BY kernel_id, task_id, workload_id, device
        ) AS has_default,
        {
            'evaluators': count(DISTINCT evaluator) FILTER (WHERE by_default),
            'last_judged_at': max(last_judged_at) FILTER (WHERE by_default),
            'deciding': max(verdict) FILTER (WHERE by_default)
        } AS of_default,
        {
            'evaluators': count(DISTINCT evaluator),
            'last_judged_at': max(last_judged_at),
            'deciding': max(verdict)
        } AS of_any,
        bool_or(elsewhere) AS elsewhere
    FROM verdict_structs
    GROUP BY kernel_id, task_id, workload_id, device_id, device
),
judged AS (
    SELECT
        kernel_id, task_id, workload_id, device_id, device, elsewhere,
        CASE WHEN has_default THEN of_default ELSE of_any END AS chosen
    FROM grouped
)
SELECT
    kernel_id, task_id, workload_id, device_id, device,
    NOT chosen.deciding.failed AS correct,
    chosen.deciding.status AS status,
    chosen.deciding.reason AS reason,
    chosen.deciding.evaluator AS evaluator,
    chosen.deciding.evaluation_id AS evaluation_id,
    chosen.evaluators AS evaluators,
    chosen.last_judged_at AS last_judged_at,
    elsewhere
FROM judged
WHERE chosen.deciding IS NOT NULL
