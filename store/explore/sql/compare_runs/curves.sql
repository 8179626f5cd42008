-- Success and speedup by step
-- Share of judged attempts whose kernel is correct, and the geometric mean of the speedups over
-- eager.
SELECT
    CASE WHEN run_id = $a THEN 'A' ELSE 'B' END AS side, coalesce(device, 'not judged') AS device,
    step,
    sum(success) / nullif(sum(attempts - pending), 0) AS share,
    any_value(speedup_geomean) AS geomean,
    sum(attempts)::BIGINT AS attempts
FROM (
    SELECT DISTINCT run_id, device, step, success, attempts, pending, speedup_geomean
    FROM run_curves
)
WHERE run_id IN ($a, $b) AND step IS NOT NULL
GROUP BY side, device, step
ORDER BY device, side, step
