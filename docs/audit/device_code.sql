-- What the solutions are made of: how many hold a CUDA or Triton kernel, how many are PyTorch alone.
SELECT
    claimed.gpu,
    count(*) AS with_code,
    count(*) FILTER (WHERE features.has_device_code) AS device_code,
    count(*) FILTER (WHERE features.language = 'pytorch') AS pytorch_only,
    round(count(*) FILTER (WHERE features.language = 'pytorch') / count(*), 2) AS pytorch_share,
    count(*) FILTER (WHERE features.sets_cudnn_flags) AS cudnn_flags,
    count(*) FILTER (WHERE features.uses_cuda_graphs) AS cuda_graphs,
    count(*) FILTER (WHERE features.uses_torch_jit) AS torch_jit,
    count(*) FILTER (WHERE features.uses_torch_compile) AS torch_compile
FROM claimed_speedups AS claimed
INNER JOIN features USING (kernel_id)
WHERE claimed.source = 'cuda-l1' AND claimed.baseline = 'eager'
GROUP BY claimed.gpu
ORDER BY claimed.gpu
