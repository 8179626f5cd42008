-- One row per rollout in the columns that verl reads, in the order of runs and steps.
SELECT
    coalesce(suite, 'rollouts') AS data_source,
    messages AS prompt,
    {'style': 'rule', 'ground_truth': coalesce(task, '')} AS reward_model,
    {
        'generation_id': generation_id, 'run_id': run_id, 'step': step, 'group_id': group_id,
        'license': license
    } AS extra_info,
    prompt_ids,
    completion_ids AS response_ids,
    CASE
        WHEN loss_mask IS NULL THEN list_transform(completion_ids, lambda token: 1::TINYINT)
        ELSE CAST(loss_mask AS TINYINT[])
    END AS response_mask,
    sampler_logprobs AS response_logprobs, old_logprobs AS old_log_probs,
    ref_logprobs AS ref_log_prob, reward AS reward_score, advantage, token_advantages AS advantages,
    2 AS num_turns
FROM rollouts
WHERE messages IS NOT NULL
ORDER BY run_id, step, group_id, sample_index, generation_id
