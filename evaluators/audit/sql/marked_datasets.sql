-- One row per dataset that holds a marked kernel: quarantined, or undecided and sure enough.
-- tag is the name of the snapshot that the dataset was made from, where it has one.
WITH marked AS (
    SELECT kernel_id, list_distinct(list(class)) AS classes, bool_or(quarantined) AS quarantined
    FROM (
        SELECT kernel_id, class, decision IS NOT DISTINCT FROM 'confirmed' AS quarantined
        FROM finding_standings
        WHERE
            decision = 'confirmed'
            OR (decision IS NULL AND coalesce(confidence, 1) >= $look_from)
        UNION ALL
        -- A copy of a quarantined kernel may have no finding of its own.
        SELECT kernel_id, NULL AS class, true AS quarantined FROM quarantined
    )
    WHERE $kernel_id IS NULL OR kernel_id = $kernel_id
    GROUP BY kernel_id
),
held AS (
    SELECT dataset_id, row_index, unnest(kernel_ids) AS kernel_id FROM dataset_rows
),
hits AS (
    SELECT
        held.dataset_id,
        count(DISTINCT held.row_index) AS marked_rows,
        count(DISTINCT held.kernel_id) AS kernels,
        count(DISTINCT held.kernel_id) FILTER (WHERE marked.quarantined) AS quarantined,
        list_sort(list_distinct(flatten(list(marked.classes)))) AS classes
    FROM held
    INNER JOIN marked ON marked.kernel_id = held.kernel_id
    GROUP BY held.dataset_id
),
named AS (
    SELECT snapshot_id, string_agg(name, ', ' ORDER BY name) AS tag
    FROM current_tags
    GROUP BY snapshot_id
)
SELECT
    datasets.name,
    datasets.dataset_id,
    named.tag,
    datasets.snapshot_id AS snapshot,
    datasets.rows,
    hits.marked_rows,
    hits.kernels,
    hits.quarantined,
    array_to_string(hits.classes, ', ') AS classes
FROM hits
INNER JOIN datasets ON datasets.dataset_id = hits.dataset_id
LEFT JOIN named ON named.snapshot_id = datasets.snapshot_id
ORDER BY hits.quarantined DESC, hits.marked_rows DESC, datasets.created_at DESC, datasets.dataset_id
