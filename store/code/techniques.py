"""The techniques of kernels: one vocabulary, with the syntax and the words that show each one."""

from __future__ import annotations

import re

_WORDS = {
    # arithmetic on weights ahead of their layer, flipped weights, products by broadcast
    "algebraic_rewrite": r"algebra|mathematically equivalent|\bfold(?:s|ed|ing)?\b",
    # other streams, cp.async or memcpy_async, pipelines, non_blocking=True
    "async_execution": r"async(?:hronous)? cop|cp\.async|memcpy_async|double.buffer",
    # blocks of two dimensions, loops over the grid, sizes by min or max, __launch_bounds__,
    # occupancy queries, triton.autotune, num_warps
    "block_configuration": r"launch.bounds|occupancy|block size|autotun|num_warps",
    # attributes called cache that calls write, lru_cache, lookups by data_ptr()
    "caching": r"\bcach(?:e|es|ed|ing)\b",
    # vector types such as float4, __ldg and its kin
    "coalesced_access": r"coalesc|vectori[sz]ed (?:load|memory|access)|float4|__ldg",
    # CUDA graph capture, from Python or C++
    "cuda_graphs": r"cuda.?graph",
    # torch.backends.cudnn or matmul precision flags are set
    "cudnn_flags": r"cudnn\.benchmark|allow_tf32|float32_matmul_precision",
    # functions named fused, kernels named after two operations, a layer folded into weights,
    # library calls such as scaled_dot_product_attention
    "fusion": r"\bfus(?:e|es|ed|ing|ion)\b",
    # methods such as relu_(), inplace=True, out=
    "in_place": r"\bin.?place\b",
    # channels_last, as_strided, copies of transposed weights
    "memory_layout": r"channels.last|memory layout|memory format",
    # half, bfloat16, TF32, autocast
    "reduced_precision": r"(?:half|mixed).precision|\b(?:fp|bf|float|bfloat)16\b|\btf32\b",
    # arrays that are local to functions of the device
    "register_use": r"\bregisters?\b",
    # __shared__ arrays
    "shared_memory": r"shared.memory|__shared__",
    # returns a constant tensor without reading the input
    "short_circuit": r"short.circuit",
    # wmma, mma.sync, triton.language.dot
    "tensor_cores": r"tensor.core|\bwmma\b|mma\.sync",
    # torch.compile
    "torch_compile": r"torch\.compile",
    # torch.jit script, trace or freeze
    "torch_jit": r"torch\.jit",
    # #pragma unroll, triton static_range
    "unrolling": r"unroll",
    # __shfl_*_sync, __reduce_*_sync, cub warp primitives
    "warp_reduction": r"warp.{0,12}(?:reduc|shuffle|primitive)|__shfl",
}
TECHNIQUES = {name: re.compile(words, re.IGNORECASE) for name, words in _WORDS.items()}
"""The vocabulary, with the words for each in prose: CUDA-L1's table of techniques, algebraic
rewrites, and PyTorch's own means. The comments state the syntax that shows each one in code.

A kernel has a technique when a parser finds its syntax, so a technique that leaves none is missed.
tests/store/test_technique_labels.py says how many: it compares kernels that a reader labelled.
"""
