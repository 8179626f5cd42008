-- How far answers are from those to the same prompt with right scores: after the scores are exchanged or
-- removed, and with the scores of another task; and how far those of another training, or to the next
-- pair of exemplars of the task, are. distance is the total variation of the distributions of settings,
-- same_first the share of prompts with the same most probable setting. Reads `prompts` and `arms`.
WITH places AS (
    SELECT prompt_id, unnest(places, max_depth := 2)
    FROM arms
),
shares AS (
    SELECT seed, prompt_id, setting, sum(probability::DOUBLE) AS probability
    FROM prompts
    GROUP BY seed, prompt_id, setting
),
answers AS (
    SELECT
        shares.seed, places.arm, places.task_id, places.draw, shares.setting,
        shares.probability / sum(shares.probability) OVER (
            PARTITION BY shares.seed, places.arm, places.task_id, places.draw
        ) AS share,
        row_number() OVER (
            PARTITION BY shares.seed, places.arm, places.task_id, places.draw
            ORDER BY shares.probability DESC, shares.setting
        ) = 1 AS first
    FROM places
    INNER JOIN shares ON shares.prompt_id = places.prompt_id
),
others AS (
    SELECT arm AS other, * EXCLUDE (arm)
    FROM answers
    WHERE arm IN ('reversed', 'no_scores', 'other_task')
    UNION ALL BY NAME
    SELECT 'right, another training' AS other, * EXCLUDE (arm) REPLACE ((seed + 1) % 3 AS seed)
    FROM answers
    WHERE arm = 'right'
    UNION ALL BY NAME
    SELECT 'right, another pair' AS other, * EXCLUDE (arm) REPLACE (draw % 50 + 1 AS draw)
    FROM answers
    WHERE arm = 'right'
),
paired AS (
    SELECT
        others.other, others.seed, others.task_id, others.draw,
        sum(least(coalesce(answers.share, 0), others.share)) AS overlap,
        coalesce(bool_or(answers.first AND others.first), false) AS same_first
    FROM others
    -- The last pair of a task has no next one if there are fewer than 50.
    SEMI JOIN (SELECT seed, task_id, draw FROM answers WHERE arm = 'right') AS same
        ON same.seed = others.seed AND same.task_id = others.task_id AND same.draw = others.draw
    LEFT JOIN answers
        ON
            answers.arm = 'right' AND answers.seed = others.seed
            AND answers.task_id = others.task_id AND answers.draw = others.draw
            AND answers.setting = others.setting
    GROUP BY others.other, others.seed, others.task_id, others.draw
)
SELECT
    other,
    count(*) AS prompts,
    round(avg(1 - overlap), 4) AS distance,
    round(avg(same_first::INTEGER), 4) AS same_first
FROM paired
GROUP BY other
ORDER BY distance
