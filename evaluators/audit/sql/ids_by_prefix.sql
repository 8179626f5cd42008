-- The findings and kernels whose id begins with the given characters.
(
    SELECT 'finding' AS kind, finding_id AS id, kernel_id
    FROM findings
    WHERE starts_with(finding_id, $prefix)
    ORDER BY finding_id
    LIMIT 6
)
UNION ALL
(
    SELECT 'kernel', kernel_id, kernel_id
    FROM kernels
    WHERE starts_with(kernel_id, $prefix)
    ORDER BY kernel_id
    LIMIT 6
)
