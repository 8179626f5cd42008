"""Values that pass between processes: structure as JSON, storages of tensors in shared memory.

The memory is a sealed file on a processor, which no worker can shrink under its reader. On a GPU it
is memory of the worker's context: to open memory, CUDA connects to a socket of the process that
owns it, and a worker may not connect to anything outside. Each storage is copied once, as bytes, so
that tensors keep their strides and offsets, and share memory with each other on the other side as
they do on this one.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import math
import mmap
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self, TypeAlias, TypeVar

import torch
from torch import Tensor

from evaluators.limits.kinds import refuse_limit
from evaluators.memory.cuda_driver import OpenedMemory, SharedMemory, wrap_memory
from evaluators.memory.values import (
    DTYPES,
    Spec,
    build_value,
    describe_value,
    iterate_entries,
    map_tensors,
    tensors_of,
)
from evaluators.processes.messages import Malformed

Side: TypeAlias = Literal["inbox", "outbox"]
"""Direction in which values pass, as the worker sees it."""
_PAGE_BYTES = 1 << 21
ALIGN_BYTES = 512
"""Alignment of storages, the same as torch's in GPU memory."""
_ROOM_BYTES, _MOST_NAMED, _MOST_LETTERS = 1 << 30, 200, 1 << 16
"""What a page has at most: bytes, named items, and letters of their names."""
_Named = TypeVar("_Named", bound=tuple[Any, ...])
_FIRST_ELEMENTS = 1 << 18
_MOST_EXPANDED_BYTES = 8 << 30
"""Bytes that tensors may show beyond those of their storages, as expanded tensors do."""
_FEW_BYTES = 1 << 18
_KNOWN_DTYPES = frozenset(DTYPES.values())
_CONJUGATED, _NEGATED = 1, 2
"""Bits of a tensor whose conjugation or negation is pending."""
WIDENED = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32, torch.float64), torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64, torch.complex128), torch.complex128),
}
"""Element types with arithmetic that is not exact, each with the one of double precision."""


# Bound before any code of a candidate runs: a replaced method could otherwise compute an answer
# only when it is fetched, while no clock runs.
_COPY, _DETACH, _EMPTY, _SET = Tensor.copy_, Tensor.detach, torch.empty, Tensor.set_
_COPY_ALL = torch._foreach_copy_  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
_CONJUGATE = Tensor.conj
_NEGATE = torch._neg_view  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
_NO_FUNCTION_MODES = torch._C.DisableTorchFunction  # pyright: ignore[reportPrivateUsage]
_NO_DISPATCH_MODES = torch._C._DisableTorchDispatch  # pyright: ignore[reportPrivateUsage]


@contextlib.contextmanager
def suspend_modes() -> Generator[None]:
    """Suspend torch modes that a candidate has left active."""
    with _NO_FUNCTION_MODES(), _NO_DISPATCH_MODES():
        yield


class BoxFull(Exception):
    """A value is larger than its shared memory."""


