"""The judge and the workers of a GPU have one core each while launches are part of the time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from evaluators.judging.bench import Bench
from evaluators.references.imported_file import WEIGHT_SEED
from evaluators.sandbox.launcher import Limits
from evaluators.timing.measurement import PinnedCores
from evaluators.worker.handle import Deadlines, Sizes, WorkerHandle

THREADED = """
import os, threading
import torch
from torch import nn

threading.Thread(target=threading.Event().wait, daemon=True).start()


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        MOVE
        return torch.relu(x @ self.weight)
"""


@pytest.fixture
def start(bench: Bench, references: Any, task: str) -> Iterator[Any]:
    """Return a function that starts a worker with a thread beside its loop."""
    workers: list[WorkerHandle] = []

    def start_worker(move: str) -> WorkerHandle:
        reference = references(task)
        inputs = reference.inputs(1)
        limits = Limits(memory_bytes=8 << 30, file_bytes=1 << 24, open_files=256, cpu_s=600)
        deadlines = Deadlines(import_s=60, build_s=60, first_call_s=60, call_s=60, total_s=300)
        code = THREADED.replace("MOVE", move)
        sizes = Sizes.of(inputs, inputs)
        worker = bench.start_candidate({"kernel.py": code}, sizes, limits, deadlines)
        workers.append(worker)
        worker.load("kernel.py", "ModelNew", {})
        worker.construct(WEIGHT_SEED, reference.arguments)
        worker.fill(0, inputs)
        return worker

    yield start_worker
    for worker in workers:
        worker.end()


@pytest.fixture(autouse=True)
def _need_two_cores() -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core")


def test_a_block_has_a_core_for_the_judge_and_one_for_every_thread_of_the_workers(
    start: Any,
) -> None:
    worker, allowed = start("pass"), os.sched_getaffinity(0)
    with PinnedCores([worker]) as cores:
        for _ in range(3):
            cores.choose()
            [own] = os.sched_getaffinity(0)
            assert any(worker.is_pinned({core}) for core in allowed - {own})
            worker.call(0)
    assert cores.has_held
    assert os.sched_getaffinity(0) == allowed
    assert worker.is_pinned(allowed)


def test_a_kernel_that_moves_to_other_cores_is_noticed(start: Any) -> None:
    worker = start("os.sched_setaffinity(0, range(os.cpu_count()))")
    with PinnedCores([worker]) as cores:
        cores.choose()
        worker.call(0)
    assert not cores.has_held
