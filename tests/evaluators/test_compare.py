"""When an output is right: tolerances, places of errors, ties, structures, pieces."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from example_counts import count_examples
from hypothesis import given, settings

from evaluators.judging import tolerance
from evaluators.judging.case import Precision
from evaluators.judging.comparison import compare, is_same_answer
from evaluators.judging.tolerance import TF32_TOLERANCE, TOLERANCE, is_below
from evaluators.references.operations import Choice, add_exact_values, record
from evaluators.references.task import Expected

SHAPES = st.lists(st.integers(0, 5), min_size=0, max_size=3)
SEEDS = st.integers(0, 2**32)
FLOATS = st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16])
SOME = settings(deadline=None, max_examples=count_examples(50))
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
    assert f" at {index}: got" in (found.message or "")
    assert f"1 of {value.numel()} elements" in (found.message or "")
    assert (found.max_scaled_error or 0) > 1


@given(SHAPES, SEEDS, st.sampled_from([1, 3, 64]))
@SOME
def test_pieces_change_nothing(shape: list[int], seed: int, piece: int) -> None:
    wanted = answer(shape, seed, torch.float32)
    near = wanted.value * (1 + 1e-6)
    far = wanted.value + 1
    whole = [compare(wanted, near), compare(wanted, far)]
    usual = tolerance.CHUNK
    tolerance.CHUNK = piece
    try:
        parts = [compare(wanted, near), compare(wanted, far)]
    finally:
        tolerance.CHUNK = usual
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
        "output 0 float32[2, 3] at (1, 0): got 2, wanted 1; 2 of 6 elements (33.333%) are "
        "beyond their tolerance, here 0.0002; largest error 2, 1e+04 times its tolerance"
    )


def test_the_second_output_is_named_too() -> None:
    right = torch.ones(3, dtype=torch.float64)
    wanted = Expected([right, (right,)], [right, right])
    message = compare(wanted, [right.clone(), (right + torch.tensor([0, 0, 1]),)]).message
    assert message is not None
    assert message.startswith("output 1 float64[3] at (2,): got 2, wanted 1")


def test_what_is_not_finite_is_named() -> None:
    right = torch.ones(4)
    got = torch.tensor([1.0, 1.0, math.nan, math.inf])
    found = compare(Expected(right, [right.double()]), got)
    assert found.reason == "nan"
    assert (found.message or "").startswith(
        "output 0 float32[4] at (2,): got nan, wanted 1; 2 of 4"
    )


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


TAILS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": lambda x: torch.exp(3 * x),
    "softmax": lambda x: torch.softmax(x / 0.07, 1),
    "sigmoid": lambda x: torch.sigmoid(4 * x - 9),
    "softplus": lambda x: torch.nn.functional.softplus(3 * x - 6),
    "square": lambda x: x**8,
}


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("name", TAILS)
def test_small_answers_count_by_their_own_size(name: str) -> None:
    draw = torch.Generator().manual_seed(2)
    x = torch.randn(256, 512, generator=draw)
    exact = TAILS[name](x.double())
    right = TAILS[name](x)
    wanted = Expected(right, [exact], [x])
    small = right.abs() < right.abs().mean()
    limit = 1e-4 * exact.square().mean().sqrt() / 2
    for wrong in (
        torch.where(right.abs() < limit, 0.0, right),  # within the tolerance of every element
        torch.where(right.abs() < limit, limit.float(), right),
        torch.where(small, (right.bfloat16()).float(), right),
        torch.where(right.abs() < limit, right * 1.2, right),
    ):
        if (right.abs() < limit).float().mean() < 0.05 and name != "exp":
            continue
        found = compare(wanted, wrong)
        assert found.reason == "incorrect_numerical", name
    for near in (
        exact.float(),
        right * (1 + 1e-6 * torch.randn(right.shape, generator=draw)),
        torch.where(right.abs() < 1.2e-38, 0.0, right),  # denormal numbers flushed
    ):
        assert compare(wanted, near).reason is None, name


def test_the_share_of_large_relative_errors_is_told_and_eagers_own_is_allowed() -> None:
    exact = torch.full((1000,), 1e-6, dtype=torch.float64)
    exact[:10] = 1.0
    zeros = exact.float()
    zeros[10:30] = 0.0
    found = compare(Expected(exact.float(), [exact]), zeros)
    assert found.reason == "incorrect_numerical"
    assert found.message == (
        "output 0 float32[1000] at (10,): got 0, wanted 1e-06; 20 of 1000 elements (2.000%) are "
        "wrong by more than 10.0% of their value, of eager's 0"
    )
    eager = exact.float()
    eager[500:505] = 2e-6
    assert compare(Expected(eager, [exact]), zeros).reason is None
    assert compare(Expected(exact.float(), [exact]), zeros, usual=[1.0]).reason is None
    one = exact.float()
    one[11] = 0.0
    assert compare(Expected(exact.float(), [exact]), one).reason is None


def test_a_sum_in_any_order_has_full_precision_and_rounded_factors_have_not() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = torch.rand(64, 4096, generator=draw) - 0.5, torch.rand(4096, 64, generator=draw)
    wanted = Expected(a @ b, [a.double() @ b.double()], [a, b])
    one_by_one = torch.zeros(64, 64)
    for k in range(4096):
        one_by_one = torch.addcmul(one_by_one, a[:, k : k + 1], b[k : k + 1])
    assert compare(wanted, one_by_one).precision_class == "fp32"
    for rounded, expected in ((torch.half, "tf32"), (torch.bfloat16, "bf16")):
        product = a.to(rounded).float() @ b.to(rounded).float()
        for precision in ("fp32_strict", "torch_default", "allow_tf32"):
            found = compare(wanted, product, precision)
            assert found.precision_class == expected
            ranks = (precision, expected) == ("allow_tf32", "tf32")
            assert is_below(found.precision_class, found.lowest_class) == (not ranks)
    half_of_it = torch.cat([a[:, :2048].half().float(), a[:, 2048:]], 1) @ b
    assert compare(wanted, half_of_it).precision_class == "tf32"


def test_under_tf32_eagers_own_error_hides_no_lower_precision() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = torch.randn(64, 512, generator=draw), torch.randn(512, 64, generator=draw)
    eager = a.half().float() @ b.half().float()
    wanted = Expected(eager, [a.double() @ b.double()], [a, b])
    lower = a.bfloat16().float() @ b.bfloat16().float()
    assert compare(wanted, lower, "allow_tf32").precision_class == "bf16"
    found = compare(wanted, a @ b, "allow_tf32")
    assert not is_below(found.precision_class, found.lowest_class)


def test_by_torch_default_a_kernel_may_round_as_much_as_eager() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = torch.randn(64, 512, generator=draw), torch.randn(512, 64, generator=draw)
    rounded, exact = a.half().float() @ b.half().float(), [a.double() @ b.double()]
    lower = a.bfloat16().float() @ b.bfloat16().float()
    for eager, outputs in (
        (rounded, ((rounded, "tf32", False), (a @ b, "fp32", False), (lower, "bf16", True))),
        (a @ b, ((rounded, "tf32", True), (a @ b, "fp32", False))),
    ):
        wanted = Expected(eager, exact, [a, b])
        for output, expected, ranks_nothing in outputs:
            found = compare(wanted, output, "torch_default")
            assert found.precision_class == expected
            assert is_below(expected, found.lowest_class) == ranks_nothing


def to_integers(tensor: torch.Tensor, dim: int, block: int) -> torch.Tensor:
    """Round to whole numbers of eight bits, scaled by blocks along a dimension."""
    parts = tensor.float().split(block, dim)
    scales = [part.abs().amax(dim, keepdim=True) / 127 for part in parts]
    return torch.cat([(p / s).round() * s for p, s in zip(parts, scales, strict=True)], dim)


def to_floats(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Round to scaled floats of eight bits."""
    scale = tensor.float().abs().amax(dim, keepdim=True) / 448
    return (tensor.float() / scale).to(torch.float8_e4m3fn).float() * scale


