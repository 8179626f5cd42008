-- Why kernels are not correct, by policy. within_kernelbench counts those whose answers differ from the
-- reference's by less than 0.01 everywhere, the absolute tolerance of the KernelBench version that CUDA-L1
-- used. precisions lists what the errors correspond to.
SELECT
    "precision" AS policy,
    reason,
    count(DISTINCT kernel_id) AS kernels,
    count(DISTINCT kernel_id) FILTER (WHERE max_abs_error < 0.01) AS within_kernelbench,
    array_to_string(list_sort(list(DISTINCT precision_class)), ', ') AS precisions
FROM counted_evaluations
WHERE
    evaluator = 'judge' AND status NOT IN ('correct', 'evaluator_error')
    AND device_id IN (SELECT device_id FROM devices WHERE "name" = 'H100')
GROUP BY "precision", reason
ORDER BY policy, kernels DESC, reason
