"""What the importer and the exporter of the CUDA-L1 release share: its scores by baseline."""

SCORES = {
    "score_default": "eager",
    "score_torch_compile_default": "compile",
    "score_torch_compile_reduce_overhead": "compile_reduce_overhead",
    "score_cuda_graph": "cuda_graph",
    "score_cudnn": "cudnn",
}
