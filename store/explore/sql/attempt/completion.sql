-- Answer
-- The text that the author returned.
SELECT completion AS body, finish_reason, parse_error, completion_tokens AS tokens
FROM generations
WHERE generation_id = $attempt AND completion IS NOT NULL
ORDER BY tokens
