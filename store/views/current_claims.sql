-- One row per figure that a source states now: of several revisions, the one imported last.
-- This view alone decides which claims count; every other view reads claims through it. A release
-- restates all of its figures in each revision, so the revision imported last replaces every
-- earlier one for the same GPU (and the same file, for sources with several files per GPU). The
-- older form of the CUDA-L1 release (cuda-l1/codes) counts only for a GPU without the newer one. For
-- other sources, a later import replaces only the figures that it states again for the same kernel.
-- An aggregate figure belongs to its revision: a later revision of a paper does not replace it.
-- Importing a revision a second time stores nothing and does not make that revision the last one.
-- What this lake imported comes before what it pulled, whatever the time: a pulled claim replaces no
-- own one, and pulled claims of a release count only for a GPU (and file) without own claims.
--
-- key columns: task_id, gpu, baseline, metric, speedup, value, source
-- claim_id: claim (table claims)
-- speedup: published speedup over the baseline (a ratio); NULL for another metric
-- value: published value, if the metric is not a speedup
-- quote: words of the source that state the figure; NULL if it was read from data
-- problem: problem of the source that the figure is about, where the lake has no task for it
-- policy_id: author that the figure is about; NULL if the source names none
WITH stated AS (
    SELECT
        *,
        max(created_at) OVER (PARTITION BY coalesce(run_id, claim_id)) AS imported_at,
        origin IS NULL AS own,
        CASE
            WHEN task_id IS NULL THEN NULL
            WHEN "source" IN ('cuda-l1', 'cuda-l1/codes') THEN ''
            WHEN "source" = 'SakanaAI/AI-CUDA-Engineer-Archive'
                THEN regexp_extract(coalesce(quote, ''), '[^ ]+\.parquet')
        END AS release_file
    FROM claims
),
ordered AS (
    SELECT
        *,
        first_value({'source': "source", 'revision': source_revision, 'own': own}) OVER (
            PARTITION BY split_part("source", '/codes', 1), gpu, release_file
            ORDER BY
                own DESC, "source" = 'cuda-l1/codes', imported_at DESC, run_id DESC,
                source_revision DESC
        ) AS last_revision,
        -- Not row_number: what one import states twice, it states twice.
        rank() OVER (
            PARTITION BY
                "source", policy_id, task_id, gpu, baseline, metric,
                suite, suite_revision, "level",
                CASE WHEN task_id IS NULL THEN source_revision ELSE quote END,
                CASE WHEN release_file IS NULL THEN kernel_id END
            ORDER BY own DESC, imported_at DESC, run_id DESC, source_revision DESC
        ) AS place
    FROM stated
)
SELECT * EXCLUDE (imported_at, own, release_file, last_revision, place)
FROM ordered
WHERE
    place = 1
    AND (
        release_file IS NULL
        OR {'source': "source", 'revision': source_revision, 'own': own} = last_revision
    )
