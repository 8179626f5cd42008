-- Claims that fall
-- The largest claims that fall: on the GPU of the claim, the kernel is wrong or slower than
-- claimed. Each kernel is listed once, with its largest claim. A wrong kernel has no speedup,
-- whatever its time.
-- Empty: No claim falls on the GPU that it is for.
WITH checked AS (
    SELECT *
    FROM claims_vs_measured
    -- One row per claim and name of device: of several cards one that finds fault, then one that
    -- has a quiet session.
    QUALIFY row_number() OVER (
        PARTITION BY claim_id, device ORDER BY status = 'correct', measured IS NULL, measured
    ) = 1
),
largest AS (
    SELECT *
    FROM checked
    WHERE falls
    QUALIFY row_number() OVER (PARTITION BY kernel_id, device ORDER BY claimed DESC, claim_id) = 1
)
SELECT
    task, claimed, measured, measured_low, measured_high, status, reason, gpu, baseline, device,
    n AS samples, quarantined, kernel_id, "source",
    count(*) OVER () AS total
FROM largest
ORDER BY claimed DESC, task, baseline, gpu, device, kernel_id
LIMIT 25