class Box:
    """A piece of shared memory that holds the tensors of one value at a time."""

    def __init__(self, memory: Tensor) -> None:
        """Use a flat tensor of bytes that both processes see."""
        self._memory = memory
        self.size_bytes = memory.numel()
        self.device = memory.device.type
        self._address = memory.data_ptr()

    def put(self, value: Any, at: int = 0, *, dense: bool = False) -> Spec:
        """Copy the tensors of a value in from an offset; returns its structure, as `lay_out` does.

        Raises BoxFull, TypeError.
        """
        spec = self.queue(value, at, dense=dense)
        self.wait_for_copy()
        return spec

    def queue(self, value: Any, at: int = 0, *, dense: bool = False) -> Spec:
        """Like `put`, without waiting for the copies on a GPU."""
        laid_out = lay_out(value, at, dense=dense)
        if laid_out.end > self.size_bytes:
            raise BoxFull(f"{laid_out.end} bytes do not fit into {self.size_bytes}")
        if dense:
            for view, tensor in zip(self.views(laid_out.spec), tensors_of(value), strict=True):
                _COPY(view, _DETACH(tensor))
        else:
            self.copy_in([laid_out])
        return laid_out.spec

    def copy_in(self, values: Sequence[LaidOut]) -> None:
        """Copy the storages of values to their places, without waiting for the copies on a GPU."""
        if self.device == "cuda" and len(values) > 1:  # one launch instead of one for each
            pairs = [pair for value in values for pair in self.pair(value)]
            if pairs:
                targets, sources = zip(*pairs, strict=True)
                _COPY_ALL(list(targets), list(sources))
            return
        for start, storage in (placed for value in values for placed in value.storages):
            size = storage.nbytes()
            if size <= _FEW_BYTES and self.device == "cpu" and storage.device.type == "cpu":
                # Takes a tenth of the time of a copy by torch.
                ctypes.memmove(self._address + start, storage.data_ptr(), size)
            else:
                _COPY(self._memory[start : start + size], view_storage(storage))

    def pair(self, laid_out: LaidOut) -> list[tuple[Tensor, Tensor]]:
        """Return the place of each storage with its bytes."""
        return [
            (self._memory[start : start + storage.nbytes()], view_storage(storage))
            for start, storage in laid_out.storages
        ]

    def get(self, spec: Any, device: str = "cpu") -> Any:
        """Return the value of a structure, its storages copied to a device. Raises Malformed.

        The size of all storages may not exceed the memory, since overlapping ones could otherwise
        fill the reader's own memory; nor may what expanded tensors show exceed it by far.
        """
        value = self._build(spec, lambda piece: piece.to(device, copy=True).untyped_storage())
        self.wait_for_copy()
        return value

    def views(self, spec: Any) -> list[Tensor]:
        """Return the tensors of a structure in the shared memory. Raises Malformed."""
        return list(tensors_of(self.view(spec)))

    def view(self, spec: Any) -> Any:
        """Return the value of a structure, its tensors in the shared memory. Raises Malformed."""
        return self._build(spec, None)

    def share(self, spec: Any) -> Any:
        """Return the value of a structure whose storages are in the shared memory.

        Each storage begins and ends where that of the sender does. Raises Malformed.
        """
        return self._build(spec, _give_own_storage)

    def clear(self, start: int, size: int) -> None:
        """Fill bytes with zeros."""
        self._memory[start : start + size].zero_()
        self.wait_for_copy()

    def _build(self, spec: Any, take: Callable[[Tensor], torch.UntypedStorage] | None) -> Any:
        entries = [_Entry.read(entry) for entry in iterate_entries(spec)]
        places = dict.fromkeys(entry.place for entry in entries)
        pieces = {place: self._cut(place) for place in places}
        if take is None:
            memory = self._memory.untyped_storage()
            built = [one.build(memory, one.place[0] // one.dtype.itemsize) for one in entries]
        else:
            if sum(size for _, size in places) > self.size_bytes:
                raise Malformed("the storages of a value are larger than its memory")
            shown_bytes = sum(math.prod(one.shape) * one.dtype.itemsize for one in entries)
            if shown_bytes > self.size_bytes + _MOST_EXPANDED_BYTES:
                detail = f"the tensors of a value show {shown_bytes} bytes, far more than it has"
                raise Malformed(refuse_limit("value_bytes", detail))
            storages = {place: take(piece) for place, piece in pieces.items()}
            known: dict[Any, Tensor] = {}
            built = [known.setdefault(one.key, one.build(storages[one.place])) for one in entries]
        tensors = iter(built)
        return build_value(spec, lambda _: next(tensors))

    def _cut(self, place: tuple[int, int]) -> Tensor:
        start, size = place
        if start % ALIGN_BYTES or start + size > self.size_bytes:
            raise Malformed(f"a storage of {size} bytes at {start} is outside its memory")
        return self._memory[start : start + size]

    def wait_for_copy(self) -> None:
        """Wait for copies on a GPU: the other process cannot see this one's streams."""
        if self._memory.is_cuda:
            torch.cuda.synchronize()


class MappedBox(Box):
    """The first `size_bytes` bytes of a shared file."""

    def __init__(self, fd: int, size_bytes: int) -> None:
        self._mapped = mmap.mmap(fd, size_bytes)
        super().__init__(torch.frombuffer(self._mapped, dtype=torch.uint8))

    def close(self) -> None:
        """Free the pages of the file; the mapping ends with the last tensor in it."""
        self._mapped.madvise(mmap.MADV_REMOVE)


class OwnedBox(Box):
    """GPU memory of a worker, which the judge opens by `handle`. Raises RuntimeError."""

    def __init__(self, size_bytes: int) -> None:
        self._shared = SharedMemory(size_bytes)
        self.handle = self._shared.handle
        super().__init__(self._shared.bytes)

    def close(self) -> None:
        """Free the memory; no other process may have it open."""
        self._shared.close()


class OpenedBox(Box):
    """The same memory in the process that judges. Raises RuntimeError, ValueError."""

    def __init__(self, handle: str, size_bytes: int) -> None:
        self._opened = OpenedMemory(handle, size_bytes)
        super().__init__(self._opened.bytes)

    def close(self) -> None:
        """Close the memory."""
        self._opened.close()


class _Entry(NamedTuple):
    dtype: torch.dtype
    shape: list[int]
    strides: list[int]
    place: tuple[int, int]
    """First byte and size of its storage in the shared memory."""
    offset: int
    """Elements of the storage before its first one."""
    pending: int
    """Whether a conjugation and a negation are pending."""

    @property
    def key(self) -> tuple[Any, ...]:
        """What is the same for one tensor that a value contains twice."""
        return self.dtype, *self.shape, None, *self.strides, self.place, self.offset, self.pending

    @classmethod
    def read(cls, entry: Any) -> Self:
        """Read a description that the schema has checked. Raises Malformed."""
        name, shape, strides, start, size, offset, pending = entry
        dtype = DTYPES[name]
        end = offset + count_extent(shape, strides)
        if math.prod(shape) and end * dtype.itemsize > size:
            raise Malformed(f"a tensor of shape {shape} is outside its storage")
        return cls(dtype, shape, strides, (start, size), offset, pending)

    def build(self, storage: torch.UntypedStorage, start: int = 0) -> Tensor:
        """Return the tensor that begins after `start` elements of a storage."""
        empty = _EMPTY(0, dtype=self.dtype, device=storage.device)
        offset = start + self.offset if math.prod(self.shape) else 0
        tensor = _SET(empty, storage, offset, self.shape, self.strides)
        return mark_pending(tensor, self.pending)


def mark_pending(tensor: Tensor, pending: int) -> Tensor:
    """Return the tensor with a conjugation (1) or negation (2) pending."""
    if pending & _CONJUGATED:
        tensor = _CONJUGATE(tensor)
    return _NEGATE(tensor) if pending & _NEGATED else tensor


def read_pending(tensor: Tensor) -> int:
    """Return whether a conjugation (1) and a negation (2) of a tensor are pending."""
    return _CONJUGATED * tensor.is_conj() + _NEGATED * tensor.is_neg()


def is_inexact(dtype: torch.dtype) -> bool:
    """Whether numbers of an element type are compared with a tolerance, and others by their bits.

    Torch cannot convert float4, which packs two numbers into an element, to another type.
    """
    return (dtype.is_floating_point or dtype.is_complex) and dtype is not torch.float4_e2m1fn_x2


def _get_key(storage: torch.UntypedStorage) -> int:
    return storage._cdata  # pyright: ignore[reportPrivateUsage]


def count_extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return the number of elements from the first to the last of a tensor that is not empty."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _give_own_storage(piece: Tensor) -> torch.UntypedStorage:
    size = piece.numel()
    if size == 0:
        return _EMPTY(0, dtype=torch.uint8, device=piece.device).untyped_storage()
    if piece.is_cuda:  # the box lives as long as its process
        return wrap_memory(piece.data_ptr(), size).untyped_storage()
    memory = (ctypes.c_char * size).from_address(piece.data_ptr())
    vars(memory)["box"] = piece  # keeps the memory mapped while the storage exists
    return torch.frombuffer(memory, dtype=torch.uint8).untyped_storage()


def get_dtype_name(dtype: torch.dtype) -> str:
    """Return the name of an element type, such as float32."""
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class LaidOut:
    """A value with a place for each of its storages."""

    spec: Spec
    """Its structure."""
    start: int
    """First byte of all."""
    end: int
    """First byte after the last storage."""
    storages: list[tuple[int, torch.UntypedStorage]]
    """First byte and storage, each one once; none where the value is dense."""


def lay_out(value: Any, at: int = 0, *, dense: bool = False) -> LaidOut:
    """Return a value laid out from a byte on.

    A tensor is [element type, shape, strides, first byte and size of its storage, offset, pending
    conjugation and negation]. With `dense`, each tensor has a contiguous storage of its own, which
    is enough for values that no kernel is called on, and takes no more bytes than it shows.

    Raises TypeError that names the limit for what cannot pass.
    """
    end = at
    starts: dict[int, tuple[int, Tensor]] = {}  # with the tensor, which keeps its number
    storages: dict[int, tuple[int, torch.UntypedStorage]] = {}

    def describe_tensor(tensor: Tensor) -> list[Any]:
        nonlocal end
        _refuse_odd_tensor(tensor)
        shape, start = list(tensor.shape), end
        if dense:
            size = tensor.numel() * tensor.element_size()
            start, _ = starts.setdefault(id(tensor), (end, tensor))
            strides, offset, step = [], 0, 1
            for length in reversed(shape):
                strides.insert(0, step)
                step *= max(length, 1)
        else:
            storage = tensor.untyped_storage()
            size = storage.nbytes()
            start, _ = storages.setdefault(_get_key(storage), (end, storage))
            strides, offset = list(tensor.stride()), int(tensor.storage_offset())
        if start == end:  # an empty storage takes room as well, so that each has its own place
            end += -(-max(size, 1) // ALIGN_BYTES) * ALIGN_BYTES
        name = get_dtype_name(tensor.dtype)
        return [name, shape, strides, start, size, offset, read_pending(tensor)]

    spec = describe_value(value, describe_tensor)
    placed = list(storages.values())
    if (
        len(placed) > 1
    ):  # several storages may be of the same memory, such as those of numpy's views
        past = 0
        for first, size in sorted((held.data_ptr(), held.nbytes()) for _, held in placed):
            if size and first < past:
                detail = "tensors share memory through several storages"
                raise TypeError(refuse_limit("value_types", detail))
            past = max(past, first + size)
    return LaidOut(spec, at, end, placed)


def _refuse_odd_tensor(tensor: Tensor) -> None:
    """Raise TypeError for tensors other than plain strided ones."""
    if (
        tensor.layout is torch.strided
        and type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.dtype in _KNOWN_DTYPES
        and not tensor.is_nested
    ):
        return
    name, dtype = type(tensor).__name__, get_dtype_name(tensor.dtype)
    if tensor.is_nested:
        limit, detail = "nested_tensors", "a tensor is nested"
    elif tensor.layout is not torch.strided:
        limit, detail = "sparse", f"a tensor has the layout {tensor.layout}"
    elif tensor.is_quantized:
        limit, detail = "quantized", f"a tensor is quantized ({dtype})"
    elif dtype not in DTYPES:
        limit, detail = "element_types", f"a tensor has the element type {dtype}"
    else:
        limit, detail = "tensor_subclasses", f"a tensor is a {name}"
    raise TypeError(refuse_limit(limit, detail))


def view_storage(storage: torch.UntypedStorage, dtype: torch.dtype = torch.uint8) -> Tensor:
    """Return all whole elements of a storage."""
    count = storage.nbytes() // dtype.itemsize
    return _SET(_EMPTY(0, dtype=dtype, device=storage.device), storage, 0, (count,), (1,))


def copy_value(value: Any, device: str | None = None, *, double: bool = False) -> Any:
    """Return the value with copies of its storages on a device; tensors keep layout and sharing.

    double: with floating and complex numbers in double precision, but formats without arithmetic,
    such as float8, as they are. Raises TypeError where a storage has numbers of several types.
    """
    copies: dict[int, tuple[torch.dtype, Tensor]] = {}

    def copy_tensor(tensor: Tensor) -> Tensor:
        _refuse_odd_tensor(tensor)
        storage = tensor.untyped_storage()
        wide = WIDENED.get(tensor.dtype, tensor.dtype) if double else tensor.dtype
        if (key := _get_key(storage)) not in copies:
            held = view_storage(storage, torch.uint8 if wide is tensor.dtype else tensor.dtype)
            target = held.device if device is None else torch.device(device)
            copied = held.to(target, held.dtype if wide is tensor.dtype else wide, copy=True)
            copies[key] = tensor.dtype, copied
        dtype, copied = copies[key]
        if double and dtype is not tensor.dtype:
            raise TypeError("a storage has numbers of several types")
        entry = _Entry(
            wide,
            list(tensor.shape),
            list(tensor.stride()),
            (0, copied.nbytes),
            int(tensor.storage_offset()),
            read_pending(tensor),
        )
        return entry.build(copied.untyped_storage())

    return map_tensors(value, copy_tensor)


def move_to_device(value: Any, device: str) -> Any:
    """Return the value with its tensors on a device, in the same layout."""
    if all(tensor.device.type == device for tensor in tensors_of(value)):
        return value
    return copy_value(value, device)


def change_elements(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a copy of the value whose tensors have the elements that `change` returns for them.

    Tensors keep their layout and sharing, unless the change returns another shape or element type.
    Memory that several tensors show has what the last one of them puts there.
    """
    copied = copy_value(value)
    replaced: dict[int, Tensor] = {}
    for old, new in zip(tensors_of(value), tensors_of(copied), strict=True):
        if id(new) in replaced:
            continue
        changed = change(old)
        if changed.shape != old.shape or changed.dtype != old.dtype:
            replaced[id(new)] = changed
            continue
        replaced[id(new)] = new
        if changed is old:
            continue
        for dim, (size, stride) in enumerate(zip(new.shape, new.stride(), strict=True)):
            if stride == 0 and size > 1:  # expanded: one element stands for all
                new, changed = new.narrow(dim, 0, 1), changed.narrow(dim, 0, 1)
        if has_windows(new):
            span = (count_extent(new.shape, new.stride()),)
            offset = int(new.storage_offset())
            changed = change(old.as_strided(span, (1,), offset))
            new = new.as_strided(span, (1,), offset)
        new.copy_(changed)
    return map_tensors(copied, lambda tensor: replaced[id(tensor)])


def has_windows(tensor: Tensor) -> bool:
    """Whether elements of a tensor may share memory, as those of overlapping windows do."""
    if not tensor.numel():
        return False
    extent = 1
    dims = [d for d in range(tensor.dim()) if tensor.shape[d] > 1]
    for dim in sorted(dims, key=lambda d: tensor.stride(d)):
        if tensor.stride(dim) < extent:
            return True
        extent += (tensor.shape[dim] - 1) * tensor.stride(dim)
    return False


def has_same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have the same bytes, so that NaN equals itself."""
    if one.shape != other.shape:
        return False
    held = [_view_bytes(one), _view_bytes(other).to(one.device)]
    if all(each.numel() % 8 == 0 and each.storage_offset() % 8 == 0 for each in held):
        held = [each.view(torch.int64) for each in held]  # comparing single bytes is far slower
    return torch.equal(*held)


def compute_fingerprint(value: Any) -> str:
    """Return a hash of the shapes, element types and first elements of a value's tensors.

    It tells whether two computations that mean no harm give the same bits.
    """
    found = hashlib.sha256()
    for tensor in tensors_of(value):
        found.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(_view_bytes(tensor.reshape(-1)[:_FIRST_ELEMENTS].cpu()).numpy().tobytes())
    return found.hexdigest()


def _view_bytes(tensor: torch.Tensor) -> torch.Tensor:
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    # Of one element or none any stride counts as contiguous, but cannot be viewed otherwise.
    return flat.as_strided(flat.shape, (1,)).view(torch.uint8)


def add_gaps(value: Any) -> Any:
    """Return the value with tensors of two or more dimensions spread over twice their memory."""

    def spread(tensor: Tensor) -> Tensor:
        if tensor.dim() < 2 or tensor.numel() == 0:
            return tensor
        shape = (*tensor.shape[:-1], 2 * tensor.shape[-1])
        wide = torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)[..., ::2]
        return wide.copy_(tensor)

    return map_tensors(value, spread)


def find_place(value: object, device: str) -> str:
    """Return where a value passes: the device if all its tensors are on it, else the processor.

    >>> find_place([torch.zeros(1), 2.0], "cuda")
    'cpu'
    """
    kinds = {tensor.device.type for tensor in tensors_of(value)}
    return device if kinds == {device} else "cpu"


def paginate(
    items: Iterable[_Named], measure: Callable[[_Named], int], room_bytes: int = _ROOM_BYTES
) -> Iterator[list[_Named]]:
    """Yield items, which begin with a name, by pages that fit into a box, and into a message.

    measure: Returns the bytes of an item.
    """
    page: list[_Named] = []
    held = letters = 0
    for item in items:
        size = -(-measure(item) // ALIGN_BYTES) * ALIGN_BYTES
        is_full = held + size > room_bytes or letters + len(item[0]) > _MOST_LETTERS
        if page and (is_full or len(page) >= _MOST_NAMED):
            yield page
            page, held, letters = [], 0, 0
        page.append(item)
        held, letters = held + size, letters + len(item[0])
    if page:
        yield page


def round_up(size_bytes: int) -> int:
    """Return the size of a box for these bytes, with room for a slightly larger value.

    >>> round_up(100), round_up(64 << 20) > 64 << 20
    (2097152, True)
    """
    wanted = size_bytes + size_bytes // 8 + ALIGN_BYTES
    return -(-wanted // _PAGE_BYTES) * _PAGE_BYTES


def create_sealed_file(size_bytes: int) -> int:
    """Return a file descriptor of new shared memory whose size cannot change."""
    fd = os.memfd_create("flywheel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size_bytes)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return fd
