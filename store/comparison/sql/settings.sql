-- One row per setting that pairs have, most tasks first: the first one is compared.
SELECT
    device, baseline, clock, "precision", threads, count(DISTINCT task_id) AS tasks
FROM _pairs
GROUP BY device, baseline, clock, "precision", threads
ORDER BY
    tasks DESC, count(*) DESC, baseline = 'eager' DESC,
    coalesce(
        list_position(['torch_default', 'fp32_strict', 'allow_tf32'], "precision"), 4
    ),
    list_position(['gpu', 'throughput', 'latency'], clock), device, baseline, threads
