-- One row: the seconds that a judge took for a verdict on a kind of device, the median of the newest
-- ones; without any, about what two cores and an H200 take.
WITH newest AS (
    SELECT evaluations.wall_s
    FROM evaluations
    INNER JOIN devices ON devices.device_id = evaluations.device_id
    WHERE devices.kind = $kind AND evaluations.wall_s IS NOT NULL
    ORDER BY evaluations.created_at DESC
    LIMIT 100
)
SELECT coalesce(median(wall_s), CASE $kind WHEN 'cpu' THEN 6 ELSE 15 END) AS seconds FROM newest
