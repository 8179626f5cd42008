"""How values pass between processes: their tree, and the layout and sharing of their tensors."""

from __future__ import annotations

import gc
import json
import os
import re
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields, make_dataclass
from typing import Any, NamedTuple

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.memory.tensors import (
    WIDENED,
    Box,
    change_elements,
    copy_value,
    has_same_bits,
    lay_out,
    read_pending,
)
from evaluators.memory.values import (
    DTYPES,
    Keywords,
    list_arguments,
    list_parts,
    map_tensors,
    tensors_of,
)
from evaluators.processes import schema
from evaluators.worker.handle import read_value
from evaluators.worker.loop import describe

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf")
Judged = Callable[..., dict[str, Any]]
BOX_BYTES = 1 << 18


class Step(NamedTuple):
    """A named tuple."""

    query: Any
    cache: Any


@dataclass
class Batch:
    """A dataclass."""

    tokens: Any
    size: int = 2


@dataclass(frozen=True, slots=True)
class Frozen:
    """A dataclass without a dictionary of its own."""

    inner: Any


@st.composite
def make_tensors(draw: st.DrawFn) -> list[torch.Tensor]:
    """Return tensors of some storages, among them views that share and the same one twice."""
    tensors: list[torch.Tensor] = []
    for name in draw(st.lists(st.sampled_from(sorted(DTYPES)), min_size=1, max_size=3)):
        dtype = DTYPES[name]
        rows, columns = draw(st.integers(0, 4)), draw(st.integers(1, 5))
        bits = torch.randint(0, 2, (rows * columns * dtype.itemsize,), dtype=torch.uint8)
        whole = bits.view(dtype).view(rows, columns)
        views = [whole, whole.t(), whole[:, columns // 2 :], whole[rows // 2 :], whole[:1]]
        views += [whole[:1].expand(rows + 1, columns) if rows else whole, whole[:, :1].squeeze(1)]
        views += [whole.unfold(1, columns // 2 + 1, 1)]
        if dtype.is_complex and dtype is not torch.complex32:
            views += [whole.conj(), whole.t().imag, whole.conj().imag]
        tensors += draw(st.lists(st.sampled_from(views), min_size=1, max_size=4))
    return [*tensors, draw(st.sampled_from(tensors))]


@st.composite
def make_values(draw: st.DrawFn) -> list[Any]:
    """Return a value: tensors and plain values in containers."""
    plain = [None, True, 7, -0.5, "text", 1 + 2j, numpy.float32(0.5), torch.bfloat16]
    leaves: list[Any] = [*draw(make_tensors()), *plain]
    containers: list[Callable[[list[Any]], Any]] = [
        list,
        tuple,
        lambda parts: {(str(n) if n % 2 else n): part for n, part in enumerate(parts)},
        lambda parts: Step(parts, tuple(parts[:1])),
        lambda parts: Batch(parts),
        lambda parts: Frozen({"parts": parts}),
    ]
    value = [*leaves]
    for _ in range(draw(st.integers(0, 3))):
        split = draw(st.integers(0, len(value)))
        value = [*value[split:], draw(st.sampled_from(containers))(value[:split])]
    return value


def describe_layout(value: Any) -> list[Any]:
    """Return what has to be kept of the tensors of a value, apart from their elements."""
    tensors = list(tensors_of(value))
    storages = [tensor.untyped_storage().data_ptr() for tensor in tensors]
    sizes = [tensor.untyped_storage().nbytes() for tensor in tensors]
    owners = [storages.index(each) if each else None for each in storages]
    same = [next(n for n, other in enumerate(tensors) if other is tensor) for tensor in tensors]
    forms = [
        (t.dtype, t.shape, t.stride(), t.storage_offset() if t.numel() else 0, read_pending(t))
        for t in tensors
    ]
    return [sizes, owners, same, forms]


def describe_leaves(value: Any) -> list[Any]:
    """Return all leaves that are no tensors, with their types."""
    if (parts := list_parts(value)) is not None:
        return [leaf for part in parts for leaf in describe_leaves(part)]
    return [] if isinstance(value, torch.Tensor) else [(type(value), value)]


@settings(deadline=None)
@given(make_values())
def test_any_value_comes_back_with_layout_sharing_and_bits(value: list[Any]) -> None:
    sent = Box(torch.zeros(BOX_BYTES, dtype=torch.uint8))
    spec = json.loads(json.dumps(sent.put(value)))
    schema.check_reply("task", "inputs", {"place": "cpu", "spec": spec})
    for back in (sent.get(spec), sent.share(spec), copy_value(value)):
        # Views of one layout are one tensor at the other side.
        sizes, owners, _, forms = describe_layout(back)
        assert [sizes, owners, forms] == [describe_layout(value)[n] for n in (0, 1, 3)]
        assert describe_leaves(back) == describe_leaves(value)
        assert all(map(has_same_bits, tensors_of(value), tensors_of(back)))
    dense = sent.get(json.loads(json.dumps(sent.put(value, dense=True))))
    assert describe_layout(dense)[2] == describe_layout(value)[2]
    assert all(map(has_same_bits, tensors_of(value), tensors_of(dense)))


@pytest.mark.gpu
@settings(deadline=None)
@given(make_values())
def test_any_value_comes_back_on_a_gpu(value: list[Any]) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    sent = Box(torch.zeros(BOX_BYTES, dtype=torch.uint8, device="cuda"))
    moved = copy_value(value, "cuda")
    for there in (value, moved):
        spec = sent.put(there)
        for back in (sent.get(spec, "cuda"), sent.share(spec), sent.get(spec)):
            assert describe_layout(back)[3] == describe_layout(value)[3]
            assert all(map(has_same_bits, tensors_of(value), tensors_of(back)))
            owners = [describe_layout(each)[1] for each in (value, back)]
            assert owners[0] == owners[1]


@settings(deadline=None)
@given(make_tensors())
def test_what_a_task_gives_twice_is_one_tensor(tensors: list[torch.Tensor]) -> None:
    box = Box(torch.zeros(BOX_BYTES, dtype=torch.uint8))
    back = box.share(box.put(tensors))
    pairs = list(zip(tensors, back, strict=True))
    assert all(b is d for a, b in pairs for c, d in pairs if a is c)


@settings(deadline=None)
@given(make_tensors())
def test_an_output_is_read_as_it_is_where_it_is(tensors: list[torch.Tensor]) -> None:
    output = OrderedDict(step=Step(tensors, {3: Batch(tensors[0])}), frozen=Frozen((1j, tensors)))
    answer = json.loads(json.dumps(describe(output)))
    schema.check_reply("candidate", "call", answer)
    back = read_value(os.getpid(), answer["output"], BOX_BYTES)
    assert all(map(has_same_bits, tensors_of(output), tensors_of(back)))
    assert [field.name for field in fields(back["frozen"])] == ["inner"]
    assert back["frozen"].inner[0] == 1j


@settings(deadline=None)
@given(make_tensors())
def test_changed_elements_keep_layout_and_sharing(tensors: list[torch.Tensor]) -> None:
    own = [t for t in tensors if t.dtype in WIDENED and not read_pending(t) and not t.is_complex()]
    changed = change_elements(own, lambda tensor: torch.full_like(tensor, 3))
    wide = copy_value(own, double=True)
    for after, before, double in zip(changed, own, wide, strict=True):
        assert bool((after == 3).all())
        assert torch.equal(double, before.double())
        assert after.stride() == double.stride() == before.stride()
    owners = [describe_layout(value)[1] for value in (own, changed, wide)]
    assert owners[0] == owners[1] == owners[2]


def test_lengths_that_vary_change_the_layout() -> None:
    inputs = [torch.randn(4, 3).t(), {"mask": torch.ones(4)}]
    shorter = change_elements(inputs, lambda tensor: tensor[..., :2])
    assert [list(tensor.shape) for tensor in tensors_of(shorter)] == [[3, 2], [2]]


class Meddling(type):
    """A metaclass, under which nothing tells what reading an attribute does."""


@dataclass
class WithProperty:
    """A dataclass whose field is computed when it is read."""

    answer: Any

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(f"{name} was read")


class Hidden(Batch):
    """A dataclass that hides its dictionary."""

    __dict__ = property(lambda self: pytest.fail("it was read"))  # pyright: ignore


def test_no_code_of_a_dataclass_runs_while_it_is_described() -> None:
    value = object.__new__(WithProperty)
    object.__setattr__(value, "answer", torch.ones(2))
    assert describe(value)["output"]["dataclass"][:2] == ["WithProperty", ["answer"]]
    assert describe(object.__new__(Hidden))["odd"]["type"] == "Hidden"
    assert describe(Meddling("Odd", (Batch,), {})(1))["odd"]["type"] == "Odd"


def overlap() -> list[torch.Tensor]:
    """Return tensors in the same memory, each with a storage of its own."""
    numbers = numpy.ones(4)
    return [torch.from_numpy(numbers), torch.from_numpy(numbers[1:])]


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda: torch.eye(3).to_sparse(), "sparse"),
        (lambda: torch.eye(3).to_sparse_csr(), "sparse"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "quantized"),
        (lambda: torch.ones(2).as_subclass(type("Own", (torch.Tensor,), {})), "tensor_subclasses"),
        (lambda: torch.zeros(2, dtype=torch.uint8).view(torch.bits8), "element_types"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "nested_tensors"),
        (lambda: numpy.ones(2), "value_types"),
        (torch.nn.ReLU, "value_types"),
        (overlap, "value_types"),
        (lambda: {1.5: 1}, "dict_keys"),
        (lambda: [[[[[[[[[[1]]]]]]]]]], "nesting"),
        (lambda: make_dataclass("Odd", ["__class"])(1), "value_types"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_what_cannot_pass_names_its_limit(make: Callable[[], Any], limit: str) -> None:
    with pytest.raises(TypeError, match=rf"\(limit {limit};"):
        lay_out(make())


# ---- tasks and kernels ---------------------------------------------------------------------------

HEAD = """
import torch
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

@dataclass
class Batch:
    tokens: torch.Tensor
    mask: torch.Tensor

    def mask_tokens(self):
        return self.tokens * self.mask

class Step(NamedTuple):
    query: torch.Tensor
    rest: object
"""


def text_of(name: str, parameters: str, forward: str) -> str:
    """Return the text of a module's class."""
    return (
        f"{HEAD}\nclass {name}(torch.nn.Module):\n    def forward(self, {parameters}):\n        "
        + "\n        ".join(forward.splitlines())
        + "\n"
    )


def task_of(parameters: str, forward: str, inputs: str) -> str:
    """Return the text of a task."""
    functions = (
        f"\ndef get_inputs():\n    return {inputs}\n\ndef get_init_inputs():\n    return []\n"
    )
    return text_of("Model", parameters, forward) + functions


TRANSPOSED = task_of("x", "return x.contiguous() * 2", "[torch.randn(48, 32).t()]")
FOLLOWS_LAYOUT = "assert x.stride() == (1, 32)\nreturn (x.t().view(-1).view(48, 32).t() * 2) + 0"
CACHED = task_of(
    "new, cache",
    "cache['k'][:, cache['at']] = new\nreturn cache['k'].sum(1)",
    "[torch.randn(4, 32), {'k': torch.randn(4, 16, 32), 'at': 7}]",
)
UPDATES = "k = cache['k']\nk[:, cache['at']] = new\nreturn k.sum(1)"
CONJUGATED = task_of("x", "return torch.fft.rfft(x).conj()", "[torch.randn(16, 128)]")
SPECTRUM = task_of("x", "return torch.fft.rfft(x).conj_physical()", "[torch.randn(16, 128)]")
SHARED = task_of(
    "q, k, twice, table",
    "return Step(q @ k.t() + twice, {0: table, 'n': (table.sum(), None)})",
    "[*torch.randn(2, 24, 24).unbind(), x := torch.randn(24, 24), x[:1].expand(24, 24)]",
)
SAME_MEMORY = """
start = q.untyped_storage().data_ptr()
assert k.untyped_storage().data_ptr() == start and k.storage_offset() == 576
assert twice.untyped_storage().data_ptr() == table.untyped_storage().data_ptr()
assert table.stride() == (0, 1)
return (q @ k.t() + twice, OrderedDict(n=(table.sum(), None)) | {0: table + 0})
"""
RECORDS = task_of(
    "batch, step",
    "assert isinstance(batch, Batch) and isinstance(step, Step)\n"
    "return Batch(batch.mask_tokens() + step.rest['bias'], step.query)",
    "[Batch(torch.randn(8, 32), torch.ones(8, 1)), Step(torch.randn(9), {'bias': torch.ones(32)})]",
)
NAMED = task_of("x, *, scale", "return x * scale", "{'x': torch.randn(16, 16), 'scale': 2.0}")
ROUNDS = "return (x * w.float()).to(torch.float8_e5m2), x.abs().mul(99).to(torch.uint16)"
ROUNDED = task_of(
    "x, w",
    ROUNDS,
    "[torch.randn(16, 32), torch.randn(32).to(torch.float8_e4m3fn)]",
)
PACKED = task_of(
    "x, w",
    "return x.flip(0), w.view(torch.uint8) & 3",
    "[torch.randint(0, 99, (16, 8)).byte().view(torch.float4_e2m1fn_x2), torch.rand(8)"
    ".to(torch.float8_e8m0fnu)]",
)
FLIPPED = "return x.view(torch.uint8).flip(0).view(x.dtype), w.view(torch.uint8) & 3"
JUDGED = {
    "relies on the layout": (TRANSPOSED, "x", FOLLOWS_LAYOUT, None),
    "another layout": (TRANSPOSED, "x", "return x * 2", None),
    "updates the cache": (CACHED, "new, cache", UPDATES, None),
    "leaves the cache": (
        CACHED,
        "new, cache",
        UPDATES.replace("cache['k']", "cache['k'].clone()", 1),
        "incorrect/incorrect_numerical: the task changes input 1 in a call",
    ),
    "another change of the cache": (
        CACHED,
        "new, cache",
        f"total = cache['k'].clone()\n{UPDATES.replace('return', 'out =')}\nk += 1\nreturn out",
        "incorrect/incorrect_numerical: .*input 1 after the call",
    ),
    "changes too much": (
        CACHED,
        "new, cache",
        UPDATES + " + 0 * new.mul_(2)",
        "incorrect/input_mutated: .*has changed",
    ),
    "a conjugation is pending as in the task": (
        CONJUGATED,
        "x",
        "return torch.fft.rfft(x).conj()",
        None,
    ),
    "no conjugation is pending": (CONJUGATED, "x", "return torch.fft.ifft(x)[:, :65] * 128", None),
    "no conjugation at all": (
        CONJUGATED,
        "x",
        "return torch.fft.rfft(x)",
        "incorrect/incorrect_numerical",
    ),
    "a conjugation is left to the reader": (
        SPECTRUM,
        "x",
        "return torch.fft.rfft(x).conj()",
        "incorrect/incorrect_type: .*resolve_conj",
    ),
    "shares memory": (SHARED, "q, k, twice, table", SAME_MEMORY.strip(), None),
    "named tuples and dataclasses": (
        RECORDS,
        "batch, step",
        "query, rest = step\nreturn Batch(batch.tokens * batch.mask + rest['bias'], query)",
        None,
    ),
    "no dataclass": (
        RECORDS,
        "batch, step",
        "return {'tokens': batch.mask_tokens() + 1, 'mask': step.query}",
        "incorrect/incorrect_type",
    ),
    "inputs by name": (NAMED, "scale, x", "return scale * x", None),
    "rounds": (ROUNDED, "x, w", ROUNDS, None),
    "rounds otherwise": (
        ROUNDED,
        "x, w",
        ROUNDS.replace("(x", "(-x"),
        "incorrect/incorrect_numerical",
    ),
    "packed": (PACKED, "x, w", FLIPPED, None),
    "packed otherwise": (PACKED, "x, w", "return x, w.view(torch.uint8) & 3", "incorrect/"),
    "an answer as large as nothing": (
        NAMED,
        "x, scale",
        "return torch.ones(1).expand(2**31, 2**31)",
        "incorrect/incorrect_shape",
    ),
}  # fmt: skip


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("name", JUDGED)
def test_kernels_and_tasks_get_the_same_values(name: str, check_code: Callable[..., Any]) -> None:
    task, parameters, forward, failure = JUDGED[name]
    found = check_code(text_of("ModelNew", parameters, forward), task, calls=5)
    outcome = f"{found.status}/{found.reason}: {found.message}"
    if failure is None:
        assert found.status == "correct", outcome
        assert "another_function" not in found.flags
    else:
        assert re.match(failure, outcome), outcome


@pytest.mark.slow
@pytest.mark.parametrize("name", ["updates the cache", "inputs by name", "relies on the layout"])
def test_timed_calls_get_them_too(name: str, judge_code: Judged) -> None:
    task, parameters, forward, _ = JUDGED[name]
    row = judge_code(text_of("ModelNew", parameters, forward), task)
    assert row["status"] == "correct", row["message"]
    assert "timed_outputs_unverified" not in row["flags"]


def test_what_get_inputs_returns_becomes_arguments() -> None:
    x = torch.zeros(2, 3)

    def forward(x: Any, scale: float = 1.0) -> None: ...

    def pair(x: Any, y: Any) -> None: ...

    named = list_arguments({"x": x, "scale": 2.0}, forward)
    assert isinstance(named[0], Keywords)
    assert list_arguments({"tokens": x, "mask": x}, forward) == [{"tokens": x, "mask": x}]
    assert list_arguments((x, 2.0), forward) == [x, 2.0]
    assert list_arguments(iter((x, 2.0)), forward) == [x, 2.0]
    assert list_arguments(x, forward) == [x]
    assert len(list_arguments(x, pair)) == 2
    assert list_arguments(5, forward) == [5]
    assert list_arguments(None, forward) == []


def test_mapped_tensors_are_freed_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        mapped = map_tensors([torch.zeros(4), {"a": torch.ones(4)}], torch.clone)
        held = [weakref.ref(tensor) for tensor in tensors_of(mapped)]
        del mapped
        assert [one() for one in held] == [None, None]
    finally:
        gc.enable()
