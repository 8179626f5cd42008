"""What the processes of a worker may send: one table of messages, with the types and bounds of
their fields.

Code of a candidate or a task can have forged any message. `check_reply` refuses all other forms
before anything else reads a message, so that no reader checks types of its own. What a form cannot
express, such as whether a tensor is inside its memory, is checked where it is used.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from evaluators.processes.messages import PACKET_LIMIT_BYTES, Malformed

Form: TypeAlias = Callable[[Any], bool]
"""Returns whether a value is of the form. Values come from JSON."""
Loop: TypeAlias = Literal["candidate", "task"]
"""The loop of a worker: of a candidate's or baseline's module, or of a task's code."""

Event: TypeAlias = Literal["ready", "started", "ended"]
"""What a fork server tells about itself or a worker."""

MOST_DEPTH = 8
"""Nesting limit of containers in a value."""
MOST_KERNELS = 100
"""Kernels of a profile, at most."""
MOST_NAME = 200
ITEM_BYTES = {
    **dict.fromkeys(("complex128",), 16),
    **dict.fromkeys(("float64", "complex64", "int64"), 8),
    **dict.fromkeys(("float32", "int32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"), 1),
}
"""Bytes of an element by the names of the element types that pass between processes."""
_MOST = (1 << 63) - 1
"""Sizes, addresses and counts are whole numbers of 64 bits with a sign."""
_MOST_DIMENSIONS = 64  # torch's own limit
_MOST_NS = 10**15
_MOST_STATE_NAME = 4000
_PAGE_ENTRIES = 256
_HANDLE = re.compile(r"[0-9a-f]{128}")
_UNPRINTABLE = re.compile("[\0\ud800-\udfff]")


def check_reply(loop: Loop, request: str, reply: dict[str, Any]) -> None:
    """Raise Malformed where a worker's reply to a request has another form."""
    form = _ERRORS[loop] if "error" in reply else _REPLIES[loop][request]
    if not form(reply):
        raise Malformed(f"the answer to {request} has another form")


def check_event(event: Event, message: dict[str, Any]) -> None:
    """Raise Malformed where a fork server's message about its workers has another form."""
    if not _EVENTS[event](message):
        raise Malformed(f"the message about a process that is {event} has another form")


_ABSENT: Any = object()


def _maybe(form: Form) -> Form:
    """A field that may be absent."""
    return lambda value: value is _ABSENT or form(value)


def _either(form: Form, other: Form) -> Form:
    return lambda value: form(value) or other(value)


def _or_none(form: Form) -> Form:
    return lambda value: value is None or form(value)


def _flag(value: Any) -> bool:
    return type(value) is bool


def _whole(most: int = _MOST, least: int = 0) -> Form:
    return lambda value: type(value) is int and least <= value <= most


def _seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= _MOST_NS


def _text(most: int) -> Form:
    """A text of valid characters without NUL."""
    return lambda value: (
        type(value) is str and len(value) <= most and not _UNPRINTABLE.search(value)
    )


def _foreign_text(value: Any) -> bool:
    """Any text; `make_readable` comes before it is stored or shown."""
    return type(value) is str


def _foreign_name(value: Any) -> bool:
    return type(value) is str and len(value) <= MOST_NAME


def _handle(value: Any) -> bool:
    return type(value) is str and _HANDLE.fullmatch(value) is not None


def _list(form: Form, most: int = PACKET_LIMIT_BYTES) -> Form:
    return lambda value: type(value) is list and len(value) <= most and all(map(form, value))


def _row(*forms: Form) -> Form:
    """A list of as many items, each of its form."""

    def is_row(value: Any) -> bool:
        if type(value) is not list or len(value) != len(forms):
            return False
        return all(form(item) for form, item in zip(forms, value, strict=True))

    return is_row


def _object(**fields: Form) -> Form:
    """An object of exactly these fields, apart from those that `_maybe` are absent."""

    def is_object(value: Any) -> bool:
        return (
            type(value) is dict
            and not value.keys() - fields.keys()
            and all(form(value.get(field, _ABSENT)) for field, form in fields.items())
        )

    return is_object


_shape = _list(_whole(), _MOST_DIMENSIONS)


def _dtype(value: Any) -> bool:
    return type(value) is str and value in ITEM_BYTES


def _count(shape: list[int]) -> int:
    """Return the elements of a shape, counted as if no dimension were empty, as torch does."""
    return math.prod(max(1, size) for size in shape)


def _is_boxed_tensor(value: Any) -> bool:
    """Whether a tensor is described as [element type, shape, offset in a box]."""
    if not _row(_dtype, _shape, _whole())(value):
        return False
    dtype, shape, at = value
    return at + _count(shape) * ITEM_BYTES[dtype] <= _MOST


