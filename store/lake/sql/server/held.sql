-- Those of some keys whose advisory lock a session has, which shows as two halves; NULL for none.
SELECT array_agg(classid::BIGINT << 32 | objid::BIGINT)
FROM pg_locks
WHERE locktype = 'advisory' AND granted AND objsubid = 1
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND (classid::BIGINT << 32 | objid::BIGINT) = ANY(%(keys)s::BIGINT[])
