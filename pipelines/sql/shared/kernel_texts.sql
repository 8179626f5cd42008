-- Texts of the kernels in a slab of rows. `slab` (task_id, kernel_ids) is registered.
WITH wanted AS (
    SELECT DISTINCT unnest(kernel_ids) AS kernel_id
    FROM slab
)
SELECT
    kernels.kernel_id, kernels.code, kernels.path, kernels.other_files, kernels.license
FROM kernels
SEMI JOIN wanted ON wanted.kernel_id = kernels.kernel_id
