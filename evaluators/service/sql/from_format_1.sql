-- Turn a queue of format 1, whose cases went to workers over HTTP, into one of format 2.
BEGIN IMMEDIATE;
DROP TABLE workers;
ALTER TABLE judgements DROP COLUMN worker_id;
ALTER TABLE judgements DROP COLUMN lease;
ALTER TABLE judgements DROP COLUMN lease_until;
ALTER TABLE devices DROP COLUMN worker_id;
ALTER TABLE devices ADD COLUMN is_here INTEGER NOT NULL DEFAULT 0;
PRAGMA user_version = 2;
COMMIT;
