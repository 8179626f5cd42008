-- One row per attempt of these groups: the rules that have rewarded it.
SELECT
    generations.generation_id,
    coalesce(
        list({'rule': rewards.rule, 'rule_version': rewards.rule_version})
            FILTER (WHERE rewards.rule IS NOT NULL),
        []
    ) AS rules
FROM generations
LEFT JOIN rewards
    ON rewards.generation_id = generations.generation_id AND rewards.run_id = generations.run_id
WHERE generations.group_id IN (SELECT unnest($1))
GROUP BY generations.generation_id
