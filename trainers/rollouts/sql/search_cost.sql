-- One row: the tokens and the USD of this lake's attempts of a search by a policy. Its namespaces are
-- NAME/STRATEGY/SEED/POLICY.
SELECT
    coalesce(sum(coalesce(prompt_tokens, 0) + coalesce(completion_tokens, 0)), 0) AS tokens,
    coalesce(sum(cost_usd), 0) AS usd
FROM generations
WHERE starts_with(namespace, $1 || '/') AND policy_id = $2 AND origin IS NULL
