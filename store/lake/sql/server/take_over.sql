-- The session with the lock writes its token in place of the last holder's. It need not survive a
-- crash of the server, which ends all sessions, so that the statement does not wait for the disk.
WITH unsynced AS (SELECT set_config('synchronous_commit', 'off', true)),
gone AS (DELETE FROM {schema}.flywheel_committer RETURNING 1)
INSERT INTO {schema}.flywheel_committer
SELECT %(token)s FROM (SELECT count(*) FROM gone) AS counted, unsynced
