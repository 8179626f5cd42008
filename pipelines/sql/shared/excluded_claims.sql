-- Published kernels that no dataset may contain, and why: those of `excluded` and, unless $doubted, those
-- with an open finding of a confidence of 0.5 or more, since nobody has measured what they do.
SELECT kernel_id, reason
FROM excluded
UNION ALL
SELECT finding_standings.kernel_id, 'open finding of 0.5 or more' AS reason
FROM finding_standings
ANTI JOIN excluded ON excluded.kernel_id = finding_standings.kernel_id
WHERE NOT $doubted
GROUP BY finding_standings.kernel_id
HAVING bool_or(decision IS NULL AND coalesce(confidence, 1) >= 0.5)
