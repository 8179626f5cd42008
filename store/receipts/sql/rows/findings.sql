-- Findings of detectors about a kernel.
FROM findings
WHERE kernel_id = $kernel
ORDER BY finding_id
