-- One row per released text, task, GPU and baseline with a published speedup, stated or implied.
-- A stated speedup is the figure that the source gives for a candidate. An implied speedup belongs
-- to the released code of a baseline, such as a CUDA graph or cuDNN flags: where a source compares
-- one candidate with two baselines on one GPU, the quotient of the two figures is the speedup of
-- one baseline over the other. implied marks these rows; the entry class of their code is Model, as
-- in the reference. If a text has several figures, the lowest one counts. Figures come from
-- current_claims.
--
-- implied: whether the speedup is the quotient of two figures of the source
-- speedup: published speedup over the baseline (a ratio)
WITH figures AS (
    SELECT
        task_id, kernel_id, policy_id, gpu, baseline, baseline_kernel_id, speedup, "source",
        source_revision
    FROM current_claims
    WHERE metric = 'speedup' AND task_id IS NOT NULL AND gpu IS NOT NULL
),
texts AS (
    SELECT task_id, kernel_id, gpu, baseline, speedup, false AS implied
    FROM figures
    WHERE kernel_id IS NOT NULL
    UNION ALL
    SELECT
        of_baseline.task_id,
        of_baseline.baseline_kernel_id,
        of_baseline.gpu,
        compared.baseline,
        compared.speedup / of_baseline.speedup,
        true
    FROM figures AS of_baseline
    INNER JOIN figures AS compared
        ON
            compared.task_id = of_baseline.task_id
            AND compared.gpu = of_baseline.gpu
            AND compared."source" = of_baseline."source"
            AND compared.source_revision = of_baseline.source_revision
            AND compared.policy_id IS NOT DISTINCT FROM of_baseline.policy_id
            AND compared.kernel_id IS NOT DISTINCT FROM of_baseline.kernel_id
            AND compared.baseline <> of_baseline.baseline
    WHERE of_baseline.baseline_kernel_id IS NOT NULL
)
SELECT
    task_id, kernel_id, gpu, baseline,
    min(speedup) AS speedup,
    arg_min(implied, speedup) AS implied
FROM texts
GROUP BY task_id, kernel_id, gpu, baseline
