-- The evaluation that decides, and its own profile, or else the newest one of its kernel.
SELECT
    evaluations.log,
    evaluations.max_scaled_error,
    evaluations.wall_s,
    (
        SELECT
            max_by(analyses.body, {
                'mine': coalesce(analyses.evaluation_id = evaluations.evaluation_id, false),
                'own': analyses.origin IS NULL, 'created_at': analyses.created_at
            })
        FROM analyses
        WHERE analyses.kernel_id = evaluations.kernel_id AND analyses.kind = 'profiler'
    ) AS diagnosis
FROM evaluations
WHERE evaluations.evaluation_id = $evaluation_id AND evaluations.kernel_id = $kernel_id
