-- How many different kernels the release holds: rows with code, distinct texts, texts on several GPUs.
WITH texts AS (
    SELECT kernel_id, count(*) AS entries, count(DISTINCT gpu) AS gpus
    FROM claimed_speedups
    WHERE source = 'cuda-l1' AND baseline = 'eager' AND released
    GROUP BY kernel_id
)
SELECT
    sum(entries)::BIGINT AS rows_with_code,
    count(*) AS distinct_texts,
    count(*) FILTER (WHERE gpus >= 2) AS on_two_gpus_or_more
FROM texts
