-- Samples of short calls that lie 20 to 60 µs above their arm's tenth percentile: a fault of the clock
-- until version 5 of the judge's rules, seen from the rows. Arms are kernel and eager on GPUs, cold, one
-- call a sample, below 0.3 ms.
WITH arms AS (
    SELECT
        evaluations.evaluator_version AS version,
        timings.samples_ms,
        list_sort(timings.samples_ms)[len(timings.samples_ms) // 10 + 1] AS usual_ms,
        list_median(timings.samples_ms) AS median_ms
    FROM timings
    INNER JOIN evaluations ON evaluations.evaluation_id = timings.evaluation_id
    INNER JOIN devices ON devices.device_id = timings.device_id
    WHERE
        devices."kind" = 'cuda' AND timings.cache = 'cold' AND timings.inner_loops = 1
        AND timings.arm IN ('kernel', 'eager') AND len(timings.samples_ms) >= 10
)
SELECT
    version,
    count(*) AS arms,
    sum(len(samples_ms)) AS samples,
    round(
        sum(len(list_filter(samples_ms, lambda ms: ms - usual_ms BETWEEN 0.02 AND 0.06)))
        / sum(len(samples_ms)), 3
    ) AS late_share,
    count(*) FILTER (WHERE median_ms - usual_ms >= 0.02) AS late_medians
FROM arms
WHERE usual_ms <= 0.3
GROUP BY version
ORDER BY version
