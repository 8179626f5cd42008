-- One row per step of some sessions, with its calls in their order and the tokens of its attempt.
-- Parameter: session_ids.
WITH asked AS (
    SELECT unnest($session_ids) AS session_id
),
calls AS (
    SELECT
        session_id, step,
        list({
            'tool': tool, 'arguments': arguments, 'result': "result", 'is_error': is_error
        } ORDER BY call_index) AS calls
    FROM tool_calls
    SEMI JOIN asked ON asked.session_id = tool_calls.session_id
    GROUP BY session_id, step
)
SELECT
    steps.*, calls.calls, tokens.prompt_ids, tokens.completion_ids, tokens.sampler_logprobs
FROM session_steps AS steps
SEMI JOIN asked ON asked.session_id = steps.session_id
LEFT JOIN calls ON calls.session_id = steps.session_id AND calls.step = steps.step
LEFT JOIN rollout_tokens AS tokens ON tokens.generation_id = steps.generation_id
ORDER BY steps.session_id, steps.step
