-- Kernels that no dataset may contain, and why.
SELECT kernel_id, reason
FROM withheld
