-- The search after each round, 0 being its first exemplars: the geometric mean over chains of the best
-- speedup so far, the share of chains that have the best setting of their task, and the share of
-- attempts of the round that repeat one of the two exemplars shown. Reads `attempts` and `surface`.
WITH tried AS (
    SELECT seed, arm, task_id, draw, round, setting, list_contains(shown, setting) AS repeats
    FROM attempts
    UNION ALL
    SELECT seed, arm, task_id, draw, 0, unnest(shown), NULL
    FROM attempts
    WHERE round = 1
),
measured AS (
    SELECT
        tried.*, surface.outcome,
        max(surface.outcome) OVER (
            PARTITION BY tried.seed, tried.arm, tried.task_id, tried.draw ORDER BY tried.round
        ) AS so_far
    FROM tried
    INNER JOIN surface ON surface.task_id = tried.task_id AND surface.setting = tried.setting
),
tops AS (
    SELECT task_id, max(outcome) AS outcome
    FROM surface
    GROUP BY task_id
),
chains AS (
    SELECT
        seed, arm, task_id, draw, round,
        any_value(so_far) AS so_far, avg(repeats::INTEGER) AS repeats
    FROM measured
    GROUP BY seed, arm, task_id, draw, round
)
SELECT
    chains.arm, chains.round,
    count(*) AS chains,
    round(exp(avg(chains.so_far)), 4) AS best_so_far,
    round(avg((chains.so_far >= tops.outcome)::INTEGER), 4) AS have_the_best,
    round(avg(chains.repeats), 4) AS repeats
FROM chains
INNER JOIN tops ON tops.task_id = chains.task_id
GROUP BY chains.arm, chains.round
ORDER BY chains.arm DESC, chains.round
