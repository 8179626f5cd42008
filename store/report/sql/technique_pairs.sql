-- Techniques that pay only together
-- lift is the geometric mean with both over that with the second alone; lift_without the same ratio
-- among kernels that do not use the second. A gatekeeper shows lift above 1 and lift_without near
-- 1. Pairs with at least 3 kernels on every side.
-- Empty: No two techniques have 3 timed kernels with both, with either and with neither.
SELECT
    device, baseline, technique, given, lift, lift_without,
    n_both, n_technique_only, n_given_only, n_neither,
    count(*) OVER () AS total
FROM technique_pairs
WHERE least(n_both, n_technique_only, n_given_only, n_neither) >= 3
ORDER BY lift / lift_without DESC, device, baseline, technique, given
LIMIT 20
