-- What improvements cost
-- One row per device and baseline. An improvement is a record of the lake set by a kernel that the
-- run wrote first; tokens are those of all attempts, device seconds the wall time of the first
-- evaluation of every new kernel, so that what failed is paid for too.
-- Empty: The run has made no attempts.
SELECT
    device, baseline, attempts, kernels, judged, improvements, improved_tasks AS "tasks improved",
    prompt_tokens, completion_tokens, device_s, cost_usd,
    tokens_per_improvement, device_s_per_improvement, cost_usd_per_improvement
FROM run_costs
WHERE run_id = $run
ORDER BY device, baseline
