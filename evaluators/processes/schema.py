"""What the processes of a worker may send: one table of messages, with the types and bounds of
their fields.

Code of a candidate or a task can have forged any message. `check_reply` refuses all other forms
before anything else reads a message, so that no reader checks types of its own. What a form cannot
express, such as whether a tensor is inside its memory, is checked where it is used.
"""

import keyword
import math
import re
from collections.abc import Callable, Collection, Mapping
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
    **dict.fromkeys(("float64", "complex64", "int64", "uint64"), 8),
    **dict.fromkeys(("float32", "complex32", "int32", "uint32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("int8", "uint8", "bool", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"), 1),
    "float4_e2m1fn_x2": 1,
}
"""Bytes of an element by the names of the element types that pass between processes."""
NUMPY_NAMES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
)
"""Types of numpy's numbers that pass between processes."""
_MOST = (1 << 63) - 1
"""Sizes, addresses and counts are whole numbers of 64 bits with a sign."""
_MOST_FIELDS = 255
_MOST_DIMENSIONS = 1000  # torch has no limit of its own
_MOST_NS = 10**15
_MOST_STATE_NAME = 4000
_PAGE_ENTRIES = 256
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


def _kind(*kinds: type) -> Form:
    return lambda value: type(value) in kinds


def _one_of(names: Collection[str]) -> Form:
    return lambda value: type(value) is str and value in names


def _matching(pattern: str) -> Form:
    return lambda value: type(value) is str and re.fullmatch(pattern, value) is not None


_flag, _number = _kind(bool), _kind(int, float)
_foreign_text = _kind(str)
"""Any text; `make_readable` comes before it is stored or shown."""
_dtype, _place = _one_of(ITEM_BYTES), _one_of(("cpu", "cuda"))
_handle = _matching(r"[0-9a-f]{128}")


def _either(form: Form, other: Form) -> Form:
    return lambda value: form(value) or other(value)


def _or_none(form: Form) -> Form:
    return lambda value: value is None or form(value)


def _whole(most: int = _MOST, least: int = 0) -> Form:
    return lambda value: type(value) is int and least <= value <= most


