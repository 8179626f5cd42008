-- `eligible` where no kernel is shown.
SELECT
    CAST(NULL AS VARCHAR) AS task_id,
    CAST(NULL AS VARCHAR) AS kernel_id,
    CAST(NULL AS DOUBLE) AS score,
    CAST(NULL AS DOUBLE) AS score_low,
    CAST(NULL AS DOUBLE) AS score_high,
    CAST(NULL AS DOUBLE) AS low,
    CAST(NULL AS DOUBLE) AS reach,
    CAST(NULL AS BOOLEAN) AS beside_reference,
    CAST(NULL AS VARCHAR) AS evaluation_id,
    CAST(NULL AS VARCHAR) AS workload_id,
    CAST(NULL AS VARCHAR) AS shapes,
    CAST(NULL AS VARCHAR) AS scored_on,
    CAST(NULL AS BOOLEAN) AS implied
WHERE false
