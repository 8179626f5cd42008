-- The gate: how often the more probable K is the faster kernel, in training prompts whose scores differ
-- by 1.5 or more. One row per training. Reads `gate` and
-- `training_rows`.
WITH named AS (
    SELECT
        seed, prompt_id,
        sum(CASE named WHEN 1 THEN probability::DOUBLE ELSE -probability::DOUBLE END) > 0 AS first
    FROM gate
    GROUP BY seed, prompt_id
)
SELECT
    named.seed,
    count(*) AS prompts,
    count(*) FILTER (WHERE named.first = (answers.fastest = 1)) AS named_right,
    round(avg((named.first = (answers.fastest = 1))::INTEGER), 4) AS share,
    avg((named.first = (answers.fastest = 1))::INTEGER) >= 0.95 AS passed
FROM named
INNER JOIN training_rows AS answers ON answers.prompt_id = named.prompt_id
GROUP BY named.seed
ORDER BY named.seed
