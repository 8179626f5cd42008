-- The salt of the lake that is moved here.
UPDATE {schema}.flywheel_lake SET salt = %(salt)s
