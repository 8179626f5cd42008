-- The comparisons of hypotheses.sql over cells, the families with their shapes. The tasks of a cell
-- differ in their operation alone, so they are near copies: what is found over tasks is about these
-- cells, and this is about others. low and high are the 95 % t interval over cells, flipped_p is that
-- of all flips of their signs, and greatest is the largest ratio of a cell. Decides nothing. Reads
-- `units` and `surface`; t_quantile is a function of figures.py.
WITH compared (place, hypothesis, arm) AS (
    VALUES (1, 'H2a', 'reversed'), (2, 'H2b', 'no_scores'), (3, 'H1''', 'other_task')
),
cells_of_tasks AS (
    SELECT DISTINCT task_id, family, shape FROM surface
),
cells AS (
    SELECT
        compared.place, compared.hypothesis, compared.arm, cell.family, cell.shape,
        avg(units.score - other.score) AS mean,
        row_number() OVER (PARTITION BY compared.place ORDER BY cell.family, cell.shape) - 1 AS bit
    FROM compared
    INNER JOIN units AS other ON other.arm = compared.arm
    INNER JOIN units
        ON units.arm = 'right' AND units.task_id = other.task_id AND units.seed = other.seed
    INNER JOIN cells_of_tasks AS cell ON cell.task_id = units.task_id
    GROUP BY compared.place, compared.hypothesis, compared.arm, cell.family, cell.shape
),
totals AS (
    SELECT
        place, hypothesis, arm,
        count(*) AS cells, sum(mean) AS total, avg(mean) AS mean, max(mean) AS greatest,
        stddev_samp(mean) / sqrt(count(*)) AS error
    FROM cells
    GROUP BY place, hypothesis, arm
),
flips AS (
    SELECT cells.place, signs.bits, sum(cells.mean * (1 - 2 * ((signs.bits >> cells.bit) & 1))) AS total
    FROM cells
    INNER JOIN totals ON totals.place = cells.place
    INNER JOIN (SELECT unnest(range(512)) AS bits) AS signs ON signs.bits < (1 << totals.cells)
    GROUP BY cells.place, signs.bits
),
checks AS (
    SELECT
        flips.place, avg((abs(flips.total) >= abs(totals.total) - 1e-12)::INTEGER) AS flipped_p
    FROM flips
    INNER JOIN totals ON totals.place = flips.place
    GROUP BY flips.place
)
SELECT
    totals.hypothesis,
    'right over ' || totals.arm AS compared,
    totals.cells,
    round(exp(totals.mean), 4) AS ratio,
    round(exp(totals.mean - t_quantile(0.975, totals.cells - 1) * totals.error), 4) AS low,
    round(exp(totals.mean + t_quantile(0.975, totals.cells - 1) * totals.error), 4) AS high,
    round(totals.error, 4) AS standard_error,
    round(checks.flipped_p, 5) AS flipped_p,
    round(exp(totals.greatest), 4) AS greatest
FROM totals
INNER JOIN checks ON checks.place = totals.place
ORDER BY totals.place
