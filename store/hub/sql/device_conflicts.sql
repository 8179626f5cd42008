-- One row per name of an incoming device that a device here has in another spelling, or with another
-- kind, or that the incoming devices themselves have so. A name that is here with this kind is none.
WITH known AS (
    SELECT "name", kind FROM _incoming
    UNION
    SELECT "name", kind FROM devices
)
SELECT DISTINCT incoming."name", incoming.kind, known."name" AS known_name, known.kind AS known_kind
FROM _incoming AS incoming
INNER JOIN known ON lower(known."name") = lower(incoming."name")
ANTI JOIN devices ON devices."name" = incoming."name" AND devices.kind = incoming.kind
WHERE known."name" <> incoming."name" OR known.kind <> incoming.kind
ORDER BY ALL
