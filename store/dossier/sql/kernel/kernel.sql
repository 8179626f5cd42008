-- The kernel itself with what its newest features say.
SELECT kernels.*, features.language, features.techniques, features.has_device_code
FROM kernels
LEFT JOIN features USING (kernel_id)
WHERE kernel_id = $kernel_id
