"""Describes to the judge where an output is: kinds, element types, shapes, strides and addresses.

This runs in the candidate's process. It reads containers by the operations of their plain types, so
that a subclass cannot compute meanwhile, and tensors by methods that were bound before any code of
the candidate ran. A candidate can replace any of this. On a processor, the timed call therefore
includes only `locate`: the judge captures the bytes at these places before it asks for more.
"""

from __future__ import annotations

import contextlib
import itertools
import traceback
from collections import OrderedDict, defaultdict
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any

import torch
from torch import Tensor

from evaluators.memory.tensors import suspend_modes
from evaluators.memory.values import NUMPY_SCALARS, tensors_of
from evaluators.processes.schema import MOST_DEPTH

_DTYPE = Tensor.dtype.__get__  # pyright: ignore[reportAttributeAccessIssue]
_SHAPE = Tensor.shape.__get__  # pyright: ignore[reportAttributeAccessIssue]
_DEVICE = Tensor.device.__get__  # pyright: ignore[reportAttributeAccessIssue]
_LAYOUT = Tensor.layout.__get__  # pyright: ignore[reportAttributeAccessIssue]
_IS_NESTED = Tensor.is_nested.__get__  # pyright: ignore[reportAttributeAccessIssue]
_STRIDE, _ADDRESS, _COUNT = Tensor.stride, Tensor.data_ptr, Tensor.numel
_IS_NEGATED, _IS_CONJUGATED = Tensor.is_neg, Tensor.is_conj
_NAME_LIMIT = 80
_PARAMETER = torch.nn.Parameter
_DICTS = (dict, OrderedDict, defaultdict)
_LOOKED_THROUGH = ("__iter__", "__getitem__", "__len__", "__getattribute__")


class OddOutput(Exception):
    """A part of an output is no plain tensor, container or value.

    `lazy` means that it may compute later, which an answer must not.
    """

    def __init__(self, name: str, *, lazy: bool) -> None:
        super().__init__(name)
        self.name = name[:_NAME_LIMIT]
        self.lazy = lazy


def describe(value: Any) -> dict[str, Any]:
    """Return {"output": description, "devices": kinds of devices}, or {"odd": type and laziness}.

    `memory.frozen_memory.read_value` documents the description.
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
            types.extend(kind.__name__[:_NAME_LIMIT] for kind in bases)
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
        "type": type(error).__name__[:_NAME_LIMIT],
        "types": types,
        "text": text,
        "trace": trace,
    }
