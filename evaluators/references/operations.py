"""The operations of a module's call: other algorithms for them, and those that round or choose."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode


class OperationMode(TorchDispatchMode):
    """A dispatch mode without torch's guard against compiling it, which imports the compiler.

    That takes seconds in every new process. The calls that these modes see are not compiled.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._run(func, args, kwargs or {})

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        return func(*args, **kwargs)


# Other algorithms by which eager may compute a task, and the error of an eager answer.
#
# Eager takes one algorithm of several: cuDNN's heuristics choose another one than its benchmark
# does, with TF32 or without, and a library splits a sum where it likes. Which one it takes is no
# property of the task, so the error of a single run is no measure of what the precision allows, and
# what eager may do, a kernel may do as well. A task's module therefore runs once under each
# algorithm that concerns its operations. All change flags of this process and put them back, except
# that cuDNN's benchmark may keep a plan.

RELATIVE_LEVELS = (1e-3, 1e-2, 1e-1)
"""Relative errors whose shares are bounded, ascending."""
_CHUNK = 1 << 23


@dataclass(frozen=True)
class EagerError:
    """The eager reference's own error in the floating elements of an answer."""

    scaled: float
    """Largest error over the root mean square of the answer."""
    shares: tuple[float, ...]
    """Share of elements with a relative error above each of `RELATIVE_LEVELS`."""
    relative: float = 0.0
    """Norm of the error over the norm of the answer."""

    @classmethod
    def merge(
        cls,
        one: EagerError | None,
        other: EagerError | None,
        choose: Callable[[float, float], float] = max,
    ) -> EagerError | None:
        """Return the larger of each figure, or the smaller with min."""
        if one is None or other is None:
            return one or other
        shares = tuple(map(choose, one.shares, other.shares))
        relative = choose(one.relative, other.relative)
        return cls(choose(one.scaled, other.scaled), shares, relative)

    @classmethod
    def measure(
        cls, value: torch.Tensor, exact: torch.Tensor, slack: torch.Tensor | None = None
    ) -> EagerError | None:
        """Measure the error of a floating answer, of its finite elements; None for zeros.

        slack: Error of each element that a rounding step explains (`references.operations`).
        """
        largest = squares = size_squares = 0.0
        finite, large = 0, [0] * len(RELATIVE_LEVELS)
        tiny = torch.finfo(value.dtype).tiny
        flat = [flatten(tensor) for tensor in (value, exact)]
        spared = None if slack is None else flatten(slack)
        for start in range(0, flat[0].numel(), _CHUNK):
            v, x = (t[start : start + _CHUNK].to(exact.device, torch.float64) for t in flat)
            is_finite = v.isfinite() & x.isfinite()
            error = torch.where(is_finite, (v - x).abs(), 0.0)
            size = torch.where(is_finite, x.abs(), 0.0)
            if spared is not None:
                error = (error - spared[start : start + _CHUNK].to(error.device)).clamp_(min=0.0)
            largest = max(largest, float(error.max()))
            squares += float(error.square().sum())
            size_squares += float(size.square().sum())
            finite += int(is_finite.sum())
            for number, level in enumerate(RELATIVE_LEVELS):
                large[number] += int(((error > level * size) & (size >= tiny)).sum())
        if not 0 < size_squares < math.inf or not squares < math.inf:
            return None
        return cls(
            largest / math.sqrt(size_squares / finite),
            tuple(count / finite for count in large),
            math.sqrt(squares / size_squares),
        )


def measure_errors(
    values: Sequence[torch.Tensor],
    exact: Sequence[torch.Tensor | None],
    slack: Sequence[torch.Tensor | None],
) -> list[EagerError | None]:
    """Return the error of each floating tensor of an answer; None for others."""
    triples = zip(values, exact, slack, strict=True)
    return [
        None
        if x is None or not (v.is_floating_point() or v.is_complex())
        else EagerError.measure(v, x, s)
        for v, x, s in triples
    ]


