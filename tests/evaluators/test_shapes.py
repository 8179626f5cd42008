"""Other shapes of a task: what is drawn, what its reference refuses, and what kernels do there."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import builders as b
import pytest

import store
from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case
from evaluators.judging.other_shapes import name_outcome
from evaluators.references.shapes import Shapes, draw_shapes, try_shapes
from evaluators.references.task import ReferenceFailed
from evaluators.scheduling import contract
from evaluators.scheduling.run import Selection, find_pending
from store.errors import HostUnfit, SandboxFailed

SOFTMAX = """
import torch
import torch.nn as nn

ROWS = 32
COLS = 64
EPS = 3


class Model(nn.Module):
    def __init__(self, cols, eps):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(cols) + eps)

    def forward(self, x):
        return torch.softmax(x * self.scale, dim=1)


def get_inputs():
    return [torch.randn(ROWS, COLS)]


def get_init_inputs():
    return [COLS, EPS]
"""


@pytest.fixture(autouse=True)
def draw_patiently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no busy host end the trial of sizes."""
    monkeypatch.setattr("evaluators.references.shapes.DRAWING_S", 600.0)


def draw(references: Any, task: str, count: int = 3, **axes: Any) -> Shapes:
    return draw_shapes(references(task, axes), "t", axes, count, version=1)


def list_axes(shapes: Shapes) -> list[dict[str, Any]]:
    return [json.loads(shape.axes) for shape in shapes.accepted]


def test_shapes_have_a_batch_of_one_primes_and_a_larger_odd_size(references: Any) -> None:
    shapes = draw(references, SOFTMAX)
    assert list_axes(shapes) == [{"ROWS": 1}, {"ROWS": 31, "COLS": 61}, {"COLS": 97}]
    assert [shape.name for shape in shapes.accepted][1] == "ROWS=31, COLS=61"
    assert shapes.own_elements == 2 * 32 * 64
    assert [shape.elements for shape in shapes.accepted] == [128, 2 * 31 * 61, 2 * 32 * 97]
    assert not shapes.notes


def test_draws_repeat_and_follow_the_workload(references: Any) -> None:
    first, again = draw(references, SOFTMAX, 6), draw(references, SOFTMAX, 6)
    assert list_axes(first) == list_axes(again)
    assert len({shape.axes for shape in first.accepted}) == 6
    larger = draw(references, SOFTMAX, 2, ROWS=128, EPS=4)
    assert list_axes(larger) == [{"ROWS": 1, "EPS": 4}, {"ROWS": 127, "COLS": 61, "EPS": 4}]


def test_numbers_of_a_tuple_are_sizes_and_stay_a_tuple(references: Any) -> None:
    task = SOFTMAX.replace("EPS = 3", "EPS = 3\nSHAPE = (32, 64)").replace(
        "torch.randn(ROWS, COLS)", "torch.randn((8,) + SHAPE[:1] + (COLS,))"
    )
    task = task.replace("dim=1", "dim=-1")
    shapes = draw(references, task, 2)
    assert list_axes(shapes)[1] == {"COLS": 61, "SHAPE": [31, 64]}


