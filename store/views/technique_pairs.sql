-- One row per technique, given technique, device and baseline: what the first adds to the given one.
-- lift = geomean of kernels with both / geomean of kernels with given only. lift_without is the
-- same ratio among kernels that do not use given. A technique that pays off only in combination
-- with a gatekeeper shows a lift above 1 and a lift_without near 1. Counts are of kernels on tasks.
-- Two techniques that no kernel combines have no row.
--
-- given: other technique
-- n_both: number of kernels, on one task each, with both techniques
-- n_technique_only: number of them with technique and without given
-- n_given_only: number of them with given and without technique
-- n_neither: number of them with neither
-- geomean_both: geometric mean speedup of kernels with both (a ratio)
-- geomean_technique_only: geometric mean speedup of kernels with technique alone (a ratio)
-- geomean_given_only: geometric mean speedup of kernels with given alone (a ratio)
-- geomean_neither: geometric mean speedup of kernels with neither (a ratio)
-- lift: geomean_both / geomean_given_only
-- lift_without: geomean_technique_only / geomean_neither
WITH base AS (
    SELECT
        device, baseline,
        list_distinct(techniques) AS techniques,
        ln(speedup) AS log_speedup
    FROM technique_speedups
),
totals AS (
    SELECT device, baseline, count(*) AS n, sum(log_speedup) AS logs
    FROM base
    GROUP BY device, baseline
),
uses AS (
    SELECT device, baseline, techniques, log_speedup, unnest(techniques) AS technique
    FROM base
),
singles AS (
    SELECT device, baseline, technique, count(*) AS n, sum(log_speedup) AS logs
    FROM uses
    GROUP BY device, baseline, technique
),
both_used AS (
    SELECT device, baseline, technique, given, count(*) AS n, sum(log_speedup) AS logs
    FROM (SELECT device, baseline, log_speedup, technique, unnest(techniques) AS given FROM uses)
    WHERE technique <> given
    GROUP BY device, baseline, technique, given
),
-- Means of logarithms by inclusion and exclusion; NULL where nobody is left.
counted AS (
    SELECT
        pair.technique, pair.given, pair.device, pair.baseline,
        pair.n AS n_both,
        one.n - pair.n AS n_technique_only,
        other.n - pair.n AS n_given_only,
        totals.n - one.n - other.n + pair.n AS n_neither,
        exp(pair.logs / n_both) AS geomean_both,
        exp((one.logs - pair.logs) / nullif(n_technique_only, 0)) AS geomean_technique_only,
        exp((other.logs - pair.logs) / nullif(n_given_only, 0)) AS geomean_given_only,
        exp((totals.logs - one.logs - other.logs + pair.logs) / nullif(n_neither, 0))
            AS geomean_neither
    FROM both_used AS pair
    INNER JOIN singles AS one
        ON
            one.device = pair.device
            AND one.baseline = pair.baseline
            AND one.technique = pair.technique
    INNER JOIN singles AS other
        ON
            other.device = pair.device
            AND other.baseline = pair.baseline
            AND other.technique = pair.given
    INNER JOIN totals ON totals.device = pair.device AND totals.baseline = pair.baseline
)
SELECT
    *,
    geomean_both / geomean_given_only AS lift,
    geomean_technique_only / geomean_neither AS lift_without
FROM counted
ORDER BY device, baseline, lift DESC NULLS LAST, technique, given
