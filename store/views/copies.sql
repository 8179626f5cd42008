-- One row per generation that repeats a kernel of its prompt: its code is that of an exemplar.
-- Ids of kernels do not tell, because they depend on paths as well.
--
-- generation_id: attempt that repeats an exemplar
SELECT DISTINCT answers.generation_id
FROM (
    SELECT generation_id, kernel_id, unnest(exemplar_kernel_ids) AS exemplar_id
    FROM generations
) AS answers
INNER JOIN kernels AS answered ON answered.kernel_id = answers.kernel_id
INNER JOIN kernels AS exemplars
    ON exemplars.kernel_id = answers.exemplar_id AND exemplars.code = answered.code