def test_sizes_that_the_reference_refuses_are_replaced(references: Any) -> None:
    heads = SOFTMAX.replace("EPS = 3", "EPS = 8").replace(
        "super().__init__()", "super().__init__()\n        assert cols % eps == 0"
    )
    shapes = draw(references, heads)
    assert list_axes(shapes) == [{"ROWS": 1}, {"ROWS": 31}, {"COLS": 128}]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.randn(ROWS, COLS)", "torch.randn(32, 64)"),
        ("torch.randn(ROWS, COLS)", "torch.randn(32, 64) * ROWS"),
    ],
)
def test_a_task_without_numbers_for_sizes_has_no_shapes(
    references: Any, old: str, new: str
) -> None:
    shapes = draw(references, SOFTMAX.replace(old, new))
    assert not shapes.accepted
    assert "no number at the top of the task's text" in shapes.notes[0]


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        ("assert x.shape == (32, 64)", "AssertionError"),
        ("x = x if x.shape == (32, 64) else x / 0", "not finite"),
        ("x = x if x.shape == (32, 64) else x.double()", "another form"),
        ("exit() if x.shape != (32, 64) else None", "sys.exit"),
    ],
)
def test_a_task_that_refuses_all_other_sizes_says_why(
    references: Any, body: str, refusal: str
) -> None:
    task = SOFTMAX.replace(
        "        return torch.soft", f"        {body}\n        return torch.soft"
    )
    shapes = draw(references, task.replace("* self.scale", "* self.scale[0]"))
    assert not shapes.accepted
    assert shapes.notes[0].startswith("other shapes: 0 of 3 are drawn; ")
    assert refusal in shapes.notes[0]


@pytest.mark.slow
def test_a_task_that_hangs_or_ends_at_other_sizes_has_the_shapes_before(references: Any) -> None:
    for body in ("while x.shape[0] == 31: pass", "import os; x.shape[0] == 31 and os.abort()"):
        task = SOFTMAX.replace("def forward(self, x):", f"def forward(self, x):\n        {body}")
        shapes = draw(references, task)
        assert list_axes(shapes) == [{"ROWS": 1}]
        assert "1 of 3 are drawn; ROWS=31, COLS=61: the task's worker is" in shapes.notes[0]


def test_the_user_names_shapes(references: Any) -> None:
    reference = references(SOFTMAX)
    wanted = [{"COLS": 7}, {"ROWS": 0, "COLS": -1}, {"WIDTH": 3}]
    shapes = try_shapes(reference, {}, wanted)
    assert list_axes(shapes) == [{"COLS": 7}]
    assert "shape ROWS=0, COLS=-1: not judged" in shapes.notes[0]
    assert "which the task does not define" in shapes.notes[1]
    # The task at hand is the same as before.
    assert tuple(reference.inputs(1)[0].shape) == (32, 64)


KERNEL = """
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, cols, eps):
        super().__init__()
        {construct}
        self.scale = nn.Parameter(torch.rand(cols) + eps)

    def forward(self, x):
        {forward}
"""
RIGHT = "return torch.softmax(x * self.scale, dim=1)"
OUT_OF_BOUNDS = """
import ctypes
y = (x * self.scale).contiguous()
width = (y.shape[1] + 15) // 16 * 16
floats = ctypes.c_float * ((y.shape[0] - 1) * y.shape[1] + width)
flat = torch.frombuffer(floats.from_address(y.data_ptr()), dtype=torch.float32)
blocks = flat.as_strided((y.shape[0], width), (y.shape[1], 1))
return torch.exp(y - blocks.logsumexp(1, keepdim=True))
"""


@pytest.fixture
def judge_shapes(bench: Bench) -> Callable[..., dict[str, Any]]:
    """Return a function that judges a softmax, and returns the rows of its shapes by name."""

    def judge_one(forward: str, construct: str = "pass", **config: Any) -> dict[str, Any]:
        lines = "\n        ".join(forward.strip().splitlines())
        code = KERNEL.format(forward=lines, construct=construct)
        case = Case(kernel_id="k", task_id="t", workload_id="w", code=code, task_code=SOFTMAX)
        brief: dict[str, Any] = {"robustness": False, "diagnosis": False, "calls": 4}
        brief |= {"timing_s": 0.05, "timing_limit_s": 0.3, "call_s": 120.0}
        tables = judge(case, bench, Config(**brief | config))
        names = {row["workload_id"]: row["name"] for row in tables.get("workloads", [])}
        own, *others = tables["evaluations"]
        rows = {names[row["workload_id"]]: row for row in others}
        return {"own": own, "shapes": rows, "timings": tables["timings"]}

    return judge_one


AXES = ("ROWS=1", "ROWS=31, COLS=61", "COLS=97")


