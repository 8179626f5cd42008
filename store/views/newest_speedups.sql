-- One row per kernel, task, workload, device, baseline and clock: the newest session that counts.
-- It counts where the kernel is correct and neither arm was noisy. The newest and not the best of
-- several: measuring until luck strikes gains nothing. One struct as the order lets DuckDB take a
-- maximum by group in place of sorting.
SELECT *
FROM speedups
WHERE correct AND NOT noisy
QUALIFY row_number() OVER (
    PARTITION BY kernel_id, task_id, workload_id, device, baseline, clock
    ORDER BY {'measured_at': measured_at, 'session_id': session_id} DESC
) = 1
