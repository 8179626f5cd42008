-- Devices
SELECT DISTINCT name
FROM devices
ORDER BY name
