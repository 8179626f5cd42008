-- The probability to find a ratio of arms, with the standard errors and degrees of freedom observed.
-- Reads `figure_hypotheses`; t_power is a function of figures.py.
SELECT
    hypotheses.hypothesis, hypotheses.standard_error, hypotheses.df,
    round(t_power(ln(1.05) / standard_error, df), 3) AS at_105,
    round(t_power(ln(1.11) / standard_error, df), 3) AS at_111,
    round(t_power(ln(1.20) / standard_error, df), 3) AS at_120
FROM figure_hypotheses AS hypotheses
ORDER BY hypotheses.hypothesis
