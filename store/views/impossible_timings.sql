-- One row per row of clocked_timings whose fields no timing session can have, with the rule it breaks.
-- rule is the first of these that the row breaks; the checks of the table already refuse figures that
-- are not finite. No judge writes such rows; they arrive by append, import or pull. A session with
-- such an arm is noisy by the clock of that arm (session_arms, timed_arms) and ranks nothing by it,
-- since its other arms cannot be believed either. `store check` reports the rows.
SELECT
    timing_id, session_id, evaluation_id, kernel_id, task_id, arm, clock,
    CASE
        WHEN inner_loops < 1 THEN 'a sample is of at least one call'
        WHEN overhead_ms < 0 OR resolution_ms < 0
            THEN 'overhead_ms and resolution_ms are not negative'
        -- The first condition, which is the quickest, is false for nearly all rows.
        WHEN
            blocks <> range(len(blocks))::INTEGER[]
            AND (list_min(blocks) < 0 OR list_unique(blocks) < len(blocks))
            THEN 'blocks are not negative, and each occurs once'
        WHEN len(positions) <> len(blocks) OR list_min(positions) < 0
            THEN 'every sample has its position, which is not negative'
        WHEN len(control_ratios) <> len(blocks) OR list_min(control_ratios) <= 0
            THEN 'every sample has its control ratio, which is positive'
    END AS "rule"
FROM clocked_timings
WHERE "rule" IS NOT NULL
