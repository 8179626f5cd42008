"""Indices that a task's module chooses: from which numbers, and which other index is as good.

Of several equal numbers, a kernel may choose another than torch does. Inputs and indices do not
show whether it may: the compared numbers can be any function of the inputs, and a constant input
would explain every index. Therefore the module's own call is recorded: each operation that chooses,
with the numbers that it chose from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from evaluators.references.operation_mode import OperationMode

_MOST_CHOICES = 16
_MOST_BYTES = 1 << 30
_EAGER_ERRORS = 4
"""Numbers within this multiple of the module's own error count as equal."""
_FEWEST_TIED = 2
_ONE_IN_TIED = 4
_HALF_TIED = 2
_OPERATIONS = (
    "argmax",
    "argmin",
    "max.dim",
    "min.dim",
    "median.dim",
    "nanmedian.dim",
    "kthvalue",
    "mode",
    "topk",
    "sort",
    "sort.stable",
)


@dataclass(frozen=True)
class Choice:
    """One operation that chooses indices."""

    places: torch.Tensor
    """Indices that it chose, in the operation's own shape."""
    values: torch.Tensor
    """Numbers that it chose from."""
    dim: int
    """Dimension along which it chose."""
    ordered: bool = True
    """Whether the order of several indices counts."""
    exact: torch.Tensor | None = None
    """The numbers in double precision, where the module runs in it."""


def record(call: Callable[[], Any]) -> list[Choice]:
    """Run a call and return its last 16 choices."""
    with _Recorder() as recorder:
        call()
    return recorder.choices[-_MOST_CHOICES:]


def add_exact_values(own: Sequence[Choice], double: Sequence[Choice]) -> list[Choice]:
    """Return choices with numbers from a call in double precision that makes the same choices."""
    if [_describe_form(one) for one in own] != [_describe_form(one) for one in double]:
        return list(own)
    pairs = zip(own, double, strict=True)
    return [replace(one, exact=wide.values.to(one.values.device)) for one, wide in pairs]


def read_choice(entry: Any) -> Choice:
    """Return the choice that a task's worker describes by the fields of Choice in order.

    Raises ValueError for other forms, since the worker runs the task's code.
    """
    match entry:
        case [
            torch.Tensor() as places,
            torch.Tensor() as values,
            int(dim),
            bool(ordered),
            None | torch.Tensor() as exact,
        ] if 0 <= dim < values.dim():
            kept = list(values.shape)
            dropped = [*kept[:dim], *kept[dim + 1 :]]
            shape = list(places.shape)
            alike = shape == dropped or (
                len(shape) == len(kept)
                and [*shape[:dim], *shape[dim + 1 :]] == dropped
                and shape[dim] <= kept[dim]
            )
            inside = not places.is_floating_point() and bool(
                ((places >= 0) & (places < kept[dim])).all()
            )
            real = not values.is_complex() and (exact is None or exact.shape == values.shape)
            if alike and inside and real:
                return Choice(places, values, dim, ordered, exact)
        case _:
            pass
    raise ValueError("a choice of indices is of another form")


def explain(
    choices: Sequence[Choice],
    wanted: torch.Tensor,
    given: torch.Tensor,
    wrong: torch.Tensor,
    *,
    few: bool = True,
) -> bool:
    """Whether indices that differ where `wrong` is set are as good as the wanted ones.

    One choice has to have made all the wanted indices. Each differing index has to name a number
    equal to the chosen one, up to 4 times the error of the module's own numbers. With `few`, only a
    few numbers may be equal: two, or a quarter of the candidates (half of them where several
    indices are chosen). Numbers with at most two values, such as a mask, have no ties, because the
    choice among equal ones is then the whole answer.
    """
    return any(_is_explained_by(one, wanted, given, wrong, few=few) for one in choices)


class _Recorder(OperationMode):
    """Records the operands of operations that choose."""

    def __init__(self) -> None:
        super().__init__()
        self.choices: list[Choice] = []
        self._held_bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = str(func).removeprefix("aten.").removesuffix(".default")
        if name in _OPERATIONS:
            given = {
                argument.name: value
                for argument, value in zip(func._schema.arguments, args, strict=False)
            }
            self._keep(name, {**_read_defaults(func), **given, **(kwargs or {})}, result)
        return result

    def _keep(self, name: str, given: dict[str, Any], result: Any) -> None:
        values = given["self"]
        if given.get("stable") or values.is_complex() or not values.numel():
            return  # a stable answer fixes the order of equal numbers
        dim = given.get("dim")
        if dim is None:
            values, dim = values.reshape(-1), 0
        places = result if isinstance(result, torch.Tensor) else result[-1]
        self._held_bytes += values.nbytes + places.nbytes
        if self._held_bytes <= _MOST_BYTES and values.dim():
            ordered = bool(given.get("sorted", True))
            copies = places.detach().clone(), values.detach().clone()
            self.choices.append(Choice(*copies, dim % values.dim(), ordered))


