-- One row per GPU and task of the release that was imported last for that GPU: its codes by arm
-- (kernel, or the baseline's name) and its speedups by baseline.
-- Parameters: suite, suite_revision, device (NULL for every GPU), policy (NULL for CUDA-L1's).
WITH scores AS (
    SELECT claims.*
    FROM claims
    INNER JOIN policies ON policies.policy_id = claims.policy_id
    WHERE claims.metric = 'speedup' AND claims.task_id IS NOT NULL AND claims.gpu IS NOT NULL
        AND claims.suite = $suite AND claims.suite_revision = $suite_revision
        AND ($device IS NULL OR claims.gpu = $device)
        AND coalesce($policy, 'cuda-l1') IN (policies.policy_id, policies."name")
),
-- Figures of two releases are never mixed in a file.
releases AS (
    SELECT gpu, source, source_revision
    FROM scores
    GROUP BY gpu, source, source_revision
    QUALIFY row_number() OVER (
        PARTITION BY gpu ORDER BY max(created_at) DESC, source, source_revision
    ) = 1
),
newest AS (
    SELECT scores.*
    FROM scores
    SEMI JOIN releases
        ON
            releases.gpu = scores.gpu
            AND releases.source = scores.source
            AND releases.source_revision = scores.source_revision
    QUALIFY row_number() OVER (
        PARTITION BY scores.gpu, scores.task_id, scores.baseline
        ORDER BY scores.created_at DESC, scores.claim_id
    ) = 1
),
codes AS (
    SELECT gpu, task_id, 'kernel' AS arm, kernel_id, created_at FROM newest
    UNION ALL
    SELECT gpu, task_id, baseline AS arm, baseline_kernel_id AS kernel_id, created_at FROM newest
    UNION ALL
    SELECT code.gpu, code.task_id, code.arm, code.kernel_id, code.created_at
    FROM released_code AS code
    SEMI JOIN releases
        ON
            releases.gpu = code.gpu
            AND releases.source = code.source
            AND releases.source_revision = code.source_revision
),
texts AS (
    SELECT codes.gpu, codes.task_id, codes.arm, kernels.code
    FROM codes
    INNER JOIN kernels ON kernels.kernel_id = codes.kernel_id
    QUALIFY row_number() OVER (
        PARTITION BY codes.gpu, codes.task_id, codes.arm
        ORDER BY codes.created_at DESC, codes.kernel_id
    ) = 1
),
by_task AS (
    SELECT gpu, task_id, map_from_entries(list(row(arm, code) ORDER BY arm)) AS codes
    FROM texts
    GROUP BY gpu, task_id
)
SELECT
    coalesce(scored.gpu, by_task.gpu) AS gpu,
    coalesce(scored.task_id, by_task.task_id) AS task_id,
    by_task.codes,
    scored.scores
FROM (
    SELECT
        gpu, task_id,
        map_from_entries(list(row(baseline, speedup) ORDER BY baseline)) AS scores
    FROM newest
    GROUP BY gpu, task_id
) AS scored
FULL JOIN by_task ON by_task.gpu = scored.gpu AND by_task.task_id = scored.task_id
ORDER BY gpu, task_id
