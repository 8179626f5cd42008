-- One row per kernel that is cleared: all its findings with a confidence of 0.5 or more are dismissed.
-- At least one finding is dismissed, and none is confirmed.
SELECT kernel_id
FROM finding_standings
GROUP BY kernel_id
HAVING
    bool_and(coalesce(decision = 'dismissed', coalesce(confidence, 1) < 0.5))
    AND bool_or(decision IS NOT DISTINCT FROM 'dismissed')
