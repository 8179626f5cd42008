-- Texts of the wanted kernels. `wanted` is registered: a small set of ids.
SELECT kernels.kernel_id, kernels.code, kernels.path, kernels.other_files
FROM kernels
SEMI JOIN wanted ON wanted.id = kernels.kernel_id
