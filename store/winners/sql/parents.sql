-- One row per winner and kernel that it comes from. Table: _winners.
SELECT DISTINCT
    lineage.task_id, lineage.child_kernel_id AS kernel_id, lineage.relation,
    lineage.parent_kernel_id, lineage.score
FROM lineage
SEMI JOIN _winners
    ON _winners.kernel_id = lineage.child_kernel_id AND _winners.task_id = lineage.task_id
ORDER BY ALL
