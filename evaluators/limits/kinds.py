"""Kinds of inputs, outputs, modules and calls that the judge cannot judge, each with a name.

A refusal names its limit by `refuse_limit`. `evaluators doctor --limits` and
docs/tables-verdicts.md list all of them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

LISTED_BY = "`evaluators doctor --limits` lists what the judge cannot judge"


@dataclass(frozen=True)
class Limit:
    """One kind that the judge refuses."""

    sentence: str
    """What it refuses."""
    cause: Literal["judge", "task"] = "judge"
    """task: the task breaks the rules of its format. judge: another judge could judge it."""


LIMITS = {
    "backward": Limit("gradients: the judge calls `forward` without gradients, and no `backward`"),
    "value_types": Limit(
        "inputs, outputs and constructor arguments other than tensors, numbers, text, None, "
        "dtypes, devices, and lists, tuples, named tuples, dataclasses and dicts of them"
    ),
    "dict_keys": Limit("dicts with keys other than text and whole numbers"),
    "containers": Limit(
        "calls that put other tensors or values into a list or dict among their inputs, or give an "
        "input another shape or other memory"
    ),
    "nesting": Limit("values that are nested more than 8 deep, or that contain themselves"),
    "value_count": Limit("inputs or outputs of thousands of parts: a description exceeds 128 KiB"),
    "value_bytes": Limit("inputs or outputs of more than half of the memory of the host or GPU"),
    "sparse": Limit("sparse tensors"),
    "nested_tensors": Limit("nested and jagged tensors"),
    "quantized": Limit("quantized tensors"),
    "tensor_subclasses": Limit("subclasses of torch.Tensor other than parameters"),
    "element_types": Limit("element types that torch cannot compute with, such as bits8 and uint4"),
    "comparison": Limit("answers that torch cannot compare, by their element types or sizes"),
    "comparison_memory": Limit("answers whose comparison takes more memory than the judge has"),
    "devices": Limit("tensors on another device than the one that judges, or on several"),
    "several_gpus": Limit("tasks and kernels that need several GPUs, ranks or hosts"),
    "gpu_only": Limit("tasks that ask for CUDA, with --on cpu"),
    "isolation": Limit("tasks that read files or use the network: they run in a sandbox"),
    "entropy": Limit("tasks whose answer depends on the time, or on random numbers without a seed"),
    "task_time": Limit("tasks whose module takes more than 300 s for a call, or to be built"),
    "languages": Limit("kernels in other languages than Python, Triton, CUDA and C++"),
    "module_copies": Limit("modules that can be neither copied nor built again"),
    "module_types": Limit("a class `Model` that is no torch.nn.Module", "task"),
    "task_form": Limit("tasks without class `Model` and `get_inputs()`, in any format", "task"),
}
"""Every limit by its name."""


def refuse_limit(name: str, detail: str) -> str:
    """Return the text of a refusal: what was refused, and its limit.

    >>> print(refuse_limit("sparse", "input 0 is a sparse tensor"))
    input 0 is a sparse tensor (limit sparse; `evaluators doctor --limits` lists what the judge \
cannot judge)
    """
    if name not in LIMITS:
        raise KeyError(name)
    return f"{detail} (limit {name}; {LISTED_BY})"


def format_lines(width: int | None = None) -> Iterator[str]:
    """Yield the lines of the list for a terminal, each at most `width` columns wide.

    >>> print(*list(format_lines())[:2], sep="\\n")
    The judge cannot judge (names are those that refusals print):
      backward           gradients: the judge calls `forward` without gradients, and no `backward`
    """
    yield "The judge cannot judge (names are those that refusals print):"
    for name, limit in LIMITS.items():
        ends = " (the task breaks its format)" if limit.cause == "task" else ""
        yield from textwrap.wrap(
            f"  {name:17}  {limit.sentence}{ends}",
            max(width or 100, 40),
            subsequent_indent=" " * 21,
            break_on_hyphens=False,
        )
