-- One row per evaluation that counts: this lake's own, and pulled ones where the lake has none.
-- What another row withdraws counts for nothing (standing_evaluations). A pulled evaluation
-- (origin is not NULL) counts only for a kernel, task and device name that this lake has not
-- judged itself by any protocol, whatever version, date or workload the pulled row states.
-- elsewhere: a pulled evaluation of a kernel that this lake has judged on another device. It
-- counts on its own device alone: what one device is enough for (nonequivalent, fragile) does not
-- follow from it. An evaluation by the protocol training or shape never counts, whatever it says:
-- rankings, leaderboards and exemplars start from this view; rewards read training_evaluations as
-- well, and shape_verdicts has what kernels do at other shapes. Two devices are the same here if they have the same name. precision is what kernel and
-- baselines may compute float32 in. On a processor the precisions do not differ, and an evaluation
-- that names none ran with PyTorch's own flags: both are torch_default. threads: on a processor, the threads that kernel and baselines had.
-- contended: other work ran on the host during the evaluation (flag contended), so that its
-- sessions count as disturbed by every clock, also by gpu. unverified: the answers of timed
-- calls were not checked (flag timed_outputs_unverified), so that a kernel could compute less
-- in them; it ranks nothing.
--
-- contended: whether other work ran on the host
WITH own AS (
    SELECT
        evaluations.kernel_id, evaluations.task_id,
        list(DISTINCT devices."name") AS devices
    FROM standing_evaluations AS evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    SEMI JOIN (SELECT kernel_id, task_id FROM evaluations WHERE origin IS NOT NULL) AS pulled
        ON pulled.kernel_id = evaluations.kernel_id AND pulled.task_id = evaluations.task_id
    WHERE evaluations.origin IS NULL AND evaluations.status <> 'evaluator_error'
    GROUP BY evaluations.kernel_id, evaluations.task_id
),
counted AS (
    SELECT *, false AS elsewhere
    FROM standing_evaluations
    WHERE origin IS NULL AND coalesce(protocol, 'full') = 'full'
    UNION ALL
    SELECT pulled.*, own.kernel_id IS NOT NULL AS elsewhere
    FROM standing_evaluations AS pulled
    INNER JOIN devices ON devices.device_id = pulled.device_id
    LEFT JOIN own ON own.kernel_id = pulled.kernel_id AND own.task_id = pulled.task_id
    WHERE
        pulled.origin IS NOT NULL
        AND coalesce(pulled.protocol, 'full') = 'full'
        AND NOT coalesce(list_contains(own.devices, devices."name"), false)
)
SELECT
    counted.* REPLACE (
        CASE
            WHEN devices.kind = 'cpu' THEN 'torch_default'
            ELSE coalesce(counted."precision", 'torch_default')
        END AS "precision"
    ),
    -- evaluators/device/placement.py (count_threads) has the rule.
    CASE
        WHEN devices.kind = 'cpu' THEN greatest(1, least(devices.cores - 1, 4))
    END AS threads,
    coalesce(list_contains(counted.flags, 'contended'), false) AS contended,
    coalesce(list_contains(counted.flags, 'timed_outputs_unverified'), false) AS unverified
FROM counted
LEFT JOIN devices ON devices.device_id = counted.device_id
