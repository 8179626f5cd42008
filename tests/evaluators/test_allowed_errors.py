"""Errors that a task itself allows: those of eager's other algorithms, and neighbouring steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import torch

from evaluators.judging.case import Precision
from evaluators.judging.comparison import compare
from evaluators.judging.tolerance import (
    TOLERANCE,
    get_tolerance,
    is_below,
    measure_algorithms,
)
from evaluators.references.module import TaskModule
from evaluators.references.operations import RoundedFactors
from evaluators.references.task import Expected, Reference

Ask: TypeAlias = Callable[..., tuple[Expected, list[torch.Tensor]]]

TASK = """
import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, a, b):
        {body}


def get_inputs():
    return [torch.randn(128, 256), torch.randn(256, 128)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Return a function that asks a task once and gives its answer with its steps, and inputs."""

    def ask_task(
        body: str, precision: Precision = "torch_default"
    ) -> tuple[Expected, list[torch.Tensor]]:
        path = tmp_path / "task.py"
        path.write_text(TASK.format(body=body))
        task = TaskModule(str(path), {}, "cpu")
        inputs = task.inputs(1)
        value, exact = task.answer(inputs, 2)
        limits = {str(dtype): get_tolerance(dtype, precision) for dtype in TOLERANCE}
        steps, rounds = task.steps(inputs, 2, limits)
        return Expected(value, exact, inputs, steps=lambda: steps, rounds=rounds), inputs

    return ask_task


def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Multiply in another order than eager does."""
    return sum((x @ y for x, y in zip(a.split(8, 1), b.split(8, 0), strict=True)), torch.zeros(()))


SCALE = "(a @ b).abs().amax(1, keepdim=True) / 127"
ROUNDED: dict[str, tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = {
    "round": ("return torch.round(a @ b * 64) / 64", lambda x: torch.round(x * 64) / 64),
    "in place": ("return (a @ b).mul_(64).floor_()", lambda x: torch.floor(x * 64)),
    "trunc": ("return torch.trunc(a @ b * 64)", lambda x: torch.trunc(x * 64)),
    "decimals": ("return torch.round(a @ b, decimals=2)", lambda x: torch.round(x, decimals=2)),
    "floor division": ("return (a @ b) // 0.01", lambda x: x // 0.01),
    "long": ("return (a @ b * 64).long()", lambda x: (x * 64).long()),
    "int8": (
        f"return torch.round(a @ b / ({SCALE})).to(torch.int8)",
        lambda x: torch.round(x / (x.abs().amax(1, keepdim=True) / 127)).to(torch.int8),
    ),
    "fake quantised": (
        "return torch.fake_quantize_per_tensor_affine(a @ b, 0.02, 0, -4096, 4096)",
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.02, 0, -4096, 4096),
    ),
    "threshold": (
        "y = a @ b\n        return torch.where(y > 8, y, -y)",
        lambda x: torch.where(x > 8, x, -x),
    ),
    "mask": ("return (a @ b) >= 0.5", lambda x: x >= 0.5),
    "bucketize": (
        "return torch.bucketize(a @ b, torch.linspace(-60, 60, 4000, dtype=a.dtype))",
        lambda x: torch.bucketize(x, torch.linspace(-60, 60, 4000)),
    ),
    "float8": (
        "return (a @ b).to(torch.float8_e4m3fn).to(a.dtype)",
        lambda x: x.to(torch.float8_e4m3fn).to(x.dtype),
    ),
    "half": ("return (a @ b).half().to(a.dtype)", lambda x: x.half().to(x.dtype)),
    "then a sum": (
        "return torch.round(a @ b * 64).cumsum(1)",
        lambda x: torch.round(x * 64).cumsum(1),
    ),
}


@pytest.mark.repeats(run=6)
@pytest.mark.parametrize("name", ROUNDED)
def test_another_order_of_sums_may_take_the_neighbouring_step(name: str, ask: Ask) -> None:
    body, rounds = ROUNDED[name]
    expected, (a, b) = ask(body)
    honest = compare(expected, rounds(multiply(a, b)))
    assert (honest.reason, honest.precision_class) == (None, honest.lowest_class), honest
    for wrong in (a.bfloat16().float() @ b.bfloat16().float(), a @ b + 0.1):
        assert compare(expected, rounds(wrong)).reason == "incorrect_numerical"


def test_one_factor_on_another_step_changes_a_row(ask: Ask) -> None:
    body = (
        "s, t = (x.abs().amax() / 127 for x in (a, b))\n"
        "        return (torch.round(a / s) @ torch.round(b / t)) * s * t"
    )
    expected, (a, b) = ask(body)
    s, t = (x.double().abs().amax() / 127 for x in (a, b))
    value, other = a.double() / s, torch.round(b.double() / t)
    edge = (value - value.floor() - 0.5).abs()

    def answer(moved: torch.Tensor) -> torch.Tensor:
        return ((moved @ other) * s * t).float()

    def move(place: int) -> torch.Tensor:
        moved = torch.round(value).flatten()
        moved[place] += 1 if value.flatten()[place] > moved[place] else -1
        return answer(moved.view(value.shape))

    honest = compare(expected, answer(torch.round(value)))
    assert (honest.reason, honest.precision_class) == (None, "fp32")
    found = compare(expected, move(int(edge.argmin())))
    assert found.reason is None, found.message
    assert compare(expected, move(int(edge.argmax()))).reason == "incorrect_numerical"
    assert compare(expected, answer(value)).reason == "incorrect_numerical"
    # As many rows as there are need another step in some factor.
    moved = torch.round(value) + torch.where(edge < 0.02, torch.sign(value - value.round()), 0)
    assert compare(expected, answer(moved)).reason == "incorrect_numerical"


def test_what_shows_a_step_without_an_edge_is_wrong(ask: Ask) -> None:
    expected, (a, b) = ask("return torch.round(a @ b * 8) / 8")
    product = multiply(a, b)
    assert compare(expected, torch.round(product * 8) / 8).reason is None
    right = expected.exact[0]
    assert right is not None
    value = a.double() @ b.double() * 8
    distance = (value - value.floor() - 0.5).abs()
    next_step = torch.round(value) + torch.where(value > torch.round(value), 1, -1)
    neighbours = (next_step / 8).float()
    nearest = distance.flatten().argsort()
    at_edges = right.float().flatten()
    at_edges[nearest[:3]] = neighbours.flatten()[nearest[:3]]
    assert compare(expected, at_edges.view(right.shape)).reason is None
    two_steps = right.float().flatten()
    two_steps[nearest[0]] -= 2 * (two_steps - neighbours.flatten())[nearest[0]]
    far = right.float().flatten()
    far[nearest[-1]] = neighbours.flatten()[nearest[-1]]
    everywhere_near = torch.where(distance < 0.05, neighbours, right.float())
    for wrong in (
        two_steps.view(right.shape),
        far.view(right.shape),
        everywhere_near,
        product,  # without rounding
        torch.floor(product * 8) / 8,
        torch.ceil(product * 8) / 8,
        torch.round(product * 4) / 4,
        torch.round(product * 16) / 16,
        torch.zeros_like(product),
        torch.round(a.half().float() @ b.half().float() * 8) / 8,
    ):
        assert compare(expected, wrong).reason == "incorrect_numerical"
    # Right by the tolerance of the value, and too many steps for full precision.
    noise = 3e-5 * 16 * torch.randn(product.shape, generator=torch.Generator().manual_seed(0))
    found = compare(expected, torch.round((product + noise) * 8) / 8)
    assert is_below(found.precision_class, found.lowest_class), found


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("return a @ b", lambda a, b: torch.round(a @ b * 64) / 64),
        # Whole and half numbers are at an edge without any error, and decide by the rule.
        ("return torch.round(a.round() / 2)", lambda a, b: torch.floor(a.round() / 2 + 0.5)),
        ("return torch.floor(a.round())", lambda a, b: torch.floor(a.round() - 1e-6)),
        ("return (a.round() >= 1).float()", lambda a, b: (a.round() > 1).float()),
        # Nearly all values are at the edge.
        ("return (a * 1e-5 + 0.5 > 0.5).float()", lambda a, b: torch.ones_like(a)),
        ("return torch.round(0.5 + (a @ b) * 1e-7)", lambda a, b: torch.zeros(128, 128)),
    ],
)
def test_a_step_explains_nothing_where_the_task_does_not_compute_its_edge(
    body: str, wrong: Callable[..., torch.Tensor], ask: Ask
) -> None:
    expected, (a, b) = ask(body)
    assert compare(expected, expected.value.clone()).reason is None
    assert compare(expected, wrong(a, b)).reason == "incorrect_numerical"


