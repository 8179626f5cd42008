-- Single answers: sampled ones, looked up in the grid by the text of their kernel. A kernel that is not
-- in the grid counts as a speedup of 1. One row per arm. Reads `answers`, `arms` and `surface`.
WITH places AS (
    SELECT prompt_id, settings, unnest(places, max_depth := 2)
    FROM arms
)
SELECT
    places.arm,
    count(*) AS answers,
    round(avg((answers.kernel_id IS NOT NULL)::INTEGER), 4) AS with_code,
    round(avg((surface.kernel_id IS NOT NULL)::INTEGER), 4) AS in_grid,
    round(avg(coalesce(list_contains(places.settings, surface.setting), false)::INTEGER), 4) AS copies,
    round(exp(avg(coalesce(surface.outcome, 0))), 4) AS geomean,
    round(exp(avg(surface.outcome)), 4) AS geomean_in_grid
FROM answers
INNER JOIN places ON places.prompt_id = answers.prompt_id AND places.task_id = answers.task_id
    AND places.arm = answers.arm AND places.draw = answers.draw
LEFT JOIN surface
    ON surface.task_id = answers.task_id AND surface.kernel_id = answers.kernel_id
GROUP BY places.arm
ORDER BY geomean DESC
