-- Decisions on findings about a kernel.
FROM standings
WHERE
    finding_id IN (
        SELECT finding_id
        FROM findings
        WHERE kernel_id = $kernel
    )
ORDER BY standing_id
