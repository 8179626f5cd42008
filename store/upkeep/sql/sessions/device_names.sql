-- One row per name of devices that is not printable ASCII with single spaces between words.
SELECT DISTINCT "name"
FROM lake.devices
WHERE NOT regexp_full_match("name", '[!-~]+( [!-~]+)*')
