-- Released code that carries a score although it is not valid Python: the file is cut off.
SELECT claimed.task, claimed.gpu, claimed.speedup, left(claimed.kernel_id, 12) AS kernel
FROM claimed_speedups AS claimed
INNER JOIN features USING (kernel_id)
WHERE claimed.source = 'cuda-l1' AND claimed.baseline = 'eager' AND NOT features.parsed
ORDER BY claimed.task, claimed.gpu
