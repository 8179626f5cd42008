-- The rows of `scored`, in which kernels of other namespaces (`hidden`) are dropped.
SELECT
    scored.* REPLACE (
        coalesce(
            scored.dropped, CASE WHEN hidden.kernel_id IS NOT NULL THEN 'another namespace' END
        ) AS dropped
    )
FROM scored
LEFT JOIN hidden ON hidden.task_id = scored.task_id AND hidden.kernel_id = scored.kernel_id
