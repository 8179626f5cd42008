-- One row per step of stage 3: what its answers came to, and what the store took of its seconds.
-- cut_off counts answers that reached the limit of tokens, copies those that repeat the text of a
-- kernel of their prompt. store_share is rendering prompts, appending
-- attempts and computing rewards, with judging left out. Steps that an interruption cut short have no
-- metrics.
WITH answers AS (
    SELECT
        generations.run_id, generations.step,
        count(*) AS answers,
        count(generations.kernel_id) AS with_code,
        count(*) FILTER (WHERE judged.correct) AS correct,
        count(*) FILTER (WHERE generations.finish_reason = 'length') AS cut_off,
        count(copies.generation_id) AS copies
    FROM generations
    LEFT JOIN copies ON copies.generation_id = generations.generation_id
    LEFT JOIN (
        SELECT kernel_id, task_id, bool_and(correct) AS correct FROM outcomes GROUP BY ALL
    ) AS judged
        ON judged.kernel_id = generations.kernel_id AND judged.task_id = generations.task_id
    WHERE generations.step IS NOT NULL
    GROUP BY ALL
),
-- Prompts and rewards of step n stand with the metrics that are logged at its end, as n + 1.
seconds AS (
    SELECT
        run_id, step - 1 AS step,
        max(value) FILTER (WHERE "name" = 'step_time') AS step_s,
        max(value) FILTER (WHERE "name" = 'store/judged_s') AS judged_s,
        sum(value) FILTER (
            WHERE "name" IN ('prompts/render_s', 'store/attempts_s', 'store/rewards_s')
        ) AS store_s
    FROM metrics
    GROUP BY ALL
)
SELECT
    json_extract_string(runs.config, '$.config.arm') AS arm,
    json_extract_string(runs.config, '$.config.seed') AS seed,
    answers.* EXCLUDE (run_id),
    round(seconds.step_s, 1) AS step_s,
    round(seconds.judged_s, 1) AS judged_s,
    round(seconds.store_s, 2) AS store_s,
    round(seconds.store_s / seconds.step_s, 4) AS store_share
FROM answers
INNER JOIN runs ON runs.run_id = answers.run_id
LEFT JOIN seconds ON seconds.run_id = answers.run_id AND seconds.step = answers.step
WHERE runs."name" = 'contrastive'
ORDER BY arm DESC, seed, answers.step
