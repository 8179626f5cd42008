-- One row per test task, training and arm: the mean expected outcome over the prompts of the arm.
-- Reads `scores`.
SELECT arm, task_id, seed, avg(expected) AS score, count(*) AS prompts
FROM scores
GROUP BY arm, task_id, seed
