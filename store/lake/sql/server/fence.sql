-- The trigger in the table that every commit of DuckLake writes; made once.
DO $$
BEGIN
    IF NOT EXISTS (
        SELECT 1 FROM pg_trigger
        WHERE tgname = 'flywheel_fence' AND tgrelid = to_regclass({changes})
    ) THEN
        CREATE TRIGGER flywheel_fence BEFORE INSERT ON {schema}.ducklake_snapshot_changes
        FOR EACH ROW EXECUTE FUNCTION {schema}.flywheel_fence();
    END IF;
END
$$
