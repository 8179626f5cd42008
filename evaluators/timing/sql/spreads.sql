-- The spread of sessions by clock on devices of one name, by one version of the judge.
-- Parameters: device (its name), kind, version.
SELECT fallbacks.clock, coalesce(estimates.tau, fallbacks.tau) AS tau
FROM fallback_spreads AS fallbacks
LEFT JOIN (
    SELECT * FROM current_spreads
    WHERE device = $device AND evaluator = 'judge' AND evaluator_version = $version
) AS estimates ON estimates.clock = fallbacks.clock
WHERE fallbacks.kind = $kind
