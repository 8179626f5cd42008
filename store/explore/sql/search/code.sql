-- Kernels whose code has this text
-- Upper and lower case count. The first line with the text is shown.
SELECT
    kernels.kernel_id,
    trim(
        list_filter(string_split(kernels.code, chr(10)), lambda line: contains(line, $q))[1]
    ) AS quote,
    features."language", array_to_string(features.techniques, ', ') AS techniques
FROM kernels
LEFT JOIN features ON features.kernel_id = kernels.kernel_id
WHERE contains(kernels.code, $q)
ORDER BY kernels.kernel_id
