-- One row per timing session, baseline and clock: the reward of CUDA-L1, from stored samples.
-- This is rules 4 to 6 of arXiv 2507.14111, section 2.4.4. The ratios baseline / kernel are cut, in
-- block order, into 7 buckets of nearly equal size. If the variance of the bucket means is above
-- 0.005, the measurement is discarded (speedup is NULL). Otherwise speedup is the median of the
-- bucket means, rounded to two decimals toward 1 (1.118 becomes 1.11, 0.992 becomes 1.00). The
-- paper does not say which variance it uses; this view divides by n - 1, which discards more. Below
-- 7 blocks there is no figure.
--
-- bucket_means: mean ratio of each of 7 buckets of blocks
-- variance: variance of the bucket means
-- speedup: median of the bucket means, rounded toward 1 (a ratio); NULL if it is discarded
WITH ratios AS (
    SELECT
        *,
        len(kernel_samples) AS n,
        list_transform(
            baseline_samples, lambda ms, i: CAST(ms AS DOUBLE) / kernel_samples[i]
        ) AS ratios
    FROM paired_samples
),
buckets AS (
    SELECT
        *,
        CASE
            WHEN n >= 7 THEN list_transform(
                range(7), lambda k: list_avg(ratios[k * n // 7 + 1 : (k + 1) * n // 7])
            )
        END AS bucket_means
    FROM ratios
),
figures AS (
    SELECT
        *,
        list_var_samp(bucket_means) AS variance,
        list_median(bucket_means) AS median
    FROM buckets
)
SELECT
    session_id, evaluation_id, kernel_id, task_id, workload_id, device_id, baseline, clock,
    confirmed, disturbed, unresolved,
    n,
    bucket_means,
    variance,
    -- Four decimals first: samples are single precision, in which 1.04 is 1.03999996.
    CASE
        WHEN unresolved OR variance > 0.005 THEN NULL
        WHEN median >= 1 THEN floor(round(median * 100, 4)) / 100
        ELSE ceil(round(median * 100, 4)) / 100
    END AS speedup,
    measured_at
FROM figures
