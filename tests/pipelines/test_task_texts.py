"""Which texts are copies of a test task: the view test_tasks, by rewriting the text of a task."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewritings import IDLE, change_program, read_program, rewrite_text

import store

TASK = '''"""A task with strings of every kind."""
import torch
from torch import nn

SOURCE = """
# not a comment
"not a docstring"
pass
"""
MODES = {
    "first": "mean",
    "last":
    "sum"
}


def double(x): return 2.0 * x


class Model(nn.Module):
    """Scales \\""" its input."""

    def __init__(self, size, mode="none"):
        super(Model, self).__init__()
        self.mode = (
            "mean"
            if size > .5
            else "sum"
        )
        self.name = 'it is ' \\
            'split'

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.einsum(
            "ij, jk -> ik"
            , x, x.T
        )
        if x.dim() == 2:
            pass
        for name in [
            "a"
            for _ in range(2)
        ]:
            y = torch.nn.functional.interpolate(y, mode=name)
        return (x + 1e-5) * double(y)[..., 0]


def get_inputs():
    return [torch.rand(16, 1024, dtype=getattr(torch, "float32"))]


def get_init_inputs():
    return [1]
'''
STARTER = Path(store.__file__).parent / "starter" / "tasks"
TASKS = {"all strings": TASK} | {
    file.stem: file.read_text("utf-8") for file in sorted(STARTER.glob("*.py"))
}


def find_copies(task: str, *others: str) -> list[bool]:
    """Return for each text whether the view finds that it copies the task."""
    codes = [task, *others]
    ids = [str(place) for place in range(len(codes))]
    with duckdb.connect() as connection:
        connection.register("tasks", pa.table({"task_id": ids, "code": codes}))
        splits = ["test", *("train" for _ in others)]
        connection.register("task_names", pa.table({"task_id": ids, "split": splits}))
        found = connection.execute(store.read_view("test_tasks")).fetchall()
    assert ("0", None) in found
    assert all(copy_of == "0" for _, copy_of in found if copy_of is not None)
    return [identity in dict(found) for identity in ids[1:]]


@given(st.data())
@settings(deadline=None)
def test_a_rewritten_text_is_a_copy_and_one_with_another_name_or_constant_is_not(
    data: st.DataObject,
) -> None:
    task = TASKS[data.draw(st.sampled_from(sorted(TASKS)))]
    copy = data.draw(rewrite_text(task))
    other = data.draw(rewrite_text(data.draw(change_program(task))))
    assert find_copies(task, copy, other) == [True, False]


@pytest.mark.repeats(run=5)
@pytest.mark.parametrize("idle", IDLE)
def test_a_statement_without_an_effect_makes_no_other_task(idle: str) -> None:
    places = ("def forward(self, x):\n        ", "\n\n\n", "def double(x): ")
    task = """def double(x): return 2 * x


class Model:
    def forward(self, x):
        return double(x)
"""
    copies = [
        task.replace(places[0], f"{places[0]}{idle}\n        "),
        task.replace(places[1], f"\n{idle}\n"),
        f"{idle}\n{task}",
        f"{task}{idle}\n",
    ]
    if not idle.startswith("#") and "\n" not in idle and "#" not in idle:
        copies.append(task.replace(places[2], f"{places[2]}{idle}; "))
        copies.append(task.replace("2 * x", f"2 * x; {idle}"))
    for copy in copies:
        assert read_program(copy) == read_program(task), copy
    assert find_copies(task, *copies) == [True] * len(copies)


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("width", [40, 100])
def test_a_formatted_task_is_a_copy(width: int, tmp_path: Path) -> None:
    for name, task in TASKS.items():
        (tmp_path / f"{name}.py").write_text(task, "utf-8")
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", str(width)]
    subprocess.run([*command, "-q", str(tmp_path)], check=True)
    for name, task in TASKS.items():
        formatted = (tmp_path / f"{name}.py").read_text("utf-8")
        assert find_copies(task, formatted) == [True], name
    assert (tmp_path / "all strings.py").read_text("utf-8") != TASK


@pytest.mark.slow
def test_strings_that_are_values_tell_tasks_apart() -> None:
    """Also where one is alone on its line, inside brackets."""
    for shape in (
        'f(\n    "{}",\n    x,\n)\ny\n',
        'f(\n    "{}"\n)\ny\n',
        'f(\n    x,\n    "{}"\n)\ny\n',
        'f(\n    x, mode=\n    "{}"\n    if x\n    else 1)\n',
        'f([\n    "a"\n    "{}"\n    for _ in x\n])\n',
        'f([\n    ("{}")\n    for _ in x\n])\n',
        'f(\n    "{}"\n    .lower()\n)\n',
        'd = {{\n    "a":\n    "{}"\n}}\nx\n',
        'd = {{\n    "{}": 1\n}}\nx\n',
        'x = "a" \\\n    "{}"\ny\n',
        'x = """a\n"{}"\nb"""\n',
        'x = """\n"""\ny = "{}"\nz = """\n"""\n',
        'return "{}"\nx\n',
        'x: str = "{}"; y\n',
    ):
        texts = [shape.format(word) for word in ("mean", "sum", "mean  # x")]
        assert find_copies(*texts) == [False, False], shape


def test_programs_that_differ_in_layout_alone_are_withheld_as_well() -> None:
    """What the comment of the view calls copies although they are other programs."""
    assert find_copies("y = a * (b + c)\n", "y = a * b + c\n") == [True]
    assert find_copies("if a:\n    b\n    c\n", "if a:\n    b\nc\n") == [True]
    assert find_copies('f = lambda: "a"\nx\n', 'f = lambda: "b"\nx\n') == [True]


@pytest.mark.parametrize(
    ("task", "other"),
    [
        ("f(1000)\n", "f(1e3)\n"),
        ("f(0xff)\n", "f(0xFF)\n"),
        ('f("a")\n', 'f("\\x61")\n'),
        ("x = (1,)\n", "x = 1,\n"),
        ("f(x)\n", "0\nf(x)\n"),
        ("f(x)\n", '(("A"))\nf(x)\n'),
        ("x = 1\n", "x: int = 1\n"),
        ("import a\nimport b\n", "import b\nimport a\n"),
    ],
)
def test_copies_that_the_view_does_not_find(task: str, other: str) -> None:
    """What the comment of the view calls no copies."""
    assert find_copies(task, other) == [False]


@pytest.mark.repeats(run=5)
@pytest.mark.parametrize(
    "text",
    [
        "", "\n", '"""', "'", "x = (\n", ")\n", '"a" "b\n', "\\", "«»", "»«\n", "x\0y\n", '"\0"\n',
        "(" * 10_000, '"' * 10_001, '("a"\n' * 10_000, "rb" * 10_000 + '"', '"""' + "\\" * 10_001,
        "x = 1\n\u2028y = é2\n", "def é():\n  'é'\n", "pass;" * 10_000,
    ],
)  # fmt: skip
def test_text_that_python_cannot_read_is_compared_as_well(text: str) -> None:
    assert find_copies(text, text + "# a\n", text + "\nx = 1\n") == [True, False]
