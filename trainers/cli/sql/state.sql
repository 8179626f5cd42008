-- One row: what a lake has, in numbers.
SELECT
    (SELECT count(*) FROM tasks) AS tasks,
    (SELECT count(*) FROM kernels) AS kernels,
    (SELECT count(DISTINCT kernel_id) FROM evaluations) AS judged,
    (SELECT count(*) FROM datasets) AS datasets,
    (SELECT count(*) FROM runs WHERE kind = 'training') AS trainings