def flatten(tensor: torch.Tensor) -> torch.Tensor:
    """Return all elements in order; a complex one is two."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1)


Kind: TypeAlias = Literal["convolution", "product", "attention", "sum", "step", "half"]
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")
_TF32_DROPPED_BITS = 13
_HALVES = (torch.float16, torch.bfloat16)
_PARTS: dict[str, tuple[Kind, ...]] = {
    "convolution": ("convolution",),
    "mm": ("product",),
    "addmm": ("product",),
    "bmm": ("product",),
    "baddbmm": ("product",),
    "mv": ("product",),
    "addmv": ("product",),
    "dot": ("product",),
    "rnn": ("product",),
    "lstm": ("product",),
    "gru": ("product",),
    "attention": ("attention", "product"),
    "sum": ("sum",),
    "mean": ("sum",),
    "var": ("sum",),
    "norm": ("sum",),
    "softmax": ("sum",),
}
"""Kinds of an operation, by a part of its name."""


class _Kinds(OperationMode):
    def __init__(self) -> None:
        super().__init__()
        self.kinds: set[Kind] = set()

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = str(func).removeprefix("aten.")
        for part, kinds in _PARTS.items():
            if part in name:
                self.kinds.update(kinds)
        if any(isinstance(a, torch.Tensor) and a.dtype in _HALVES for a in args):
            self.kinds.add("half")
        if is_step(func, args, kwargs):
            self.kinds.add("step")
        return func(*args, **kwargs)


def find_kinds(call: Callable[[], Any]) -> set[Kind]:
    """Return the kinds of the operations of a call."""
    with _Kinds() as recorder:
        call()
    return recorder.kinds


def iterate_algorithms(
    device: str, precision: str, kinds: set[Kind]
) -> Iterator[AbstractContextManager[Any]]:
    """Yield the other algorithms that a precision allows for operations of some kinds.

    Those with the largest errors come first, since the time for all of them is limited.
    """
    if device == "cuda":
        if precision != "fp32_strict" and "convolution" in kinds:
            yield RoundedFactors(("convolution",))
        if precision == "allow_tf32" and kinds & {"product", "convolution"}:
            yield RoundedFactors(("convolution", *_PRODUCTS))
            yield _allow_tf32()
    if kinds & {"product", "convolution", "sum"}:
        yield _SplitSums()
    if device != "cuda":
        if kinds & {"product", "convolution", "sum"}:
            threads = torch.get_num_threads()
            yield _call_with(torch.set_num_threads, 1 if threads > 1 else 2, threads)
        # Without oneDNN, convolutions and products in half precision take 100 times as long.
        if "product" in kinds and not kinds & {"convolution", "half"}:
            switch = torch.backends.mkldnn.set_flags
            yield _call_with(switch, False, torch.backends.mkldnn.enabled)
        return
    cudnn = torch.backends.cudnn
    if "convolution" in kinds:
        yield _switch_on(cudnn, "deterministic")
        yield _switch_on(cudnn, "benchmark")
    if "product" in kinds:
        choose = torch.backends.cuda.preferred_blas_library
        for library in ("cublas", "cublaslt"):
            yield _call_with(choose, library, choose())
    if "attention" in kinds:
        yield sdpa_kernel(SDPBackend.MATH)


class RoundedFactors(OperationMode):
    """Rounds the factors of float32 products to TF32, whether the library would do so or not.

    cuDNN takes TF32 for some shapes and not for others, and its benchmark decides by times.
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self._names = names

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = _get_name(func)
        factors = (1, 2) if name in ("addmm", "baddbmm") else (0, 1)
        if name in self._names and all(args[number].dtype == torch.float32 for number in factors):
            args = list(args)
            for number in factors:
                args[number] = _round_to_tf32(args[number])
        return func(*args, **kwargs)


