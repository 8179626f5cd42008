-- Samples of short calls that lie 20 to 60 µs above their arm's tenth percentile: the clock's fault of
-- version 2, seen from the rows. Arms are kernel and eager, cold, one call a sample, below 0.3 ms.
WITH arms AS (
    SELECT
        samples_ms,
        list_sort(samples_ms)[len(samples_ms) // 10 + 1] AS usual_ms,
        list_median(samples_ms) AS median_ms
    FROM timings
    WHERE cache = 'cold' AND inner_loops = 1 AND arm IN ('kernel', 'eager') AND len(samples_ms) >= 10
)
SELECT
    count(*) AS arms,
    sum(len(samples_ms)) AS samples,
    round(
        sum(len(list_filter(samples_ms, lambda ms: ms - usual_ms BETWEEN 0.02 AND 0.06)))
        / sum(len(samples_ms)), 3
    ) AS late_share,
    count(*) FILTER (WHERE median_ms - usual_ms >= 0.02) AS late_medians
FROM arms
WHERE usual_ms <= 0.3
