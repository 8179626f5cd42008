-- The five highest scores of each GPU, with what the parsers see in their code.
SELECT
    claimed.gpu,
    claimed.task,
    claimed.speedup,
    features.has_device_code AS device_code,
    features.techniques
FROM claimed_speedups AS claimed
LEFT JOIN features USING (kernel_id)
WHERE claimed.source = 'cuda-l1' AND claimed.baseline = 'eager'
QUALIFY row_number() OVER (PARTITION BY claimed.gpu ORDER BY claimed.speedup DESC, task) <= 5
ORDER BY claimed.gpu, claimed.speedup DESC
