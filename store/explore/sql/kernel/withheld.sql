-- Withheld
-- Why no dataset may contain the kernel.
SELECT reason
FROM withheld
WHERE kernel_id = $kernel
ORDER BY reason
