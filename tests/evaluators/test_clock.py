"""The judge's clock on a processor: freezing, frozen memory, and what a sample is made of."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import struct
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from example_counts import count_examples
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.judging.bench import Bench
from evaluators.memory.tensors import tensors_of
from evaluators.processes import cgroup
from evaluators.processes.process_tree import Freezer, GroupFreezer, SignalFreezer
from evaluators.sandbox.isolation import is_possible
from evaluators.timing.session import EAGER_CONTROL, EMPTY, Session
from evaluators.timing.surprising_wins import compute_speedups
from evaluators.worker.handle import (
    Uncaptured,
    Unreadable,
    capture,
    read_entries,
    read_value,
)
from evaluators.worker.loop import describe, locate

Judged = Callable[..., dict[str, Any]]
Text = Callable[[str], str]

# ---- freezing ------------------------------------------------------------------------------------


class Counting:
    """A process and its fork, which count as fast as they can in shared memory."""

    def __init__(self, group: cgroup.Group | None = None) -> None:
        self.memory = mmap.mmap(-1, 4096)
        self.pid = os.fork()
        if self.pid == 0:
            if group is not None:
                group.take()
            place = 8 * (os.fork() == 0)
            while True:
                (held,) = struct.unpack_from("q", self.memory, place)
                struct.pack_into("q", self.memory, place, held + 1)

    def counts(self) -> tuple[int, int]:
        return struct.unpack_from("qq", self.memory, 0)

    def advance(self) -> bool:
        before = self.counts()
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if all(b > a for a, b in zip(before, self.counts(), strict=True)):
                return True
            time.sleep(0.01)
        return False


@pytest.fixture(params=["group", "signals"])
def counters(request: pytest.FixtureRequest) -> Iterator[tuple[Counting, Freezer]]:
    """Return two counting processes and what freezes both."""
    group = None
    if request.param == "group":
        if not is_possible(cgroup.try_kill):
            pytest.skip("no control group of version 2 can be made here")
        group = cgroup.Group()
    counting = Counting(group)
    freezer = SignalFreezer(counting.pid) if group is None else GroupFreezer(group.folder)
    assert counting.advance()
    yield counting, freezer
    freezer.freeze()
    for pid in [*getattr(freezer, "_stopped", ()), counting.pid]:
        os.kill(pid, signal.SIGKILL)
    if group is not None:
        group.kill()
    os.waitpid(counting.pid, 0)
    freezer.close()
    if group is not None:
        group.remove()


@pytest.mark.clock
def test_what_is_frozen_does_nothing_until_it_is_thawed(
    counters: tuple[Counting, Freezer],
) -> None:
    process, freezer = counters
    for _ in range(5):
        freezer.freeze()
        before, used_ns = process.counts(), freezer.cpu_ns()
        time.sleep(0.05)
        assert process.counts() == before
        assert freezer.cpu_ns() == used_ns
        freezer.thaw()
        assert process.advance()
    assert freezer.cpu_ns() > used_ns


def test_processor_time_is_that_of_all_processes() -> None:
    if not is_possible(cgroup.try_kill):
        pytest.skip("no control group of version 2 can be made here")
    group = cgroup.Group()
    child = os.fork()
    if child == 0:
        group.take()
        if (grandchild := os.fork()) == 0:
            end = time.process_time() + 0.2
            while time.process_time() < end:
                pass
            os._exit(0)
        os.waitpid(grandchild, 0)
        os._exit(0)
    os.waitpid(child, 0)
    freezer = GroupFreezer(group.folder)
    assert freezer.cpu_ns() >= 0.2e9
    freezer.freeze()  # a group that has no process left
    freezer.close()
    group.remove()


# ---- reading frozen memory -----------------------------------------------------------------------


def take_value(value: Any, limit_bytes: int = 1 << 30) -> Any:
    """Read a value of this process as the judge reads a worker's."""
    return read_value(os.getpid(), describe(value)["output"], limit_bytes)


@settings(max_examples=count_examples(60), deadline=None)
@given(st.data())
def test_a_view_reads_as_what_it_shows(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 7), min_size=1, max_size=4))
    dtype = data.draw(st.sampled_from([torch.float32, torch.float16, torch.int64, torch.bool]))
    whole = torch.randint(0, 2, [*sizes, 3]).to(dtype)
    view = whole[..., data.draw(st.integers(0, 2))]
    view = view.permute(data.draw(st.permutations(range(view.dim()))))
    steps = [slice(data.draw(st.integers(0, 1)), None, data.draw(st.integers(1, 3)))] * view.dim()
    view = view[tuple(steps)]
    assert torch.equal(take_value(view), view)
    assert torch.equal(
        take_value(view[None].expand(5, *view.shape)), view[None].expand(5, *view.shape)
    )


def test_a_thin_view_of_much_memory_is_read_piece_by_piece() -> None:
    column = torch.randn(5000, 9000)[:, 17:19]
    assert torch.equal(take_value(column), column)


