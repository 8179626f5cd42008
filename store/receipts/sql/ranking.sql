-- Speedups of a kernel that count in rankings, or would if `ranked` were true: those by the clock
-- and precision that rank.
SELECT task_id, workload_id, device, baseline, clock, "precision", ranked
FROM kernel_speedups
WHERE
    kernel_id = $kernel
    AND ($device IS NULL OR device = $device)
    AND ($clock IS NULL OR clock = $clock)
ORDER BY ALL
