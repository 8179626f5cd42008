-- Classes of findings
SELECT DISTINCT class
FROM findings
ORDER BY class