FIXED_WIDTH = "y = x * self.scale\ny[:, 64:] = 0\nreturn torch.softmax(y, dim=1)"
"""The width is a number of the kernel's own, as of a block without a mask."""


def test_a_kernel_for_one_width_is_wrong_at_another(judge_shapes: Any) -> None:
    found = judge_shapes(FIXED_WIDTH, axes=["COLS=97"])
    assert (found["own"]["status"], found["own"]["protocol"]) == ("correct", "full")
    [row] = found["shapes"].values()
    assert (name_outcome(row), row["protocol"]) == ("wrong", "shape")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forward", "outcomes"),
    [
        (RIGHT, "held held held"),
        (FIXED_WIDTH, "held held wrong"),
        (f"assert x.shape == (32, 64), 'written for 32 x 64'\n{RIGHT}", "raises raises raises"),
        # It computes whole blocks of 16 columns.
        (
            "y = x * self.scale\nn = y.shape[1] // 16 * 16\nout = torch.zeros_like(y)\n"
            "out[:, :n] = torch.softmax(y[:, :n], dim=1)\nreturn out",
            "held wrong wrong",
        ),
        (OUT_OF_BOUNDS, "held wrong wrong"),
        # It keeps memory for each shape, and no answer.
        (
            "key = tuple(x.shape)\nif not hasattr(self, 'kept'): self.kept = {}\n"
            "out = self.kept.setdefault(key, torch.empty_like(x))\n"
            "return out.copy_(torch.softmax(x * self.scale, dim=1)).clone()",
            "held held held",
        ),
        ("import os\nif x.shape[0] < 32: os.abort()\n" + RIGHT, "wrong wrong held"),
    ],
)  # fmt: skip
def test_shapes_tell_kernels_apart_that_are_right_at_their_own(
    judge_shapes: Any, forward: str, outcomes: str
) -> None:
    found = judge_shapes(forward, axes=AXES)
    assert found["own"]["status"] == "correct"
    rows = found["shapes"]
    assert list(rows) == ["ROWS=1", "ROWS=31, COLS=61", "COLS=97"]
    assert [name_outcome(row) for row in rows.values()] == outcomes.split()
    assert {row["protocol"] for row in rows.values()} == {"shape"}
    assert found["own"]["protocol"] == "full"


@pytest.mark.slow
def test_a_verdict_has_shapes_within_a_share_of_its_time(judge_shapes: Any) -> None:
    found = judge_shapes(RIGHT, draw_shapes=3)
    # One is judged in any case, the smallest first; the others if there is time.
    names = [*found["shapes"]]
    assert names == [*AXES][: len(names)]
    notes = found["own"]["log"] or ""
    assert len(names) == 3 or f"shapes left out to save time: {AXES[len(names)]}" in notes
    assert "drawing" in json.loads(found["own"]["parts_s"])


@pytest.mark.slow
def test_no_shapes_where_none_are_asked_for_or_the_kernel_is_wrong(judge_shapes: Any) -> None:
    assert not judge_shapes(RIGHT, draw_shapes=0)["shapes"]
    wrong = judge_shapes(RIGHT.replace("dim=1", "dim=0"), draw_shapes=3)
    assert wrong["own"]["status"] == "incorrect"
    assert not wrong["shapes"]


@pytest.mark.slow
def test_training_judges_the_answers_at_one_shape(judge_shapes: Any) -> None:
    found = judge_shapes(RIGHT, protocol="training")
    [row] = found["shapes"].values()
    assert row["status"] == "correct"
    assert found["own"]["protocol"] == "training"
    assert {one["evaluation_id"] for one in found["timings"]} == {found["own"]["evaluation_id"]}