def _is_placed_tensor(value: Any) -> bool:
    """Whether a tensor is described as [element type, shape, strides, address].

    A tensor of few elements may have a shape whose bytes exceed 64 bits: an expanded one.
    """
    if not _row(_dtype, _shape, _shape, _whole())(value):
        return False
    dtype, shape, strides, address = value
    if len(shape) != len(strides) or _count(shape) > _MOST:
        return False
    last = sum(max(0, size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return 0 in shape or address + (last + 1) * ITEM_BYTES[dtype] <= _MOST


def _value(tensor: Form) -> Form:
    """A value with tensors of this form: nested objects of one field, which names their kind."""

    def is_value(node: Any, depth: int = 0) -> bool:
        if type(node) is not dict or len(node) != 1 or depth > MOST_DEPTH:
            return False
        [(kind, body)] = node.items()
        if kind == "tensor":
            return tensor(body)
        if kind == "value":
            return body is None or type(body) in (bool, int, float, str)
        if type(body) is not list:
            return False
        if kind == "dict":
            if not all(type(pair) is list and len(pair) == 2 for pair in body):
                return False
            keys = [key for key, _ in body]
            if not all(map(_foreign_text, keys)) or len(set(keys)) < len(keys):
                return False
            body = [item for _, item in body]
        elif kind not in ("list", "tuple"):
            return False
        return all(is_value(item, depth + 1) for item in body)

    return is_value


_boxed, _placed = _value(_is_boxed_tensor), _value(_is_placed_tensor)

_output = _either(
    _object(
        output=_placed,
        devices=_list(_text(MOST_NAME)),
        boxed=_maybe(_boxed),
        pieces=_maybe(_list(_row(_whole(), _whole(least=1), _handle), 64)),
    ),
    _object(odd=_object(type=_foreign_text, lazy=_flag)),
)
_outputs = _object(outputs=_list(_output))
_nothing = _object()


def _place(value: Any) -> bool:
    return value in ("cpu", "cuda")


def _passed(**fields: Form) -> Form:
    """A value of a task: its structure, or the bytes that it needs where its box is too small."""
    return _either(
        _object(place=_place, spec=_boxed, **fields),
        _object(place=_place, needs=_whole(), **fields),
    )


_REPLIES: Mapping[Loop, Mapping[str, Form]] = {
    "candidate": {
        **dict.fromkeys(("construct", "adopt", "reseed", "poison", "fill", "rehearse"), _nothing),
        **dict.fromkeys(("empty", "settle"), _nothing),
        **dict.fromkeys(("call", "output"), _output),
        **dict.fromkeys(("time", "launch", "call_at_opening"), _outputs),
        "prepare": _object(handles=_list(_handle, 2)),
        "load": _object(found=_flag),
        "state": _object(
            state=_list(_row(_text(MOST_NAME), _dtype, _shape), _PAGE_ENTRIES), total=_whole()
        ),
        "current_state": _object(values=_boxed),
        "inputs": _object(inputs=_boxed),
        "clocks": _object(replaced=_list(_foreign_text)),
        "variant": _object(seconds=_seconds),
        "profile": _object(
            kernels=_list(_row(_foreign_name, _whole(_MOST_NS), _whole(_MOST_NS)), MOST_KERNELS),
            busy_ns=_whole(_MOST_NS),
            wall_ns=_whole(_MOST_NS),
            launches=_whole(_MOST_NS),
            waits=_whole(_MOST_NS),
            own_code=_flag,
        ),
    },
    "task": {
        **dict.fromkeys(("reset", "adopt"), _nothing),
        **dict.fromkeys(("load", "inputs", "input_sets", "value", "choices"), _passed()),
        "fetch": _object(place=_place, spec=_boxed),
        "box": _object(handle=_maybe(_handle)),
        "answer": _passed(draws=_flag, mutates=_flag),
        "count_bytes": _object(bytes=_or_none(_row(_whole(), _whole()))),
        "depends_on_tf32": _object(depends=_flag),
        "state": _passed(
            page=_list(_row(_text(_MOST_STATE_NAME), _flag, _whole()), _PAGE_ENTRIES),
            total=_whole(),
        ),
        "count": _object(moved_bytes=_whole(), operations=_whole(), single=_flag),
    },
}
_ERRORS: Mapping[Loop, Form] = {
    "candidate": _object(
        error=_object(
            type=_foreign_text, types=_list(_foreign_text), text=_foreign_text, trace=_foreign_text
        )
    ),
    "task": _object(error=_foreign_text, lost=_maybe(_flag)),
}
_ended = _object(
    ended=_object(
        code=_whole(255, least=-64),
        peak_memory_bytes=_or_none(_whole()),
        cpu_s=_maybe(_seconds),
        strays=_whole(),
        excess=_or_none(_foreign_text),
    )
)
_EVENTS: Mapping[Event, Form] = {
    "ready": _object(
        pid=_whole(least=1),
        limits=_list(_foreign_text),
        missing=lambda value: type(value) is dict and all(map(_foreign_text, value.values())),
    ),
    "started": _either(_object(started=_whole(least=1), group=_or_none(_foreign_text)), _ended),
    "ended": _ended,
}
