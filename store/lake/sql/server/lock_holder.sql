-- The session that has the lock of all commits: its name with the number of its process, its host.
SELECT s.application_name, host(s.client_addr)
FROM pg_locks AS l JOIN pg_stat_activity AS s USING (pid)
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (l.classid::BIGINT << 32 | l.objid::BIGINT) = hashtextextended(%(name)s, 0)
