-- Step by step
-- Messages in their order, each with the tool calls that it made and their results. Long texts are
-- cut; the JSON has them whole.
-- Empty: The source records no messages of this session.
WITH calls AS (
    SELECT
        step,
        list(
            {'tool': tool, 'arguments': arguments, 'result': result, 'is_error': is_error}
            ORDER BY call_index
        ) AS calls
    FROM tool_calls
    WHERE session_id = $session
    GROUP BY step
)
SELECT
    steps.step, steps."role", steps.model, steps.reasoning, steps.content, calls.calls,
    steps.prompt_tokens, steps.completion_tokens, steps.created_at AS sent_at,
    steps.generation_id, generations.kernel_id
FROM session_steps AS steps
LEFT JOIN calls ON calls.step = steps.step
LEFT JOIN generations ON generations.generation_id = steps.generation_id
WHERE steps.session_id = $session
ORDER BY steps.step
