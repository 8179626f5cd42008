-- One row per device of the winners: the models that tables call by its name. Table: _winners.
SELECT devices."name" AS device, list(DISTINCT devices.model ORDER BY devices.model) AS models
FROM devices
WHERE devices."name" IN (SELECT device FROM _winners)
GROUP BY devices."name"
