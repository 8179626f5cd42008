-- Scores of the arms, as speedups: the geometric mean over tasks and trainings of the expected answer.
-- The last rows say what the surface allows: the best setting of every task, and one drawn uniformly.
-- Reads `units`, `scores` and `surface`.
WITH masses AS (
    SELECT arm, avg(mass) AS mass
    FROM scores
    GROUP BY arm
),
tested AS (
    SELECT surface.*
    FROM surface
    SEMI JOIN units ON units.task_id = surface.task_id
)
SELECT
    units.arm,
    count(DISTINCT units.task_id) AS tasks,
    count(DISTINCT units.seed) AS trainings,
    sum(units.prompts)::BIGINT AS prompts,
    round(exp(avg(units.score)), 4) AS geomean,
    round(any_value(masses.mass), 4) AS mass_on_grid
FROM units
INNER JOIN masses ON masses.arm = units.arm
GROUP BY units.arm
UNION ALL
SELECT '(best setting)', count(*), NULL, NULL, round(exp(avg(best)), 4), NULL
FROM (SELECT task_id, max(outcome) AS best FROM tested GROUP BY task_id)
UNION ALL
SELECT '(uniform)', count(*), NULL, NULL, round(exp(avg(mean)), 4), NULL
FROM (SELECT task_id, avg(outcome) AS mean FROM tested GROUP BY task_id)
ORDER BY geomean DESC
