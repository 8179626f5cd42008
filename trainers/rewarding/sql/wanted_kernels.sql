-- The kernels that the attempts in `wanted` (generation_id) wrote, comma-separated, in one row.
SELECT string_agg(DISTINCT kernel_id, ',') AS kernels
FROM generations
SEMI JOIN wanted ON wanted.generation_id = generations.generation_id
