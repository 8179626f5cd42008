"""The loop inside a worker process: build a module, take inputs, call it, describe its outputs.

Candidate and baselines run the same loop, so that all arms of a timing session run the same code.
It says where outputs are; the judge reads them, runs the clock and decides. Names that are bound at
import are bound before any code of a candidate runs.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import itertools
import json
import socket
import sys
import time
import traceback
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from evaluators.clock.empty_kernel import launch_empty_kernel
from evaluators.clock.gate import Gate, get_stream
from evaluators.diagnosis import profile as profiler
from evaluators.memory import cuda_driver
from evaluators.memory.cuda_driver import name_pieces
from evaluators.memory.tensors import (
    Box,
    BoxFull,
    MappedBox,
    OwnedBox,
    add_gaps,
    get_dtype_name,
    map_tensors,
    suspend_modes,
    tensors_of,
)
from evaluators.memory.values import NUMPY_SCALARS, call, split_arguments, spread_pair
from evaluators.processes import messages
from evaluators.processes.schema import MOST_DEPTH
from evaluators.references.imported_file import (
    import_file,
    move_module,
    place_new_tensors,
    seed_generators,
)
from evaluators.worker import RECORD

# Descriptions of outputs: kinds, element types, shapes, strides and addresses.
#
# Containers are read by the operations of their plain types, so that a subclass cannot compute
# meanwhile, and tensors by methods that were bound before any code of the candidate ran. A
# candidate can replace any of this. On a processor, the timed call therefore includes only
# `locate`: the judge captures the bytes at these places before it asks for more.

_DTYPE = Tensor.dtype.__get__  # pyright: ignore[reportAttributeAccessIssue]
_SHAPE = Tensor.shape.__get__  # pyright: ignore[reportAttributeAccessIssue]
_DEVICE = Tensor.device.__get__  # pyright: ignore[reportAttributeAccessIssue]
_LAYOUT = Tensor.layout.__get__  # pyright: ignore[reportAttributeAccessIssue]
_IS_NESTED = Tensor.is_nested.__get__  # pyright: ignore[reportAttributeAccessIssue]
_STRIDE, _ADDRESS, _COUNT = Tensor.stride, Tensor.data_ptr, Tensor.numel
_IS_NEGATED, _IS_CONJUGATED = Tensor.is_neg, Tensor.is_conj
_TYPE_LIMIT = 80
_PARAMETER = torch.nn.Parameter
_DICTS = (dict, OrderedDict, defaultdict)
_LOOKED_THROUGH = ("__iter__", "__getitem__", "__len__", "__getattribute__")


class OddOutput(Exception):
    """A part of an output is no plain tensor, container or value.

    `lazy` means that it may compute later, which an answer must not.
    """

    def __init__(self, name: str, *, lazy: bool) -> None:
        super().__init__(name)
        self.name = name[:_TYPE_LIMIT]
        self.lazy = lazy


def describe(value: Any) -> dict[str, Any]:
    """Return {"output": description, "devices": kinds of devices}, or {"odd": type and laziness}.

    `worker.handle.read_value` documents the description.
    """
    devices: set[str] = set()
    try:
        with suspend_modes():
            return {"output": _describe(value, devices, 0), "devices": sorted(devices)}
    except OddOutput as odd:
        return {"odd": {"type": odd.name, "lazy": odd.lazy}}


def locate(outputs: list[Any]) -> list[list[list[int]]]:
    """Return the addresses and the numbers of elements of the tensors in each output."""
    places: list[list[list[int]]] = []
    with suspend_modes():
        for output in outputs:
            if type(output) is Tensor:
                places.append([[_ADDRESS(output)], [_COUNT(output)]])
            else:
                tensors = list(tensors_of(output))
                places.append([list(map(_ADDRESS, tensors)), list(map(_COUNT, tensors))])
    return places


def _describe(value: Any, devices: set[str], depth: int) -> dict[str, Any]:
    kind = type(value)
    if depth > MOST_DEPTH:
        raise OddOutput(f"{kind.__name__} nested deeper than {MOST_DEPTH}", lazy=False)
    if kind is Tensor or kind is _PARAMETER:
        return {"tensor": _describe_tensor(value, devices)}
    if value is None or kind in (bool, int, float, str):
        return {"value": value}
    if kind is complex:
        return {"complex": [value.real, value.imag]}
    if kind is torch.dtype or kind is torch.device:
        return {kind.__name__: str(value).removeprefix("torch.")}
    if kind in NUMPY_SCALARS:
        return {"numpy": [NUMPY_SCALARS[kind], value.item()]}
    if kind is list:
        return {"list": [_describe(item, devices, depth + 1) for item in value]}
    if kind is tuple or kind is torch.Size or _is_record(kind):
        items = tuple.__getitem__(value, slice(None))
        return {"tuple": [_describe(item, devices, depth + 1) for item in items]}
    if kind in _DICTS:
        pairs = list(dict.items(value))
        if not all(type(key) in (str, int) for key, _ in pairs):
            message = "dict with a key that is neither text nor a whole number"
            raise OddOutput(message, lazy=False)
        return {"dict": [[key, _describe(item, devices, depth + 1)] for key, item in pairs]}
    if (fields := _read_fields(value, kind)) is not None:
        parts = [_describe(item, devices, depth + 1) for item in fields.values()]
        return {"dataclass": [kind.__name__, list(fields), parts]}
    container = issubclass(kind, list | tuple | dict)
    tensor = issubclass(kind, Tensor)
    raise OddOutput(kind.__name__, lazy=container or tensor)


def _describe_tensor(tensor: Tensor, devices: set[str]) -> list[Any]:
    # Its own attributes are harmless unless they hide attributes of the class.
    hidden = [name for name in vars(tensor) if hasattr(Tensor, name)]
    if hidden:
        raise OddOutput(f"tensor with its own {hidden[0]}", lazy=True)
    if _LAYOUT(tensor) is not torch.strided:
        raise OddOutput(f"tensor of layout {_LAYOUT(tensor)}", lazy=False)
    if _IS_NESTED(tensor):
        raise OddOutput("nested tensor", lazy=False)
    pending = int(_IS_CONJUGATED(tensor)) + 2 * int(_IS_NEGATED(tensor))
    devices.add(_DEVICE(tensor).type)
    dtype = str(_DTYPE(tensor)).removeprefix("torch.")
    return [dtype, list(_SHAPE(tensor)), list(_STRIDE(tensor)), _ADDRESS(tensor), pending]


def _is_record(kind: type) -> bool:
    """Whether a type is a named tuple, such as torch.topk returns, without methods of its own."""
    if not issubclass(kind, tuple):
        return False
    named = hasattr(kind, "_fields") or hasattr(kind, "n_sequence_fields")
    before = kind.__mro__[: kind.__mro__.index(tuple)]
    return named and not any(name in vars(one) for one in before for name in _LOOKED_THROUGH)


def _read_fields(value: Any, kind: type) -> dict[str, Any] | None:
    """Return the fields of a dataclass without running code of its class; None for other types."""
    classes = type.mro(kind) if type(kind) is type else []
    key = "__dataclass_fields__"
    names = next((vars(one)[key] for one in classes if key in vars(one)), None)
    if type(names) is not dict:
        return None
    # A class may hide its instances' dictionary behind a property of the same name.
    held: dict[str, Any] = {}
    for one in classes:
        own = vars(one).get("__dict__")
        if type(own) is GetSetDescriptorType:
            held = own.__get__(value)
        elif own is not None:
            return None
    fields: dict[str, Any] = {}
    for name in names:
        slots = [vars(one)[name] for one in classes if name in vars(one)]
        if any(
            hasattr(type(slot), "__set__") and type(slot) is not MemberDescriptorType
            for slot in slots
        ):
            return None
        if name in held:
            fields[name] = held[name]
        elif slots and type(slots[0]) is MemberDescriptorType:
            fields[name] = slots[0].__get__(value)
        else:
            return None
    return fields


_TEXT_LIMIT = 6000
_MOST_TYPES = 8
_MOST_BASES = 4


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return the types and texts of an error and its causes, and its traceback."""
    types: list[str] = []
    longest = 0
    with contextlib.suppress(Exception):  # a cause that cannot be described ends the list
        cause: BaseException | None = error
        while cause is not None and len(types) < _MOST_TYPES:
            bases = itertools.islice(type(cause).__mro__, _MOST_BASES)
            types.extend(kind.__name__[:_TYPE_LIMIT] for kind in bases)
            longest = max(longest, len(str(cause)))
            cause = cause.__cause__ or cause.__context__
    try:
        text = str(error)[:_TEXT_LIMIT]
    except Exception:
        text = "(its text cannot be read)"
    try:
        # Formatting tens of megabytes takes longer than a call may take.
        long = longest > _TEXT_LIMIT
        lines = (
            traceback.format_tb(error.__traceback__) if long else traceback.format_exception(error)
        )
        trace = "".join(lines)[-_TEXT_LIMIT:]
    except Exception:
        trace = ""
    return {
        "type": type(error).__name__[:_TYPE_LIMIT],
        "types": types,
        "text": text,
        "trace": trace,
    }


