-- What an expert would write over the Parquet files for: kernels per technique.
SELECT technique, count(*) AS kernels
FROM (SELECT unnest(techniques) AS technique FROM kernel_features)
GROUP BY technique
ORDER BY technique
