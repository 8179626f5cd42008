-- One row per timing with a control ratio that no two times can have.
SELECT timing_id, session_id
FROM temp.tested_timings
WHERE list_min(control_ratios) <= 0
