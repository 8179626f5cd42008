-- One row per name that devices have in several spellings, or that is the name of both kinds.
SELECT lower("name") AS "name"
FROM lake.devices
GROUP BY lower("name")
HAVING min("name") <> max("name") OR min(kind) <> max(kind)
