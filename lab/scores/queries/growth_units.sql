-- Units of what stage 3 changes: the score of a test task and training after it, less that before it.
-- `right` is changed by the model trained with scores, `no_scores` by the one trained without. Reads
-- `units_before` and `units`.
SELECT
    units.arm, units.task_id, units.seed, units.score - earlier.score AS score, units.prompts
FROM units
INNER JOIN units_before AS earlier
    ON earlier.arm = units.arm AND earlier.task_id = units.task_id AND earlier.seed = units.seed
