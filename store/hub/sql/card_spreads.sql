-- How many sessions of a kernel resolve 1 %, by the clocks of the figure's speedups.
SELECT device, clock, sessions_for_1_percent
FROM current_spreads
SEMI JOIN best_kernels
    ON best_kernels.device = current_spreads.device AND best_kernels.clock = current_spreads.clock
QUALIFY row_number() OVER (
    PARTITION BY device, clock ORDER BY evaluator = 'judge' DESC, evaluator_version DESC
) = 1
ORDER BY device, clock
