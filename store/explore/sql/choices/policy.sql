-- Authors
SELECT DISTINCT name
FROM policies
ORDER BY name