def add_in_parts(a: torch.Tensor, b: torch.Tensor, parts: int) -> torch.Tensor:
    """Multiply in parts along the common dimension, each rounded and added in the own type."""
    products = [x @ y for x, y in zip(a.chunk(parts, 1), b.chunk(parts, 0), strict=True)]
    return functools.reduce(torch.add, products)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_product_in_half_precision_has_the_class_of_its_type(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = torch.randn(64, 1024, generator=draw), torch.randn(1024, 64, generator=draw)
    a, b = a.to(dtype), b.to(dtype)
    wanted = Expected(a @ b, [a.double() @ b.double()], [a, b])
    wide_a, wide_b = a.float(), b.float()
    own = "bf16" if dtype == torch.bfloat16 else "fp16"
    for honest in (
        (wide_a @ wide_b).to(dtype),
        add_in_parts(wide_a, wide_b, 32).to(dtype),
        *(add_in_parts(a, b, parts) for parts in (2, 4, 8)),
    ):
        found = compare(wanted, honest)
        assert (found.reason, found.precision_class, found.lowest_class) == (None, own, own)
    for cheat in (
        *(to_integers(a, 1, block) @ to_integers(b, 0, block) for block in (16, 32, 128, 1024)),
        *(to_integers(a, 1, block) @ wide_b for block in (32, 128, 1024)),
        to_floats(a, 1) @ to_floats(b, 0),
        wide_a @ to_floats(b, 0),
        add_in_parts(a, b, 64),
    ):
        found = compare(wanted, cheat.to(dtype))
        assert is_below(found.precision_class, found.lowest_class)


def test_an_answer_in_half_precision_hides_nothing_beside_one_in_float32() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = torch.rand(64, 4096, generator=draw), torch.rand(4096, 64, generator=draw) - 0.5
    exact = a.double() @ b.double()
    wanted = Expected([a @ b, (a @ b).bfloat16()], [exact, exact], [a, b])
    rounded = a.half().float() @ b.half().float()
    found = compare(wanted, [rounded, (a @ b).bfloat16()], "allow_tf32")
    assert (found.precision_class, found.lowest_class) == ("tf32", "tf32")
    found = compare(wanted, [a @ b, a.bfloat16() @ b.bfloat16()], "fp32_strict")
    assert (found.precision_class, found.lowest_class) == ("fp32", "fp32")


def test_an_error_of_lower_precision_names_the_policy_that_accepts_it() -> None:
    draw = torch.Generator().manual_seed(0)
    a, b = torch.randn(64, 512, generator=draw), torch.randn(512, 64, generator=draw)
    wanted = Expected(a @ b, [a.double() @ b.double()], [a, b])

    def explain(output: torch.Tensor, precision: Precision = "torch_default") -> str:
        found = compare(wanted, output, precision)
        assert found.reason == "incorrect_numerical"
        return (found.message or "").rpartition("; ")[2]

    half, short = (a.to(d).float() @ b.to(d).float() for d in (torch.half, torch.bfloat16))
    accepted = "--precision allow_tf32 would accept this error: it has the size of TF32's or fp16's"
    assert explain(half) == explain(half, "fp32_strict") == accepted
    none_accepts = "no precision accepts this error: it has the size of bf16's"
    assert explain(short) == explain(short, "allow_tf32") == none_accepts
    of_eight_bits = to_floats(a, 1) @ to_floats(b, 0)
    assert explain(of_eight_bits).endswith("it has the size of fp8's or int8's")
    one_wrong = a @ b
    one_wrong[3, 3] += 10
    for wrong in (one_wrong, torch.relu(a @ b), 2 * (a @ b)):
        assert "size of" not in explain(wrong)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_numbers(dtype: torch.dtype) -> None:
    exact = torch.complex(torch.arange(4.0).double(), torch.ones(4).double())
    wanted = Expected(exact.to(dtype), [exact])
    assert compare(wanted, exact.to(dtype)).reason is None
    found = compare(wanted, exact.to(dtype).conj().resolve_conj())
    assert found.reason == "incorrect_numerical"
    assert "at (0,): got -1, wanted 1; 4 of 8" in (found.message or "")
    # A right answer whose conjugation is left to its reader is no cheat, and costs no time.
    pending = compare(wanted, exact.to(dtype).conj_physical().conj())
    assert pending.reason == "incorrect_type"
    assert "resolve_conj()" in (pending.message or "")
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


@pytest.mark.parametrize(
    ("wanted", "given", "is_right"),
    [
        (1024.1234, 1024.1235, True),
        (1024.1234, 1026.1234, False),
        (0.0, 0.0, True),
        (0.0, 1e-9, False),
        (math.inf, math.inf, True),
        (math.inf, 1e300, False),
        (math.nan, math.nan, True),
        (math.nan, 0.0, False),
        (7, 7, True),
        (10**6, 10**6 + 1, False),
        ("sum", "sun", False),
    ],
)
def test_numbers_of_python_round_like_single_precision(
    wanted: Any, given: Any, is_right: bool
) -> None:
    found = compare(Expected([wanted], []), [given]).reason
    assert found == (None if is_right else "incorrect_numerical")


def test_a_broadcast_of_the_right_answer_has_the_wrong_shape() -> None:
    right = torch.ones(4, 1)
    found = compare(Expected(right, [right.double()]), torch.ones(4, 4))
    assert (found.reason, found.message) == ("incorrect_shape", "shape [4, 4] instead of [4, 1]")


def place(
    forward: Callable[..., torch.Tensor], *inputs: torch.Tensor
) -> tuple[Expected, Callable[[], Sequence[Choice]]]:
    """Return the answer of a reference that chooses, and what it chooses by."""
    wanted = forward(*inputs)
    exact = forward(*(x.double() if x.is_floating_point() else x for x in inputs))
    wide = [x.double() if x.is_floating_point() else x for x in inputs]
    return (
        Expected(wanted, [exact], inputs),
        lambda: add_exact_values(record(lambda: forward(*inputs)), record(lambda: forward(*wide))),
    )


def scores(columns: int = 64) -> torch.Tensor:
    """Return whole numbers from -9 to 9, which tie."""
    draw = torch.Generator().manual_seed(3)
    return torch.randint(-9, 10, (16, columns), generator=draw).float()


def last(x: torch.Tensor, largest: bool = True) -> torch.Tensor:
    """Return the last place of an extreme, where torch gives the first."""
    flipped = x.flip(1)
    return x.shape[1] - 1 - (flipped.argmax(1) if largest else flipped.argmin(1))


def sort_stably(x: torch.Tensor, largest: bool = True) -> torch.Tensor:
    """Return the places of a stable sort."""
    return x.sort(dim=1, descending=largest, stable=True).indices


def backward(x: torch.Tensor, largest: bool = False) -> torch.Tensor:
    """Return the places of a sort that gives the last of equal numbers first."""
    return x.shape[1] - 1 - sort_stably(x.flip(1), largest)


TIES: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], Any]] = {
    "argmax": (lambda x: x.argmax(1), last),
    "argmax, kept": (lambda x: x.argmax(1, keepdim=True), lambda x: last(x)[:, None]),
    "argmin": (lambda x: x.argmin(1), lambda x: last(x, largest=False)),
    "argmax of all": (
        lambda x: x.argmax(),
        lambda x: x.numel() - 1 - x.reshape(-1).flip(0).argmax(),
    ),
    "argmax of columns": (lambda x: x.t().argmax(0), last),
    "max": (lambda x: x.max(dim=1).indices, last),
    "pivots": (lambda x: x.abs().argmax(1), lambda x: last(x.abs())),
    "of a product": (lambda x: (x * x - 3).argmin(1), lambda x: last(x.abs(), largest=False)),
    "of rounded numbers": (
        lambda x: (x * 0.6).round().argmax(1),
        lambda x: last((x * 0.6).round()),
    ),
    "topk": (lambda x: x.topk(8, 1).indices, lambda x: sort_stably(x)[:, :8]),
    "topk, backward": (lambda x: x.topk(8, 1).indices, lambda x: backward(x, True)[:, :8]),
    "argsort": (lambda x: x.argsort(1), backward),
    "sort": (lambda x: x.sort(1, descending=True).indices, sort_stably),
    "first of a sort": (lambda x: x.argsort(1)[:, 0], lambda x: backward(x)[:, 0]),
    "last of a sort": (lambda x: x.argsort(1)[:, -3:], lambda x: backward(x)[:, -3:]),
    "median": (lambda x: x.median(1).indices, lambda x: sort_stably(x, False)[:, 31]),
    "kthvalue": (lambda x: x.kthvalue(5, 1).indices, lambda x: backward(x)[:, 4]),
}


