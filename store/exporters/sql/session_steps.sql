-- One row per step of some sessions, with its calls in their order and the tokens of its attempt.
-- Parameter: session_ids.
WITH asked AS (
    SELECT unnest($session_ids) AS session_id
),
steps AS (
    SELECT session_steps.*
    FROM session_steps
    SEMI JOIN asked ON asked.session_id = session_steps.session_id
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
),
-- Only the tokens of these steps: a join keeps one side in memory.
tokens AS (
    SELECT generation_id, prompt_ids, completion_ids, sampler_logprobs
    FROM rollout_tokens
    SEMI JOIN steps ON steps.generation_id = rollout_tokens.generation_id
)
SELECT
    steps.*, calls.calls, tokens.prompt_ids, tokens.completion_ids, tokens.sampler_logprobs
FROM steps
LEFT JOIN calls ON calls.session_id = steps.session_id AND calls.step = steps.step
LEFT JOIN tokens ON tokens.generation_id = steps.generation_id
ORDER BY steps.session_id, steps.step
