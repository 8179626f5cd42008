-- One row per kernel: its features according to the newest version of the extractor.
SELECT *
FROM kernel_features
QUALIFY row_number() OVER (PARTITION BY kernel_id ORDER BY extractor_version DESC) = 1
