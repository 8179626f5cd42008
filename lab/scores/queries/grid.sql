-- Is the grid complete, and of one judge, one device and one protocol? One row per split. Reads `surface`.
SELECT
    split,
    count(DISTINCT task_id) AS tasks,
    count(*) AS kernels,
    CASE split WHEN 'train' THEN 792 ELSE 1584 END AS wanted,
    count(*) FILTER (WHERE status = 'correct') AS correct,
    count(*) FILTER (WHERE status = 'correct' AND speedup IS NULL) AS without_figure,
    count(*) FILTER (WHERE disturbed) AS disturbed,
    count(*) FILTER (WHERE judged > 1) AS judged_twice,
    string_agg(DISTINCT evaluator_version::VARCHAR, ', ') AS versions,
    string_agg(DISTINCT protocol, ', ') AS protocols,
    string_agg(DISTINCT device, ', ') AS devices,
    round(exp(max(outcome)), 2) AS best,
    round(exp(avg(outcome)), 3) AS geomean,
    round(exp(min(outcome)), 3) AS worst
FROM surface
GROUP BY split
ORDER BY split DESC
