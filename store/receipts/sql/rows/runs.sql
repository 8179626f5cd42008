-- Runs that judged a kernel, with the options of the judge.
FROM runs
WHERE
    run_id IN (
        SELECT run_id
        FROM evaluations
        WHERE kernel_id = $kernel
    )
ORDER BY run_id
