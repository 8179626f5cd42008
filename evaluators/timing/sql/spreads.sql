-- The estimated spread of sessions by clock, on devices of one name by one version of the judge.
-- Parameters: device (its name), version.
SELECT clock, tau
FROM current_spreads
WHERE device = $device AND evaluator = 'judge' AND evaluator_version = $version
