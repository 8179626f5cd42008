"""When an output is right: tolerances, places of errors, ties, structures, pieces."""

from __future__ import annotations

import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given, settings

from evaluators import _compare
from evaluators._compare import TF32_TOLERANCE, TOLERANCE, compare, repeats
from evaluators._reference import Expected

SHAPES = st.lists(st.integers(0, 5), min_size=0, max_size=3)
SEEDS = st.integers(0, 2**32)
FLOATS = st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16])
SOME = settings(deadline=None, max_examples=50)
MAGNITUDES = st.floats(1e-3, 1e3)


def answer(shape: list[int], seed: int, dtype: torch.dtype, magnitude: float = 1.0) -> Expected:
    """Return an answer with its values in double precision, as a reference gives them."""
    exact = magnitude * torch.randn(
        shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return Expected(exact.to(dtype), [exact])


@given(SHAPES, SEEDS, FLOATS, MAGNITUDES)
@SOME
def test_an_answer_passes_as_itself_and_as_the_exact_one_rounded(
    shape: list[int], seed: int, dtype: torch.dtype, magnitude: float
) -> None:
    wanted = answer(shape, seed, dtype, magnitude)
    found = compare(wanted, wanted.value.clone())
    assert found.reason is None
    assert (found.max_scaled_error or 0) <= 1


@given(SHAPES, SEEDS, FLOATS, MAGNITUDES, st.integers(0, 10**6), st.floats(1.5, 1e6))
@SOME
def test_one_element_beyond_its_tolerance_fails_and_is_named(
    shape: list[int], seed: int, dtype: torch.dtype, magnitude: float, place: int, times: float
) -> None:
    wanted = answer(shape, seed, dtype, magnitude)
    value, [exact] = wanted.value, wanted.exact
    if value.numel() == 0:
        return
    at = place % value.numel()
    index = tuple(int(n) for n in np.unravel_index(at, value.shape))
    rms = float(exact.square().mean().sqrt())
    e0 = float((value.double() - exact).abs().max())
    allowed = TOLERANCE[dtype] * (abs(float(exact[index])) + rms) + 4 * e0
    wrong = value.clone()
    wrong[index] = float(exact[index]) + times * allowed
    if (
        not math.isfinite(float(wrong[index]))
        or abs(float(wrong[index]) - float(exact[index])) <= allowed
    ):
        return  # rounding in a short format has brought it back
    found = compare(wanted, wrong)
    assert found.reason == "incorrect_numerical"
    assert f"output 0 at {index}: got" in (found.message or "")
    assert f"1 of {value.numel()} elements" in (found.message or "")
    assert (found.max_scaled_error or 0) > 1


@given(SHAPES, SEEDS, st.sampled_from([1, 3, 64]))
@SOME
def test_pieces_change_nothing(shape: list[int], seed: int, piece: int) -> None:
    wanted = answer(shape, seed, torch.float32)
    near = wanted.value * (1 + 1e-6)
    far = wanted.value + 1
    whole = [compare(wanted, near), compare(wanted, far)]
    usual = _compare._CHUNK
    _compare._CHUNK = piece
    try:
        parts = [compare(wanted, near), compare(wanted, far)]
    finally:
        _compare._CHUNK = usual
    for one, other in zip(whole, parts, strict=True):
        assert (one.reason, one.message) == (other.reason, other.message)
        assert one.max_scaled_error == pytest.approx(other.max_scaled_error)


@given(SEEDS, st.floats(1e-12, 1e-3))
@SOME
def test_no_constant_passes_however_small_the_answers(seed: int, magnitude: float) -> None:
    wanted = answer([64], seed, torch.float32, magnitude)
    for value in (0.0, float(wanted.value.mean())):
        assert compare(wanted, torch.full((64,), value)).reason == "incorrect_numerical"


def test_the_message_tells_place_values_tolerance_and_share() -> None:
    exact = torch.ones(2, 3, dtype=torch.float64)
    got = exact.float()
    got[1, 0] = 2.0
    got[1, 2] = 3.0
    message = compare(Expected(exact.float(), [exact]), got).message
    assert message == (
        "output 0 at (1, 0): got 2, wanted 1; 2 of 6 elements (33.333%) are beyond their "
        "tolerance, here 0.0002; largest error 2, 1e+04 times its tolerance"
    )


def test_the_second_output_is_named_too() -> None:
    right = torch.ones(3, dtype=torch.float64)
    wanted = Expected([right, (right,)], [right, right])
    message = compare(wanted, [right.clone(), (right + torch.tensor([0, 0, 1]),)]).message
    assert message is not None
    assert message.startswith("output 1 at (2,): got 2, wanted 1")


def test_what_is_not_finite_is_named() -> None:
    right = torch.ones(4)
    got = torch.tensor([1.0, 1.0, math.nan, math.inf])
    found = compare(Expected(right, [right.double()]), got)
    assert found.reason == "nan"
    assert (found.message or "").startswith("output 0 at (2,): got nan, wanted 1; 2 of 4")


def test_tf32_passes_only_where_it_is_allowed() -> None:
    wanted = answer([4096], 0, torch.float32)
    near = wanted.value * (1 + TF32_TOLERANCE / 4)
    assert compare(wanted, near).reason == "incorrect_numerical"
    assert compare(wanted, near, "allow_tf32").reason is None
    assert compare(wanted, near, "allow_tf32").precision_class == "tf32"
    far = wanted.value * (1 + 8 * TF32_TOLERANCE)
    assert compare(wanted, far, "allow_tf32").reason == "incorrect_numerical"
    half = answer([64], 0, torch.float16)
    assert compare(half, half.value * 1.02, "allow_tf32").reason == "incorrect_numerical"


def test_a_downcast_to_half_fails_and_a_reordered_sum_passes() -> None:
    draw = torch.Generator().manual_seed(0)
    a = torch.randn(64, 2048, generator=draw)
    b = torch.randn(2048, 64, generator=draw)
    wanted = Expected(a @ b, [a.double() @ b.double()])
    split = sum((a[:, k : k + 128] @ b[k : k + 128] for k in range(0, 2048, 128)), torch.zeros(()))
    assert compare(wanted, split).reason is None
    assert compare(wanted, split).precision_class == "fp32"
    downcast = a.half().float() @ b.half().float()
    found = compare(wanted, downcast)
    assert found.reason == "incorrect_numerical"
    assert found.precision_class == "tf32"
    assert found.rel_l2_error == pytest.approx(3e-4, rel=0.5)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers(dtype: torch.dtype) -> None:
    exact = torch.complex(torch.arange(4.0).double(), torch.ones(4).double())
    wanted = Expected(exact.to(dtype), [exact])
    assert compare(wanted, exact.to(dtype)).reason is None
    found = compare(wanted, exact.to(dtype).conj().resolve_conj())
    assert found.reason == "incorrect_numerical"
    assert "at (0,): got -1, wanted 1; 4 of 8" in (found.message or "")
    assert compare(wanted, exact.real.to(torch.float32)).reason == "incorrect_dtype"


@pytest.mark.parametrize("value", [None, 3, 2.5, True, "text", [], (), [None, (1, 2)]])
def test_plain_values_are_compared_as_they_are(value: Any) -> None:
    assert compare(Expected(value, []), value).reason is None
    assert compare(Expected(value, []), object()).reason == "incorrect_type"
    assert compare(Expected(value, []), [value]).reason is not None


def test_a_number_that_is_none_equals_itself() -> None:
    assert compare(Expected(math.nan, []), math.nan).reason is None
    assert compare(Expected(1.0, []), 1).reason == "incorrect_type"


def test_scalars_and_empty_tensors() -> None:
    for value in (torch.tensor(3.0), torch.empty(0, 4)):
        wanted = Expected(value, [value.double()])
        assert compare(wanted, value.clone()).reason is None
        assert compare(wanted, value.double()).reason == "incorrect_dtype"
        assert compare(wanted, value.reshape(-1, 1)).reason == "incorrect_shape"


def test_a_broadcast_of_the_right_answer_has_the_wrong_shape() -> None:
    right = torch.ones(4, 1)
    found = compare(Expected(right, [right.double()]), torch.ones(4, 4))
    assert (found.reason, found.message) == ("incorrect_shape", "shape [4, 4] instead of [4, 1]")


def test_an_index_may_be_another_one_of_the_same_extreme() -> None:
    x = torch.tensor([[1.0, 7.0, 7.0], [2.0, 2.0, 0.0]])
    for place in (x.argmax(1), x.argmax(1, keepdim=True)):
        wanted = Expected(place, [place], [x])
        tied = torch.tensor([2, 1]).reshape(place.shape)
        other = torch.tensor([0, 0]).reshape(place.shape)
        assert compare(wanted, tied).reason is None
        found = compare(wanted, other)
        assert found.reason == "incorrect_numerical"
        assert "got 0, wanted 1; 1 of 2" in (found.message or "")
        assert compare(wanted, torch.full_like(place, 9)).reason == "incorrect_numerical"
        assert compare(Expected(place, [place]), tied).reason == "incorrect_numerical"


def test_equal_values_that_are_no_extreme_are_no_tie() -> None:
    x = torch.tensor([[1.0, 5.0, 5.0, 9.0]])
    place = torch.tensor([1])
    assert compare(Expected(place, [place], [x]), torch.tensor([2])).reason is not None


def test_whole_numbers_may_be_those_of_double_precision() -> None:
    own, exact = torch.tensor([3, 4]), torch.tensor([3, 5])
    wanted = Expected(own, [exact])
    assert compare(wanted, own.clone()).reason is None
    assert compare(wanted, exact.clone()).reason is None
    assert compare(wanted, torch.tensor([3, 6])).reason == "incorrect_numerical"


def test_outputs_repeat_within_four_times_the_error_of_eager() -> None:
    exact = torch.ones(4, dtype=torch.float64)
    wanted = Expected((exact + 1e-6).float(), [exact])
    first = exact.float()
    assert repeats(wanted, first, first.clone())
    assert repeats(wanted, first, first + 2e-6)
    assert not repeats(wanted, first, first + 1e-5)
    unknown = torch.tensor([1.0, math.nan, 1.0, 1.0])
    assert repeats(wanted, unknown, unknown.clone())
    assert not repeats(wanted, unknown, first)
    places = Expected(torch.tensor([1]), [None])
    assert not repeats(places, torch.tensor([1]), torch.tensor([2]))