# Compiling: failed builds are remembered, and a GPU is pretended where there is none.
#
# Ninja remembers successful builds but not failed ones, so that it compiles the failing file of an
# extension every time. Half of the released CUDA-L1 kernels that call load_inline have such an
# extension, and continue without it.
#
# Many candidates compile an extension only if torch reports a GPU, in a constructor that puts
# tensors on it, or in the first call with an input there. Tensors then say that they are on a GPU
# and stay where they are. A call gets inputs without data, so it computes nothing, and what it
# raises after compiling does not matter.

_SOURCES = {".ninja", ".cpp", ".cc", ".cu", ".cuh", ".h", ".hpp"}
_UNLUCKY = (
    *("Killed", "No space left", "out of memory", "annot allocate", "bad_alloc", "quota exceeded"),
    *("not found", "cannot execute", "Read-only file system", "ermission denied", "Python.h"),
    *("annot open temporary", "cannot create", "cannot find -l", "unsupported GNU version"),
)
"""Messages of a compiler that fails because of the machine, not because of the sources."""
_MOST_BYTES = 1 << 20


def remember_failures() -> None:
    """Make torch.utils.cpp_extension record failed builds and repeat a recorded failure.

    The record is in the build directory and applies to its present sources and commands.
    """
    from torch.utils import cpp_extension

    build = cpp_extension._run_ninja_build  # pyright: ignore[reportPrivateUsage]

    def run_build(build_directory: str, verbose: bool, error_prefix: str) -> None:
        record = Path(build_directory, RECORD)
        digest = hashlib.sha256()
        for file in sorted(Path(build_directory).iterdir()):
            if file.suffix in _SOURCES and file.is_file():
                for part in (file.name.encode(), file.read_bytes()):
                    digest.update(len(part).to_bytes(8, "big") + part)
        made_of = digest.hexdigest()
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            failure = json.loads(record.read_text("utf-8"))
            if failure["made_of"] == made_of:
                raise RuntimeError(failure["message"])
        try:
            build(build_directory, verbose, error_prefix)
        except RuntimeError as error:
            message = str(error)
            if "error" in message and not any(one in message for one in _UNLUCKY):
                text = json.dumps({"made_of": made_of, "message": message[-_MOST_BYTES:]})
                with contextlib.suppress(OSError):
                    record.write_text(text, "utf-8")
            raise

    cpp_extension._run_ninja_build = run_build  # pyright: ignore[reportPrivateUsage]


