-- One row per device model, clock, evaluator and version: the newest estimate of the spread of sessions.
-- A pulled estimate counts only where this lake has none of its own. sessions_for_1_percent is the
-- number of sessions of a kernel after which the interval of its speedup is 1 % wide on each side,
-- if the error within each of them is small.
--
-- sessions_for_1_percent: number of sessions of a kernel until its interval is within 1 %
-- kernels: number of kernels with repeated sessions
-- sessions: number of their sessions
-- snapshot_id: snapshot that the estimate was computed from
-- created_at: when it was estimated
SELECT
    device, clock, evaluator, evaluator_version, tau,
    greatest(1, ceil((1.96 * tau / 0.01) ** 2))::INTEGER AS sessions_for_1_percent,
    kernels, sessions, pairs, snapshot_id, created_at
FROM session_spreads
QUALIFY row_number() OVER (
    PARTITION BY device, clock, evaluator, evaluator_version
    ORDER BY origin IS NULL DESC, created_at DESC, spread_id DESC
) = 1
