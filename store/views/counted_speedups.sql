-- One row of scored_speedups that counts in tables over kernels: not of a trivial task (weak_tasks).
SELECT *
FROM scored_speedups
ANTI JOIN weak_tasks ON weak_tasks.task_id = scored_speedups.task_id