_FACTS: Mapping[str, Any] = {
    "is_available": True,
    "device_count": 1,
    "current_device": 0,
    "synchronize": None,
}
_IS_CUDA = torch.Tensor.is_cuda.__get__  # pyright: ignore[reportAttributeAccessIssue]


class _PretendedGpu(TorchFunctionMode):
    """Lets every tensor say that it is on a GPU, and keeps it where it is."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        del types
        if func == _IS_CUDA:  # each lookup makes another object
            return True
        if func is torch.Tensor.cuda:
            return args[0]
        here = args[0].device if args and isinstance(args[0], torch.Tensor) else "cpu"
        named = {name: _replace(value, here) for name, value in (kwargs or {}).items()}
        return func(*(_replace(value, here) for value in args), **named)


def pretend_gpu() -> None:
    """Make torch report a GPU in this process from here on."""
    for name, fact in _FACTS.items():
        setattr(torch.cuda, name, _make_constant(fact))
    _PretendedGpu().__enter__()


def _make_constant(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _replace(value: Any, here: torch.device | str) -> Any:
    names_gpu = isinstance(value, torch.device) and value.type == "cuda"
    if names_gpu or (isinstance(value, str) and value.partition(":")[0] == "cuda"):
        return here
    return value


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of a worker, as the judge sends them at its start."""

    device: str
    threads: int
    flush_bytes: int
    convolution_tf32: bool = False
    product_tf32: bool = False
    pretends_gpu: bool = False
    """Report a GPU to the code where there is none: much of it compiles only then."""


