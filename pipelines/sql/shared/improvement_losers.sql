-- One row per winner and kernel of its task that it beats by the margin: what its prompt may show.
-- The pair takes the place of the task, so that the draw of contrastive-batch draws for each pair.
-- `winners` (pair_id, task_id, low) is registered, and `eligible` defined.
SELECT
    winners.pair_id AS task_id, eligible.kernel_id, eligible.score,
    eligible.low, eligible.reach, eligible.beside_reference
FROM winners
INNER JOIN eligible
    ON
        eligible.task_id = winners.task_id
        AND winners.low / $margin >= eligible.reach
