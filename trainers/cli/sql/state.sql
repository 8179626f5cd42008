-- One row: what a lake has, in numbers, and the newest tag of its snapshot.
SELECT
    (SELECT count(*) FROM tasks) AS tasks,
    (SELECT count(*) FROM kernels) AS kernels,
    (SELECT count(DISTINCT kernel_id) FROM evaluations) AS judged,
    (SELECT string_agg(DISTINCT device, ', ' ORDER BY device) FROM best_kernels) AS devices,
    (SELECT count(*) FROM datasets) AS datasets,
    (SELECT count(*) FROM runs WHERE kind = 'training') AS trainings
