-- What the marker among the data files says.
SELECT identity::text FROM {schema}.flywheel_lake
