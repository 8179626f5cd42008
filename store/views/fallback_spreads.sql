-- One row per kind of device and clock: the spread of sessions (tau) of a model without an estimate.
-- Of GPUs it is the larger one of those of the H100 and of the H200 by version 8 of the judge
-- (`docs/h100`, `docs/h200`, `docs/runs`), rounded up. No sessions on processors are stored, so theirs
-- are those of GPUs by the same clocks. The judge reads these figures as well.
--
-- kind: kind of device, cpu or cuda
SELECT kind, clock, tau::DOUBLE AS tau
FROM (
    VALUES
    ('cuda', 'gpu', 0.017), ('cuda', 'latency', 0.125), ('cuda', 'throughput', 0.125),
    ('cpu', 'latency', 0.125), ('cpu', 'throughput', 0.125)
) AS fallbacks (kind, clock, tau)
