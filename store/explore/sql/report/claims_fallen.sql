-- Claims that fall
-- The largest claims that fall: on the GPU of the claim, the kernel is wrong or slower than
-- claimed. Each kernel is listed once, with its largest claim. A wrong kernel has no speedup,
-- whatever its time. A claim on a trivial task, or of a correct kernel that computes another
-- function, does not fall.
-- Empty: No claim falls on the GPU that it is for.
WITH largest AS (
    SELECT *
    FROM claims_vs_measured
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