def make_boxes(
    device: str, fds: tuple[int, int], sizes: tuple[int, int]
) -> tuple[Sequence[Box], list[str]]:
    """Make inbox and outbox; those in GPU memory have handles by which the judge opens them."""
    if device != "cuda":
        return [MappedBox(fd, size) for fd, size in zip(fds, sizes, strict=True)], []
    owned = [OwnedBox(size) for size in sizes]
    return owned, [box.handle for box in owned]


class Streams:
    """Order among all streams of this process, also streams that a candidate makes without torch.

    A timed call has to begin after the flushes before it and to end with the last of its work.
    Events on the current stream do not cover other streams, which may work during the flushes and
    after the end. The driver knows all streams: since CUDA 12.5 (driver 555) it records and waits
    for events of a whole context. With an older driver the host waits; then nothing escapes either,
    but the time of a short call is the time of its launches.
    """

    def __init__(self) -> None:
        self._event = torch.cuda.Event()
        self._event.record()  # creates it, and makes the device's context current
        context = ctypes.c_void_p()
        cuda_driver.call("cuCtxGetCurrent", ctypes.byref(context))
        self._context, self._handle = context.value, int(self._event.cuda_event)
        self.knows_all = cuda_driver.has_function("cuCtxWaitEvent")
        if self.knows_all:
            pointer = ctypes.c_void_p
            self._record_all = cuda_driver.bind("cuCtxRecordEvent", pointer, pointer)
            self._hold_all = cuda_driver.bind("cuCtxWaitEvent", pointer, pointer)
            self._wait = cuda_driver.bind("cuStreamWaitEvent", pointer, pointer, ctypes.c_uint)

    def hold(self) -> None:
        """Make everything launched from now on wait for the present work of the current stream."""
        if self.knows_all:
            self._event.record()
            self._hold_all(self._context, self._handle)
        else:
            torch.cuda.synchronize()

    def join(self) -> None:
        """Make the current stream wait for everything launched on any stream."""
        if self.knows_all:
            self._record_all(self._context, self._handle)
            self._wait(get_stream(), self._handle, 0)
        else:
            torch.cuda.synchronize()


class Empty(torch.nn.Module):
    """A candidate that does nothing, or only launches a kernel that does nothing."""

    def __init__(self, answer: Any, *, launches: bool = False) -> None:
        super().__init__()

        def launch(*_: Any, **__: Any) -> Any:
            launch_empty_kernel()
            return answer

        self.forward = launch if launches else lambda *_, **__: answer


def wrap_with_copy(module: Callable[..., Any]) -> Callable[..., Any]:
    """Return a callable that copies every tensor of the module's output."""
    return lambda *args, **named: map_tensors(module(*args, **named), Tensor.clone)


_CONSTRUCTED = ("ModelNew", "Model")
_NAME_LIMIT = 200
_STATE_PAGE = 256
_POISONED_BLOCKS = 2


