-- Lineage
-- Three generations of exemplars back and one forward: a line leads from a kernel to one that was
-- made from it. Numbers are the pooled speedups over eager, without those on tasks whose function
-- the kernel does not compute.
WITH first AS (
    SELECT DISTINCT kernel_id AS child, unnest(exemplar_kernel_ids) AS parent
    FROM generations
    WHERE kernel_id = $kernel
),
second AS (
    SELECT DISTINCT kernel_id AS child, unnest(exemplar_kernel_ids) AS parent
    FROM generations
    WHERE kernel_id IN (SELECT parent FROM first) AND kernel_id <> $kernel
),
third AS (
    SELECT DISTINCT kernel_id AS child, unnest(exemplar_kernel_ids) AS parent
    FROM generations
    WHERE kernel_id IN (SELECT parent FROM second)
        AND kernel_id NOT IN (SELECT parent FROM first) AND kernel_id <> $kernel
),
around AS (
    SELECT child, parent, 0 AS child_distance, 1 AS parent_distance FROM first
    UNION ALL
    SELECT child, parent, 1, 2 FROM second
    WHERE parent NOT IN (SELECT parent FROM first)
    UNION ALL
    SELECT child, parent, 2, 3 FROM third
    WHERE parent NOT IN (SELECT parent FROM first UNION SELECT parent FROM second)
    UNION ALL
    SELECT DISTINCT kernel_id, $kernel, -1, 0
    FROM generations
    WHERE list_contains(exemplar_kernel_ids, $kernel)
        AND kernel_id NOT IN (SELECT parent FROM first UNION SELECT parent FROM second)
),
fastest AS (
    SELECT speeds.kernel_id, max(speeds.speedup) AS speedup
    FROM pooled_speedups AS speeds
    ANTI JOIN nonequivalent
        ON nonequivalent.kernel_id = speeds.kernel_id AND nonequivalent.task_id = speeds.task_id
    WHERE speeds.baseline = 'eager'
        AND speeds.kernel_id IN (SELECT child FROM around UNION SELECT parent FROM around)
    GROUP BY speeds.kernel_id
)
SELECT
    around.child, around.parent, around.child_distance, around.parent_distance,
    child_fastest.speedup AS child_speedup, parent_fastest.speedup AS parent_speedup
FROM around
LEFT JOIN fastest AS child_fastest ON child_fastest.kernel_id = around.child
LEFT JOIN fastest AS parent_fastest ON parent_fastest.kernel_id = around.parent
WHERE around.child <> around.parent AND around.parent <> $kernel OR around.child_distance = -1
ORDER BY around.child_distance, around.parent, around.child
