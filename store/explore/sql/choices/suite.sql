-- Suites
SELECT DISTINCT suite || ' ' || suite_revision AS suite
FROM task_labels
ORDER BY suite
