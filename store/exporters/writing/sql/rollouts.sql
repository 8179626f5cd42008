-- One row per attempt with tokens that may leave for training.
-- Left out are attempts at a test task or a copy of one, prompts for evaluation, attempts that have
-- or were shown a kernel that no dataset may contain (view withheld) with the other turns of their
-- trajectories, and attempts without the ids of their prompt.
-- Parameter: run (NULL for every run).
WITH attempts AS (
    SELECT *, coalesce(trajectory_id, generation_id) AS trajectory
    FROM generations
    WHERE $run IS NULL OR run_id = $run
),
shown AS (
    SELECT trajectory, unnest(list_append(exemplar_kernel_ids, kernel_id)) AS kernel_id
    FROM attempts
),
kept_back AS (
    SELECT DISTINCT shown.trajectory
    FROM shown
    SEMI JOIN withheld ON withheld.kernel_id = shown.kernel_id
),
terms AS (
    SELECT
        run_id, generation_id,
        -- Terms that were logged add up; of a rule's versions, the newest counts.
        coalesce(sum(raw) FILTER (rule_version = 0), max_by(raw, rule_version)) AS reward,
        list({'name': rule, 'value': raw} ORDER BY rule, rule_version) AS rewards
    FROM rewards
    WHERE $run IS NULL OR run_id = $run
    GROUP BY run_id, generation_id
)
SELECT
    tokens.*, terms.reward, terms.rewards, attempts.group_id, attempts.sample_index,
    attempts.completion, attempts.license, task_names.suite,
    coalesce(task_names.task, attempts.problem) AS task,
    from_json(prompts.messages, '[{"role": "VARCHAR", "content": "VARCHAR"}]') AS messages
FROM rollout_tokens AS tokens
INNER JOIN attempts
    ON attempts.generation_id = tokens.generation_id AND attempts.run_id = tokens.run_id
ANTI JOIN kept_back ON kept_back.trajectory = attempts.trajectory
ANTI JOIN test_tasks ON test_tasks.task_id = attempts.task_id
LEFT JOIN terms ON terms.generation_id = tokens.generation_id AND terms.run_id = tokens.run_id
LEFT JOIN prompts ON prompts.prompt_id = attempts.prompt_id
LEFT JOIN task_names ON task_names.task_id = attempts.task_id
WHERE
    ($run IS NULL OR tokens.run_id = $run)
    AND tokens.prompt_ids IS NOT NULL
    AND prompts.purpose IS DISTINCT FROM 'eval'