@pytest.mark.slow
def test_shapes_of_the_user_are_timed(judge_shapes: Any) -> None:
    found = judge_shapes(RIGHT, axes=("ROWS=7,COLS=33", "WIDTH=0"), timing_limit_s=1.0)
    [row] = found["shapes"].values()
    timings = [one for one in found["timings"] if one["evaluation_id"] == row["evaluation_id"]]
    assert {one["arm"] for one in timings} == {"kernel", "eager"}
    assert {one["workload_id"] for one in timings} == {row["workload_id"]}
    assert "shape WIDTH=0: not judged" in found["own"]["log"]


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "fault", [SandboxFailed("no worker"), HostUnfit("no compiler"), ReferenceFailed("gone")]
)
def test_a_fault_at_a_shape_is_a_note_and_no_verdict(
    judge_shapes: Any, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    open_reference = Bench.open_reference

    def fail_elsewhere(self: Bench, code: str, axes: Any) -> Any:
        if axes:
            raise fault
        return open_reference(self, code, axes)

    monkeypatch.setattr(Bench, "open_reference", fail_elsewhere)
    found = judge_shapes(RIGHT, axes=AXES)
    assert found["own"]["status"] == "correct"
    assert not found["shapes"]
    assert f"shape ROWS=1: not judged, {fault}" in found["own"]["log"]


@pytest.mark.slow
def test_the_workers_of_the_task_stay_while_shapes_are_judged(
    judge_shapes: Any, bench: Bench
) -> None:
    judge_shapes(RIGHT, draw_shapes=1)
    reference = bench.open_reference(SOFTMAX, {}).pid
    judge_shapes(RIGHT + "  # another kernel", draw_shapes=1)
    assert bench.open_reference(SOFTMAX, {}).pid == reference


@pytest.mark.slow
def test_a_judge_process_gets_the_shapes_of_the_user_as_json(judge_shapes: Any) -> None:
    config = json.loads(json.dumps({"axes": ("ROWS=7",), "draw_shapes": 3}))
    assert [*judge_shapes(RIGHT, **config)["shapes"]] == ["ROWS=7"]


@pytest.mark.slow
def test_a_fault_of_the_judge_at_shapes_does_not_cost_the_verdict(
    judge_shapes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(Bench, "set_task_aside", fail)
    own = judge_shapes(RIGHT, axes=AXES)["own"]
    assert own["status"] == "correct"
    assert "other shapes: none, ZeroDivisionError: a fault" in own["log"]


def test_kernels_that_were_not_tried_at_a_named_shape_are_pending(tmp_path: Path) -> None:
    task, gpu, author = b.task(), b.device("H200", kind="cuda"), b.policy("writer")
    own, one = b.workload(task), b.workload(task, "ROWS=1", '{"ROWS": 1}')
    kernels = {name: b.kernel(name) for name in ("tried", "untried", "wrong")}
    version = contract.load_default().VERSION

    def judged(name: str, workload: b.Row, **columns: Any) -> b.Row:
        return b.evaluation(
            kernels[name], task, workload, gpu, evaluator="judge", version=version, **columns
        )

    rows = {
        "tasks": [task],
        "task_labels": [b.label(task)],
        "workloads": [own, one],
        "devices": [gpu],
        "kernels": [*kernels.values()],
        "policies": [author],
        "generations": [b.generation(author, task, kernel) for kernel in kernels.values()],
        "evaluations": [
            judged("tried", own),
            judged("tried", one, protocol="shape", minute=1),
            judged("untried", own),
            judged("wrong", own, status="incorrect"),
        ],
    }
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        writer.append(rows, "kernels")
    with store.open(str(tmp_path / "lake")) as lake:

        def find(*shapes: str) -> set[str]:
            wanted = Selection(shapes=shapes)
            pending = find_pending(lake, contract.load_default(), [gpu], wanted).to_pylist()
            names = {kernel["kernel_id"]: name for name, kernel in kernels.items()}
            return {names[row["kernel_id"]] for row in pending}

        assert find() == set()
        assert find("ROWS=1") == {"untried"}
        assert find("ROWS=1", "COLS=2") == {"tried", "untried"}
