"""A bench on the processor, and a small task to judge candidates on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from evaluators._bench import Bench
from evaluators._case import Case
from evaluators.judge import Config, judge

TASK = """
import torch
import torch.nn as nn

ROWS = 48


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)


def get_inputs():
    return [torch.randn(ROWS, 32)]


def get_init_inputs():
    return [32]
"""

FORWARD = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        {forward}
"""

RIGHT = "return (x @ self.weight).clamp_(min=0)"

Judged = Callable[..., dict[str, Any]]


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    """Return a bench on the processor."""
    with Bench("cpu") as opened:
        yield opened


@pytest.fixture
def judged(bench: Bench) -> Judged:
    """Return a function that judges a candidate's text and gives its rows."""

    def one(code: str, task: str = TASK, axes: str = "{}", **config: Any) -> dict[str, Any]:
        limits: dict[str, Any] = {
            "timing_s": 0.1,
            "timing_limit_s": 2.0,
            # A busy machine is no fault of a candidate; what hangs says how long.
            "import_s": 20.0,
            "first_call_s": 20.0,
            "call_s": 20.0,
        }
        limits |= {"diagnosis": False, **config}
        case = Case(
            kernel_id="k", task_id="t", workload_id="w", code=code, task_code=task, axes=axes
        )
        tables = judge(case, bench, Config(**limits))
        return {**tables["evaluations"][0], "timings": tables["timings"]}

    return one


@pytest.fixture
def candidate() -> Callable[[str], str]:
    """Return a function that makes a candidate's text from the body of its forward method."""

    def text(forward: str) -> str:
        return FORWARD.format(forward="\n        ".join(forward.strip().splitlines()))

    return text


@pytest.fixture
def task() -> str:
    """Return the text of the small task."""
    return TASK


@pytest.fixture
def right(candidate: Callable[[str], str]) -> str:
    """Return a candidate that computes the right answer."""
    return candidate(RIGHT)
