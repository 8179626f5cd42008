-- One row per task and device without a winner: the kernel that comes nearest, and why it stays.
-- A kernel that may leave if it were faster comes before others. Tables: _permitted, _winners.
SELECT task_id, task, suite, device, kernel_id, speedup, speedup_low, speedup_high, left_out
FROM _permitted
ANTI JOIN _winners ON _winners.task_id = _permitted.task_id AND _winners.device = _permitted.device
QUALIFY row_number() OVER (
    PARTITION BY task_id, device
    ORDER BY left_out IS DISTINCT FROM 'not faster than eager', speedup_low DESC, kernel_id
) = 1
ORDER BY suite, task, task_id, device
