"""Comparison of a whole output with what the reference answers to the same inputs.

An output is right if its structure, shapes, element types and places of NaN and infinity are those
of the reference, its floating elements are within their tolerance (`comparison.tolerance`), and its
whole numbers are equal, except for indices that are as good as the reference's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from evaluators.judging.case import Policy
from evaluators.judging.comparison import tolerance
from evaluators.judging.comparison.result import (
    Comparison,
    describe_errors,
    describe_relative_errors,
    find_mismatch,
    get_element,
    is_finite,
    is_whole,
    merge_comparisons,
    name_failures,
    order_keys,
)
from evaluators.judging.comparison.tolerance import (
    CHUNK,
    EAGER_ERRORS,
    EAGER_ERRORS_ALLOWED,
    QUARTILE_OF_EVEN,
    RELATIVE_LEVELS,
    SINGLE,
    STEPS_BY_EAGER,
    STEPS_BY_LIMIT,
    STEPS_IN_FULL_PRECISION,
    TF32_TOLERANCE,
    OutputTensor,
    Piece,
    classify_eager,
    classify_error,
    compute_rms,
    count_terms,
    explain_policy,
    find_lowest_class,
    flatten,
    get_low_class,
    get_tolerance,
    has_too_many_large_errors,
    has_too_many_steps,
    is_below,
    iterate_pieces,
    rank_class,
    widen,
)
from evaluators.memory.tensors import has_same_bits, tensors_of
from evaluators.references.eager_error import EagerError
from evaluators.references.recorded_operations import Choice, explain
from evaluators.references.rules import Tolerance
from evaluators.references.task import Expected

# Whether an answer is so close to eager's that no reference in double precision is needed.
#
# On a GPU, that reference takes far longer than the call that is checked. An answer c that differs
# from eager's answer e by at most half of the tolerance is within the tolerance
# (`comparison.tolerance`), as far as eager's own errors are those of the calls before:
#
#     |c - e| <= L / 2 * (|e| + rms(e)) + 2 * e0
#
# and the number of elements that differ by more than q * |e| is at most half of what may be wrong
# by that much. For answers that are not as close, the full comparison decides.


@name_failures()
def is_close(eager: Any, output: Any, policy: Policy, error: EagerError | None) -> bool:
    """Whether an output is right by its distance to eager's answer to the same inputs alone.

    error: Eager's own error in earlier calls; None counts as no error.
    """
    if find_mismatch(eager, output) is not None:
        return False
    ordered = order_keys(eager, output)
    if any(tensor.is_meta for tensor in tensors_of(ordered)):
        return False
    known = error or EagerError(0.0, (0.0,) * len(RELATIVE_LEVELS))
    pairs = zip(tensors_of(eager), tensors_of(ordered), strict=True)
    return all(_is_tensor_close(wanted, given, policy, known) for wanted, given in pairs)


def _is_tensor_close(
    wanted: torch.Tensor, given: torch.Tensor, policy: Policy, error: EagerError
) -> bool:
    if is_whole(wanted):
        return has_same_bits(wanted, given)
    rms = compute_rms(wanted)
    if not math.isfinite(rms):
        return False
    limit = get_tolerance(wanted.dtype, policy) / 2
    margin = limit * rms + EAGER_ERRORS_ALLOWED / 2 * error.scaled * rms
    large = [0] * len(RELATIVE_LEVELS)
    flat = [flatten(tensor) for tensor in (wanted, given)]
    for start in range(0, flat[0].numel(), CHUNK):
        w, g = (widen(t[start : start + CHUNK].to(wanted.device)) for t in flat)
        difference, size = (g - w).abs_(), w.abs()
        # A comparison with NaN is false: answers that are not finite are not close.
        if not bool((difference <= limit * size + margin).all()):
            return False
        for number, level in enumerate(RELATIVE_LEVELS):
            large[number] += int((difference > level * size).sum())
    return not any(
        has_too_many_large_errors(level, count, 0, limit=limit, elements=flat[0].numel())
        and count > share * flat[0].numel()
        for level, count, share in zip(RELATIVE_LEVELS, large, error.shares, strict=True)
    )


# Answers to inputs of uneven size that rounding cannot explain, though the reference is stable.
#
# A part of a module may be within the tolerance of every usual answer: a branch that is scaled by
# 1e-5, or the first steps of a recurrence. If some inputs are far larger than the rest, it
# dominates the answers to the others. Their tolerance must not come from the large answers:
#
#     |c - r64| <= 1.5 (L (|r64| + rms(row)) + max(32 e0, L / 4 rms(slice)))
#
# A slice has one index of the first dimension, and a row one index of all but the last. `e0` is
# eager's largest error in the slice. Another order of summation has at most 32 times that error
# (`comparison.precision_class`), so it is no departure where eager itself is stable, nor where
# eager is not. Fourier transforms round all elements by as much as the largest one; a departure is
# also more than 8 times as large as what such noise in the inputs moves in the row. An answer that
# is not finite is beyond a kernel's range and no departure either.

_MARGIN = 1.5
_EAGER_ERRORS = 32
_SHARE = 0.25
_NOISE_MOVES = 8
_FEWEST_IN_ROW = 8
_USUAL = 1000.0
"""A finite number in place of infinity is of usual size up to this many times the root mean square
of an ordinary answer. A kernel that cuts infinities off answers far larger ones."""


def find_departure(
    expected: Expected,
    output: Any,
    policy: Policy,
    moved: Sequence[torch.Tensor | None] | None = None,
) -> str | None:
    """Describe the first element that departs from the reference; None if there is none.

    moved: Answers in double precision to the same inputs with noise, if they are known.
    """
    outputs = pair_outputs(expected, output)
    finite = [all(map(is_finite, (o.wanted, o.exact, o.given))) for o in outputs]
    if not all(finite):
        return None
    texts: list[str | None] = []
    for o in outputs:
        exact = None if moved is None else moved[o.index]
        limit = get_tolerance(o.wanted.dtype, policy)
        texts.append(_find_in_tensor(o, limit, o.exact if exact is None else exact))
    return next((text for text in texts if text is not None), None)


def find_lost_infinity(expected: Expected, output: Any, usual: Sequence[float]) -> str | None:
    """Describe the first element of usual size where the reference is infinite, if there is one.

    It does not depend on an infinite input that decides the reference's answer.

    usual: Root mean square of each tensor of an ordinary answer.
    """
    for number in pair_outputs(expected, output):
        limit = _USUAL * usual[number.index]
        wanted, exact, given = (
            torch.view_as_real(t.resolve_conj()) if t.is_complex() else t
            for t in (number.wanted, number.exact.to(number.wanted.device), number.given)
        )
        is_lost = wanted.isinf() & (exact == wanted) & given.isfinite() & (given.abs() <= limit)
        failing = int(is_lost.sum())
        if failing:
            first = int(is_lost.reshape(-1).int().argmax())
            return describe_errors(number, first, failing, "finite where the task's are infinite")
    return None


def pair_outputs(expected: Expected, output: Any) -> list[OutputTensor]:
    """Return the tensors that have tolerances; none where the structures differ."""
    if find_mismatch(expected.value, output) is not None:
        return []
    triples = zip(
        tensors_of(expected.value),
        expected.exact,
        tensors_of(order_keys(expected.value, output)),
        strict=True,
    )
    return [
        OutputTensor(
            index,
            wanted,
            exact,
            given,
            expected.algorithms[index] if expected.algorithms else None,
        )
        for index, (wanted, exact, given) in enumerate(triples)
        if exact is not None and not is_whole(wanted) and not given.is_meta and wanted.numel()
    ]


def _find_in_tensor(output: OutputTensor, limit: float, moved: torch.Tensor) -> str | None:
    flat = [
        torch.view_as_real(t.resolve_conj()).flatten(-2) if t.is_complex() else t
        for t in (output.wanted, output.exact, output.given, moved)
    ]
    if flat[0].dim() < 2:
        flat = [tensor.reshape(1, -1) for tensor in flat]
    slices, last = flat[0].shape[0], flat[0].shape[-1]
    per_slice = flat[0].numel() // slices
    has_rows = flat[0].dim() > 2 and last >= _FEWEST_IN_ROW
    shape = (-1, per_slice // last, last) if has_rows else (-1, 1, per_slice)
    step = max(1, CHUNK // per_slice)
    failing, first = 0, None
    for start in range(0, slices, step):
        wanted, exact, given, moved = (
            widen(t[start : start + step].to(flat[0].device)).reshape(shape) for t in flat
        )
        eager_error = (wanted - exact).abs().amax((1, 2), keepdim=True)
        rms = exact.square().mean((1, 2), keepdim=True).sqrt()
        if output.algorithms is not None:
            eager_error = torch.maximum(eager_error, output.algorithms.scaled * rms)
        row_rms = exact.square().mean(2, keepdim=True).sqrt()
        allowed = limit * (exact.abs() + row_rms)
        allowed += torch.maximum(_EAGER_ERRORS * eager_error, _SHARE * limit * rms)
        move_rms = (moved - exact).nan_to_num().square().mean(2, keepdim=True).sqrt()
        allowed = torch.maximum(allowed, _NOISE_MOVES * move_rms)
        is_over = (given - exact).abs() > _MARGIN * allowed
        count = int(is_over.sum())
        if count and first is None:
            first = start * per_slice + int(is_over.reshape(-1).int().argmax())
        failing += count
    if first is None:
        return None
    return describe_errors(output, first, failing, "off by more than rounding explains")


_NO_ERROR = EagerError(0.0, (0.0,) * len(RELATIVE_LEVELS))
_SAMPLE = 1 << 14
_QUARTILE = 0.75


def compare_numbers(
    output: OutputTensor, policy: Policy, terms: int, usual: float | None, *, classifies: bool
) -> Comparison:
    """Compare a floating tensor with the reference's.

    Args:
        output: The tensor.
        policy: Which precision is asked for.
        terms: The most terms of a sum in the answer.
        usual: Root mean square of an ordinary answer, where the inputs are special.
        classifies: Whether this tensor shows the precision.
    """
    if output.wanted.numel() == 0:
        return Comparison()
    pieces = iterate_pieces(output)
    kept_pieces = list(pieces) if output.is_small else None
    scan = _Scan.of(kept_pieces or pieces)
    if scan.first_misplaced is not None:
        fault = "not finite where the reference is, or inversely"
        message = describe_errors(output, scan.first_misplaced, scan.misplaced, fault)
        return Comparison("nan", message)
    if not scan.finite:
        return Comparison()

    rms = math.sqrt(scan.squares / scan.finite)
    others = output.algorithms or _NO_ERROR

    def collect(limit: float) -> _Errors:
        errors = _Errors(
            limit=limit,
            scale=rms + (usual or 0.0),
            eager_error=max(scan.eager_error, others.scaled * rms),
            candidate=_RelativeErrors.of(output.wanted),
            eager=_RelativeErrors.of(output.wanted),
        )
        for piece in kept_pieces or iterate_pieces(output):
            errors.add(piece)
        errors.eager.add_shares(others.shares, scan.finite)
        return errors

    errors = collect(get_tolerance(output.wanted.dtype, policy))
    squares, eager_squares = errors.squares, errors.eager_squares
    if errors.has_too_many_steps(scan.finite, STEPS_IN_FULL_PRECISION):
        squares += errors.step_squares
        # The number of steps grows as errors do, and their norm as its root.
        eager_squares += errors.eager_step_squares / EAGER_ERRORS[policy]
    relative = math.sqrt(squares / scan.squares) if scan.squares else None
    precision = typical = eager = lowest = None
    dtype = output.wanted.dtype
    if classifies and relative is not None:
        eager_relative = math.sqrt(eager_squares / scan.squares)
        by_norm = classify_error(relative, eager_relative, dtype, policy, terms)
        shown, eager_shown = errors.candidate.compute_quartile(), errors.eager.compute_quartile()
        if get_low_class(dtype) is None:
            own = math.sqrt(errors.eager_squares / scan.squares)
            eager = classify_eager(max(own, others.relative), terms)
        else:
            # Eager rounds each answer once, in proportion to it; partial sums do not.
            eager_shown = max(eager_shown, QUARTILE_OF_EVEN * eager_relative)
        typical = classify_error(shown, eager_shown, dtype, policy, terms)
        precision = max(by_norm, typical, key=rank_class)
        lowest = find_lowest_class(dtype, policy, eager)
    message = _describe_fault(output, errors, scan.finite, is_special=usual is not None)
    if message is not None and typical is not None and is_below(typical, lowest):
        by_tf32 = (
            dtype in SINGLE
            and policy != "allow_tf32"
            and _describe_fault(output, collect(TF32_TOLERANCE), scan.finite, is_special=False)
            is None
        )
        explained = explain_policy(precision or typical, by_tf32=by_tf32)
        message += f"; {explained}" if explained else ""
    return Comparison(
        None if message is None else "incorrect_numerical",
        message,
        errors.largest,
        errors.largest_scaled,
        relative,
        precision,
        typical,
        eager,
        lowest,
        errors.summarise_eager(scan),
    )


def _describe_fault(
    output: OutputTensor, errors: _Errors, finite: int, *, is_special: bool
) -> str | None:
    """Describe why a tensor is wrong; None where it is right."""
    if errors.first is not None:
        allowed = errors.compute_allowed(abs(get_element(output.exact, errors.first)))
        fault = f"beyond their tolerance, here {allowed:.3g}"
        text = describe_errors(output, errors.first, errors.failing, fault)
        return (
            f"{text}; largest error {errors.largest:.3g}, {errors.largest_scaled:.3g} times its"
            " tolerance"
        )
    message = None
    if errors.has_too_many_steps(finite, STEPS_BY_LIMIT):
        fault = f"on another rounding step, of eager's {errors.eager_steps}"
        return describe_errors(output, errors.first_step or 0, errors.all_steps, fault)
    if is_special:
        return None
    counts = zip(RELATIVE_LEVELS, errors.candidate.large, errors.eager.large, strict=True)
    for level, count, eager_count in counts:
        if has_too_many_large_errors(
            level, count, eager_count, limit=errors.limit, elements=finite
        ):
            tiny = errors.candidate.tiny
            message = describe_relative_errors(output, level, count, eager_count, tiny)
    return message


@dataclass
class _Scan:
    """The first pass: the size of the answer, and elements that are not finite in one alone."""

    squares: float = 0.0
    """Sum of the squares of the answer."""
    finite: int = 0
    eager_error: float = 0.0
    misplaced: int = 0
    first_misplaced: int | None = None

    @classmethod
    def of(cls, pieces: Iterable[Piece]) -> _Scan:
        scan = cls()
        for piece in pieces:
            scan.squares += float(piece.r64.square().sum())
            scan.finite += piece.finite
            scan.eager_error = max(scan.eager_error, piece.eager_error)
            if piece.misplaced is None:
                continue
            count = int(piece.misplaced.sum())
            if count and scan.first_misplaced is None:
                scan.first_misplaced = piece.start + int(piece.misplaced.int().argmax())
            scan.misplaced += count
        return scan


@dataclass
class _RelativeErrors:
    """Relative errors of one output: how many are large, and those of a sample of elements."""

    tiny: float
    """Smallest normal number of the answer's element type; smaller answers do not count."""
    step: int
    """Distance between two elements of the sample."""
    large: list[int] = field(default_factory=lambda: [0] * len(RELATIVE_LEVELS))
    sample: list[torch.Tensor] = field(default_factory=list[torch.Tensor])

    @classmethod
    def of(cls, wanted: torch.Tensor) -> _RelativeErrors:
        return cls(torch.finfo(wanted.dtype).tiny, max(1, wanted.numel() // _SAMPLE))

    def add(self, error: torch.Tensor, size: torch.Tensor) -> None:
        """Count a piece: its errors, and the magnitudes of its answers."""
        is_large = error > RELATIVE_LEVELS[0] * size
        errors, sizes = error[is_large], size[is_large]
        is_normal = sizes >= self.tiny
        errors, sizes = errors[is_normal], sizes[is_normal]
        for number, level in enumerate(RELATIVE_LEVELS):
            self.large[number] += int((errors > level * sizes).sum())
        errors, sizes = error[:: self.step], size[:: self.step]
        is_normal = sizes >= self.tiny
        self.sample.append(errors[is_normal] / sizes[is_normal])

    def add_shares(self, shares: Sequence[float], elements: int) -> None:
        """Count as many large errors as these shares of the elements are, if that is more."""
        counts = zip(self.large, shares, strict=True)
        self.large = [max(count, round(share * elements)) for count, share in counts]

    def compute_quartile(self) -> float:
        """Return the upper quartile of the sample; 0 where no answer counts."""
        values = torch.cat(self.sample)
        if not values.numel():
            return 0.0
        return float(values.kthvalue(math.ceil(_QUARTILE * values.numel())).values)


@dataclass
class _Errors:
    """The second pass: the errors of every element beside their tolerance."""

    limit: float
    """L of the rule (`comparison.tolerance`)."""
    scale: float
    """What is added to the magnitude of an answer: the root mean square."""
    eager_error: float
    candidate: _RelativeErrors
    eager: _RelativeErrors
    largest: float = 0.0
    largest_scaled: float = 0.0
    squares: float = 0.0
    eager_squares: float = 0.0
    failing: int = 0
    first: int | None = None
    """Number of the first element beyond its tolerance."""
    all_steps: int = 0
    """Elements that are right because another rounding step explains their error."""
    steps: int = 0
    """Those of them whose step only the tolerance explains."""
    first_step: int | None = None
    step_squares: float = 0.0
    eager_steps: int = 0
    eager_step_squares: float = 0.0

    def add(self, piece: Piece) -> None:
        """Count the errors of a piece."""
        size = piece.r64.abs()
        allowed = self.limit * (size + self.scale) + EAGER_ERRORS_ALLOWED * self.eager_error
        error, eager = piece.error, piece.eager_by_element
        if piece.slack is not None:
            by_eager, by_limit = (allowed + change for change in piece.slack)
            is_step = (error > allowed) & (error <= by_limit)
            is_eager_step = (eager > allowed) & (eager <= by_limit)
            if self.first_step is None and bool(is_step.any()):
                self.first_step = piece.start + int(is_step.int().argmax())
            is_far = is_step & (error > by_eager)
            self.all_steps += int(is_step.sum())
            self.steps += int(is_far.sum())
            self.eager_steps += int(is_eager_step.sum())
            self.step_squares += float(error[is_far].square().sum())
            self.eager_step_squares += float(eager[is_eager_step].square().sum())
            error = torch.where(is_step, 0.0, error)
            eager = torch.where(is_eager_step, 0.0, eager)
        is_over = error > allowed
        count = int(is_over.sum())
        if count and self.first is None:
            self.first = piece.start + int(is_over.int().argmax())
        self.failing += count
        self.largest = max(self.largest, float(error.max()))
        self.largest_scaled = max(self.largest_scaled, _find_largest_ratio(error, allowed))
        self.squares += float(error.square().sum())
        self.eager_squares += float(eager.square().sum())
        self.candidate.add(error, size)
        self.eager.add(eager, size)

    def has_too_many_steps(self, elements: int, one_in: int) -> bool:
        """Whether too many elements are on another step; see `tolerance`."""
        counts = ((self.all_steps, STEPS_BY_EAGER), (self.steps, one_in))
        return any(
            has_too_many_steps(count, self.eager_steps, elements, one_in=most)
            for count, most in counts
        )

    def summarise_eager(self, scan: _Scan) -> EagerError | None:
        """Return the error of the eager reference; None for an answer of zeros."""
        if not scan.squares:
            return None
        scale = math.sqrt(scan.squares / scan.finite)
        shares = tuple(count / scan.finite for count in self.eager.large)
        return EagerError(self.eager_error / scale, shares)

    def compute_allowed(self, size: float) -> float:
        """Return the tolerance of an answer of a magnitude."""
        return self.limit * (size + self.scale) + EAGER_ERRORS_ALLOWED * self.eager_error


def _find_largest_ratio(error: torch.Tensor, scale: torch.Tensor) -> float:
    """Return the largest error / scale; no error counts as 0 even over a scale of 0."""
    largest = float((error / scale).max())
    if math.isnan(largest):
        largest = float(torch.where(error == 0, 0.0, error / scale).max())
    return largest


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
    changed = [f"input {number} after the call" for number in expected.changed]
    names = [*[None] * (len(expected.exact) - len(changed)), *changed]
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
    eager_pieces = tolerance.iterate_pieces(replace(output, given=output.wanted))
    eager_error = max((piece.eager_error for piece in eager_pieces), default=0.0)
    if output.algorithms is not None:
        eager_error = max(eager_error, output.algorithms.scaled * compute_rms(output.exact))
    for piece in tolerance.iterate_pieces(output):
        relative = rule.rtol * piece.r64.abs()
        limit = relative.clamp(min=rule.atol) if rule.either else relative + rule.atol
        slack = 0.0 if piece.slack is None else piece.slack[1]
        is_beyond = piece.error > limit + EAGER_ERRORS_ALLOWED * eager_error + slack
        count = int(is_beyond.sum())
        if count and first is None:
            first = piece.start + int(is_beyond.int().argmax())
        failing += count
    if first is None or failing <= (1 - rule.matched) * tolerance.flatten(output.wanted).numel():
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
        eager_pieces = tolerance.iterate_pieces(OutputTensor(0, wanted, exact, wanted))
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
    flat = [tolerance.flatten(tensor) for tensor in (first, second)]
    for start in range(0, flat[0].numel(), tolerance.CHUNK):
        a, b = (tensor[start : start + tolerance.CHUNK] for tensor in flat)
        is_same = (a == b) | (a.isnan() & b.isnan())
        difference = torch.where(is_same, 0.0, (tolerance.widen(a) - tolerance.widen(b)).abs())
        if not bool((difference <= limit).all()):
            return False
    return True


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
        distance = (tolerance.widen(given) - tolerance.widen(exact.to(given.device))).abs()
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
