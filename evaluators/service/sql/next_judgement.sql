-- A client's next judgment: of its highest priority, of a loaded task among the oldest,
-- and else the oldest. What has waited long is not passed over for a loaded task.
-- Parameters: client, device_class, loaded (JSON list of task_ids), long_ago (a time).
WITH oldest AS (
    SELECT judgements.*, requests.priority
    FROM judgements
    INNER JOIN requests ON requests.judgement_id = judgements.judgement_id
    WHERE
        judgements.state = 'queued'
        AND judgements.device_class = :device_class
        AND requests.client = :client
    ORDER BY requests.priority DESC, judgements.sequence
    LIMIT 32
)
SELECT *
FROM oldest
ORDER BY
    priority DESC,
    submitted_at < :long_ago DESC,
    submitted_at >= :long_ago AND task_id IN (SELECT value FROM json_each(:loaded)) DESC,
    sequence
LIMIT 1