def test_eagers_own_step_allows_no_step_elsewhere(ask: Ask) -> None:
    expected, (a, b) = ask("return torch.round(a @ b * 2048) / 2048")
    [exact], value = expected.exact, expected.value
    assert exact is not None
    assert bool((value.double() - exact).abs().max() > 4e-4), "eager is on another step itself"
    moved = exact.float() + torch.where(torch.rand(exact.shape) < 0.5, -1, 1) * 2 / 2048
    assert compare(expected, moved).reason is None  # within 1e-4 of the root mean square
    coarse, _ = ask("return torch.round(a @ b * 32) / 32")
    assert coarse.exact[0] is not None
    flipped = coarse.exact[0].float()
    near = (a.double() @ b.double() * 32).flatten()
    edge = int((near - near.floor() - 0.5).abs().argmin())
    flipped.view(-1)[edge] += 1 / 32 if near[edge] > torch.round(near[edge]) else -1 / 32
    unlucky = Expected(flipped, coarse.exact, [a, b], steps=coarse.steps, rounds=True)
    assert compare(unlucky, torch.round(multiply(a, b) * 32) / 32).reason is None
    assert compare(unlucky, torch.round(multiply(a, b) * 32 + 1) / 32).reason is not None


FLAGGED = (
    TASK.format(
        body="""y = a @ b
        if torch.get_num_threads() == THREADS:
            return y
        return y + 3e-4 * y.square().mean().sqrt() * torch.randn(
            y.shape, generator=torch.Generator().manual_seed(0)
        )"""
    )
    .replace("128, 256", "64, 128")
    .replace("256, 128", "128, 64")
    .replace("class Model", "THREADS = torch.get_num_threads()\n\n\nclass Model")
)
"""One of eager's algorithms rounds to TF32, as cuDNN's do that its heuristics do not choose."""


