-- What the model does with labels: how often the more probable K is the kernel with the higher label, by
-- arm and by how far the labels differ. Where labels are reversed, that is the slower kernel.
-- Reads `scores`.
SELECT
    arm,
    CASE WHEN list_max(shown_scores) >= 1.5 * list_min(shown_scores) THEN '1.5 and more'
        ELSE 'below 1.5' END AS labels_differ_by,
    count(*) AS prompts,
    round(avg(((first_share > 0.5) = (shown_scores[1] > shown_scores[2]))::INTEGER), 4)
        AS names_higher_label,
    round(exp(avg(expected)), 4) AS geomean
FROM scores
WHERE arm IN ('right', 'reversed', 'other_task')
GROUP BY ALL
ORDER BY ALL
