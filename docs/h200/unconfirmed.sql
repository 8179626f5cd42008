-- Surprising wins by the clock gpu that do not rank because the second session did not confirm the first:
-- it was disturbed, the medians differ by more than 10 %, or an interval is too wide (evaluators/README.md).
-- speedups are those of both sessions over eager. Kernels released for the H100; trivial tasks and kernels that
-- compute another function are left out.
SELECT
    devices."name" AS device,
    evaluations."precision",
    task_names.task,
    round(any_value(claims.speedup), 2) AS claimed,
    list(round(sessions.speedup, 2) ORDER BY sessions.session_id) AS speedups
FROM session_speedups AS sessions
INNER JOIN evaluations ON evaluations.evaluation_id = sessions.evaluation_id
INNER JOIN devices ON devices.device_id = evaluations.device_id
INNER JOIN task_names ON task_names.task_id = evaluations.task_id
INNER JOIN claimed_speedups AS claims
    ON claims.kernel_id = evaluations.kernel_id AND claims.task_id = evaluations.task_id
ANTI JOIN nonequivalent
    ON nonequivalent.kernel_id = evaluations.kernel_id AND nonequivalent.task_id = evaluations.task_id
WHERE
    list_contains(evaluations.flags, 'unconfirmed_win')
    AND sessions.clock = 'gpu' AND sessions.baseline = 'eager'
    AND claims.gpu = 'H100' AND claims.baseline = 'eager' AND claims.released
    AND evaluations.task_id NOT IN (FROM weak_tasks)
GROUP BY devices."name", evaluations."precision", evaluations.evaluation_id, task_names.task
ORDER BY device DESC, evaluations."precision" DESC, task