def _amount(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= _MOST_NS


def _figure(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


def _text(most: int) -> Form:
    return lambda value: (
        type(value) is str and len(value) <= most and not _UNPRINTABLE.search(value)
    )


def _foreign_name(value: Any) -> bool:
    return type(value) is str and len(value) <= MOST_NAME


def _list(form: Form, most: int = PACKET_LIMIT_BYTES) -> Form:
    return lambda value: type(value) is list and len(value) <= most and all(map(form, value))


def _row(*forms: Form) -> Form:
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


def _count(shape: list[int]) -> int:
    """Return the elements of a shape, counted as if no dimension were empty, as torch does."""
    return math.prod(max(1, size) for size in shape)


def _has_pending(dtype: str, pending: Any) -> bool:
    """Whether a conjugation (1) and a negation (2) may be pending in an element type."""
    return type(pending) is int and pending in (range(4) if "complex" in dtype else (0, 2))


def _is_boxed_tensor(value: Any) -> bool:
    """Whether a tensor is described by its storage in a box.

    It is [element type, shape, strides, first byte and bytes of the storage, first element in it,
    pending conjugation and negation].
    """
    if not _row(_dtype, _shape, _shape, _whole(), _whole(), _whole(), _whole(3))(value):
        return False
    dtype, shape, strides, start, size, offset, pending = value
    return (
        len(shape) == len(strides)
        and _count(shape) <= _MOST
        and start + size <= _MOST
        and 8 * (offset + _count_extent(shape, strides)) <= _MOST
        and _has_pending(dtype, pending)
    )


def _is_placed_tensor(value: Any) -> bool:
    """Whether a tensor is described by its place in memory.

    It is [element type, shape, strides, address, pending conjugation and negation]. A tensor of few
    elements may have a shape whose bytes exceed 64 bits: an expanded one.
    """
    if not _row(_dtype, _shape, _shape, _whole(), _whole(3))(value):
        return False
    dtype, shape, strides, address, pending = value
    if len(shape) != len(strides) or _count(shape) > _MOST or not _has_pending(dtype, pending):
        return False
    last = address + _count_extent(shape, strides) * ITEM_BYTES[dtype]
    return 0 in shape or last <= _MOST


def _count_extent(shape: list[int], strides: list[int]) -> int:
    return 1 + sum(max(0, n - 1) * stride for n, stride in zip(shape, strides, strict=True))


def is_record(kind: str, value: Any) -> bool:
    """Whether a named tuple or dataclass is [name, names of fields, a list of as many parts]."""
    if not _row(_name, _list(_name, _MOST_FIELDS), _list(lambda _: True))(value):
        return False
    _, names, parts = value
    hidden = "__" if kind == "dataclass" else "_"
    is_open = not any(name.startswith(hidden) for name in names)
    return is_open and len(set(names)) == len(names) == len(parts)


def _name(value: Any) -> bool:
    return (
        type(value) is str
        and len(value) <= MOST_NAME
        and value.isascii()
        and value.isidentifier()
        and not keyword.iskeyword(value)
    )


_PLAIN: Mapping[str, Form] = {
    "value": lambda body: body is None or type(body) in (bool, int, float, str),
    "complex": _row(_number, _number),
    "numpy": _row(_one_of(NUMPY_NAMES), _either(_number, _flag)),
    "dtype": _dtype,
    "device": _matching(r"(cpu|cuda)(:\d{1,3})?"),
}
"""Bodies of the kinds of values that have no parts."""


def _list_parts(kind: str, body: Any) -> list[Any] | None:
    """Return the parts of a container's body; None where it has another form."""
    if type(body) is not list:
        return None
    if kind in ("list", "tuple"):
        return body
    if kind in ("dict", "keywords"):
        if not all(type(pair) is list and len(pair) == 2 for pair in body):
            return None
        keys = [key for key, _ in body]
        known = (str,) if kind == "keywords" else (str, int)
        if not all(type(key) in known for key in keys) or len(set(keys)) < len(keys):
            return None
        return [part for _, part in body]
    if kind in ("named_tuple", "dataclass") and is_record(kind, body):
        return body[2]
    return None


def _value(tensor: Form) -> Form:
    """A value with tensors of this form: nested objects of one field, which names their kind."""

    def is_value(node: Any, depth: int = 0) -> bool:
        if type(node) is not dict or len(node) != 1 or depth > MOST_DEPTH:
            return False
        [(kind, body)] = node.items()
        if kind == "tensor":
            return tensor(body)
        if kind in _PLAIN:
            return _PLAIN[kind](body)
        parts = _list_parts(kind, body)
        return parts is not None and all(is_value(part, depth + 1) for part in parts)

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


def _is_located(value: Any) -> bool:
    """Whether an output is located as [addresses of its tensors, their numbers of elements]."""
    return _row(_list(_whole()), _list(_whole()))(value) and len(value[0]) == len(value[1])


def _value_reply(**fields: Form) -> Form:
    """A value of a task: its structure, or the bytes that it needs where its box is too small."""
    return _either(
        _object(place=_place, spec=_boxed, **fields),
        _object(place=_place, needs=_whole(), **fields),
    )


_REPLIES: Mapping[Loop, Mapping[str, Form]] = {
    "candidate": {
        **dict.fromkeys(("construct", "adopt", "reseed", "poison", "fill", "rehearse"), _nothing),
        **dict.fromkeys(("empty", "wait_for_copy"), _nothing),
        **dict.fromkeys(("call", "output"), _output),
        "time": _object(places=_list(_is_located)),
        **dict.fromkeys(("describe", "launch", "call_in_burst"), _outputs),
        "prepare": _object(handles=_list(_handle, 2)),
        "load": _object(found=_flag),
        "state": _object(
            state=_list(_row(_text(MOST_NAME), _dtype, _shape), _PAGE_ENTRIES), total=_whole()
        ),
        "current_state": _object(values=_boxed),
        "inputs": _object(inputs=_boxed),
        "clocks": _object(replaced=_list(_foreign_text)),
        "variant": _object(seconds=_amount),
        "time_empty": _object(taken_ns=_whole(_MOST_NS)),
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
        "adopt": _nothing,
        "reset": _object(result=lambda value: value is None),
        **dict.fromkeys(("load", "inputs", "input_sets", "value", "choices"), _value_reply()),
        "fetch": _object(place=_place, spec=_boxed),
        "box": _object(handle=_maybe(_handle)),
        "answer": _value_reply(draws=_flag, changed=_list(_whole()), keeps=_flag, places=_flag),
        "count_bytes": _object(result=_or_none(_row(_whole(), _whole()))),
        "sizes": _object(
            result=_list(
                _row(
                    _name, _list(_whole(), 8), _or_none(_whole(7)), _list(_row(_whole(), _whole()))
                ),
                16,
            )
        ),
        "try_axes": _object(
            inputs=_list(_row(_dtype, _shape)), answers=_list(_row(_dtype, _shape)), finite=_flag
        ),
        **dict.fromkeys(("depends_on_tf32", "shows_only_in_evaluation"), _object(result=_flag)),
        "rules": _object(
            result=_object(
                tolerance=_or_none(_row(_amount, _amount, _flag, _amount)),
                checks=_flag,
                scratch=_flag,
                names=_list(_foreign_name, 64),
            )
        ),
        "check": _object(accepted=_flag, text=_foreign_text),
        "algorithms": _object(
            errors=_list(_or_none(_row(_figure, _row(_figure, _figure, _figure), _figure))),
            rounds=_flag,
            differ=_flag,
        ),
        "steps": _value_reply(rounds=_flag),
        "state": _value_reply(
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
KILLED: dict[str, Any] = {"code": -9, "peak_memory_bytes": None, "strays": 0, "excess": None}
"""How a worker has ended that ended with the process that reports it."""
_ended = _object(
    ended=_object(
        code=_whole(255, least=-64),
        peak_memory_bytes=_or_none(_whole()),
        cpu_s=_maybe(_amount),
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
