-- Kernels by id
SELECT
    kernels.kernel_id, features."language",
    array_to_string(features.techniques, ', ') AS techniques, features.code_lines AS lines,
    kernels."source"
FROM kernels
LEFT JOIN features ON features.kernel_id = kernels.kernel_id
WHERE starts_with(kernels.kernel_id, $prefix)
ORDER BY kernels.kernel_id
