"""Operations that round to steps: which other step an error of the value before them explains.

An honest kernel computes the value before a rounding operation with an error of its own, and where
that value is next to an edge, it takes the neighbouring step. Inputs and answers do not show this.
Therefore the module's own call is recorded: each operation whose result is constant between edges,
with the values before it. The module then runs again in double precision with these values moved
by their tolerance, and the answers show what another step changes, also behind further operations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from evaluators.references.operation_mode import OperationMode

_MOST_STEPS = 16
_MOST_BYTES = 1 << 30
_ROUNDING = ("round", "floor", "ceil", "trunc", "sign", "sgn", "bucketize", "searchsorted")
_FAKE_QUANTIZE = "fake_quantize_per_"
_COMPARISONS = ("gt", "ge", "lt", "le")
_QUOTIENTS = ("floor_divide", "div")
_CASTS = ("_to_copy", "copy")
_NARROW_BYTES = 2
_EAGER_QUARTILES = 16.0
"""How many upper quartiles of eager's own error a value may be off: four times the largest error of
a million normal ones. The largest itself may be that of a value after another step."""
_MOST_AT_EDGES = 1 / 4
"""Largest share of values within a sixteenth of their tolerance of an edge. If more are, the task
computes values at the edges, or its steps are finer than the tolerance."""
_SIGNS = (-1 / 16, 1 / 16)
_MOST_ALONE = 4
"""Up to as many steps, the values before each are moved alone as well."""
_RANDOM_PAIRS = 2


@dataclass(frozen=True)
class Step:
    """One operation that rounds."""

    name: str
    value: torch.Tensor
    """The values before it."""
    apply: Callable[[torch.Tensor], Any]
    """Returns the operation's result for other values."""


