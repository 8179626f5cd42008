-- Attempts
-- Every answer of the run, newest first, with its verdict on any device and its reward. A kernel
-- that computes another function has no speedup here.
-- Empty: No attempt matches. Only rollouts and trainings have attempts.
WITH mine AS (
    SELECT *
    FROM generations
    WHERE run_id = $run
),
judged AS (
    SELECT
        outcomes.kernel_id, outcomes.task_id,
        max_by(
            outcomes.status,
            {'failed': NOT outcomes.correct, 'at': outcomes.last_judged_at}
        ) AS status
    FROM outcomes
    SEMI JOIN mine ON mine.kernel_id = outcomes.kernel_id AND mine.task_id = outcomes.task_id
    GROUP BY outcomes.kernel_id, outcomes.task_id
),
fastest AS (
    SELECT speeds.kernel_id, speeds.task_id, max(speeds.speedup) AS speedup
    FROM pooled_speedups AS speeds
    SEMI JOIN mine ON mine.kernel_id = speeds.kernel_id AND mine.task_id = speeds.task_id
    ANTI JOIN nonequivalent
        ON nonequivalent.kernel_id = speeds.kernel_id AND nonequivalent.task_id = speeds.task_id
    WHERE speeds.baseline = 'eager'
    GROUP BY speeds.kernel_id, speeds.task_id
),
listed AS (
    SELECT
        left(mine.generation_id, 13) AS attempt, steps.step, task_names.task,
        CASE
            WHEN mine.kernel_id IS NULL THEN 'no kernel'
            ELSE coalesce(judged.status, 'not judged')
        END AS status,
        fastest.speedup, rewards.raw AS reward, rewards.advantage, mine.sample_index AS sample,
        len(mine.exemplar_kernel_ids) AS exemplars, mine.completion_tokens AS tokens,
        mine.finish_reason,
        mine.kernel_id, mine.prompt_id, mine.created_at AS written_at, mine.generation_id,
        mine.task_id
    FROM mine
    LEFT JOIN run_steps AS steps ON steps.generation_id = mine.generation_id
    LEFT JOIN task_names ON task_names.task_id = mine.task_id
    LEFT JOIN judged ON judged.kernel_id = mine.kernel_id AND judged.task_id = mine.task_id
    LEFT JOIN fastest ON fastest.kernel_id = mine.kernel_id AND fastest.task_id = mine.task_id
    LEFT JOIN rewards ON rewards.generation_id = mine.generation_id AND rewards.run_id = mine.run_id
)
SELECT *
FROM listed
WHERE true
    AND step = $step
    AND status = $status
    AND task = $task
ORDER BY step DESC NULLS LAST, written_at DESC, generation_id
