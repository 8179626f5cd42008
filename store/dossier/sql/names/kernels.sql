-- The first kernels whose id begins with the given characters.
SELECT kernel_id
FROM kernels
WHERE starts_with(kernel_id, $start)
ORDER BY kernel_id
LIMIT 6
