-- Led to
-- Kernels of attempts whose prompt showed this one, or that continue one of its attempts.
WITH attempts AS MATERIALIZED (
    SELECT generation_id
    FROM generations
    WHERE kernel_id = $kernel
),
edges AS (
    SELECT
        kernel_id AS child_kernel_id, 'exemplar' AS relation,
        exemplar_scores[list_position(exemplar_kernel_ids, $kernel)] AS score, policy_id, created_at
    FROM generations
    WHERE list_contains(exemplar_kernel_ids, $kernel)
    UNION ALL
    SELECT kernel_id, 'parent', NULL, policy_id, created_at
    FROM generations
    WHERE parent_generation_id IN (SELECT generation_id FROM attempts)
)
SELECT
    edges.child_kernel_id, edges.relation, count(*) AS attempts,
    min(edges.score) AS lowest_score_shown, max(edges.score) AS highest_score_shown,
    string_agg(DISTINCT policies.name, ', ' ORDER BY policies.name) AS policies,
    min(edges.created_at) AS first_written
FROM edges
LEFT JOIN policies ON policies.policy_id = edges.policy_id
WHERE edges.child_kernel_id <> $kernel
GROUP BY edges.child_kernel_id, edges.relation
ORDER BY attempts DESC, edges.relation, edges.child_kernel_id
