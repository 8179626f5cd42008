-- Devices with published speedups of released kernels, the most first; ties are in order of names.
SELECT gpu AS device, count(*) AS claims
FROM current_claims
WHERE metric = 'speedup' AND baseline = $baseline AND gpu IS NOT NULL
    AND task_id IS NOT NULL AND kernel_id IS NOT NULL
GROUP BY gpu
ORDER BY claims DESC, device
