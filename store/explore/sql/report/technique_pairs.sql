-- Techniques that help only together
-- lift is the geometric mean with both techniques over that with the second alone. lift without is
-- the same ratio among kernels without the second. A technique is a gatekeeper for another if lift
-- is above 1 and lift without is near 1. Each of the four groups has at least 5 kernels.
-- Empty: No two techniques have 5 timed kernels with both, with either and with neither.
SELECT
    device, baseline, technique, given,
    lift, lift_low, lift_high, lift_without, lift_without_low, lift_without_high,
    n_both, n_technique_only, n_given_only, n_neither,
    count(*) OVER () AS total
FROM technique_pairs
WHERE lift_without IS NOT NULL
ORDER BY lift / lift_without DESC, device, baseline, technique, given
LIMIT 20
