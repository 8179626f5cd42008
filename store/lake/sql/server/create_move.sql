-- The table of moves, which has at most one row.
CREATE TABLE IF NOT EXISTS {schema}.flywheel_move (move jsonb NOT NULL)
