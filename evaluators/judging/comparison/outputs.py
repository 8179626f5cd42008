"""Comparison of a whole output with what the reference answers to the same inputs.

An output is right if its structure, shapes, element types and places of NaN and infinity are those
of the reference, its floating elements are within their tolerance (`comparison.tolerance`), and its
whole numbers are equal, except for indices that are as good as the reference's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from evaluators.judging.case import Policy
from evaluators.judging.comparison import pieces
from evaluators.judging.comparison.error_text import describe_errors
from evaluators.judging.comparison.failures import name_failures
from evaluators.judging.comparison.numbers import compare_numbers
from evaluators.judging.comparison.pieces import OutputTensor
from evaluators.judging.comparison.precision_class import count_terms, get_low_class
from evaluators.judging.comparison.result import Comparison, merge_comparisons
from evaluators.judging.comparison.structure import find_mismatch, is_whole, order_keys
from evaluators.judging.comparison.tolerance import (
    EAGER_ERRORS_ALLOWED,
    SINGLE,
    STEPS_BY_EAGER,
    STEPS_BY_LIMIT,
    compute_rms,
    get_tolerance,
    has_too_many_steps,
)
from evaluators.memory.tensors import tensors_of
from evaluators.references.choices import Choice, explain
from evaluators.references.rules import Tolerance
from evaluators.references.task import Expected, has_same_bits

_INDICES = (torch.int64, torch.int32)


@name_failures()
def compare(
    expected: Expected,
    output: Any,
    policy: Policy = "torch_default",
    choices: Callable[[], Sequence[Choice]] = tuple,
    usual: Sequence[float] | None = None,
) -> Comparison:
    """Compare an output with what the reference answers to the same inputs.

    Args:
        expected: What the reference answers.
        output: The candidate's output.
        policy: Which precision is asked for.
        choices: Returns how the reference chose indices; called only if an index differs.
        usual: For special inputs, such as zeros: the root mean square of each tensor of an ordinary
            answer, to which errors may be relative too. Small answers then need no relative
            precision, and any number of indices may be as good as another.
    """
    mismatch = find_mismatch(expected.value, output)
    if mismatch is not None:
        return mismatch
    output = order_keys(expected.value, output)
    if any(tensor.is_meta for tensor in tensors_of(output)):
        return Comparison("unspecified", "the outputs hold more data than they describe")
    total = Comparison()
    triples = zip(tensors_of(expected.value), expected.exact, tensors_of(output), strict=True)
    terms = count_terms(expected)
    # An answer in half precision beside one in float32 shows nothing of the latter's precision.
    finest = min(map(_get_step, tensors_of(expected.value)), default=math.inf)
    names = _name_tensors(expected)
    for index, (wanted, exact, given) in enumerate(triples):
        if exact is None or is_whole(wanted):
            comparison = _compare_whole(
                OutputTensor(index, wanted, wanted, given, name=names[index]),
                exact,
                choices,
                expected.steps,
                few=usual is None,
            )
        else:
            algorithms = expected.algorithms[index] if expected.algorithms else None
            tensor = OutputTensor(index, wanted, exact, given, algorithms, name=names[index])
            scale = None if usual is None else usual[index]
            compare_tensor = partial(
                compare_numbers,
                policy=policy,
                terms=terms,
                usual=scale,
                classifies=_get_step(wanted) == finest < math.inf,
            )
            comparison = compare_tensor(tensor)
            # Eager may be on another step too, and its error would then allow any step everywhere.
            error = comparison.eager_error
            limit = get_tolerance(wanted.dtype, policy)
            is_wide = expected.rounds and error is not None and error.scaled > limit
            if comparison.reason == "incorrect_numerical" or is_wide:
                slack = _find_slack(expected.steps(), index, wanted)
                if slack is not None:
                    tensor = replace(tensor, slack=slack)
                    comparison = compare_tensor(tensor)
            comparison = _apply_tolerance(tensor, expected.rules.tolerance, comparison)
        if comparison.reason is not None:
            return _ask_checker(expected, output, comparison)
        total = merge_comparisons(total, comparison)
    return total


def _apply_tolerance(output: OutputTensor, rule: Tolerance | None, own: Comparison) -> Comparison:
    """Return the comparison by the task's own tolerance, if it has one.

    No tolerance is smaller than the eager reference's own error, as in the judge's tolerance.
    """
    if rule is None or own.reason not in (None, "incorrect_numerical"):
        return own
    failing, first = 0, None
    eager_pieces = pieces.iterate_pieces(replace(output, given=output.wanted))
    eager_error = max((piece.eager_error for piece in eager_pieces), default=0.0)
    if output.algorithms is not None:
        eager_error = max(eager_error, output.algorithms.scaled * compute_rms(output.exact))
    for piece in pieces.iterate_pieces(output):
        relative = rule.rtol * piece.r64.abs()
        limit = relative.clamp(min=rule.atol) if rule.either else relative + rule.atol
        slack = 0.0 if piece.slack is None else piece.slack[1]
        is_beyond = piece.error > limit + EAGER_ERRORS_ALLOWED * eager_error + slack
        count = int(is_beyond.sum())
        if count and first is None:
            first = piece.start + int(is_beyond.int().argmax())
        failing += count
    if first is None or failing <= (1 - rule.matched) * pieces.flatten(output.wanted).numel():
        return replace(own, reason=None, message=None, excused=own.message)
    message = describe_errors(output, first, failing, f"beyond the task's own tolerance ({rule})")
    return replace(own, reason="incorrect_numerical", message=message)


def _ask_checker(expected: Expected, output: Any, own: Comparison) -> Comparison:
    """Return a comparison whose numbers are wrong, or right if the task's own checker says so."""
    if expected.check is None or own.reason not in ("incorrect_numerical", "nan"):
        return own
    accepted, _ = expected.check(output)
    return replace(own, reason=None, message=None, excused=own.message) if accepted else own


