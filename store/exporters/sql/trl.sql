-- One row per rollout in the columns that TRL reads, in the order of runs and steps.
SELECT
    messages AS prompt,
    [{'role': 'assistant', 'content': completion}] AS completion,
    list_concat(prompt_ids, completion_ids) AS input_ids,
    list_concat(
        list_transform(prompt_ids, lambda token: -100),
        CASE
            WHEN loss_mask IS NULL THEN completion_ids
            ELSE list_transform(
                completion_ids, lambda token, i: CASE WHEN loss_mask[i] THEN token ELSE -100 END
            )
        END
    ) AS labels,
    prompt_ids, completion_ids, sampler_logprobs AS logprobs,
    CAST(loss_mask AS TINYINT[]) AS env_mask, old_logprobs, ref_logprobs, advantage,
    token_advantages, reward, rewards, task, group_id, sample_index, step, policy_step, tokenizer,
    license, generation_id, run_id
FROM rollouts
ORDER BY run_id, step, group_id, sample_index, generation_id
