-- The share of probability that lies on the grid, by arm and training. Figures divide by it, so they say
-- little where it is small. Reads `scores`.
SELECT arm, seed, round(avg(mass), 4) AS mass_on_grid
FROM scores
GROUP BY arm, seed
ORDER BY arm, seed
