-- One row per metric and step that the lake has of a run.
SELECT "name", step FROM metrics WHERE run_id = $1
