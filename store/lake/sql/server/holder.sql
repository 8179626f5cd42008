-- The token of the session that took the lock last.
SELECT token FROM {schema}.flywheel_committer