def test_containers_come_back_as_plain_ones() -> None:
    pair = namedtuple("pair", "left right")
    value = [pair(torch.ones(2), 3), {"a": (torch.zeros(1), None, True)}, torch.arange(4).topk(2)]
    read = take_value(value)
    assert [type(item) for item in read] == [tuple, dict, tuple]
    assert all(torch.equal(a, b) for a, b in zip(tensors_of(read), tensors_of(value), strict=True))
    assert (read[0][1], read[1]["a"][1:]) == (3, (None, True))


def test_a_pending_conjugation_or_negation_is_read_as_pending() -> None:
    spectrum = torch.randn(3, 4, dtype=torch.complex64).conj()
    for value in (spectrum, spectrum.t(), spectrum.imag):
        read = take_value(value)
        assert (read.is_conj(), read.is_neg()) == (value.is_conj(), value.is_neg())
        assert torch.equal(read, value)


def test_what_is_larger_than_expected_comes_without_data() -> None:
    read = take_value([torch.ones(100), torch.ones(100)], limit_bytes=799)
    assert [tensor.device.type for tensor in read] == ["meta", "meta"]
    assert [list(tensor.shape) for tensor in read] == [[100], [100]]


def test_memory_that_nobody_may_touch_cannot_be_read() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    closed = libc.mmap(None, ctypes.c_size_t(8192), 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
    spec = {"tensor": ["float32", [4], [1], closed, 0]}
    with pytest.raises(Unreadable):
        read_value(os.getpid(), spec, 100)


class Later(tuple):
    """A tuple that computes when somebody looks through it."""

    def __iter__(self) -> Iterator[Any]:
        return iter((torch.ones(2),))


class LaterDict(dict[str, Any]):
    """A dict that computes when somebody looks through it."""


@pytest.mark.parametrize(
    "value",
    [
        Later((None,)),
        LaterDict(a=1),
        type("Sub", (torch.Tensor,), {})([1.0]),
        [torch.ones(1), (Later(),)],
    ],
)
def test_what_may_compute_later_is_odd(value: Any) -> None:
    assert describe(value)["odd"]["lazy"]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_odd_and_computes_nothing_later() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])
    assert describe([nested])["odd"] == {"type": "nested tensor", "lazy": False}


# ---- what a sample is ----------------------------------------------------------------------------


def test_what_handing_over_costs_is_taken_off_every_arm() -> None:
    session = Session.of(2, ["kernel", "eager", EAGER_CONTROL, EMPTY], "throughput")
    for _ in range(20):
        for arm, elapsed_ns in (("kernel", 1_200_000), ("eager", 2_200_000), (EMPTY, 200_000)):
            session.add_sample(arm, 0, elapsed_ns)
    session.subtract_overhead()
    assert session.compute_overhead("kernel") == pytest.approx(0.1)
    assert session.samples_ms["kernel"] == pytest.approx([0.5] * 20)
    assert session.samples_ms["eager"] == pytest.approx([1.0] * 20)
    assert EMPTY not in session.samples_ms


def test_nothing_is_credited_with_less_than_the_clock_can_tell() -> None:
    session = Session.of(1, ["kernel", "eager", EAGER_CONTROL, EMPTY], "throughput")
    for block in range(20):
        session.add_sample("kernel", 0, 100_000)
        session.add_sample(EMPTY, 0, 100_000 + 10_000 * (block % 3))
    session.subtract_overhead()
    assert session.compute_resolution("kernel") == pytest.approx(0.01)
    assert session.samples_ms["kernel"] == pytest.approx([0.05] * 20)


def test_an_outlier_among_few_empty_calls_hides_no_figure() -> None:
    session = Session.of(1, ["kernel", EMPTY], "latency")
    for elapsed_ns in (30_000, 5_000_000, 31_000):
        session.add_sample("kernel", 0, 130_000)
        session.add_sample(EMPTY, 0, elapsed_ns)
    assert session.compute_resolution("kernel") == pytest.approx(2.485)
    session.warm_up_ms = {EMPTY: [0.029, 0.031] * 6}
    session.subtract_overhead()
    assert session.compute_resolution("kernel") == pytest.approx(0.001)
    assert session.samples_ms["kernel"] == pytest.approx([0.1] * 3, rel=0.02)


SLEEPER = """
import os, torch
if os.fork() == 0:
    while True:
        torch.ones(1000).exp_()
"""


@pytest.mark.slow
@pytest.mark.clock
def test_a_child_of_the_candidate_is_frozen_with_it(
    judge_code: Judged, bench: Bench, right_candidate: str
) -> None:
    row = judge_code(SLEEPER + right_candidate)
    assert row["status"] == "correct", row
    if bench.freezes:
        # It takes processor time in the candidate's own turns, and in no other.
        low, _, _ = compute_speedups(row["timings"])["eager"]
        assert row["timings"][0]["disturbed"] or low < 0


@pytest.mark.slow
def test_a_kernel_of_somebody_else_does_not_rank_where_nothing_can_be_frozen(
    judge_code: Judged, right_candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Bench, "freezes", property(lambda _: False))
    row = judge_code(right_candidate)
    assert "not_frozen" in row["flags"]
    assert all(timing["disturbed"] for timing in row["timings"])
    asked = judge_code(right_candidate, rank_unfrozen=True)
    assert "not_frozen" not in asked["flags"]


