-- One row per kernel, task and device: how many other shapes the kernel holds at, and the worst speedup.
-- Outcomes are those of shape_verdicts: tried = held + wrong + raises. worst is the smallest
-- speedup over eager at the shapes that were timed. shapes says all of it in a few words. A
-- kernel without a row was tried at no other shape. holds: the kernel was correct at every
-- shape that was tried.
--
-- tried: number of other shapes that were tried
-- held: number of them at which the kernel was correct
-- wrong: number of them at which it was wrong
-- raises: number of them at which it raised an exception
-- worst: smallest speedup over eager at them (a ratio); NULL if none was timed
-- holds: whether the kernel was correct at all of them
-- shapes: all of this in a few words
SELECT
    kernel_id,
    task_id,
    device,
    count(*) AS tried,
    count(*) FILTER (WHERE outcome = 'held') AS held,
    count(*) FILTER (WHERE outcome = 'wrong') AS wrong,
    count(*) FILTER (WHERE outcome = 'raises') AS raises,
    min(speedup) AS worst,
    held = tried AS holds,
    concat(
        held, ' of ', tried,
        CASE WHEN wrong > 0 THEN concat(', ', wrong, ' wrong') END,
        CASE WHEN raises > 0 THEN concat(', ', raises, ' raising') END,
        CASE WHEN worst IS NOT NULL THEN printf(', worst %.2fx', worst) END
    ) AS shapes
FROM shape_verdicts
GROUP BY kernel_id, task_id, device