class _SplitSums(OperationMode):
    """Computes products and sums in two halves, which are added in the element type."""

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        name = _get_name(func)
        if name in _PRODUCTS and func._overloadname == "default":
            # Both halves of the product along its common dimension.
            *summand, a, b = args[: 3 if name.startswith(("addmm", "baddbmm")) else 2]
            half = a.shape[-1] // 2
            a_parts, b_parts = a.tensor_split([half], -1), b.tensor_split([half], -2)
            scale = kwargs.get("alpha", 1)
            multiply = torch.mm if name in ("mm", "addmm") else torch.bmm
            head = func(*summand, a_parts[0], b_parts[0], **kwargs)
            return head + scale * multiply(a_parts[1], b_parts[1])
        if name == "convolution" and args[8] == 1 and args[1].shape[0 if args[6] else 1] > 1:
            x, weight, bias, *others = args
            dim = 0 if args[6] else 1
            half = weight.shape[dim] // 2
            x_parts = x.tensor_split([half], 1 if x.dim() == weight.dim() else 0)
            weights = weight.tensor_split([half], dim)
            first = func(x_parts[0], weights[0], bias, *others)
            return first + func(x_parts[1], weights[1], None, *others)
        if str(func) == "aten.sum.dim_IntList" and args[1] and args[0].is_floating_point():
            parts = args[0].tensor_split(2, args[1][0])
            return func(parts[0], *args[1:], **kwargs) + func(parts[1], *args[1:], **kwargs)
        return func(*args, **kwargs)


def _get_name(func: Any) -> str:
    return str(func).removeprefix("aten.").partition(".")[0]


def _round_to_tf32(tensor: torch.Tensor) -> torch.Tensor:
    half = 1 << (_TF32_DROPPED_BITS - 1)
    bits = tensor.contiguous().view(torch.int32)
    rounded = (bits + half & -(1 << _TF32_DROPPED_BITS)).view(torch.float32)
    return torch.where(tensor.isfinite(), rounded.view(tensor.shape), tensor)


@contextlib.contextmanager
def _switch_on(holder: Any, name: str) -> Generator[None]:
    before = getattr(holder, name)
    setattr(holder, name, True)
    try:
        yield
    finally:
        setattr(holder, name, before)


@contextlib.contextmanager
def _allow_tf32() -> Generator[None]:
    backends = torch.backends
    with _switch_on(backends.cudnn, "allow_tf32"), _switch_on(backends.cuda.matmul, "allow_tf32"):
        yield


@contextlib.contextmanager
def _call_with(change: Callable[[Any], Any], value: Any, before: Any) -> Generator[None]:
    change(value)
    try:
        yield
    finally:
        change(before)


# Operations that round to steps: which other step an error of the value before them explains.
#
# An honest kernel computes the value before a rounding operation with an error of its own, and
# where that value is next to an edge, it takes the neighbouring step. Inputs and answers do not
# show this. Therefore the module's own call is recorded: each operation whose result is constant
# between edges, with the values before it. The module then runs again in double precision with
# these values moved by their tolerance, and the answers show what another step changes, also
# behind further operations.

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

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        step = _read_step(func, args, kwargs)
        if step is not None and self._is_complete:
            self._held_bytes += step.value.nbytes
            self._is_complete = len(self._steps) < _MOST_STEPS and self._held_bytes <= _MOST_BYTES
            value = step.value.detach().clone()
            self._steps.append(Step(step.name, value, step.apply))
        return func(*args, **kwargs)