@name_failures()
def is_same_answer(expected: Expected, one: Any, other: Any) -> bool:
    """Whether two outputs of right structure for the same inputs are one answer.

    They are if they have the same bits, or differ by at most 4 times the eager reference's own
    error.
    """
    groups = zip(
        tensors_of(expected.value), expected.exact, tensors_of(one), tensors_of(other), strict=True
    )
    for wanted, exact, first, second in groups:
        if has_same_bits(first, second):
            continue
        if exact is None or is_whole(wanted):
            return False
        eager_pieces = pieces.iterate_pieces(OutputTensor(0, wanted, exact, wanted))
        eager_error = max((piece.eager_error for piece in eager_pieces), default=0.0)
        if not _differ_at_most(first, second, EAGER_ERRORS_ALLOWED * eager_error):
            return False
    return True


def _find_slack(
    changes: Sequence[torch.Tensor | None], index: int, wanted: torch.Tensor
) -> torch.Tensor | None:
    """Return how much another rounding step changes each element of a tensor; None if nothing."""
    change = changes[index] if index < len(changes) else None
    return change if change is not None and change.shape[1:] == wanted.shape else None


def _get_step(tensor: torch.Tensor) -> float:
    """Return the distance of 1 and the next number; infinity for types without precision class."""
    dtype = tensor.dtype
    has_class = dtype in SINGLE or (get_low_class(dtype) is not None and not is_whole(tensor))
    return torch.finfo(dtype).eps if has_class else math.inf


def _differ_at_most(first: torch.Tensor, second: torch.Tensor, limit: float) -> bool:
    flat = [pieces.flatten(tensor) for tensor in (first, second)]
    for start in range(0, flat[0].numel(), pieces.CHUNK):
        a, b = (tensor[start : start + pieces.CHUNK] for tensor in flat)
        is_same = (a == b) | (a.isnan() & b.isnan())
        difference = torch.where(is_same, 0.0, (pieces.widen(a) - pieces.widen(b)).abs())
        if not bool((difference <= limit).all()):
            return False
    return True


def _name_tensors(expected: Expected) -> list[str | None]:
    """Return what messages call each tensor of an answer; None for its place."""
    changed = [f"input {number} after the call" for number in expected.changed]
    return [*[None] * (len(expected.exact) - len(changed)), *changed]


def _compare_whole(
    output: OutputTensor,
    exact: torch.Tensor | None,
    choices: Callable[[], Sequence[Choice]],
    steps: Callable[[], Sequence[torch.Tensor | None]],
    *,
    few: bool,
) -> Comparison:
    """Compare whole numbers with the reference's, or with the double precision reference's."""
    wanted, given = output.wanted, output.given
    is_wrong = given != wanted
    if exact is not None:
        is_wrong &= given != exact.to(given.device)
    failing = int(is_wrong.sum())
    if not failing:
        return Comparison()
    if wanted.dtype in _INDICES and explain(choices(), wanted, given, is_wrong, few=few):
        return Comparison()
    slack = None if exact is None else _find_slack(steps(), output.index, wanted)
    if exact is not None and slack is not None:
        distance = (pieces.widen(given) - pieces.widen(exact.to(given.device))).abs()
        by_eager, by_limit = (
            int((is_wrong & (distance <= change)).sum()) for change in slack.to(given.device)
        )
        eager_count = int((wanted != exact.to(wanted.device)).sum())
        counts = ((failing, STEPS_BY_EAGER), (failing - by_eager, STEPS_BY_LIMIT))
        if failing == by_limit and not any(
            has_too_many_steps(count, eager_count, wanted.numel(), one_in=most)
            for count, most in counts
        ):
            return Comparison()
    first = int(is_wrong.reshape(-1).int().argmax())
    message = describe_errors(output, first, failing, "another value")
    return Comparison("incorrect_numerical", message)