def test_a_kernel_may_round_as_much_as_eagers_other_algorithm(
    references: Callable[[str], Reference],
) -> None:
    reference = references(FLAGGED)
    inputs = reference.inputs(7)
    a, b = inputs
    rounded = a.half().float() @ b.half().float()
    before = compare(reference.answer(inputs), rounded)
    assert before.reason == "incorrect_numerical"
    measure_algorithms(reference, "torch_default")
    expected = reference.answer(inputs)
    after = compare(expected, rounded)
    assert (after.reason, after.precision_class, after.lowest_class) == (None, "tf32", "tf32")
    full = compare(expected, a @ b)
    assert (full.reason, full.precision_class) == (None, "fp32")
    lower = compare(expected, a.bfloat16().float() @ b.bfloat16().float())
    assert is_below(lower.precision_class, lower.lowest_class)
    strict = compare(expected, rounded, "fp32_strict")
    assert is_below(strict.precision_class, strict.lowest_class)


def test_what_another_algorithm_would_answer_otherwise_allows_nothing(tmp_path: Path) -> None:
    other = FLAGGED.replace("3e-4", "0.3")
    for number, (code, is_measured) in enumerate(((FLAGGED, True), (other, False))):
        path = tmp_path / f"task{number}.py"
        path.write_text(code)
        task = TaskModule(str(path), {}, "cpu")
        [error], _, differ = task.measure_algorithms(task.inputs(1), 2, "torch_default", {})
        assert error is not None
        assert (error.relative > 1e-4, differ) == (is_measured, is_measured)


def test_factors_are_rounded_to_tf32() -> None:
    x, w = torch.randn(2, 8, 16, 16), torch.randn(4, 8, 3, 3)
    exact = torch.conv2d(x.double(), w.double())
    with RoundedFactors(("convolution",)), torch.no_grad():
        rounded, product = torch.conv2d(x, w), x @ x
        half = torch.conv2d(x.bfloat16(), w.bfloat16())
    assert float((rounded - exact).norm() / exact.norm()) == pytest.approx(3e-4, rel=0.3)
    assert torch.equal(product, x @ x)
    assert torch.equal(half, torch.conv2d(x.bfloat16(), w.bfloat16()))
