-- Devices that judged or timed a kernel, with their software.
FROM devices
WHERE
    device_id IN (
        SELECT device_id
        FROM evaluations
        WHERE kernel_id = $kernel
        UNION ALL
        SELECT device_id
        FROM timings
        WHERE kernel_id = $kernel
    )
ORDER BY device_id
