-- One row per group of attempts of this lake (its id is $2) that names a snapshot: the first one that
-- its attempts were rendered from. Pulled attempts name snapshots of other lakes.
SELECT group_id, min(snapshot_id) AS snapshot_id
FROM generations
WHERE
    group_id IN (SELECT unnest($1))
    AND origin IS NULL
    AND lake_id = $2
    AND snapshot_id IS NOT NULL
GROUP BY group_id
