-- Evaluations of a kernel. Verdicts on one device depend on those of others (nonequivalent).
FROM evaluations
WHERE kernel_id = $kernel
ORDER BY evaluation_id
