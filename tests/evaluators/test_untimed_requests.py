"""What a candidate does in requests that nobody times: it sees no inputs there and finishes none.

The candidates replace every operation of their worker but the two that call the module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Judged = Callable[..., dict[str, Any]]

STATE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(24)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn({rows}, 24)]


def get_init_inputs():
    return []
"""
TASKS = {
    "state": STATE.format(rows=96),
    "other layouts": STATE.format(rows="int(torch.randint(40, 96, ()))"),
}
PATCHED = """
import gc, sys, torch
from torch import nn

loop = sys.modules["evaluators.worker.loop"]


def replace(name, after, before=lambda worker: None):
    real = loop._OPERATIONS[name]
    def operation(self, **fields):
        before(self)
        reply = real(self, **fields)
        after(self)
        return reply
    for held in gc.get_referrers(real):
        if type(held) is dict and held.get(name) is real:
            held[name] = operation


OTHERS = set(loop._OPERATIONS) - {"time", "call", "clocks"}
TIMING = []


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(24)
"""
AHEAD = (
    PATCHED
    + """
    def forward(self, x):
        if TIMING and key(x) in SEEN:
            return torch.zeros_like(x)
        return self.norm(x)


def key(x):
    return tuple(x.reshape(-1)[::97].tolist())


def look(worker):
    SEEN.update(key(x) for args, _ in worker._slots.values() for x in args)


SEEN = set()
for name in OTHERS:
    replace(name, look, look)
replace("time", lambda worker: TIMING.clear(), lambda worker: TIMING.append(1))
"""
)
LATE = (
    PATCHED
    + """
    def forward(self, x):
        if not TIMING:
            return self.norm(x)
        out = torch.empty_like(x)
        OWED.append((self.norm, KEPT, out))
        return out


def work(worker):
    for norm, x, out in OWED:
        out.copy_(norm(x))
    OWED.clear()


OWED = []
for name in OTHERS:
    replace(name, lambda worker: None, work)
replace("time", lambda worker: TIMING.clear(), lambda worker: TIMING.append(1))
"""
)


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("task", TASKS)
def test_inputs_of_a_timed_call_are_seen_in_no_other_request(judge_code: Judged, task: str) -> None:
    row = judge_code(AHEAD, TASKS[task], timing_limit_s=60.0)
    assert (row["status"], row["reason"]) == ("correct", None), row
    assert row["timings"]
    assert not {"timed_outputs_unverified", "state_differs"} & {*row["flags"]}


@pytest.mark.slow
def test_answers_that_are_described_in_other_memory_are_not_verified(judge_code: Judged) -> None:
    """A request that nobody times could otherwise hand in what the timed one has not computed."""
    code = (
        PATCHED
        + """
    def forward(self, x):
        if not TIMING:
            return self.norm(x)
        OWED.append((self.norm, x.clone()))
        return torch.empty_like(x)


def hand_in(worker):
    calls = OWED[-len(worker._outputs):]
    worker._outputs = [norm(x) for norm, x in calls]


OWED = []
replace("describe", lambda worker: None, hand_in)
replace("time", lambda worker: TIMING.clear(), lambda worker: TIMING.append(1))
"""
    )
    row = judge_code(code, TASKS["state"], timing_limit_s=60.0)
    assert (row["status"], row["reason"]) == ("correct", None), row
    assert "timed_outputs_unverified" in row["flags"]


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("kept", ["x", "x.clone()"])
def test_answers_that_other_requests_finish_do_not_count(judge_code: Judged, kept: str) -> None:
    row = judge_code(LATE.replace("KEPT", kept), TASKS["state"], timing_limit_s=60.0)
    assert (row["status"], row["reason"]) == ("rejected", "memorised_output"), row


@pytest.mark.slow
def test_updates_of_state_that_another_request_makes_count_as_time(judge_code: Judged) -> None:
    code = (
        PATCHED
        + """
    def forward(self, x):
        if TIMING:
            OWED.append((self, x.clone()))
            return torch.batch_norm(
                x, self.norm.weight, self.norm.bias, None, None, True, 0.0, 1e-5, False)
        return self.norm(x)


def work(worker):
    for module, x in OWED:
        module.norm(x)
        until = time.perf_counter() + 0.002
        while time.perf_counter() < until:
            pass
    OWED.clear()


import time
OWED = []
replace("current_state", lambda worker: None, work)
replace("time", lambda worker: TIMING.clear(), lambda worker: TIMING.append(1))
"""
    )
    row = judge_code(code, TASKS["state"], timing_limit_s=60.0)
    assert (row["status"], row["reason"]) == ("correct", None), row
    [kernel] = [arm for arm in row["timings"] if arm["arm"] == "kernel"][:1]
    # Each call owes 2 ms, in a request that is not the timed one.
    assert min(kernel["samples_ms"]) > 1, kernel["samples_ms"]


@pytest.mark.slow
def test_answers_whose_layout_always_changes_are_not_verified(
    judge_code: Judged, candidate: Callable[[str], str]
) -> None:
    """The judge cannot capture them when the clock stops, and a worker could still change them."""
    row = judge_code(
        candidate(
            "self.n = getattr(self, 'n', 0) + 1\n"
            "out = torch.empty(x.shape[0], 33 + self.n % 64)[:, :32]\n"
            "return out.copy_(torch.relu(x @ self.weight))"
        )
    )
    assert (row["status"], row["reason"]) == ("correct", None), row
    assert "timed_outputs_unverified" in row["flags"]
