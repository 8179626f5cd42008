-- All kernels
-- Every kernel that was written for the task, newest first, with its verdict.
-- Empty: Nobody has written a kernel for this task yet.
WITH written AS (
    SELECT kernel_id, policy, created_at AS written_at
    FROM authors
    WHERE task_id = $task
),
judged AS (
    SELECT
        kernel_id,
        max_by(status, {'failed': NOT correct, 'at': last_judged_at}) AS status,
        max_by(reason, {'failed': NOT correct, 'at': last_judged_at}) AS reason,
        string_agg(DISTINCT device, ', ' ORDER BY device) AS devices
    FROM outcomes
    WHERE task_id = $task
    GROUP BY kernel_id
),
known AS MATERIALIZED (
    SELECT
        coalesce(written.kernel_id, judged.kernel_id) AS kernel_id,
        coalesce(judged.status, 'not judged') AS status,
        judged.reason, judged.devices, written.policy, written.written_at
    FROM written
    FULL JOIN judged ON judged.kernel_id = written.kernel_id
),
described AS (
    SELECT
        kernel_id,
        max({
            'version': extractor_version, 'language': "language", 'lines': code_lines,
            'techniques': techniques
        }) AS newest
    FROM kernel_features
    SEMI JOIN known ON known.kernel_id = kernel_features.kernel_id
    GROUP BY kernel_id
)
SELECT
    known.kernel_id, known.status, known.reason, known.policy,
    described.newest."language" AS "language", described.newest.lines AS lines,
    array_to_string(described.newest.techniques, ', ') AS techniques, known.devices,
    known.written_at
FROM known
LEFT JOIN described ON described.kernel_id = known.kernel_id
WHERE true
    AND known.policy = $policy
    AND described.newest."language" = $language
    AND described.newest.lines <= $lines
ORDER BY known.written_at DESC NULLS LAST, known.kernel_id
