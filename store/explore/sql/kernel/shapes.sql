-- At other shapes
-- What the kernel does at other sizes that the task's reference accepts: held, wrong, or raises
-- where it raises an exception, as a kernel does that asserts its shape. speedup is over eager.
-- These rows rank nothing.
-- Empty: No judge has tried it at another shape.
SELECT
    verdicts.shape, verdicts.outcome, verdicts.reason, verdicts.speedup, verdicts.device,
    workloads.axes, verdicts.task_id
FROM shape_verdicts AS verdicts
INNER JOIN workloads ON workloads.workload_id = verdicts.workload_id
WHERE verdicts.kernel_id = $kernel
ORDER BY verdicts.device, verdicts.outcome DESC, verdicts.shape