class CandidateLoop:
    """One module under test with its inputs; every public method answers one request."""

    def __init__(
        self,
        setting: Setting,
        inbox: Box,
        outbox: Box,
        gate: Gate | None = None,
        channel: socket.socket | None = None,
    ) -> None:
        torch.set_num_threads(setting.threads)
        self._channel = channel
        self._device = setting.device
        self._inbox = inbox
        self._outbox = outbox
        self._gate = gate
        self._module: Any = None
        self._variants: dict[str, Any] = {}
        self._entry: Any = None
        self._slots: dict[int, tuple[Sequence[Any], dict[str, Any]]] = {}
        """Arguments of each slot's call: by position, and by name."""
        self._outputs: list[Any] = []
        self._before: list[Any] = []
        self._folders = profiler.list_own_folders()
        if setting.pretends_gpu:
            pretend_gpu()
        self._synchronize: Callable[[], None] = lambda: None
        self._streams: Streams | None = None
        self._marks: list[torch.cuda.Event] = []
        self._flush_words = setting.flush_bytes // 4
        if setting.device == "cuda":
            torch.backends.cudnn.allow_tf32 = setting.convolution_tf32
            torch.backends.cuda.matmul.allow_tf32 = setting.product_tf32
            self._synchronize = torch.cuda.synchronize
            self._streams = Streams()
            # Recording makes the GPU switch to this context even for a call that does nothing.
            self._marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def load(self, path: str, entry_point: str, names: dict[str, Any]) -> dict[str, Any]:
        """Run a file as a module, then replace module-level names by `names`."""
        if "cpp_extension" in Path(path).read_text("utf-8", errors="replace"):
            remember_failures()
        entry = getattr(import_file(path, names, self._device), entry_point, None)
        # `ModelNew` may be a function that returns a module; any other function is the module.
        is_module = isinstance(entry, type) or entry_point in _CONSTRUCTED
        self._entry = entry if is_module or entry is None else lambda *_: entry
        return {"found": self._entry is not None}

    def construct(
        self, seed: int, arguments: dict[str, Any], places: bool = False
    ) -> dict[str, Any]:
        """Make the module under a public seed, so that a candidate can match the weights.

        places: Whether its calls make tensors on the device where they name none, as the task does.
        """
        arguments_read = self._inbox.get(arguments)
        seed_generators(seed, self._device)
        module = call(self._entry, spread_pair(arguments_read, self._entry))
        is_module = isinstance(module, torch.nn.Module)
        self._module = move_module(module, self._device) if is_module else module
        if places:
            place_new_tensors(self._device)
        return {}

    def state(self, start: int) -> dict[str, Any]:
        """Return a page of the module's parameters and buffers: name, element type and shape."""
        entries = list(self._state().items())
        page = [
            [name[:_NAME_LIMIT], get_dtype_name(tensor.dtype), list(tensor.shape)]
            for name, tensor in entries[start : start + _STATE_PAGE]
        ]
        return {"state": page, "total": len(entries)}

    def current_state(self, pieces: list[list[Any]]) -> dict[str, Any]:
        """Return pieces of the module's state as it is now: [name, first element, count]."""
        state = self._state()
        flat = [state[name].detach().reshape(-1)[at : at + count] for name, at, count in pieces]
        return {"values": self._outbox.put(flat, dense=True)}

    def adopt(self, pieces: list[list[Any]], values: dict[str, Any]) -> dict[str, Any]:
        """Overwrite pieces of the module's state: [name, first element], and what to put there."""
        state = self._state()
        for (name, start), piece in zip(pieces, self._inbox.views(values), strict=True):
            held = state[name].data
            whole = piece.numel() == held.numel()
            target = held if whole else held.view(-1)[start : start + piece.numel()]
            target.copy_(piece.view(target.shape))
        self._synchronize()
        return {}

    def reseed(self, seed: int) -> dict[str, Any]:
        """Seed the generators that a module may draw from in its next call."""
        seed_generators(seed, self._device)
        return {}

    def poison(self, sizes: list[int]) -> dict[str, Any]:
        """Leave freed blocks of these sizes full of NaN, to expose reads of unwritten memory."""
        blocks = [
            torch.full((size,), 0xFF, dtype=torch.uint8, device=self._device)
            for size in sizes
            for _ in range(_POISONED_BLOCKS)
        ]
        self._synchronize()
        del blocks
        return {}

    def fill(
        self, slot: int, inputs: dict[str, Any], strided: bool = False, copied: bool = False
    ) -> dict[str, Any]:
        """Use shared memory as the inputs of a slot; the judge writes it from now on.

        The judge writes while this process is frozen, so that neither the address nor the version
        counter of a tensor reveals new contents. Strided inputs are copies with gaps in memory
        between their elements. Copied ones are for a module that keeps inputs of earlier calls.
        """
        if strided:
            value = add_gaps(self._inbox.get(inputs, self._device))
        elif self._inbox.device == self._device and not copied:
            value = self._inbox.share(inputs)
        else:
            value = self._inbox.get(inputs, self._device)
        self._slots[slot] = split_arguments(value)
        self._synchronize()
        return {}

    def call(self, slot: int) -> dict[str, Any]:
        """Call the module on a slot and describe its output."""
        args, named = self._slots[slot]
        output = self._module(*args, **named)
        self._before, self._outputs = self._outputs, [output]
        [answer] = self._answers([output])
        return answer

    def rehearse(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Call the module on inputs without data, for what it compiles in its first call.

        inputs: for a tensor, the name of its element type and its shape in a list; plain values.
        """
        is_module = isinstance(self._module, torch.nn.Module)
        module = self._module.to("meta") if is_module else self._module
        given: list[Any] = []
        for described in self._inbox.get(inputs):
            match described:
                case [str(dtype), *shape]:
                    given.append(torch.empty(shape, dtype=getattr(torch, dtype), device="meta"))
                case _:
                    given.append(described)
        module(*given)
        return {}

    def output(self, index: int, before: bool = False) -> dict[str, Any]:
        """Copy an output of the last request, or of the one before it, into the outbox."""
        output = (self._before if before else self._outputs)[index]
        answer = describe(output)
        if answer.get("devices") in ([], [self._device]):
            with contextlib.suppress(BoxFull), suspend_modes():
                answer["boxed"] = self._outbox.put(output, dense=True)
        return answer

    def _answers(self, outputs: list[Any]) -> list[dict[str, Any]]:
        self._synchronize()
        answers = [self._answer(output) for output in outputs]
        self._synchronize()
        return answers

    def _answer(self, output: Any) -> dict[str, Any]:
        """Describe an output; in GPU memory, also name the allocations that it is in.

        Memory that cannot be shared is copied into the outbox, within the timed call.
        """
        answer = describe(output)
        if self._device != "cuda" or answer.get("devices") != ["cuda"]:
            return answer
        tensors = [tensor for tensor in tensors_of(output) if tensor.numel()]
        try:
            answer["pieces"] = name_pieces(tensor.data_ptr() for tensor in tensors)
        except RuntimeError:
            with contextlib.suppress(BoxFull), suspend_modes():
                answer["boxed"] = self._outbox.queue(output, dense=True)
        return answer

    def inputs(self, slot: int) -> dict[str, Any]:
        """Return the inputs as they are after the calls."""
        return {"inputs": self._outbox.put(self._slots[slot], dense=True)}

    def _flush(self) -> None:
        torch.zeros(self._flush_words, dtype=torch.int32, device=self._device)
        self._synchronize()

    def _state(self) -> dict[str, torch.Tensor]:
        held = self._module.state_dict() if isinstance(self._module, torch.nn.Module) else {}
        return {name: value for name, value in held.items() if isinstance(value, torch.Tensor)}

    def clocks(self) -> dict[str, Any]:
        """Name clocks and parts of this loop that have been replaced since their import."""
        replaced = [
            f"{owner.__name__}.{name}"
            for (owner, name), genuine in zip(_GUARDED, _GENUINE, strict=True)
            if any(a is not b for a, b in zip(genuine, _identify(owner, name), strict=True))
        ]
        return {"replaced": replaced}

    def variant(self, name: str, slot: int) -> dict[str, Any]:
        """Prepare one way of running the module, such as compile; returns the seconds it took."""
        # Imported here, because a candidate's worker never prepares a variant.
        from evaluators.worker.baselines import prepare

        begin = perf_counter_ns()
        self._variants[name] = prepare(self._module, name, *self._slots[slot])
        self._synchronize()
        return {"seconds": (perf_counter_ns() - begin) / 1e9}

    def empty(self, slot: int, launches: bool) -> dict[str, Any]:
        """Prepare the variant `empty`, a module that returns a ready answer.

        launches: Whether it launches a kernel that does nothing.
        """
        args, named = self._slots[slot]
        self._variants["empty"] = Empty(self._module(*args, **named), launches=launches)
        self._variants["empty"]()  # the driver waits for the GPU to load a kernel
        self._synchronize()
        return {}

    def time(
        self,
        slots: list[int],
        variant: str | None = None,
        copies: bool = False,
        alone: bool = False,
    ) -> dict[str, Any]:
        """Call the module once per slot and keep every output.

        `copies` copies each output before the next call, for a module that overwrites its answer.
        `alone` has the judge open each call after it has the report of the one before. The judge's
        clock runs from its request until it has the answer: where the outputs are in memory. On a
        processor, describing them is no part of a kernel's time.
        """
        module = self._select_callable(variant)
        if copies:
            module = wrap_with_copy(module)
        calls = [self._slots[slot] for slot in slots]
        outputs: list[Any] = []
        for number, (args, named) in enumerate(calls):
            if alone and number:
                messages.await_turn(self._channel)
            outputs.append(module(*args, **named))
        self._before, self._outputs = [], outputs
        self._synchronize()
        return {"places": locate(self._outputs)}

    def time_empty(self, calls: int, alone: bool) -> dict[str, Any]:
        """Time calls of the variant `empty` as a program without a judge makes them.

        `alone` waits for the GPU after each call. Nobody asks a candidate for this.
        """
        module = self._variants["empty"]
        self._synchronize()
        begin = perf_counter_ns()
        for _ in range(calls):
            module()
            if alone:
                self._synchronize()
        self._synchronize()
        return {"taken_ns": perf_counter_ns() - begin}

    def describe(self, calls: list[int]) -> dict[str, Any]:
        """Describe outputs of the last request."""
        return {"outputs": self._answers([self._outputs[call] for call in calls])}

    def launch(self, slots: list[int], first: int, variant: str | None = None) -> dict[str, Any]:
        """Launch one call per slot, each behind the judge's gate, and wait for none.

        Calls are numbered from `first`. The judge's clock runs while this process is frozen. A call
        begins behind the gate and ends with its report, whichever streams it uses.
        """
        assert self._gate is not None
        assert self._streams is not None
        module = self._select_callable(variant)
        calls = [self._slots[slot] for slot in slots]
        self._before, self._outputs = [], []
        answers: list[dict[str, Any]] = []
        for number, (args, named) in enumerate(calls, first):
            self._gate.wait_for_opening(number)
            self._streams.hold()
            self._marks[0].record()
            output = module(*args, **named)
            self._streams.join()
            self._marks[1].record()
            answers.append(self._answer(output))
            self._gate.report(number)
            self._outputs.append(output)
        return {"outputs": answers}

    def call_in_burst(
        self,
        slots: list[int],
        first: int,
        variant: str | None = None,
        copies: bool = False,
        alone: bool = False,
        describes: bool = True,
    ) -> dict[str, Any]:
        """Call the module once per slot on the idle GPU, and keep every output.

        The judge's clock runs already, and until it has the report that all streams are done.
        `copies` and `alone` are as in `time`; calls that are made alone are numbered from `first`.
        `describes` describes the outputs now, and not only if the judge asks for some of them.
        """
        assert self._gate is not None
        assert self._streams is not None
        module = self._select_callable(variant)
        if copies:
            module = wrap_with_copy(module)
        calls = [self._slots[slot] for slot in slots]
        # The GPU turns to this process's context, for an empty call as well.
        self._marks[0].record()
        self._synchronize()
        self._before, self._outputs = [], []
        for number, (args, named) in enumerate(calls, first):
            if alone:
                self._gate.wait_in_person(number)
            self._outputs.append(module(*args, **named))
            if alone:
                self._streams.join()
                self._gate.report(number)
        self._streams.join()
        self._gate.report_joined(first + len(calls) - 1 if alone else first)
        return {"outputs": self._answers(self._outputs if describes else [])}

    def wait_for_copy(self) -> dict[str, Any]:
        """Wait for everything that has been launched."""
        self._synchronize()
        return {}

    def _select_callable(self, variant: str | None) -> Callable[..., Any]:
        return self._module if variant is None else self._variants[variant]

    def profile(self, slot: int) -> dict[str, Any]:
        """Name the kernels of a cold call with their times; see `diagnosis.profile.gather`."""
        args, named = self._slots[slot]
        return profiler.gather(
            lambda: self._module(*args, **named),
            cuda=self._device == "cuda",
            before=self._flush,
            synchronize=self._synchronize,
            folders=self._folders,
        )


_OPERATIONS = {name: each for name, each in vars(CandidateLoop).items() if not name.startswith("_")}

_GUARDED: list[tuple[Any, str]] = [
    *((time, name) for name in ("time", "perf_counter", "perf_counter_ns")),
    *((time, name) for name in ("monotonic", "monotonic_ns")),
    (sys.modules[__name__], "perf_counter_ns"),
    (torch.cuda, "synchronize"),
    *((torch.cuda.Event, name) for name in ("record", "wait", "synchronize", "elapsed_time")),
    *((Streams, name) for name in ("hold", "join")),
    *((Gate, name) for name in ("wait_for_opening", "report")),
    *((Gate, name) for name in ("wait_in_person", "report_joined")),
    *((messages, name) for name in ("send", "receive")),
    *((json, name) for name in ("dumps", "loads")),
    (socket.socket, "send"),
    *((Box, name) for name in ("get", "put", "views")),
    *((Tensor, name) for name in ("shape", "dtype", "device", "numel", "element_size")),
    *((CandidateLoop, name) for name in _OPERATIONS),
]
"""Functions for time and answers. A candidate that replaces one of them intends to be measured
wrongly. It may replace `clocks` as well: no verdict rests on it, it only lets a row state the
reason in plain words."""


def _identify(owner: Any, name: str) -> tuple[Any, Any]:
    function = getattr(owner, name)
    return function, getattr(function, "__code__", None)


_GENUINE = [_identify(owner, name) for owner, name in _GUARDED]
"""The same, as they were before any code of a candidate ran."""


def serve(channel: socket.socket, setting: Setting, inbox_fd: int, outbox_fd: int) -> None:
    """Answer requests until the judge closes the channel."""
    worker: Any = None
    operations = dict(_OPERATIONS)

    def perform(operation: str, fields: dict[str, Any]) -> dict[str, Any]:
        nonlocal worker
        if operation != "prepare":
            return operations[operation](worker, **fields)
        sizes = (fields["inbox_bytes"], fields["outbox_bytes"])
        (inbox, outbox), handles = make_boxes(setting.device, (inbox_fd, outbox_fd), sizes)
        gate = Gate(inbox_fd) if handles else None
        worker = CandidateLoop(setting, inbox, outbox, gate, channel)
        return {"handles": handles}

    def describe_failure(error: Exception) -> dict[str, Any]:
        if isinstance(error, messages.TooLong):
            error = ValueError(f"too many outputs: {error}")
        return {"error": describe_error(error)}

    if setting.device == "cuda":  # takes half a second, while the judge prepares what comes next
        with contextlib.suppress(RuntimeError):  # preparing the worker then fails with the reason
            torch.cuda.current_stream().synchronize()
    with torch.no_grad():
        messages.serve(channel, perform, describe_failure)
