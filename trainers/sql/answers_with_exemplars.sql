-- How many answers a run has, and how many of them had scored kernels in their prompts.
SELECT
    count(*) AS answers,
    count(*) FILTER (WHERE len(exemplar_kernel_ids) > 0) AS shown
FROM generations
WHERE run_id = $1 AND origin IS NULL
