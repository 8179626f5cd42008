-- One row per task that tables leave out: its answer shows nothing about a kernel.
-- The newest audit says that an answer without work passes it, or a label says that its answer does
-- not depend on its inputs (task_names.degenerate). `--include-weak` reads this view as empty.
SELECT task_id
FROM task_names
WHERE degenerate
