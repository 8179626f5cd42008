"""Which class or function of a file is judged."""

from __future__ import annotations

import pytest

from store.code.completion import parse_completion as parse
from store.code.entry_points import (
    choose_stored,
    count_arguments,
    find_entry_point,
    list_names,
)
from store.errors import FlywheelError

LAUNCHER = """
import triton


@triton.jit
def softmax_kernel(x, y, n: "tl.constexpr"):
    pass


@triton.autotune(configs=[], key=[])
@triton.jit
def other_kernel(x, y):
    pass


def _grid(x, y):
    pass


def softmax(x, dim=-1):
    return softmax_kernel[(1,)](x)
"""
CASES = {
    "ModelNew before all others": (
        "class Model: ...\nclass ModelNew: ...\ndef run(x): ...",
        1,
        "ModelNew",
    ),
    "an assigned ModelNew": ("def make(): ...\nModelNew = make()", 1, "ModelNew"),
    "an imported ModelNew": ("from parts import Net as ModelNew", 1, "ModelNew"),
    "Model": ("class Model: ...\ndef helper(x): ...", 1, "Model"),
    "custom_kernel": ("def helper(x): ...\ndef custom_kernel(data): ...", 1, "custom_kernel"),
    "run": ("def run(a, b): ...\ndef other(a, b): ...", 2, "run"),
    "a launcher of Triton": (LAUNCHER, 1, "softmax"),
    "the only function, of an unknown task": (LAUNCHER, None, "softmax"),
    "by its number of arguments": ("def one(x): ...\ndef two(x, y): ...", 2, "two"),
    "with a default": ("def one(): ...\ndef two(x, y=1): ...", 1, "two"),
    "*args": ("def one(*args): ...\ndef two(x, *, y): ...", 1, "one"),
    "one convention fits": ("def run(x): ...\ndef solution(x, y): ...", 2, "solution"),
    "under a condition": ("if True:\n    def kernel_fn(x): ...", 1, "kernel_fn"),
    "a decorated host function": ("import torch\n@torch.compile\ndef f(x): ...", 1, "f"),
    "nothing": ("x = 1", 1, None),
    "no function takes as many": ("def f(x, y): ...", 1, None),
    "no Python": ("def f(:", 1, None),
}


@pytest.mark.parametrize("name", CASES)
def test_the_entry_point_of_a_file(name: str) -> None:
    code, arguments, expected = CASES[name]
    assert find_entry_point(code, arguments) == expected


@pytest.mark.parametrize(
    ("code", "named"),
    [
        ("def one(x): ...\ndef two(x): ...", "one, two"),
        ("def run(x): ...\ndef solution(x): ...", "run, solution"),
        ("class Model: ...\ndef solution(x): ...", "Model, solution"),
    ],
)
def test_several_entry_points_are_an_error_with_the_option(code: str, named: str) -> None:
    with pytest.raises(FlywheelError, match=f"more than one entry point: {named}") as raised:
        find_entry_point(code, 1)
    assert "--entry-point" in str(raised.value.hint)


def test_stored_kernels_have_usual_names_and_a_completion_is_no_copy_of_its_task() -> None:
    assert choose_stored("class Model: ...", copies=True) == "Model"
    assert choose_stored("class Model: ...") == "ModelNew"
    assert choose_stored("class Model: ...\ndef run(x): ...") == "run"
    assert choose_stored("def run(x): ...\ndef solution(x): ...") == "ModelNew"
    assert choose_stored("def softmax(x): ...") == "ModelNew"
    assert choose_stored("class ModelNew: ...\ndef run(x): ...") == "ModelNew"
    assert parse("```python\ndef custom_kernel(x):\n    return x\n```").entry_point == (
        "custom_kernel"
    )
    assert parse("```python\nclass Model: ...\n```").entry_point == "ModelNew"


def test_the_names_of_a_file_and_the_arguments_of_a_task() -> None:
    assert list_names("class A: ...\ndef f(): ...\nx = 1") == ["A", "f"]
    assert count_arguments("def get_inputs():\n    x = 1\n    return x, [2], 3") == 3
    assert count_arguments("def get_inputs():\n    return make()") is None
    assert count_arguments("def get_inputs():\n    return [*rest, 1]") is None
