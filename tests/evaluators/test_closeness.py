"""Timed answers that are so close to eager's that no reference in double precision is asked."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.judging.case import Precision
from evaluators.judging.comparison import compare, is_close, merge_comparisons
from evaluators.references.task import Expected

PRECISIONS: tuple[Precision, ...] = ("torch_default", "fp32_strict", "allow_tf32")


def make_answer(seed: int, elements: int, eager_error: float) -> Expected:
    """An answer with an eager reference whose error is about `eager_error` of the root mean."""
    draw = torch.Generator().manual_seed(seed)
    exact = torch.randn(elements, dtype=torch.float64, generator=draw)
    noise = torch.randn(elements, dtype=torch.float64, generator=draw)
    return Expected((exact + eager_error * noise).float(), [exact])


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    elements=st.integers(256, 5000),
    eager_error=st.sampled_from([1e-7, 1e-5, 1e-3]),
    size=st.floats(-8, -1),
    share=st.sampled_from([0.001, 0.1, 1.0]),
    precision=st.sampled_from(PRECISIONS),
)
def test_what_is_close_is_right(
    seed: int, elements: int, eager_error: float, size: float, share: float, precision: Precision
) -> None:
    before = [make_answer(seed + call, elements, eager_error) for call in range(1, 6)]
    known = functools.reduce(merge_comparisons, (compare(e, e.value, precision) for e in before))
    expected = make_answer(seed, elements, eager_error)
    draw = torch.Generator().manual_seed(seed)
    error = 10**size * torch.randn(elements, generator=draw)
    error[torch.rand(elements, generator=draw) > share] = 0.0
    output = expected.value + error
    if is_close(expected.value, output, precision, known.eager_error):
        assert compare(expected, output, precision).reason is None


@pytest.mark.parametrize("eager_error", [1e-7, 1e-3])
def test_rounding_is_close_and_a_missing_element_is_not(eager_error: float) -> None:
    before, expected = (make_answer(seed, 4096, eager_error) for seed in (1, 2))
    known = compare(before, before.value).eager_error
    assert known is not None
    assert known.scaled == pytest.approx(eager_error * 4, rel=0.5)
    assert is_close(expected.value, expected.value * (1 + 2**-23), "torch_default", known)
    for wrong in (0.0, float("nan"), float("inf")):
        output = expected.value.clone()
        output[int(output.abs().argmax())] = wrong
        assert not is_close(expected.value, output, "torch_default", known)


def test_small_values_that_are_cut_off_are_not_close() -> None:
    # Far below the root mean square, so that only the shares of relative errors tell.
    eager = torch.cat([torch.full((512,), 1e-6), torch.ones(512)])
    output = torch.where(eager < 1e-3, 0.0, eager)
    assert not is_close(eager, output, "torch_default", None)
    assert is_close(eager, eager.clone(), "torch_default", None)


def test_another_structure_or_whole_number_is_not_close() -> None:
    eager = [torch.ones(4), torch.arange(4)]
    assert is_close(eager, [torch.ones(4), torch.arange(4)], "torch_default", None)
    assert not is_close(eager, [torch.ones(4)], "torch_default", None)
    assert not is_close(eager, [torch.ones(4), torch.zeros(4).long()], "torch_default", None)
    assert not is_close(
        eager, [torch.ones(4), torch.arange(4, device="meta")], "torch_default", None
    )
