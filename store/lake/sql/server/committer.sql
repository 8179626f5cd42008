-- The identity and salt of the lake, the token of the session that may commit, and the function
-- of the trigger that compares it.
-- Not CREATE SCHEMA IF NOT EXISTS, which asks for a right in the database even where it exists.
DO $$
BEGIN
    IF to_regnamespace({namespace}) IS NULL THEN
        CREATE SCHEMA {schema};
    END IF;
END
$$;
CREATE TABLE IF NOT EXISTS {schema}.flywheel_lake (
    single_row boolean PRIMARY KEY DEFAULT true CHECK (single_row),
    identity uuid NOT NULL DEFAULT gen_random_uuid(),
    salt bytea NOT NULL
);
CREATE TABLE IF NOT EXISTS {schema}.flywheel_committer (token text NOT NULL);
CREATE OR REPLACE FUNCTION {schema}.flywheel_fence() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    -- The row stays locked until this commit ends, so that the next holder waits for it.
    PERFORM 1 FROM {schema}.flywheel_committer
    WHERE token = current_setting('application_name') FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'another process has taken the lock of the lake';
    END IF;
    RETURN NEW;
END
$$;
