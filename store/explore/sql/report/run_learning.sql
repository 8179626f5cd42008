-- Is it learning, is it cheating?
-- By step: the mean reward before smoothing with one standard deviation to either side; the share
-- of judged answers that are correct, with Wilson's 95 % interval; the share of answers whose
-- kernel has a finding that nobody has dismissed; the speedup over eager of correct, timed kernels;
-- and the entropy of the policy. Answers without a verdict are in no share of correct ones, and a
-- step has none if only the protocol training judged its kernels. A chart has at most 200 points,
-- so steps of a long run are averaged.
-- Empty: No attempt of the run has a step, so it has no curve: see trainers list.
WITH steps AS (
    SELECT DISTINCT
        device, rule || ' ' || rule_version AS rule, step, attempts, pending, with_kernel, success,
        rewarded, reward_mean, reward_std, timed, speedup_geomean, entropy, zero_variance_groups,
        groups
    FROM run_curves
    WHERE run_id = $run AND step IS NOT NULL
),
suspected AS (
    SELECT run_steps.step, count(*) AS suspects
    FROM run_steps
    WHERE run_steps.run_id = $run AND run_steps.kernel_id IN (
        SELECT kernel_id
        FROM finding_standings
        WHERE coalesce(confidence, 1) >= 0.5 AND decision IS DISTINCT FROM 'dismissed'
    )
    GROUP BY run_steps.step
),
placed AS (
    SELECT
        steps.*, coalesce(suspected.suspects, 0) AS suspects,
        min(steps.step) OVER ()
        + (steps.step - min(steps.step) OVER ())
        // ((max(steps.step) OVER () - min(steps.step) OVER ()) // 200 + 1)
        * ((max(steps.step) OVER () - min(steps.step) OVER ()) // 200 + 1) AS first_step
    FROM steps
    LEFT JOIN suspected ON suspected.step = steps.step
),
summed AS (
    SELECT
        device, rule, first_step AS step,
        sum(attempts)::BIGINT AS attempts,
        -- Answers without a kernel alone would make a share of 0.
        coalesce(sum(attempts - pending) FILTER (WHERE pending = 0 OR with_kernel > pending), 0)
            ::BIGINT AS judged,
        sum(success)::BIGINT AS correct, sum(suspects)::BIGINT AS suspects,
        sum(reward_mean * rewarded) / nullif(sum(rewarded), 0) AS reward,
        sqrt(greatest(
            sum((reward_std ** 2 + reward_mean ** 2) * rewarded) / nullif(sum(rewarded), 0)
            - reward ** 2, 0
        )) AS spread,
        exp(sum(ln(speedup_geomean) * timed) / sum(timed) FILTER (WHERE timed > 0)) AS geomean,
        avg(entropy) AS entropy,
        sum(zero_variance_groups)::BIGINT AS zero_variance_groups, sum(groups)::BIGINT AS groups
    FROM placed
    GROUP BY device, rule, first_step
)
SELECT
    step, attempts, reward, reward - spread AS reward_low, reward + spread AS reward_high,
    judged, correct, correct / nullif(judged, 0) AS share,
    (share + 1.9208 / judged - 1.96 * sqrt(share * (1 - share) / judged + 0.9604 / judged / judged))
    / (1 + 3.8416 / judged) AS share_low,
    (share + 1.9208 / judged + 1.96 * sqrt(share * (1 - share) / judged + 0.9604 / judged / judged))
    / (1 + 3.8416 / judged) AS share_high,
    suspects, suspects / attempts AS suspect_share, geomean, entropy, zero_variance_groups, groups,
    device, rule
FROM summed
ORDER BY device, rule, step
