"""A bench on the processor, and a small task to judge candidates on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case
from evaluators.references.task import Reference
from evaluators.sandbox.launcher import ForkServer

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


class References:
    """Tasks on the processor, each in a worker of a fork server of its own."""

    def __init__(self) -> None:
        self._free: list[ForkServer] = []
        self._opened: list[tuple[Reference, ForkServer]] = []

    def __call__(self, code: str, axes: Mapping[str, Any] | None = None) -> Reference:
        """Start the worker of a task."""
        fork_server = self._free.pop() if self._free else ForkServer(1)
        try:
            reference = Reference(code, axes or {}, "cpu", fork_server)
        except Exception:
            self._free.append(fork_server)
            raise
        self._opened.append((reference, fork_server))
        return reference

    def end(self) -> None:
        """End the workers that were started."""
        while self._opened:
            reference, fork_server = self._opened.pop()
            reference.close()
            self._free.append(fork_server)

    def close(self) -> None:
        """End the fork servers as well."""
        self.end()
        while self._free:
            self._free.pop().close()


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    """Return a bench on the processor."""
    with Bench("cpu") as opened:
        yield opened


@pytest.fixture(scope="session")
def all_references() -> Iterator[References]:
    """Return what starts the workers of tasks, for fixtures that last longer than a test."""
    opened = References()
    yield opened
    opened.close()


@pytest.fixture
def references(all_references: References) -> Iterator[References]:
    """Return a function that starts the worker of a task; it ends with the test."""
    yield all_references
    all_references.end()


@pytest.fixture
def judge_code(bench: Bench) -> Judged:
    """Return a function that judges a candidate's text and gives its rows."""

    def judge_one(code: str, task: str = TASK, axes: str = "{}", **config: Any) -> dict[str, Any]:
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

    return judge_one


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
def right_candidate(candidate: Callable[[str], str]) -> str:
    """Return a candidate that computes the right answer."""
    return candidate(RIGHT)
