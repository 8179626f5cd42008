-- Release the lock of all commits.
SELECT pg_advisory_unlock(hashtextextended(%(name)s, 0))
