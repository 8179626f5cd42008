-- Sessions of one kernel
-- spread is the standard deviation between sessions of a kernel, as a logarithm, which is part of
-- every interval. After so many sessions, the interval is 1 % wide on each side, if their own
-- errors are small.
-- Empty: No spread of sessions has been estimated, so intervals use figures of other GPUs: evaluators spread.
SELECT
    device, clock, evaluator, evaluator_version AS version, tau AS spread,
    sessions_for_1_percent, kernels, sessions
FROM current_spreads
ORDER BY device, evaluator, evaluator_version DESC, clock
