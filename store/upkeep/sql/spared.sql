-- One row per snapshot that expiry must leave: what is tagged, and what rows of this lake cite.
SELECT DISTINCT snapshot_id, why
FROM (
    SELECT snapshot_id, 'tag ' || name AS why FROM current_tags
    UNION ALL
    SELECT snapshot_id, 'dataset ' || name FROM datasets WHERE lake_id = $lake_id
    UNION ALL
    SELECT snapshot_id, 'run of ' || name FROM runs WHERE lake_id = $lake_id
    UNION ALL
    SELECT snapshot_id, 'generations' FROM generations WHERE lake_id = $lake_id
    UNION ALL
    SELECT snapshot_id, 'rewards' FROM rewards WHERE lake_id = $lake_id
)
WHERE snapshot_id >= 0
ORDER BY snapshot_id, why
