-- What the trainer logged
-- Entropy of the policy (nats per token), loss, divergence from the reference policy, norm of the
-- gradient and token accuracy, by step. A chart has at most 200 points.
-- Empty: The run has logged none of entropy, loss, kl, grad_norm, mean_token_accuracy.
WITH placed AS (
    SELECT
        "name" AS metric, "value",
        min(step) OVER ()
        + (step - min(step) OVER ()) // ((max(step) OVER () - min(step) OVER ()) // 200 + 1)
        * ((max(step) OVER () - min(step) OVER ()) // 200 + 1) AS first_step
    FROM metrics
    WHERE
        run_id = $run
        AND string_split("name", '/')[-1]
            IN ('entropy', 'loss', 'kl', 'grad_norm', 'mean_token_accuracy')
        AND isfinite("value")
)
SELECT metric, first_step AS step, avg("value") AS value, count(*) AS n
FROM placed
GROUP BY metric, first_step
ORDER BY string_split(metric, '/')[-1] <> 'entropy', metric, step
