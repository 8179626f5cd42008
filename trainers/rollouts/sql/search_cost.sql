-- One row: the tokens and the USD of this lake's attempts in these namespaces.
SELECT
    coalesce(sum(coalesce(prompt_tokens, 0) + coalesce(completion_tokens, 0)), 0) AS tokens,
    coalesce(sum(cost_usd), 0) AS usd
FROM generations
WHERE namespace IN (SELECT unnest($1)) AND origin IS NULL