@pytest.mark.parametrize("name", TIES)
def test_an_index_may_be_another_one_of_the_same_number(name: str) -> None:
    forward, other = TIES[name]
    x = scores()
    wanted, choices = place(forward, x)
    tied = other(x)
    assert compare(wanted, tied, choices=choices).reason is None
    assert compare(wanted, wanted.value.clone(), choices=choices).reason is None
    # Of all answers one is wrong, lies outside, or names the same place twice.
    for wrong in ((tied + 1) % x.shape[1], tied + x.numel(), tied - x.numel()):
        found = compare(wanted, wrong, choices=choices)
        assert found.reason == "incorrect_numerical"
        assert "another value" in (found.message or "")
    if tied.dim() > 1 and tied.shape[1] > 1:
        again = tied[:, :1].expand_as(tied).contiguous()
        assert compare(wanted, again, choices=choices).reason == "incorrect_numerical"


def test_ties_were_tried_that_torch_breaks_otherwise() -> None:
    others = [
        name for name, (one, two) in TIES.items() if torch.equal(one(scores()), two(scores()))
    ]
    assert len(others) <= 2, others


@pytest.mark.parametrize(
    ("forward", "constant"),
    [
        (lambda x, mask: x.masked_fill(~mask.bool(), -math.inf).argmax(1), 1.0),
        (lambda x, penalty: (x - penalty).max(1).indices, 0.0),
        (lambda x, mask: (mask.bool() & (x != 0)).sum(1), 1.0),
        (lambda x, mask: mask.argmax(1), 1.0),
        (lambda x, bias: (x > bias).float().argmax(1), 0.0),
        (lambda x, mask: x.argsort(dim=1, stable=True), 1.0),
        (lambda x, mask: torch.full((16,), 5), 1.0),
    ],
)
def test_no_constant_input_explains_an_index(forward: Any, constant: float) -> None:
    x = scores()
    wanted, choices = place(forward, x, torch.full_like(x, constant))
    draw = torch.Generator().manual_seed(1)
    for other in (
        torch.zeros_like(wanted.value) + 7,
        torch.randint(0, 64, wanted.value.shape, generator=draw),
    ):
        assert compare(wanted, other, choices=choices).reason == "incorrect_numerical"


