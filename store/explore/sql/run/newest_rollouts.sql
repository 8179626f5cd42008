-- The newest step with tokens
SELECT run_id, max(step) AS step
FROM rollout_tokens
WHERE run_id = $run
GROUP BY run_id
ORDER BY run_id
