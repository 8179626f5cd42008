-- One row per label that counts: this lake's own, and pulled ones of tasks without an own label.
-- split is that of the label's family, and own_split says whether this lake decided it. So a pulled
-- label neither renames a task that this lake has named nor marks it degenerate.
--
-- task: label of the task, such as level1/12 (name in task_labels)
-- own_split: whether this lake decided the split
-- degenerate: whether the label says that the answer does not depend on the inputs; NULL if nobody
--   looked
SELECT
    label.* RENAME ("name" AS task),
    splits.split,
    splits.split IS NOT NULL AND splits.origin IS NULL AS own_split
FROM task_labels AS label
LEFT JOIN splits ON splits.suite = label.suite AND splits.family = label.family
QUALIFY
    label.origin IS NULL
    OR NOT bool_or(label.origin IS NULL) OVER (PARTITION BY label.task_id)
