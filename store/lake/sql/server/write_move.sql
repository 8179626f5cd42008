-- The row of the table of moves, in place of the one before.
WITH gone AS (DELETE FROM {schema}.flywheel_move RETURNING 1)
INSERT INTO {schema}.flywheel_move
SELECT %(move)s::jsonb FROM (SELECT count(*) FROM gone) AS counted WHERE %(move)s::jsonb IS NOT NULL
