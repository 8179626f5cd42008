-- The snapshot that the attempts of these groups were rendered from; the first where there are several.
SELECT min(snapshot_id) AS snapshot_id
FROM generations
WHERE group_id IN (SELECT unnest($1))