class _Mover(OperationMode):
    def __init__(self, moves: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self._moves = iter(moves)

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        step = _read_step(func, args, kwargs)
        move = None if step is None else next(self._moves, None)
        if step is None or move is None or move.shape != step.value.shape:
            return func(*args, **kwargs)
        moved = step.apply(step.value + move.to(step.value.device))
        if func._schema.is_mutable:
            return args[0].copy_(moved)
        return moved


def _read_step(func: Any, args: Any, kwargs: Mapping[str, Any]) -> Step | None:
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
        if target is None or not _is_floating(value):
            return None
        if target in (torch.bool, value.dtype) or target.is_complex:
            return None
        # A cast rounds if it is to far fewer numbers: whole ones or short floats.
        most_bytes = min(_NARROW_BYTES, value.dtype.itemsize - 1)
        if not target.is_floating_point or target.itemsize <= most_bytes:
            device = kwargs.get("device") or value.device
            return make_step(value, lambda moved: moved.to(device, target))
    return None


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


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
        near = 0
        for sign in _SIGNS:
            one, other = double.apply(exact + sign * margin), result
            if isinstance(one, tuple):
                one, other = one[0], other[0]
            near += int((one.to(torch.float64) != other.to(torch.float64)).sum())
        return margin if near <= _MOST_AT_EDGES * exact.numel() else None

    least = limit_edges(by_eager)
    least = torch.zeros_like(error) if least is None else least
    most = limit_edges(by_limit)
    return least, least if most is None else most


# Indices that a task's module chooses: from which numbers, and which other index is as good.
#
# Of several equal numbers, a kernel may choose another than torch does. Inputs and indices do not
# show whether it may: the compared numbers can be any function of the inputs, and a constant input
# would explain every index. Therefore the module's own call is recorded: each operation that
# chooses, with the numbers that it chose from.

_MOST_CHOICES = 16
_MOST_CHOSEN_BYTES = 1 << 30
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
    forms = [
        [(c.places.shape, c.values.shape, c.dim, c.ordered) for c in choices]
        for choices in (own, double)
    ]
    if forms[0] != forms[1]:
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
    device = wanted.device
    for choice in choices:
        size = choice.values.shape[choice.dim]
        own = _to_rows(choice.values, choice.dim).to(device, torch.float64)
        rows = own if choice.exact is None else _to_rows(choice.exact, choice.dim).to(device)
        slack = _EAGER_ERRORS * (own - rows).abs().nan_to_num(0.0, 0.0, 0.0).amax(1, keepdim=True)
        rows = rows.nan_to_num(torch.inf, torch.inf, -torch.inf)  # torch sorts NaN as the largest
        for part in _list_parts(choice, wanted.numel()):
            if part.numel() != wanted.numel() or not torch.equal(
                part.reshape(-1), _to_whole(wanted)
            ):
                continue
            shape, is_ordered = part.shape, choice.ordered
            ours = _to_rows(part.to(device), choice.dim)
            named = _to_whole(torch.where(wrong, given, wanted)).reshape(shape)
            theirs = _to_rows(named, choice.dim)
            if not bool(((theirs >= 0) & (theirs < size)).all()):
                continue
            if theirs.shape[1] > 1 and bool((theirs.sort(1).values.diff(dim=1) == 0).any()):
                continue
            chosen, other = rows.gather(1, ours), rows.gather(1, theirs)
            pair = (chosen, other) if is_ordered else (chosen.sort(1).values, other.sort(1).values)
            is_equal = (pair[0] == pair[1]) | ((pair[0] - pair[1]).abs() <= slack)
            if not bool(is_equal.all()):
                continue
            if not few:
                return True
            if not bool(((rows > rows.min()) & (rows < rows.max())).any()):
                continue
            ascending = rows.sort(1).values
            low = torch.searchsorted(ascending, (chosen - slack).contiguous())
            high = torch.searchsorted(ascending, (chosen + slack).contiguous(), right=True)
            tied = torch.where(ours == theirs, 1, high - low) if is_ordered else high - low
            one_in = _HALF_TIED if ours.shape[1] > 1 else _ONE_IN_TIED
            if bool((tied <= max(_FEWEST_TIED, rows.shape[1] // one_in)).all()):
                return True
    return False


class _Recorder(OperationMode):
    def __init__(self) -> None:
        super().__init__()
        self.choices: list[Choice] = []
        self._held_bytes = 0

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        name = str(func).removeprefix("aten.").removesuffix(".default")
        if name in _OPERATIONS:
            declared = func._schema.arguments
            defaults = {a.name: a.default_value for a in declared if a.has_default_value()}
            given = {a.name: value for a, value in zip(declared, args, strict=False)}
            self._keep({**defaults, **given, **kwargs}, result)
        return result

    def _keep(self, given: dict[str, Any], result: Any) -> None:
        values = given["self"]
        if given.get("stable") or values.is_complex() or not values.numel():
            return  # a stable answer fixes the order of equal numbers
        dim = given.get("dim")
        if dim is None:
            values, dim = values.reshape(-1), 0
        places = result if isinstance(result, torch.Tensor) else result[-1]
        self._held_bytes += values.nbytes + places.nbytes
        if self._held_bytes <= _MOST_CHOSEN_BYTES and values.dim():
            ordered = bool(given.get("sorted", True))
            copies = places.detach().clone(), values.detach().clone()
            self.choices.append(Choice(*copies, dim % values.dim(), ordered))


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
    moved = tensor.movedim(dim, -1)
    return moved.reshape(-1, moved.shape[-1])


def _to_whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(-1).to(torch.int64)
