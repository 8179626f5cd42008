-- What each run of the judge did on a GPU, one row per device and run: verdicts, kernels, seconds from the
-- first verdict to the last, the share of the verdicts' time that was waiting for a GPU, the longest
-- such wait of a verdict, and the longest robustness calls. Released kernels of all GPUs.
SELECT
    devices."name" AS device,
    min(evaluations.created_at)::DATE AS day,
    count(*) AS verdicts,
    count(DISTINCT evaluations.kernel_id) AS kernels,
    count(DISTINCT evaluations.kernel_id) FILTER (WHERE evaluations.kernel_id NOT IN (
        SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released
    )) AS for_other_gpus,
    round(epoch(max(evaluations.created_at) - min(evaluations.created_at))) AS seconds,
    round(
        sum((evaluations.parts_s ->> 'waiting')::DOUBLE) / sum(evaluations.wall_s), 2
    ) AS waiting_share,
    round(max((evaluations.parts_s ->> 'waiting')::DOUBLE)) AS longest_wait_s,
    round(max((evaluations.parts_s ->> 'robustness')::DOUBLE)) AS longest_robustness_s
FROM evaluations
INNER JOIN devices ON devices.device_id = evaluations.device_id
WHERE devices.kind = 'cuda' AND evaluations.kernel_id IN (SELECT kernel_id FROM generations)
GROUP BY devices."name", evaluations.run_id
ORDER BY device DESC, min(evaluations.created_at)
