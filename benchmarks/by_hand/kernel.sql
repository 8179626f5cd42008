-- What an expert would write over the Parquet files for: one kernel by its id.
SELECT kernel_id, code FROM kernels WHERE kernel_id = $kernel_id
