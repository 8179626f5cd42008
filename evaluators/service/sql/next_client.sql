-- The client with queued work of a device class that has been charged the least.
-- Parameter: device_class.
SELECT requests.client
FROM judgements
INNER JOIN requests ON requests.judgement_id = judgements.judgement_id
LEFT JOIN shares
    ON shares.client = requests.client AND shares.device_class = judgements.device_class
WHERE judgements.state = 'queued' AND judgements.device_class = :device_class
GROUP BY requests.client
ORDER BY coalesce(max(shares.used_s), 0), requests.client
LIMIT 1
