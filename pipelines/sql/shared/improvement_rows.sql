-- One row per improvement: the exemplars in the order shown, then the faster kernel, with facts.
-- The order is drawn by a hash, as in contrastive-batch. A draw with fewer exemplars than asked for
-- is left out, and so is one that shows the kernels of an earlier one. gain is the lower end of the
-- interval of the ratio between the answer and the fastest exemplar. Facts are what the newest
-- extractor sees in a kernel, its measured time, and the bottleneck that dominates in its newest
-- profile on the device that the row speaks of, at the workload of its score where there is one;
-- pulled profiles count only for a kernel without an own one there.
-- `winners` (pair_id, task_id, kernel_id, turn) and `exemplars` (task_id: the pair, kernel_id) are
-- registered, and `eligible` defined.
WITH used AS (
    SELECT DISTINCT kernel_id
    FROM (SELECT kernel_id FROM winners UNION ALL SELECT kernel_id FROM exemplars)
),
bottlenecks AS (
    SELECT
        eligible.task_id, eligible.kernel_id,
        max({
            'workload': profiles.workload_id = eligible.workload_id, 'own': profiles.own,
            'at': profiles.profiled_at, 'id': profiles.analysis_id, 'name': profiles.bottleneck
        }).name AS bottleneck
    FROM eligible
    SEMI JOIN used ON used.kernel_id = eligible.kernel_id
    INNER JOIN profiles
        ON
            profiles.kernel_id = eligible.kernel_id
            AND profiles.task_id = eligible.task_id
            AND profiles.device = eligible.scored_on
    WHERE
        profiles.bottleneck <> 'unknown'
        AND coalesce(profiles.confidence, 1) >= 0.3
        -- Names only: imported and pulled rows are foreign text, and the answer has headings.
        AND regexp_full_match(profiles.bottleneck, '[a-z0-9_]{1,40}')
    GROUP BY eligible.task_id, eligible.kernel_id
),
facts AS (
    SELECT
        eligible.task_id, eligible.kernel_id, eligible.score, eligible.low, eligible.reach,
        eligible.score_low, eligible.score_high, eligible.evaluation_id, eligible.workload_id,
        eligible.scored_on, eligible.shapes,
        {
            'kernel_ms': eligible.kernel_ms,
            'language': features."language",
            'techniques': list_filter(
                coalesce(features.techniques, []),
                lambda one: regexp_full_match(one, '[a-z0-9_]{1,40}')
            ),
            'bottleneck': bottlenecks.bottleneck
        } AS facts
    FROM eligible
    SEMI JOIN used ON used.kernel_id = eligible.kernel_id
    LEFT JOIN features ON features.kernel_id = eligible.kernel_id
    LEFT JOIN bottlenecks
        ON
            bottlenecks.kernel_id = eligible.kernel_id
            AND bottlenecks.task_id = eligible.task_id
),
gathered AS (
    SELECT
        winners.pair_id, winners.task_id, winners.kernel_id, winners.turn,
        max(facts.reach) AS beaten,
        list(
            {
                'kernel_id': facts.kernel_id, 'score': round(facts.score, 2),
                'low': facts.score_low, 'high': facts.score_high,
                'checks': len(evaluations.seeds),
                'scored_on': facts.scored_on, 'facts': facts.facts, 'shapes': facts.shapes
            }
            ORDER BY md5_number_lower(
                concat_ws(':', $seed, 'shown', winners.pair_id, facts.kernel_id)
            )
        ) AS shown
    FROM winners
    INNER JOIN exemplars ON exemplars.task_id = winners.pair_id
    INNER JOIN facts
        ON facts.task_id = winners.task_id AND facts.kernel_id = exemplars.kernel_id
    LEFT JOIN evaluations
        ON
            evaluations.evaluation_id = facts.evaluation_id
            AND evaluations.kernel_id = facts.kernel_id
            AND evaluations.task_id = facts.task_id
    GROUP BY winners.pair_id, winners.task_id, winners.kernel_id, winners.turn
    HAVING count(*) = $exemplars
    -- Draws of a task that show the same kernels are one row.
    QUALIFY row_number() OVER (
        PARTITION BY winners.task_id, list_sort(list(facts.kernel_id)) ORDER BY winners.turn
    ) = 1
)
SELECT
    gathered.task_id,
    list_append(
        list_transform(gathered.shown, lambda one: one.kernel_id), gathered.kernel_id
    ) AS kernel_ids,
    gathered.kernel_id,
    list_transform(gathered.shown, lambda one: one.kernel_id) AS exemplar_kernel_ids,
    list_transform(gathered.shown, lambda one: one.score) AS exemplar_scores,
    list_transform(gathered.shown, lambda one: one.low) AS exemplar_lows,
    list_transform(gathered.shown, lambda one: one.high) AS exemplar_highs,
    list_transform(gathered.shown, lambda one: one.scored_on) AS exemplar_devices,
    list_transform(gathered.shown, lambda one: one.shapes) AS _exemplar_shapes,
    list_transform(gathered.shown, lambda one: one.checks) AS exemplar_checks,
    round(winner.score, 2) AS score,
    round(winner.low / gathered.beaten, 4) AS gain,
    'measured' AS evidence,
    CAST($device AS VARCHAR) AS device,
    $baseline AS baseline,
    winner.workload_id,
    workloads.axes AS _axes,
    list_append(list_transform(gathered.shown, lambda one: one.facts), winner.facts) AS _facts
FROM gathered
INNER JOIN facts AS winner
    ON winner.task_id = gathered.task_id AND winner.kernel_id = gathered.kernel_id
LEFT JOIN workloads ON workloads.workload_id = winner.workload_id
ORDER BY
    gathered.turn, md5_number_lower(concat_ws(':', $seed, 'task', gathered.task_id)),
    gathered.task_id
