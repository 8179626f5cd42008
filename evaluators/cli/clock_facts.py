"""What the clocks of this host resolve, measured in a short session for `evaluators doctor`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from evaluators.judge import Config
from evaluators.scheduling.cases import KernelText, TaskText
from store.schema.clocks import RESOLVED

if TYPE_CHECKING:
    from evaluators.scheduling.judges.process import JudgeProcess

CONFIG = Config(
    calls=2, robustness=False, diagnosis=False, draw_shapes=0, baselines=("eager",), blocks=20
)
_TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1


def get_inputs():
    return [torch.randn(256)]


def get_init_inputs():
    return []
"""
_SHORT_MS = 0.1
"""A clock that cannot time a call of this length is not fit for most kernels."""


def describe_clocks(judge: JudgeProcess) -> list[dict[str, Any]]:
    """Return a row for each clock: what, holds, state, follows and mend, as the doctor prints.

    The session times a module of one small operation, so samples have as many calls as they can.
    The empty arm's scatter gives the resolution.

    judge: A process of the evaluator `judge` with `CONFIG`. Raises what `JudgeProcess.judge` does.
    """
    task = TaskText(code=_TASK, axes={})
    code = _TASK.replace("class Model(", "class ModelNew(")
    kernel = KernelText(code=code, path="kernel.py", entry_point="ModelNew", is_class=True)
    case = task.make_case(kernel, judge.row["kind"], None)
    tables = judge.judge(replace(case, policy="torch_default"))
    [evaluation] = tables["evaluations"]
    by_clock = {row["clock"]: row for row in tables["timings"] if row["arm"] == "kernel"}
    if not by_clock:
        return [
            _describe("timing", False, f"failed: {evaluation['message'] or evaluation['reason']}")
        ]
    shared = "; other work shares this host" if "contended" in evaluation["flags"] else ""
    facts: list[dict[str, Any]] = []
    for clock, row in by_clock.items():
        shortest_ms = RESOLVED * row["resolution_ms"]
        calls = f"{row['inner_loops']} call{'s' * (row['inner_loops'] > 1)}"
        state = (
            f"resolves {_format_us(row['resolution_ms'])} with {calls} a sample; the shortest call"
            f" that it tells from nothing takes {_format_us(shortest_ms)}{shared}"
        )
        facts.append(_describe(f"{clock} clock", shortest_ms <= _SHORT_MS, state))
    return facts


def _describe(what: str, holds: bool, state: str) -> dict[str, Any]:
    return {
        "what": what,
        "holds": holds,
        "state": state,
        "follows": None if holds else "a kernel of 0.1 ms has a bound for a time, or none",
        "mend": None if holds else "End other work on this host, or judge on another one.",
    }


def _format_us(milliseconds: float) -> str:
    """Return a time in microseconds.

    >>> _format_us(0.00123456)
    '1.23 µs'
    """
    return f"{1e3 * milliseconds:.3g} µs"
