"""What speedups are relative to, and where they come from."""

from typing import Literal, TypeAlias

Evidence: TypeAlias = Literal["measured", "claimed"]
Baseline: TypeAlias = Literal["eager", "compile", "compile_reduce_overhead", "cuda_graph", "cudnn"]

BASELINE_WORDS = {
    "eager": "PyTorch eager",
    "compile": "torch.compile",
    "compile_reduce_overhead": "torch.compile in its reduce-overhead mode",
    "cuda_graph": "replayed as a CUDA graph",
    "cudnn": "with tuned cuDNN flags",
}
