"""Comparison of one floating output with the reference, in two passes over its pieces."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch

from evaluators.judging.case import Policy
from evaluators.judging.comparison.error_text import (
    describe_errors,
    describe_relative_errors,
    get_element,
)
from evaluators.judging.comparison.pieces import OutputTensor, Piece, iterate_pieces
from evaluators.judging.comparison.precision_class import (
    EAGER_ERRORS,
    QUARTILE_OF_EVEN,
    classify_eager,
    classify_error,
    explain_policy,
    find_lowest_class,
    get_low_class,
    is_below,
    rank_class,
)
from evaluators.judging.comparison.result import Comparison
from evaluators.judging.comparison.tolerance import (
    EAGER_ERRORS_ALLOWED,
    RELATIVE_LEVELS,
    SINGLE,
    STEPS_BY_EAGER,
    STEPS_BY_LIMIT,
    STEPS_IN_FULL_PRECISION,
    TF32_TOLERANCE,
    get_tolerance,
    has_too_many_large_errors,
    has_too_many_steps,
)
from evaluators.references.eager_error import EagerError

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