def test_the_first_of_equal_ones_counts_in_a_mask_and_in_a_stable_sort() -> None:
    x = scores()
    wanted, choices = place(lambda x: (x == 3).int().argmax(1), x)
    assert compare(wanted, last((x == 3).int()), choices=choices).reason is not None
    wanted, choices = place(lambda x: x.argsort(dim=1, stable=True), x)
    assert compare(wanted, backward(x), choices=choices).reason is not None


def test_another_index_needs_a_choice_and_few_that_are_equal() -> None:
    x = scores()
    wanted, choices = place(lambda x: x.argmax(1), x)
    assert compare(wanted, last(x)).reason == "incorrect_numerical"
    often = torch.where(x > -5, 9.0, x)
    wanted, choices = place(lambda x: x.argmax(1), often)
    assert compare(wanted, last(often), choices=choices).reason == "incorrect_numerical"
    assert compare(wanted, last(often), choices=choices, usual=[1.0]).reason is None
    assert compare(wanted, often.argmin(1), choices=choices, usual=[1.0]).reason is not None


def test_numbers_that_differ_by_rounding_are_equal_and_others_are_not() -> None:
    draw = torch.Generator().manual_seed(5)
    x = torch.randn(4, 256, generator=draw)
    x[:, 9] = x.amax(1) + 1
    x[:, 77] = x[:, 9] * (1 + 2e-7)

    def forward(x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x * 7, 1).argmax(1)

    wanted, choices = place(forward, x)
    assert (
        compare(wanted, torch.full((4,), 86 - int(wanted.value[0])), choices=choices).reason is None
    )
    assert compare(wanted, x.topk(3, 1).indices[:, 2], choices=choices).reason is not None


