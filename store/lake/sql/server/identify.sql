-- The lake's identity and salt; those that it has stay.
INSERT INTO {schema}.flywheel_lake (salt)
SELECT %(salt)s WHERE NOT EXISTS (SELECT 1 FROM {schema}.flywheel_lake)
ON CONFLICT DO NOTHING
