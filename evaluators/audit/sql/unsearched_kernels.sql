-- One row per kernel that some of the wanted detectors have not searched at their version.
-- $wanted is a list of name@version. An audit's run names what it searched with in its config, so
-- that a kernel needs one narrow row per audit; so does a run of the judge, which searches what it judges; a run that covers all is decided by an anti join. Audits
-- of another lake do not count: this lake searches pulled kernels itself.
WITH audits AS (
    SELECT run_id, from_json(config ->> '$.detectors', '["VARCHAR"]') AS detectors
    FROM runs
    WHERE
        kind IN ('audit', 'evaluation')
        AND origin IS NULL
        AND (config ->> '$.detectors') IS NOT NULL
),
whole AS (
    SELECT run_id FROM audits WHERE list_has_all(detectors, $wanted::VARCHAR[])
),
unsearched AS (
    SELECT kernels.*
    FROM kernels
    WHERE kernel_id NOT IN (
        SELECT scans.kernel_id FROM scans WHERE scans.run_id IN (SELECT run_id FROM whole)
    )
),
searched AS (
    SELECT scans.kernel_id, list_distinct(flatten(list(audits.detectors))) AS detectors
    FROM scans
    INNER JOIN audits ON audits.run_id = scans.run_id
    WHERE scans.kernel_id IN (SELECT kernel_id FROM unsearched)
    GROUP BY scans.kernel_id
)
SELECT unsearched.*, origins.policy_id, names.task_name
FROM unsearched
LEFT JOIN searched ON searched.kernel_id = unsearched.kernel_id
LEFT JOIN (
    SELECT kernel_id, min(policy_id) AS policy_id, min(task_id) AS task_id
    FROM generations
    GROUP BY kernel_id
) AS origins ON origins.kernel_id = unsearched.kernel_id
LEFT JOIN (
    SELECT task_id, min(name) AS task_name FROM task_labels GROUP BY task_id
) AS names ON names.task_id = origins.task_id
WHERE searched.kernel_id IS NULL OR NOT list_has_all(searched.detectors, $wanted::VARCHAR[])
