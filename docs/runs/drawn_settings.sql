-- What would answers be worth whose settings of knobs are drawn at random from the supervised rows,
-- with no regard to the prompt? One row per side and whether arm none has a correct answer at the
-- task. bare and shown are geometric means over tasks of a drawn setting of the rows with bare
-- prompts, and of those with kernels in the prompt, of the same family; best_bare and best_shown are
-- those of the faster of two draws. ratio and best_ratio are shown to bare. A setting has the mean
-- speedup over eager (in logarithms) of its kernels at all tasks of the family with the same sizes,
-- on the GPU that judged the supervised rows. One below 1 counts as 1; settings without a speedup
-- are not drawn.
WITH settings AS (
    SELECT
        kernel_id,
        array_to_string(list_sort(regexp_extract_all(code, '(?m)^[A-Z_]+ = \d+')), ', ') AS setting
    FROM kernels
),
tasks_of_families AS (
    SELECT
        task_names.task_id, task_names.split,
        replace(task_names.family, ':held-out', '') AS family,
        workloads.axes
    FROM task_names
    INNER JOIN workloads ON workloads.task_id = task_names.task_id
    WHERE workloads.name = 'cuda'
),
targets AS (
    SELECT DISTINCT
        dataset_rows.row_index, dataset_rows.task_id, dataset_rows.kernel_ids[-1] AS kernel_id,
        len(dataset_rows.kernel_ids) = 1 AS bare
    FROM dataset_rows
    INNER JOIN datasets ON datasets.dataset_id = dataset_rows.dataset_id
    WHERE datasets.pipeline = 'sft'
),
speeds AS (
    SELECT kernel_id, task_id, min(speedup) AS speedup
    FROM scored_speedups
    WHERE
        baseline = 'eager'
        AND device IN (
            SELECT judged.device
            FROM scored_speedups AS judged
            WHERE (judged.kernel_id, judged.task_id) IN (SELECT (kernel_id, task_id) FROM targets)
        )
    GROUP BY kernel_id, task_id
),
means AS (
    SELECT speeds.task_id, settings.setting, avg(ln(speeds.speedup)) AS gain
    FROM speeds
    INNER JOIN settings ON settings.kernel_id = speeds.kernel_id
    GROUP BY speeds.task_id, settings.setting
),
surface AS (
    SELECT
        tasks_of_families.family, tasks_of_families.axes, means.setting, avg(means.gain) AS gain
    FROM means
    INNER JOIN tasks_of_families ON tasks_of_families.task_id = means.task_id
    GROUP BY tasks_of_families.family, tasks_of_families.axes, means.setting
),
attempted AS (
    SELECT
        generations.task_id,
        bool_or((generations.kernel_id, generations.task_id) IN (
            SELECT (kernel_id, task_id) FROM verdicts WHERE correct
        )) FILTER (generations.namespace SIMILAR TO '(arms|stage3)/none/.*') AS by_none
    FROM generations
    WHERE generations.namespace SIMILAR TO '(arms|stage3)/.*'
    GROUP BY generations.task_id
),
draws AS (
    SELECT
        tasks_of_families.task_id, tasks_of_families.split,
        coalesce(attempted.by_none, false) AS by_none,
        targets.row_index, targets.bare, greatest(surface.gain, 0) AS gain
    FROM attempted
    INNER JOIN tasks_of_families ON tasks_of_families.task_id = attempted.task_id
    INNER JOIN tasks_of_families AS taught ON taught.family = tasks_of_families.family
    INNER JOIN targets ON targets.task_id = taught.task_id
    INNER JOIN settings ON settings.kernel_id = targets.kernel_id
    INNER JOIN surface
        ON
            surface.family = tasks_of_families.family
            AND surface.axes = tasks_of_families.axes
            AND surface.setting = settings.setting
),
expected AS (
    SELECT
        draws.split, draws.by_none, draws.task_id, draws.bare,
        avg(draws.gain) AS gain, avg(greatest(draws.gain, others.gain)) AS best
    FROM draws
    INNER JOIN draws AS others
        ON others.task_id = draws.task_id AND others.bare = draws.bare
    GROUP BY draws.split, draws.by_none, draws.task_id, draws.bare
)
SELECT
    bare.split, bare.by_none,
    count(*) AS tasks,
    round(exp(avg(bare.gain)), 4) AS bare,
    round(exp(avg(shown.gain)), 4) AS shown,
    round(exp(avg(shown.gain - bare.gain)), 4) AS ratio,
    round(exp(avg(bare.best)), 4) AS best_bare,
    round(exp(avg(shown.best)), 4) AS best_shown,
    round(exp(avg(shown.best - bare.best)), 4) AS best_ratio
FROM expected AS bare
INNER JOIN expected AS shown ON shown.task_id = bare.task_id AND bare.bare AND NOT shown.bare
GROUP BY bare.split, bare.by_none
ORDER BY bare.split, bare.by_none
