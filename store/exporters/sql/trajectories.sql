-- One row per attempt of a trajectory of several attempts that is no agent session, in order.
-- Parameter: run (NULL for every run).
WITH several AS (
    SELECT trajectory_id
    FROM generations
    WHERE trajectory_id IS NOT NULL AND ($run IS NULL OR run_id = $run)
    GROUP BY trajectory_id
    HAVING count(*) > 1
),
attempts AS (
    SELECT generations.*
    FROM generations
    SEMI JOIN several ON several.trajectory_id = generations.trajectory_id
    ANTI JOIN sessions ON sessions.session_id = generations.trajectory_id
    WHERE $run IS NULL OR run_id = $run
),
tokens AS (
    SELECT generation_id, prompt_ids, completion_ids, sampler_logprobs
    FROM rollout_tokens
    SEMI JOIN attempts ON attempts.generation_id = rollout_tokens.generation_id
)
SELECT
    attempts.trajectory_id, attempts.turn, attempts.completion, attempts.prompt_tokens,
    attempts.completion_tokens, attempts.created_at, attempts.source, attempts.license,
    prompts.messages, policies."name" AS model,
    coalesce(task_names.task, attempts.problem) AS named,
    tokens.prompt_ids, tokens.completion_ids, tokens.sampler_logprobs
FROM attempts
INNER JOIN policies ON policies.policy_id = attempts.policy_id
LEFT JOIN prompts ON prompts.prompt_id = attempts.prompt_id
LEFT JOIN task_names ON task_names.task_id = attempts.task_id
LEFT JOIN tokens ON tokens.generation_id = attempts.generation_id
ORDER BY
    attempts.trajectory_id, attempts.turn NULLS FIRST, attempts.created_at, attempts.generation_id
