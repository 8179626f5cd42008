"""The techniques of kernels: one vocabulary, with the syntax and the words that show each one."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Technique:
    """One technique of the vocabulary."""

    syntax: str
    """The syntax that shows it in code (`store.code.cuda_facts`, `store.code.python_facts`)."""
    phrase: re.Pattern[str]
    """The words that name it in prose."""


def _words(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


TECHNIQUES = {
    "algebraic_rewrite": Technique(
        syntax="arithmetic on weights ahead of their layer, flipped weights, products by broadcast",
        phrase=_words(r"algebra|mathematically equivalent|\bfold(?:s|ed|ing)?\b"),
    ),
    "async_execution": Technique(
        syntax="other streams, cp.async or memcpy_async, pipelines, non_blocking=True",
        phrase=_words(r"async(?:hronous)? cop|cp\.async|memcpy_async|double.buffer"),
    ),
    "block_configuration": Technique(
        syntax="blocks of two dimensions, loops over the grid, sizes by min or max, "
        "__launch_bounds__, occupancy queries, triton.autotune, num_warps",
        phrase=_words(r"launch.bounds|occupancy|block size|autotun|num_warps"),
    ),
    "caching": Technique(
        syntax="attributes called cache that calls write, lru_cache, lookups by data_ptr()",
        phrase=_words(r"\bcach(?:e|es|ed|ing)\b"),
    ),
    "coalesced_access": Technique(
        syntax="vector types such as float4, __ldg and its kin",
        phrase=_words(r"coalesc|vectori[sz]ed (?:load|memory|access)|float4|__ldg"),
    ),
    "cuda_graphs": Technique(
        syntax="CUDA graph capture, from Python or C++", phrase=_words(r"cuda.?graph")
    ),
    "cudnn_flags": Technique(
        syntax="torch.backends.cudnn or matmul precision flags are set",
        phrase=_words(r"cudnn\.benchmark|allow_tf32|float32_matmul_precision"),
    ),
    "fusion": Technique(
        syntax="functions named fused, kernels named after two operations, a layer folded into "
        "weights, library calls such as scaled_dot_product_attention",
        phrase=_words(r"\bfus(?:e|es|ed|ing|ion)\b"),
    ),
    "in_place": Technique(
        syntax="methods such as relu_(), inplace=True, out=", phrase=_words(r"\bin.?place\b")
    ),
    "memory_layout": Technique(
        syntax="channels_last, as_strided, copies of transposed weights",
        phrase=_words(r"channels.last|memory layout|memory format"),
    ),
    "reduced_precision": Technique(
        syntax="half, bfloat16, TF32, autocast",
        phrase=_words(r"(?:half|mixed).precision|\b(?:fp|bf|float|bfloat)16\b|\btf32\b"),
    ),
    "register_use": Technique(
        syntax="arrays that are local to functions of the device", phrase=_words(r"\bregisters?\b")
    ),
    "shared_memory": Technique(
        syntax="__shared__ arrays", phrase=_words(r"shared.memory|__shared__")
    ),
    "short_circuit": Technique(
        syntax="returns a constant tensor without reading the input",
        phrase=_words(r"short.circuit"),
    ),
    "tensor_cores": Technique(
        syntax="wmma, mma.sync, triton.language.dot",
        phrase=_words(r"tensor.core|\bwmma\b|mma\.sync"),
    ),
    "torch_compile": Technique(syntax="torch.compile", phrase=_words(r"torch\.compile")),
    "torch_jit": Technique(
        syntax="torch.jit script, trace or freeze", phrase=_words(r"torch\.jit")
    ),
    "unrolling": Technique(syntax="#pragma unroll, triton static_range", phrase=_words(r"unroll")),
    "warp_reduction": Technique(
        syntax="__shfl_*_sync, __reduce_*_sync, cub warp primitives",
        phrase=_words(r"warp.{0,12}(?:reduc|shuffle|primitive)|__shfl"),
    ),
}
"""The vocabulary: CUDA-L1's table of techniques, algebraic rewrites, and PyTorch's own means.

A kernel has a technique when a parser finds its syntax, so a technique that leaves none is missed.
tests/store/test_technique_labels.py says how many: it compares kernels that a reader labelled.
"""
