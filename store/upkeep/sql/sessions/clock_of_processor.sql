-- One row per timing by the clock gpu on a processor.
SELECT timings.timing_id, timings.device_id
FROM temp.tested_timings AS timings
INNER JOIN lake.devices AS devices ON devices.device_id = timings.device_id
WHERE timings.clock = 'gpu' AND devices.kind = 'cpu'
