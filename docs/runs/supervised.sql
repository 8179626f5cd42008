-- The rows of the supervised training, by the number of kernels that their prompts show: rows,
-- settings of knobs in their answers, answers with a speedup over eager, and its geometric mean.
-- Machines that trained on the same rows count once.
WITH targets AS (
    SELECT DISTINCT
        dataset_rows.row_index, dataset_rows.task_id,
        len(dataset_rows.kernel_ids) - 1 AS shown,
        dataset_rows.kernel_ids[-1] AS kernel_id
    FROM dataset_rows
    INNER JOIN datasets ON datasets.dataset_id = dataset_rows.dataset_id
    WHERE datasets.pipeline = 'sft'
),
speeds AS (
    SELECT kernel_id, task_id, min(speedup) AS speedup
    FROM scored_speedups
    WHERE baseline = 'eager'
    GROUP BY kernel_id, task_id
)
SELECT
    targets.shown,
    count(*) AS "rows",
    count(DISTINCT array_to_string(
        list_sort(regexp_extract_all(kernels.code, '(?m)^[A-Z_]+ = \d+')), ', '
    )) AS settings,
    count(speeds.speedup) AS judged,
    round(exp(avg(ln(speeds.speedup))), 4) AS geomean
FROM targets
INNER JOIN kernels ON kernels.kernel_id = targets.kernel_id
LEFT JOIN speeds ON speeds.kernel_id = targets.kernel_id AND speeds.task_id = targets.task_id
GROUP BY targets.shown
ORDER BY targets.shown
