-- One row per place of a prompt (task, arm, draw) and training: the expected outcome of its answer.
-- The model's probabilities of settings, summed over K, are divided by their sum over the grid (mass).
-- first_share is the share of K = 1, NULL for a prompt without kernels. Reads `prompts`, `arms` and
-- `surface`.
WITH places AS (
    SELECT prompt_id, shown_scores, unnest(places, max_depth := 2)
    FROM arms
),
shares AS (
    SELECT
        seed, prompt_id, setting,
        sum(probability::DOUBLE) AS probability,
        sum(probability::DOUBLE) FILTER (WHERE named = 1) AS named_first,
        bool_or(named IS NOT NULL) AS names
    FROM prompts
    GROUP BY seed, prompt_id, setting
)
SELECT
    shares.seed, places.arm, surface.family, surface.shape, surface.operation,
    places.task_id, places.draw, places.prompt_id, places.right_scores, places.shown_scores,
    sum(shares.probability) AS mass,
    CASE
        WHEN bool_or(shares.names)
            THEN coalesce(sum(shares.named_first), 0) / sum(shares.probability)
    END AS first_share,
    sum(shares.probability * surface.outcome) / sum(shares.probability) AS expected
FROM places
INNER JOIN shares ON shares.prompt_id = places.prompt_id
INNER JOIN surface
    ON surface.task_id = places.task_id AND surface.setting = shares.setting
GROUP BY ALL
