-- Why kernels are not correct, by device and precision. small_errors counts those whose answer in the first
-- call that failed differs from the reference's by less than 0.01 everywhere, the absolute tolerance of the
-- KernelBench version that CUDA-L1 used. A kernel with several verdicts counts for each reason. precisions names the
-- precisions whose rounding errors have this size; lower is below bf16. tf32 counts kernels whose errors have the size
-- of TF32's. Kernels released for the H100, with those of trivial tasks; without the verdicts under allow_tf32
-- (tf32.sql).
SELECT
    devices."name" AS device,
    evaluations."precision",
    evaluations.reason,
    count(DISTINCT evaluations.kernel_id) AS kernels,
    count(DISTINCT evaluations.kernel_id) FILTER (WHERE evaluations.max_abs_error < 0.01) AS small_errors,
    array_to_string(list_sort(list(DISTINCT evaluations.precision_class)), ', ') AS precisions,
    count(DISTINCT evaluations.kernel_id) FILTER (WHERE evaluations.precision_class = 'tf32') AS tf32
FROM counted_evaluations AS evaluations
INNER JOIN devices ON devices.device_id = evaluations.device_id
WHERE
    evaluations.evaluator = 'judge' AND evaluations.status NOT IN ('correct', 'evaluator_error')
    AND evaluations."precision" <> 'allow_tf32'
    AND evaluations.kernel_id IN (
        SELECT kernel_id FROM claimed_speedups WHERE gpu = 'H100' AND released
    )
GROUP BY devices."name", evaluations."precision", evaluations.reason
ORDER BY device, "precision", kernels DESC, evaluations.reason
