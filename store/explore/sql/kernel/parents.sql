-- Made from
-- Kernels that the prompts of its attempts showed, with the score as shown, and kernels that these
-- attempts continue.
WITH attempts AS MATERIALIZED (
    SELECT
        generation_id, parent_generation_id, exemplar_kernel_ids, exemplar_scores, policy_id,
        created_at
    FROM generations
    WHERE kernel_id = $kernel
),
edges AS (
    SELECT
        unnest(exemplar_kernel_ids) AS parent_kernel_id, 'exemplar' AS relation,
        unnest(exemplar_scores) AS score, policy_id, created_at
    FROM attempts
    UNION ALL
    SELECT parents.kernel_id, 'parent', NULL, attempts.policy_id, attempts.created_at
    FROM attempts
    INNER JOIN generations AS parents ON parents.generation_id = attempts.parent_generation_id
)
SELECT
    edges.parent_kernel_id, edges.relation, count(*) AS attempts,
    min(edges.score) AS lowest_score_shown, max(edges.score) AS highest_score_shown,
    string_agg(DISTINCT policies.name, ', ' ORDER BY policies.name) AS policies,
    min(edges.created_at) AS first_written
FROM edges
LEFT JOIN policies ON policies.policy_id = edges.policy_id
WHERE edges.parent_kernel_id <> $kernel
GROUP BY edges.parent_kernel_id, edges.relation
ORDER BY highest_score_shown DESC NULLS LAST, edges.relation, edges.parent_kernel_id
