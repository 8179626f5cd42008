-- One row per quarantined kernel: a finding on it is confirmed, so no dataset may contain it.
SELECT kernel_id, min(decided_at) AS since
FROM finding_standings
WHERE decision = 'confirmed'
GROUP BY kernel_id
