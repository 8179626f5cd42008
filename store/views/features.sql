-- One row per kernel: its features according to the newest version of the extractor.
--
-- key columns: kernel_id, language, techniques, has_device_code, code_lines
SELECT *
FROM kernel_features
QUALIFY row_number() OVER (PARTITION BY kernel_id ORDER BY extractor_version DESC) = 1
