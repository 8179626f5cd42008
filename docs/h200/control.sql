-- Eager in a second process, as if it were a kernel, by device and clock, in quiet sessions. won and lost
-- count sessions whose 95 % interval of the median ratio lies above 1.01 or below 0.99. apart is how far a
-- session's median ratio is from 1, as the logarithm's absolute value. The judge widens the interval of
-- every speedup by this difference.
WITH controls AS (
    SELECT
        devices."name" AS device,
        timings.clock,
        list_sort(timings.control_ratios) AS ratios,
        len(timings.control_ratios) AS n,
        greatest(
            1,
            floor(
                (len(timings.control_ratios) + 1) / 2
                - 0.979982 * sqrt(len(timings.control_ratios) - 0.473576)
            )
        )::BIGINT AS r
    FROM timings
    INNER JOIN devices ON devices.device_id = timings.device_id
    WHERE timings.arm = 'kernel' AND NOT timings.noisy AND len(timings.control_ratios) >= 6
)
SELECT
    device,
    clock,
    count(*) AS sessions,
    count(*) FILTER (WHERE ratios[r] > 1.01) AS won,
    count(*) FILTER (WHERE ratios[n + 1 - r] < 0.99) AS lost,
    round(quantile_cont(abs(ln(list_median(ratios))), 0.5), 4) AS apart_p50,
    round(quantile_cont(abs(ln(list_median(ratios))), 0.95), 4) AS apart_p95
FROM controls
GROUP BY device, clock
ORDER BY device DESC, clock
