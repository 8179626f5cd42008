-- One row per run that showed kernels: every score shown was measured before it was shown.
-- shown counts exemplars of prompts; of_this_run those that the run itself wrote at an earlier step.
-- broken must be 0; unknown is above 0 only in a copy of a lake, which has no past to look into.
SELECT
    run,
    run_id,
    count(DISTINCT prompt_id) AS prompts,
    count(*) AS shown,
    count(*) FILTER (WHERE exemplar_step IS NOT NULL) AS of_this_run,
    count(*) FILTER (WHERE holds) AS holds,
    count(*) FILTER (WHERE NOT holds) AS broken,
    count(*) FILTER (WHERE holds IS NULL) AS "unknown",
    min(snapshot_id - measured_snapshot_id) AS least_snapshots_between,
    count(DISTINCT snapshot_id) AS snapshots
FROM loop_proof
GROUP BY run, run_id
ORDER BY run_id
