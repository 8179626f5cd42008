-- Best kernels over time, with what they were made from
-- One row per step that raised the run's best speedup of a task over eager, newest first. bound is
-- the lower end of the interval. record says whether it is above everything that the lake had
-- measured before. made from names the exemplars with their scores as shown, or the attempt that it
-- continues.
-- Empty: No kernel of the run has a quiet timing session against eager yet: evaluators run.
WITH parents AS (
    SELECT
        generation_id,
        string_agg(
            relation || ' ' || left(parent_kernel_id, 12)
            || coalesce(' at ' || round(score, 2), ''), ', '
            ORDER BY score DESC NULLS LAST, parent_kernel_id, relation
        ) AS made_from
    FROM lineage
    GROUP BY generation_id
)
SELECT
    bests.step, bests.speedup, bests.speedup_low AS "bound", bests.task, bests.device,
    bests.previous_low, bests.record, bests.kernel_id,
    coalesce(parents.made_from, 'nothing shown') AS "made from",
    left(bests.generation_id, 13) AS attempt, bests.generation_id, bests.task_id,
    count(*) OVER () AS total
FROM run_bests AS bests
LEFT JOIN parents ON parents.generation_id = bests.generation_id
WHERE bests.run_id = $run AND bests.baseline = 'eager'
ORDER BY bests.step DESC NULLS LAST, bests.task, bests.device, bests.kernel_id