def _read_defaults(func: Any) -> dict[str, Any]:
    return {
        argument.name: argument.default_value
        for argument in func._schema.arguments
        if argument.has_default_value()
    }


def _describe_form(choice: Choice) -> tuple[Any, ...]:
    return choice.places.shape, choice.values.shape, choice.dim, choice.ordered


def _is_explained_by(
    choice: Choice, wanted: torch.Tensor, given: torch.Tensor, wrong: torch.Tensor, *, few: bool
) -> bool:
    device = wanted.device
    size = choice.values.shape[choice.dim]
    own = _to_rows(choice.values, choice.dim).to(device, torch.float64)
    rows = own if choice.exact is None else _to_rows(choice.exact, choice.dim).to(device)
    slack = _EAGER_ERRORS * (own - rows).abs().nan_to_num(0.0, 0.0, 0.0).amax(1, keepdim=True)
    rows = rows.nan_to_num(torch.inf, torch.inf, -torch.inf)  # torch sorts NaN as the largest
    for part in _list_parts(choice, wanted.numel()):
        if part.numel() != wanted.numel() or not torch.equal(part.reshape(-1), _to_whole(wanted)):
            continue
        shape = part.shape
        ours = _to_rows(part.to(device), choice.dim)
        theirs = _to_rows(_to_whole(torch.where(wrong, given, wanted)).reshape(shape), choice.dim)
        if not bool(((theirs >= 0) & (theirs < size)).all()):
            continue
        if not _are_equal(rows, slack, ours, theirs, ordered=choice.ordered):
            continue
        if not few or _are_few(rows, slack, ours, theirs, ordered=choice.ordered):
            return True
    return False


def _are_equal(
    rows: torch.Tensor,
    slack: torch.Tensor,
    ours: torch.Tensor,
    theirs: torch.Tensor,
    *,
    ordered: bool,
) -> bool:
    """Whether two sets of places have the same numbers, each place once."""
    if theirs.shape[1] > 1 and bool((theirs.sort(1).values.diff(dim=1) == 0).any()):
        return False
    chosen, other = rows.gather(1, ours), rows.gather(1, theirs)
    if not ordered:
        chosen, other = chosen.sort(1).values, other.sort(1).values
    return bool(((chosen == other) | ((chosen - other).abs() <= slack)).all())


def _are_few(
    rows: torch.Tensor,
    slack: torch.Tensor,
    ours: torch.Tensor,
    theirs: torch.Tensor,
    *,
    ordered: bool,
) -> bool:
    """Whether few numbers equal the chosen ones, wherever another place is named."""
    if not bool(((rows > rows.min()) & (rows < rows.max())).any()):
        return False
    chosen = rows.gather(1, ours)
    ascending = rows.sort(1).values
    low = torch.searchsorted(ascending, (chosen - slack).contiguous())
    high = torch.searchsorted(ascending, (chosen + slack).contiguous(), right=True)
    tied = torch.where(ours == theirs, 1, high - low) if ordered else high - low
    one_in = _HALF_TIED if ours.shape[1] > 1 else _ONE_IN_TIED
    return bool((tied <= max(_FEWEST_TIED, rows.shape[1] // one_in)).all())


def _list_parts(choice: Choice, count: int) -> list[torch.Tensor]:
    """Return the places, or their first and last part along the dimension if fewer are wanted."""
    places = choice.places
    if places.dim() != choice.values.dim():  # the dimension was dropped
        return [places.unsqueeze(choice.dim)] if places.numel() == count else []
    size = places.shape[choice.dim]
    others = places.numel() // max(1, size)
    if not others or count % others or not 0 < count // others <= size:
        return []
    kept = count // others
    parts = [places.narrow(choice.dim, 0, kept)]
    return parts if kept == size else [*parts, places.narrow(choice.dim, size - kept, kept)]


def _to_rows(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Return a matrix whose rows run along a dimension."""
    moved = tensor.movedim(dim, -1)
    return moved.reshape(-1, moved.shape[-1])


def _to_whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements in order as int64."""
    return tensor.reshape(-1).to(torch.int64)
