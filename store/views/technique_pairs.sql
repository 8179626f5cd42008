-- One row per technique, given technique, device and baseline: what the first adds to the given one.
-- lift = geomean of kernels with both / geomean of kernels with given only. lift_without is the
-- same ratio among kernels that do not use given. A technique that pays off only in combination
-- with a gatekeeper shows a lift above 1 and a lift_without near 1. Counts are of kernels on tasks.
-- Pairs whose lift has a group of fewer than 5 have no row, and a lift_without of such a group is
-- NULL. The ends of intervals are those of Welch's test on logarithms, with the degrees of freedom
-- of the smaller group.
--
-- key columns: technique, given, device, baseline, lift, lift_low, lift_high, n_both
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
-- lift_low: lower end of the 95 % interval of lift
-- lift_high: upper end of the 95 % interval of lift
-- lift_without: geomean_technique_only / geomean_neither
-- lift_without_low: lower end of the 95 % interval of lift_without
-- lift_without_high: upper end of the 95 % interval of lift_without
WITH base AS (
    SELECT
        device, baseline,
        list_distinct(techniques) AS techniques,
        ln(speedup) AS log_speedup
    FROM technique_speedups
),
totals AS (
    SELECT
        device, baseline,
        count(*) AS n, sum(log_speedup) AS logs, sum(log_speedup ** 2) AS squares
    FROM base
    GROUP BY device, baseline
),
uses AS (
    SELECT device, baseline, techniques, log_speedup, unnest(techniques) AS technique
    FROM base
),
singles AS (
    SELECT
        device, baseline, technique,
        count(*) AS n, sum(log_speedup) AS logs, sum(log_speedup ** 2) AS squares
    FROM uses
    GROUP BY device, baseline, technique
),
both_used AS (
    SELECT
        device, baseline, technique, given,
        count(*) AS n, sum(log_speedup) AS logs, sum(log_speedup ** 2) AS squares
    FROM (SELECT device, baseline, log_speedup, technique, unnest(techniques) AS given FROM uses)
    WHERE technique <> given
    GROUP BY device, baseline, technique, given
),
-- Sums by inclusion and exclusion.
counted AS (
    SELECT
        pair.technique, pair.given, pair.device, pair.baseline,
        pair.n AS n_both,
        one.n - pair.n AS n_technique_only,
        other.n - pair.n AS n_given_only,
        totals.n - one.n - other.n + pair.n AS n_neither,
        pair.logs AS logs_both,
        one.logs - pair.logs AS logs_technique_only,
        other.logs - pair.logs AS logs_given_only,
        totals.logs - one.logs - other.logs + pair.logs AS logs_neither,
        pair.squares AS squares_both,
        one.squares - pair.squares AS squares_technique_only,
        other.squares - pair.squares AS squares_given_only,
        totals.squares - one.squares - other.squares + pair.squares AS squares_neither
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
    WHERE least(pair.n, other.n - pair.n) >= 5
),
-- The means of logarithms and their squared standard errors; NULL where nobody is left.
means AS (
    SELECT
        * EXCLUDE (
            logs_both, logs_technique_only, logs_given_only, logs_neither,
            squares_both, squares_technique_only, squares_given_only, squares_neither
        ),
        logs_both / n_both AS both_mean,
        logs_technique_only / nullif(n_technique_only, 0) AS technique_mean,
        logs_given_only / n_given_only AS given_mean,
        logs_neither / nullif(n_neither, 0) AS neither_mean,
        (squares_both / n_both - both_mean ** 2) / (n_both - 1)
        + (squares_given_only / n_given_only - given_mean ** 2) / (n_given_only - 1) AS variance,
        (squares_technique_only / nullif(n_technique_only, 0) - technique_mean ** 2)
        / nullif(n_technique_only - 1, 0)
        + (squares_neither / nullif(n_neither, 0) - neither_mean ** 2)
        / nullif(n_neither - 1, 0) AS variance_without
    FROM counted
),
-- How far the ends are: Student's quantile by its expansion, and rounding that may leave less than 0.
errors AS (
    SELECT
        * EXCLUDE (variance, variance_without),
        least(n_both, n_given_only) - 1 AS freedom,
        (1.959964 + 2.372271 / freedom + 2.822502 / freedom ** 2 + 2.555857 / freedom ** 3)
        * sqrt(greatest(variance, 0)) AS error,
        least(n_technique_only, n_neither) - 1 AS freedom_without,
        CASE WHEN freedom_without >= 4 THEN
            (
                1.959964 + 2.372271 / freedom_without + 2.822502 / freedom_without ** 2
                + 2.555857 / freedom_without ** 3
            ) * sqrt(greatest(variance_without, 0))
        END AS error_without
    FROM means
)
SELECT
    technique, given, device, baseline, n_both, n_technique_only, n_given_only, n_neither,
    exp(both_mean) AS geomean_both,
    exp(technique_mean) AS geomean_technique_only,
    exp(given_mean) AS geomean_given_only,
    exp(neither_mean) AS geomean_neither,
    exp(both_mean - given_mean) AS lift,
    exp(both_mean - given_mean - error) AS lift_low,
    exp(both_mean - given_mean + error) AS lift_high,
    CASE WHEN freedom_without >= 4 THEN exp(technique_mean - neither_mean) END AS lift_without,
    exp(technique_mean - neither_mean - error_without) AS lift_without_low,
    exp(technique_mean - neither_mean + error_without) AS lift_without_high
FROM errors
ORDER BY device, baseline, lift DESC, technique, given
