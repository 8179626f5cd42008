-- A kernel, with its language, its authors, and why no dataset may have it.
SELECT
    kernels.kernel_id,
    kernels.code,
    kernels.path,
    kernels.entry_point,
    kernels.other_files,
    coalesce(kernels.build_flags, []) AS build_flags,
    kernels.source,
    kernels.source_revision,
    features."language",
    (
        SELECT list(DISTINCT policy ORDER BY policy)
        FROM authors
        WHERE kernel_id = $kernel
    ) AS authors,
    (
        SELECT any_value(reason)
        FROM withheld
        WHERE kernel_id = $kernel
    ) AS withheld
FROM kernels
LEFT JOIN features ON features.kernel_id = kernels.kernel_id
WHERE kernels.kernel_id = $kernel
