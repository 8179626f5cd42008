"""A bench on the processor, and a small task to judge candidates on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import short_sessions
from example_counts import is_thorough

from evaluators.device.lock import DeviceLock
from evaluators.device.placement import count_threads
from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.calls import MOST_CALLS, CorrectnessProtocol, draw_probe
from evaluators.judging.case import Case
from evaluators.judging.case_result import CaseResult
from evaluators.judging.flags import FLAGS
from evaluators.memory.tensors import lay_out
from evaluators.references.imported_file import WEIGHT_SEED
from evaluators.references.task import Reference
from evaluators.sandbox.failures import Failed
from evaluators.sandbox.launcher import ForkServer, Limits, Template
from evaluators.scheduling.prebuild import Builder, describe_toolchain
from evaluators.worker.build_cache import Builds
from evaluators.worker.handle import Deadlines, Sizes

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
    """Tasks on the processor, each in a worker of another fork server."""

    def __init__(self, template: Template) -> None:
        self._template = template
        self._free: list[ForkServer] = []
        self._opened: list[tuple[Reference, ForkServer]] = []

    def __call__(self, code: str, axes: Mapping[str, Any] | None = None) -> Reference:
        """Start the worker of a task."""
        while self._free and not self._free[-1].is_alive:  # a worker may have taken it along
            self._free.pop().close()
        fork_server = self._free.pop() if self._free else ForkServer(self._template)
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
        for fork_server in self._free:
            fork_server.close()


class SharedBuilder(Builder):
    """A builder whose folder of builds can be looked at."""

    def __init__(self, builds: Builds) -> None:
        super().__init__(builds, None, sorted(os.sched_getaffinity(0)))
        self.builds = builds

    def list_kept(self) -> set[str]:
        """Return the keys of all builds that are kept."""
        return {entry.name for entry in (self.builds.root / "kept").iterdir()}

    def list_live(self) -> list[str]:
        """Return the names of the folders of builds that are in use, or left behind."""
        return [e.name for e in (self.builds.root / "live").iterdir() if e.suffix != ".lock"]


@pytest.fixture(scope="session", autouse=True)
def _use_short_sessions() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if not is_thorough():
            short_sessions.use_short_sessions(patch.setattr)
            short_sessions.use_in_judges(patch.setattr)
        yield


@pytest.fixture(scope="session")
def template() -> Iterator[Template]:
    """Return a template of fork servers; the bench has the same, for one import of torch."""
    with Template(count_threads()) as started:
        yield started


@pytest.fixture(scope="session")
def bench(template: Template) -> Iterator[Bench]:
    """Return a bench on the processor."""
    with Bench("cpu", template=template) as opened:
        yield opened


@pytest.fixture(scope="module")
def gpu_bench() -> Iterator[Bench]:
    """Return a bench on the first GPU, which takes turns with other processes; skip without one."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    with Bench("cuda", lock=DeviceLock.of(["gpu-0"])) as opened:
        yield opened


@pytest.fixture(scope="session")
def fork_servers(template: Template) -> Iterator[list[ForkServer]]:
    """Return the fork servers that `fork_server` has started; the last one is in use."""
    started: list[ForkServer] = []
    yield started
    for each in started:
        each.close()


@pytest.fixture
def fork_server(template: Template, fork_servers: list[ForkServer]) -> ForkServer:
    """Return a fork server that knows what this machine grants."""
    if not fork_servers or not fork_servers[-1].is_alive:
        fork_servers.append(ForkServer(template))
    fork_servers[-1].wait_ready()
    return fork_servers[-1]


@pytest.fixture(scope="session")
def all_references(template: Template) -> Iterator[References]:
    """Return what starts the workers of tasks, for fixtures that last longer than a test."""
    opened = References(template)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedBuilder]:
    """Return a builder for the processor, with a folder of builds that tests share."""
    builds = Builds(tmp_path_factory.mktemp("builds"), describe_toolchain(None))
    with SharedBuilder(builds) as started:
        yield started


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
            # Some blocks: enough for every check of a session, and for no figure.
            "timing_s": 0.05,
            "timing_limit_s": 0.3,
            # A busy machine is no fault of a candidate; what hangs says how long.
            "import_s": 120.0,
            "first_call_s": 120.0,
            "call_s": 120.0,
        }
        limits |= {"diagnosis": False, "draw_shapes": 0, **config}
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


@dataclass
class CheckOutcome:
    """What came of a candidate's calls."""

    status: str
    reason: str | None
    message: str
    evidence: CaseResult

    @property
    def flags(self) -> list[str]:
        """Return the flags raised, sorted."""
        assert self.evidence.flags <= set(FLAGS)
        return sorted(self.evidence.flags)


@pytest.fixture
def check_code(bench: Bench, references: Any) -> Callable[..., CheckOutcome]:
    """Return a function that puts a candidate through the protocol, without timing it."""

    def check_one(
        code: str, task: str, precision: Any = "fp32_strict", calls: int = MOST_CALLS
    ) -> CheckOutcome:
        reference, evidence = references(task), CaseResult()
        first = draw_probe(reference, evidence)
        inputs, answers = lay_out(first.inputs).end, lay_out(first.expected.value).end
        sizes = Sizes(inputs, max(inputs, answers))
        limits = Limits(memory_bytes=8 << 30, file_bytes=1 << 24, open_files=256, cpu_s=600)
        deadlines = Deadlines(import_s=120, build_s=600, first_call_s=120, call_s=120, total_s=600)
        arm = bench.start_candidate({"kernel.py": code}, sizes, limits, deadlines)
        protocol = CorrectnessProtocol(arm, reference, evidence, precision)
        try:
            arm.load("kernel.py", "ModelNew", {})
            protocol.adopt_weights(arm.construct(WEIGHT_SEED, reference.arguments))
            protocol.make_verdict_calls(first, calls)
            protocol.make_robustness_calls(arm)
        except Failed as failed:
            return CheckOutcome(failed.status, failed.reason, failed.message, evidence)
        finally:
            arm.end()
        return CheckOutcome("correct", None, "", evidence)

    return check_one
