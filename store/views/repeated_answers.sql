-- One row per run, step and completion that several answers of the step repeat to the letter.
--
-- key columns: run, step, attempts, groups, characters, generation_id
-- attempts: number of answers with this text
-- groups: number of groups that they belong to
-- characters: length of the text
-- generation_id: the first of the answers
-- generation_ids: all of the answers
SELECT
    generations.run_id,
    runs."name" AS run,
    generations.step,
    count(*) AS attempts,
    count(DISTINCT generations.group_id) AS groups,
    min(length(generations.completion)) AS characters,
    min(generations.generation_id) AS generation_id,
    list(generations.generation_id ORDER BY generations.generation_id) AS generation_ids
FROM generations
INNER JOIN runs ON runs.run_id = generations.run_id
WHERE generations.completion IS NOT NULL
GROUP BY generations.run_id, runs."name", generations.step, hash(generations.completion)
HAVING count(*) > 1
ORDER BY generations.run_id, generations.step, attempts DESC, generation_id
