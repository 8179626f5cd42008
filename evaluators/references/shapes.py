"""Other shapes of a task: sizes that differ from its own, and that its reference accepts.

`draw_shapes` draws them from the whole numbers at the top of the task's text that set dimensions of
its inputs, and `try_shapes` tries those of the user. A shape is a workload: its axes replace names
of the text, and inputs, constructor arguments and weights follow. Only the task's worker evaluates
the text.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaluators.processes.messages import name_axes
from evaluators.references.task import Form, Reference, ReferenceFailed

_MOST_TRIALS = 16
"""Sizes that are tried for a shape, at most."""
_MOST_GROWTH = 4
"""Drawn inputs and answers have at most as many times the elements of the task's own."""
_CALL_S = 5.0
DRAWING_S = 3.0
_MOST_SLOWER = 10
"""Seconds that sizes may take, one of them and all together, besides as many times what the task's
own take."""
_FEWEST_TO_SHRINK = 8
_MOST_NOTE = 300


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Other sizes of a task."""

    name: str
    """The sizes that differ, such as `ROWS=509, COLS=1021`."""
    axes: str
    """JSON object of the workload: what the task's own workload replaces, and these sizes."""
    elements: int
    """Elements of inputs and answer."""


@dataclass(kw_only=True)
class Shapes:
    """Shapes that a task's reference accepts."""

    accepted: list[Shape] = field(default_factory=list[Shape])
    """In the order in which they were drawn."""
    notes: list[str] = field(default_factory=list[str])
    """Why there are none, or fewer than asked for."""
    own_elements: int = 0
    """Elements of inputs and answer at the task's own sizes."""


@dataclass(frozen=True)
class _Size:
    name: str
    numbers: tuple[int, ...]
    """All numbers of the name."""
    at: int | None
    """The place of this one, if they are a tuple or list."""
    is_batch: bool
    """Whether it sets first dimensions alone."""

    @property
    def number(self) -> int:
        return self.numbers[self.at or 0]


def draw_shapes(
    reference: Reference,
    task_id: str,
    axes: Mapping[str, Any],
    count: int,
    *,
    version: int,
) -> Shapes:
    """Draw other shapes of a task: the same ones wherever its reference accepts the same.

    The first has a batch of one, or about a quarter of every size where no size is a batch alone.
    The second has primes below the sizes, which are no multiples of a block. The third has one size
    that is half as large again, and odd. Others mix sizes below and above by a hash of the task and
    the version. Where the reference refuses such sizes, fewer or rounder numbers change.

    Raises ReferenceFailed: the task fails at its own sizes.
    """
    shapes = Shapes()
    if count < 1:
        return shapes
    listed = reference.sizes()
    sizes = [
        _Size(name, tuple(numbers), at, all(dimension == 0 for _, dimension in places))
        for name, numbers, at, places in listed
    ]
    if not sizes:
        shapes.notes.append(
            "other shapes: none, no number at the top of the task's text sets a size of its inputs"
        )
        return shapes
    trial = _Trial(reference, axes, shapes)
    for number in range(count):
        proposals = itertools.islice(_propose(number, sizes, f"{task_id}:{version}"), _MOST_TRIALS)
        is_accepted = False
        for numbers in proposals:
            lists = {size.name: list(size.numbers) for size in numbers}
            for size, changed in numbers.items():
                lists[size.name][size.at or 0] = changed
            changes = {
                size.name: lists[size.name][0] if size.at is None else lists[size.name]
                for size in numbers
                if tuple(lists[size.name]) != size.numbers
            }
            if is_accepted := trial.accept(changes, _MOST_GROWTH):
                break
        if not is_accepted:
            note = f"other shapes: {len(shapes.accepted)} of {count} are drawn; {trial.refusal}"
            shapes.notes.append(note[:_MOST_NOTE])
            break
    return shapes


def try_shapes(
    reference: Reference,
    axes: Mapping[str, Any],
    wanted: Iterable[Mapping[str, Any]],
) -> Shapes:
    """Return the shapes that the user names, with a note on each that the reference refuses.

    wanted: Names of the task's text and the values that replace theirs.

    Raises ReferenceFailed: as `draw_shapes`.
    """
    shapes = Shapes()
    trial = _Trial(reference, axes, shapes)
    for changes in wanted:
        if not trial.accept(changes, math.inf):
            note = f"shape {name_axes(changes)}: not judged; {trial.refusal}"
            shapes.notes.append(note[:_MOST_NOTE])
    return shapes


