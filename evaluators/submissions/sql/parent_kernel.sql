-- The newest attempt at a task that wrote a kernel. Whoever names the kernel begins a session.
SELECT generation_id, NULL::VARCHAR AS session_id
FROM generations
WHERE kernel_id = $kernel_id AND task_id = $task_id
ORDER BY created_at DESC, generation_id DESC
LIMIT 1
