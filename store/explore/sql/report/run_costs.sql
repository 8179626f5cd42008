-- What improvements cost
-- One row per device and baseline. An improvement is a record of the lake by a kernel that the run
-- wrote first. Tokens are those of all attempts, and device seconds are the wall time of the first
-- evaluation of every new kernel, so failures are paid for too.
-- Empty: The run has made no attempts.
SELECT
    device, baseline, attempts, kernels, judged, improvements, improved_tasks AS "tasks improved",
    prompt_tokens, completion_tokens, device_s, cost_usd,
    tokens_per_improvement, device_s_per_improvement, cost_usd_per_improvement
FROM run_costs
WHERE run_id = $run
ORDER BY device, baseline