def is_step(func: Any, args: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether an operation rounds floating values to steps."""
    return _read_step(func, args, kwargs) is not None


def find_margins(
    own: Sequence[Step], double: Sequence[Step], limits: Mapping[str, float]
) -> list[list[torch.Tensor]]:
    """Return how far each value before a step may be off: by eager's own error, and by tolerance.

    Nothing where no value may.

    Args:
        own: Steps of a call in the task's own precision.
        double: The same steps in double precision.
        limits: Relative tolerance by the name of an element type.
    """
    forms = [[(step.name, step.value.shape) for step in steps] for steps in (own, double)]
    if not own or forms[0] != forms[1]:
        return []
    pairs = [_find_margin(o, d, limits) for o, d in zip(own, double, strict=True)]
    by_eager, by_limit = map(list, zip(*pairs, strict=True))
    return [by_eager, by_limit] if any(bool(margin.any()) for margin in by_limit) else []


def iterate_moved(margins: Sequence[torch.Tensor], *, apart: bool) -> Iterator[OperationMode]:
    """Yield modes in which values before steps are moved: all up, all down, and at random.

    apart: Whether to move more at random, and the values before each step alone as well. Two moves
        may cancel in an element of the answer, where one of them alone shows.
    """
    sets = [list(margins)]
    if apart and 1 < len(margins) <= _MOST_ALONE:
        for moved in range(len(margins)):
            sets.append([m if n == moved else torch.zeros_like(m) for n, m in enumerate(margins)])
    draws = torch.Generator().manual_seed(0)
    for _ in range(_RANDOM_PAIRS if apart else 1):
        signs = [torch.randint(0, 2, m.shape, generator=draws) * 2 - 1 for m in margins]
        sets.append([m * s.to(m.device) for m, s in zip(margins, signs, strict=True)])
    for each in sets:
        yield _Mover(each)
        yield _Mover([-margin for margin in each])


class StepRecorder(OperationMode):
    """Records the operations that round."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: list[Step] = []
        self._is_complete = True
        self._held_bytes = 0

    def list_steps(self) -> list[Step]:
        """Return the operations in order; none if they are too many or too large."""
        return self._steps if self._is_complete else []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        step = _read_step(func, args, kwargs or {})
        if step is not None and self._is_complete:
            self._held_bytes += step.value.nbytes
            self._is_complete = len(self._steps) < _MOST_STEPS and self._held_bytes <= _MOST_BYTES
            value = step.value.detach().clone()
            self._steps.append(Step(step.name, value, step.apply))
        return func(*args, **(kwargs or {}))


class _Mover(OperationMode):
    """Moves the values before each step."""

    def __init__(self, moves: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._moves = iter(moves)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        step = _read_step(func, args, kwargs)
        move = None if step is None else next(self._moves, None)
        if step is None or move is None or move.shape != step.value.shape:
            return func(*args, **kwargs)
        moved = step.apply(step.value + move.to(step.value.device))
        if func._schema.is_mutable:
            return args[0].copy_(moved)
        return moved


def _read_step(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Step | None:
    """Return an operation that rounds floating values, with these; None for others."""
    name, _, overload = str(func).removeprefix("aten.").partition(".")
    base = name if name in _CASTS else name.rstrip("_")
    if not args or overload.endswith("out"):
        return None

    def make_step(value: Any, apply: Callable[[torch.Tensor], Any]) -> Step | None:
        return Step(name, value, apply) if _is_floating(value) and value.numel() else None

    value, rest = args[0], args[1:]
    if base == "searchsorted":
        return make_step(args[1], lambda moved: func(args[0], moved, *args[2:], **kwargs))
    if base in _ROUNDING or base.startswith(_FAKE_QUANTIZE):
        function = getattr(getattr(torch.ops.aten, base), overload)
        return make_step(value, lambda moved: function(moved, *rest, **kwargs))
    if base in _COMPARISONS:
        if not _is_floating(value) or not (_is_floating(rest[0]) or overload == "Scalar"):
            return None
        compare = getattr(torch.ops.aten, base).Scalar
        return make_step(value - rest[0], lambda moved: compare(moved, 0))
    if base in _QUOTIENTS:
        mode = "floor" if base == "floor_divide" else kwargs.get("rounding_mode")
        if mode is None or not _is_floating(value):
            return None
        return make_step(value / rest[0], torch.floor if mode == "floor" else torch.trunc)
    if base in _CASTS:
        target = args[0].dtype if base == "copy" else kwargs.get("dtype")
        value = args[1] if base == "copy" else args[0]
        if target is not None and _is_narrow(target, value):
            device = kwargs.get("device") or value.device
            return make_step(value, lambda moved: moved.to(device, target))
    return None


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _is_narrow(target: torch.dtype, value: Any) -> bool:
    """Whether a cast of floating values rounds them to far fewer: whole numbers or short floats."""
    if not _is_floating(value) or target in (torch.bool, value.dtype) or target.is_complex:
        return False
    return not target.is_floating_point or target.itemsize <= min(
        _NARROW_BYTES, value.dtype.itemsize - 1
    )


def _find_margin(
    own: Step, double: Step, limits: Mapping[str, float]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how far the values before a step may be off, by eager's own error and by tolerance.

    Zeros where the step explains nothing.
    """
    exact = double.value
    error = (own.value.to(exact.device, exact.dtype) - exact).abs().nan_to_num(0.0, 0.0, 0.0)
    size = exact.abs().nan_to_num(0.0, 0.0, 0.0)
    flat = error.reshape(-1)
    quartile = float(flat.kthvalue(max(1, round(0.75 * flat.numel()))).values)
    limit = limits.get(str(own.value.dtype), 0.0)
    by_eager = torch.full_like(error, _EAGER_QUARTILES * quartile)
    by_limit = by_eager + limit * (size + size.square().mean().sqrt())
    # What eager computes without error, a kernel does too, such as whole numbers at an edge.
    has_error = (error > 0) & exact.isfinite()
    result = double.apply(exact)

    def limit_edges(margin: torch.Tensor) -> torch.Tensor | None:
        margin = torch.where(has_error, margin, 0.0)
        near = sum(_count_changes(double.apply(exact + s * margin), result) for s in _SIGNS)
        return margin if near <= _MOST_AT_EDGES * exact.numel() else None

    least = limit_edges(by_eager)
    least = torch.zeros_like(error) if least is None else least
    most = limit_edges(by_limit)
    return least, least if most is None else most


def _count_changes(one: Any, other: Any) -> int:
    """Count the elements in which two results differ."""
    if isinstance(one, tuple):
        one, other = one[0], other[0]
    return int((one.to(torch.float64) != other.to(torch.float64)).sum())
