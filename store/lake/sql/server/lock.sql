-- The lock of all commits; released when the session ends.
SELECT pg_advisory_lock(hashtextextended(%(name)s, 0))
