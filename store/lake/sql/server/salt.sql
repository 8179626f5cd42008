-- The secret under which published editions hash names.
SELECT salt FROM {schema}.flywheel_lake