def test_a_choice_is_recorded_within_limits() -> None:
    x = scores()

    def forward() -> None:
        for _ in range(40):
            x.argmax(1)
        x.to(torch.complex64).abs().sort(1)

    choices = record(forward)
    assert len(choices) == 16
    assert choices[-1].places.shape == x.shape
    assert add_exact_values(choices, choices[1:]) == choices


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
    assert is_same_answer(wanted, first, first.clone())
    assert is_same_answer(wanted, first, first + 2e-6)
    assert not is_same_answer(wanted, first, first + 1e-5)
    unknown = torch.tensor([1.0, math.nan, 1.0, 1.0])
    assert is_same_answer(wanted, unknown, unknown.clone())
    assert not is_same_answer(wanted, unknown, first)
    places = Expected(torch.tensor([1]), [None])
    assert not is_same_answer(places, torch.tensor([1]), torch.tensor([2]))


def test_the_keys_of_a_dict_count_and_their_order_does_not() -> None:
    one, two = torch.ones(2), torch.zeros(3)
    wanted = Expected({"a": one, "b": two}, [one.double(), two.double()])
    assert compare(wanted, {"b": two, "a": one}).reason is None
    assert compare(wanted, {"b": one, "a": two}).reason == "incorrect_shape"
    assert compare(wanted, {"a": one, "c": two}).reason == "incorrect_count"
    assert compare(wanted, [one, two]).reason == "incorrect_type"
