-- One row per edge on the ways back from a kernel to what it was made from, nearest first.
-- A kernel is walked from once, at its smallest distance, so that loops end. Of several attempts
-- with the same edge the newest gives score, policy, run and step; attempts counts them.
WITH RECURSIVE edges AS MATERIALIZED (
    SELECT
        child_kernel_id, parent_kernel_id, relation,
        count(*) AS attempts,
        max({
            'created_at': created_at, 'generation_id': generation_id, 'score': score,
            'policy': policy
        }) AS newest
    FROM lineage
    GROUP BY child_kernel_id, parent_kernel_id, relation
),
walk USING KEY (kernel_id) AS (
    SELECT $kernel_id AS kernel_id, 0 AS distance
    UNION
    SELECT edges.parent_kernel_id, min(walk.distance) + 1
    FROM walk
    INNER JOIN edges ON edges.child_kernel_id = walk.kernel_id
    ANTI JOIN recurring.walk AS seen ON seen.kernel_id = edges.parent_kernel_id
    GROUP BY edges.parent_kernel_id
)
SELECT
    walk.distance,
    edges.child_kernel_id,
    edges.relation,
    edges.parent_kernel_id,
    parent.distance AS parent_distance,
    edges.newest.score AS score,
    edges.attempts,
    edges.newest.policy AS policy,
    runs."name" AS run,
    run_steps.step,
    edges.newest.created_at AS written_at,
    quarantined.kernel_id IS NOT NULL AS quarantined
FROM walk
INNER JOIN edges ON edges.child_kernel_id = walk.kernel_id
INNER JOIN walk AS parent ON parent.kernel_id = edges.parent_kernel_id
LEFT JOIN run_steps ON run_steps.generation_id = edges.newest.generation_id
LEFT JOIN runs ON runs.run_id = run_steps.run_id
LEFT JOIN quarantined ON quarantined.kernel_id = edges.parent_kernel_id
ORDER BY
    walk.distance, edges.child_kernel_id, edges.relation, score DESC NULLS LAST,
    edges.parent_kernel_id
