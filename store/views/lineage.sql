-- One row per edge from a kernel to its source: an exemplar in its prompt, or its parent.
-- score is the exemplar's score as the prompt showed it. A kernel can be its own parent if a policy
-- repeats an exemplar, so a walk along the edges must remember the kernels it has visited.
--
-- key columns: child_kernel_id, relation, parent_kernel_id, score, policy, created_at
-- child_kernel_id: kernel that was written
-- parent_kernel_id: kernel that it comes from
-- relation: exemplar (in its prompt) or parent
-- generation_id: attempt that wrote the child
-- score: speedup of the exemplar as the prompt showed it (a ratio); NULL for a parent
-- created_at: when the child was written
WITH exemplars AS (
    SELECT
        *,
        unnest(exemplar_kernel_ids) AS exemplar_kernel_id,
        unnest(exemplar_scores) AS exemplar_score
    FROM generations
),
edges AS (
    SELECT
        kernel_id AS child_kernel_id, exemplar_kernel_id AS parent_kernel_id,
        'exemplar' AS relation, generation_id, exemplar_score AS score, policy_id, task_id,
        created_at
    FROM exemplars
    UNION ALL
    SELECT
        child.kernel_id, parent.kernel_id, 'parent', child.generation_id, NULL, child.policy_id,
        child.task_id, child.created_at
    FROM generations AS child
    INNER JOIN generations AS parent ON parent.generation_id = child.parent_generation_id
)
SELECT
    edges.child_kernel_id,
    edges.parent_kernel_id,
    edges.relation,
    edges.generation_id,
    edges.score,
    policies."name" AS policy,
    edges.policy_id,
    edges.task_id,
    edges.created_at
FROM edges
LEFT JOIN policies ON policies.policy_id = edges.policy_id
WHERE edges.child_kernel_id IS NOT NULL AND edges.parent_kernel_id IS NOT NULL