@pytest.mark.slow
@pytest.mark.clock
def test_a_buffer_that_is_overwritten_is_copied_in_every_call(
    judge_code: Judged, candidate: Text
) -> None:
    text = candidate(
        "out = self.__dict__.setdefault('out', torch.empty(x.shape[0], 32))\n"
        "torch.mm(x, self.weight, out=out)\n"
        "return out.relu_()"
    )
    row = judge_code(text, timing_limit_s=60.0)
    assert row["status"] == "correct", row
    assert row["timings"][0]["inner_loops"] > 1
    every_other = candidate(
        "import sys\n"
        "out = self.__dict__.setdefault('out', torch.empty(x.shape[0], 32))\n"
        "frame = sys._getframe()\n"
        "while frame is not None and frame.f_code.co_name != 'time': frame = frame.f_back\n"
        "self.n = getattr(self, 'n', 0) + 1\n"
        "if frame is not None and self.n % 2: return out\n"
        "return torch.mm(x, self.weight, out=out).relu_()"
    )
    row = judge_code(every_other, timing_limit_s=60.0)
    assert (row["status"], row["reason"]) == ("rejected", "memorised_output"), row


BUFFERED = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("out", torch.zeros(64, 32))

    def forward(self, x):
        {forward}


def get_inputs():
    return [torch.randn(64, 32)]


def get_init_inputs():
    return []
"""


@pytest.mark.slow
@pytest.mark.clock
def test_a_task_that_overwrites_its_own_answer_is_copied_too(judge_code: Judged) -> None:
    task = BUFFERED.format(forward="self.out.copy_(x * 2)\n        return self.out, x.sum(1)")
    code = task.replace("Model", "ModelNew").partition("def get_inputs")[0]
    row = judge_code(code, task, timing_limit_s=60.0)
    assert row["status"] == "correct", row
    assert row["timings"][0]["inner_loops"] > 1
    row = judge_code(code.replace("x * 2", "x * 2 if self.out[0, 0] == 0 else self.out"), task)
    assert row["status"] != "correct"


@pytest.mark.slow
@pytest.mark.clock
@pytest.mark.parametrize(
    ("wrong", "verdict"),
    [
        ("out * 1.0002", ("incorrect", "incorrect_numerical")),
        pytest.param(
            "out.bfloat16().float()", ("rejected", "memorised_output"), marks=pytest.mark.slow
        ),
        pytest.param("self.out", ("rejected", "memorised_output"), marks=pytest.mark.slow),
    ],
)
def test_a_timed_answer_with_rounding_errors_is_not_called_memorised(
    judge_code: Judged, candidate: Text, wrong: str, verdict: tuple[str, str]
) -> None:
    text = candidate(
        "out = torch.relu(x @ self.weight)\n"
        "self.n = getattr(self, 'n', 0) + 1\n"
        f"if self.n > 40: return {wrong}\n"
        "self.out = out\n"
        "return out * 1.00008"
    )
    row = judge_code(text, timing_limit_s=60.0)
    assert (row["status"], row["reason"]) == verdict, row
    assert row["max_scaled_error"] > 1


def test_what_is_captured_does_not_change_when_it_is_described() -> None:
    def capture_output(output: Any, like: Any) -> Any:
        layouts = read_entries(describe(like)["output"])
        return capture(os.getpid(), locate([output])[0], layouts, 1 << 20)

    output = torch.arange(12.0).view(3, 4).t()
    taken = capture_output((output, output[0]), like=(torch.zeros(3, 4).t(), torch.zeros(5)[::2]))
    wanted = output.clone()
    described = describe((output, output[0]))["output"]
    output.zero_()
    with pytest.raises(Uncaptured):  # the second was read as contiguous
        taken.build_value(described, 1 << 20)
    taken = capture_output(wanted, like=torch.zeros(3, 4).t())
    described = describe(wanted)["output"]
    wanted.mul_(2)
    assert torch.equal(taken.build_value(described, 1 << 20) * 2, wanted)
    # Of another shape than the last one: a contiguous answer is captured whatever its shape is.
    longer = torch.ones(5, 7)
    taken = capture_output(longer, like=wanted)
    longer.zero_()
    assert taken.build_value(describe(longer)["output"], 1 << 20).sum() == 35


@pytest.mark.slow
def test_where_memory_cannot_be_read_the_worker_copies(
    judge_code: Judged, right_candidate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaluators.worker.handle.can_read_memory", lambda _: False)
    row = judge_code(right_candidate)
    assert row["status"] == "correct", row
    assert row["timings"]


def test_scratch_files_of_groups_are_removed() -> None:
    if not is_possible(cgroup.try_kill):
        pytest.skip("no control group of version 2 can be made here")
    group = cgroup.Group()
    GroupFreezer(group.folder).close()
    group.remove()
    assert not Path(group.folder).exists()
