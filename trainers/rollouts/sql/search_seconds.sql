-- One row: the seconds of the rounds of a search of this lake by a policy, with any arms and seeds.
SELECT coalesce(sum(search_rounds.seconds), 0) AS seconds
FROM search_rounds
INNER JOIN runs ON runs.run_id = search_rounds.run_id
WHERE
    runs.kind = 'rollout'
    AND runs.origin IS NULL
    AND runs."name" = 'search'
    AND json_extract_string(runs.config, '$.search.search') = $1
    AND json_extract_string(runs.config, '$.search.policy_id') = $2
