-- The evaluation that decides, and what the profiler says about its kernel.
SELECT
    evaluations.log,
    evaluations.max_scaled_error,
    evaluations.wall_s,
    (
        SELECT max_by(body, {'own': origin IS NULL, 'created_at': created_at})
        FROM analyses
        WHERE kernel_id = evaluations.kernel_id AND kind = 'profiler'
    ) AS diagnosis
FROM evaluations
WHERE evaluations.evaluation_id = $evaluation_id AND evaluations.kernel_id = $kernel_id
