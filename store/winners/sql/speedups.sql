-- One row per winner, device, workload and baseline: its speedup, for a card. Table: _winners.
SELECT
    speeds.task_id, speeds.kernel_id, speeds.device, workloads."name" AS workload, speeds.clock,
    speeds.baseline, speeds.speedup, speeds.speedup_low, speeds.speedup_high, speeds.kernel_ms,
    speeds.baseline_ms, speeds.sessions, speeds.n, speeds.threads
FROM kernel_speedups AS speeds
INNER JOIN workloads ON workloads.workload_id = speeds.workload_id
SEMI JOIN _winners
    ON _winners.kernel_id = speeds.kernel_id AND _winners.task_id = speeds.task_id
ORDER BY ALL
