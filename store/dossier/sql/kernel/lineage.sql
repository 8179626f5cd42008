-- The kernels that it was made from, and those made from it.
SELECT
    CASE WHEN child_kernel_id = $kernel_id THEN 'from' ELSE 'led to' END AS direction,
    relation,
    CASE WHEN child_kernel_id = $kernel_id THEN parent_kernel_id ELSE child_kernel_id END AS kernel
FROM lineage
WHERE child_kernel_id = $kernel_id OR parent_kernel_id = $kernel_id
ORDER BY ALL