class _Trial:
    """Tries sizes in a task's worker, and compares what it makes of them with its own form."""

    def __init__(self, reference: Reference, axes: Mapping[str, Any], shapes: Shapes) -> None:
        self._reference = reference
        self._axes = axes
        self._shapes = shapes
        begin = time.perf_counter()
        self._own = reference.try_axes({})
        own_s = time.perf_counter() - begin
        self._call_s = _CALL_S + _MOST_SLOWER * own_s
        self._ends = begin + DRAWING_S + _MOST_SLOWER * own_s
        self._tried = {json.dumps(dict(axes), sort_keys=True)}
        shapes.own_elements = _count_elements(self._own)
        self.refusal = "no other sizes are left"
        """Why the last sizes were refused."""

    def accept(self, changes: Mapping[str, Any], growth: float) -> bool:
        """Add the shape with these axes, unless it is known or the reference refuses it."""
        axes = json.dumps({**self._axes, **changes}, sort_keys=True)
        if axes in self._tried or not self._reference.is_alive:
            return False
        if math.isfinite(growth) and time.perf_counter() > self._ends:
            self.refusal = "trying sizes takes too long"
            return False
        self._tried.add(axes)
        name = name_axes(changes)
        try:
            form = self._reference.try_axes(changes, self._call_s)
        except ReferenceFailed as failed:
            self.refusal = f"{name}: {failed}"
            return False
        elements = _count_elements(form)
        if _list_ranks(form) != _list_ranks(self._own):
            self.refusal = f"{name}: inputs or answers of another form"
        elif [shape for _, shape in form.inputs] == [shape for _, shape in self._own.inputs]:
            self.refusal = f"{name}: the inputs keep their shapes"
        elif self._own.finite and not form.finite:
            self.refusal = f"{name}: the answer is not finite"
        elif elements > growth * max(self._shapes.own_elements, 1):
            self.refusal = f"{name}: too large"
        else:
            self._shapes.accepted.append(Shape(name=name, axes=axes, elements=elements))
            return True
        return False


def _propose(number: int, sizes: Sequence[_Size], seed: str) -> Iterator[dict[_Size, int]]:
    """Yield new numbers for some sizes, and after them what may do instead."""
    order = sorted(sizes, key=lambda size: _hash(seed, number, size.name, size.at))
    batches = [size for size in order if size.is_batch and size.number > 1]
    if number == 0:
        # The only dimension of vectors is no batch.
        if len(batches) < len(sizes):
            yield from ({size: 1} for size in batches)
        yield {size: max(1, size.number // 4) | 1 for size in sizes}
        yield from ({size: max(1, size.number // 4) | 1} for size in order)
    elif number == 1:
        yield {size: _find_prime(size.number) for size in sizes}
        yield from ({size: _find_prime(size.number)} for size in order)
        yield from ({size: max(1, size.number * 3 // 4)} for size in order)
    elif number == 2:
        for size in sorted(order, key=lambda size: size.is_batch):
            yield {size: (size.number + size.number // 2) | 1}
            yield {size: 2 * size.number}
    else:
        for attempt in range(_MOST_TRIALS):
            yield {
                size: (
                    size.number,
                    _find_prime(size.number),
                    size.number + 1,
                    max(1, size.number // 2) | 1,
                )[_hash(seed, number, attempt, size.name, size.at) % 4]
                for size in sizes
            }


def _find_prime(number: int) -> int:
    """Return the largest prime below a number, or the next number where it is small.

    >>> [_find_prime(number) for number in (1, 4, 8, 512)]
    [2, 5, 7, 509]
    """
    if number < _FEWEST_TO_SHRINK:
        return number + 1
    return next(
        n for n in range(number - 1, 1, -1) if all(n % d for d in range(2, math.isqrt(n) + 1))
    )


def _hash(*parts: object) -> int:
    text = ":".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])


def _list_ranks(form: Form) -> list[list[tuple[str, int]]]:
    parts = (form.inputs, form.answers)
    return [[(dtype, len(shape)) for dtype, shape in tensors] for tensors in parts]


def _count_elements(form: Form) -> int:
    return sum(math.prod(shape) for _, shape in (*form.inputs, *form.answers))
