-- One row per winner, device and other shape: what the kernel did there. Table: _winners.
SELECT DISTINCT
    verdicts.task_id, verdicts.kernel_id, verdicts.device, verdicts.shape, verdicts.outcome,
    verdicts.speedup
FROM shape_verdicts AS verdicts
SEMI JOIN _winners
    ON _winners.kernel_id = verdicts.kernel_id AND _winners.task_id = verdicts.task_id
ORDER BY ALL
