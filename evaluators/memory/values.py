"""The tree of a value that passes between processes: containers, and what is in them.

Containers are lists, tuples, dicts, named tuples and dataclasses. Their structure passes as JSON. A
worker never imports the file of another: a named tuple or dataclass arrives as the class of the
same name and fields of the file that the worker has imported, or else as a new class with these
fields.
"""

import collections
import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import ModuleType
from typing import Any, TypeAlias

import numpy
import torch
from torch import Tensor

from evaluators.limits.kinds import refuse_limit
from evaluators.processes.schema import ITEM_BYTES, MOST_DEPTH, NUMPY_NAMES, is_record

DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in ITEM_BYTES if hasattr(torch, name)
}
NUMPY_SCALARS: dict[type, str] = {numpy.dtype(name).type: name for name in NUMPY_NAMES}
"""Types of numpy's numbers that pass as they are."""

Spec: TypeAlias = dict[str, Any]
"""The structure of a value, or of a part of it: {kind: body}."""


class Keywords(dict[str, Any]):
    """Arguments that a call passes by name; the last of its inputs."""


def call(function: Callable[..., Any], inputs: Sequence[Any]) -> Any:
    """Call a function on inputs. If the last one is `Keywords`, they are passed by keyword."""
    args, named = split_arguments(inputs)
    return function(*args, **named)


def list_arguments(made: Any, function: Callable[..., Any]) -> list[Any]:
    """Return what a task makes for a call as a list of arguments.

    A dict of names becomes `Keywords`, unless the function only takes it as one argument. A bare
    tensor is one argument, unless the function takes as many as it has rows. None is no argument.

    >>> list_arguments({"x": 1.0}, lambda x: x), list_arguments({"x": 1.0}, lambda batch: batch)
    ([{'x': 1.0}], [{'x': 1.0}])
    >>> len(list_arguments(torch.zeros(2, 3), lambda x, y: x))
    2
    """
    if isinstance(made, dict):
        is_named = _accepts(function, (), made) or not _accepts(function, [made], {})
        return [Keywords(made)] if is_named else [made]
    if isinstance(made, Tensor):
        return [made] if not made.dim() or _accepts(function, [made], {}) else list(made)
    if made is None:
        return []
    return [made] if isinstance(made, str | int | float) else spread_pair(list(made), function)


def spread_pair(arguments: list[Any], function: Callable[..., Any]) -> list[Any]:
    """Return [positional, keyword] arguments, as KernelBook writes them, as those of a call.

    Other arguments, and such a pair for a function that does not take what it holds, stay.

    >>> spread_pair([[4], {"bias": 1}], lambda width, bias: width)
    [4, {'bias': 1}]
    >>> spread_pair([[4], {"bias": 1}], lambda positional, keyword: positional)
    [[4], {'bias': 1}]
    """
    match arguments:
        case [[*positional], dict() as keyword] if _accepts(function, positional, keyword):
            return [*positional, Keywords(keyword)] if keyword else positional
        case _:
            return arguments


def _accepts(function: Callable[..., Any], args: Sequence[Any], named: dict[Any, Any]) -> bool:
    try:
        inspect.signature(function).bind(*args, **named)
    except (TypeError, ValueError):
        return False
    return True


def split_arguments(inputs: Sequence[Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Return the positional arguments of a call, and those by name."""
    if inputs and isinstance(inputs[-1], Keywords):
        return inputs[:-1], inputs[-1]
    return inputs, {}


def list_parts(value: Any) -> Sequence[Any] | None:
    """Return what a container contains, in order; None for what is no container."""
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, dict):
        return list(value.values())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return list(name_parts(value).values())
    return None


def name_parts(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name."""
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def replace_parts(value: Any, parts: Iterable[Any]) -> Any:
    """Return a container like `value` with other parts."""
    if isinstance(value, list):
        return list(parts)
    if isinstance(value, tuple):
        if hasattr(value, "_fields"):
            return tuple.__new__(type(value), parts)
        return type(value)(parts) if hasattr(value, "n_sequence_fields") else tuple(parts)
    if isinstance(value, dict):
        pairs = zip(value, parts, strict=True)
        return Keywords(pairs) if isinstance(value, Keywords) else dict(pairs)
    names = [field.name for field in dataclasses.fields(value)]
    return _make_record(type(value), dict(zip(names, parts, strict=True)))


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in a value, in order."""
    if isinstance(value, Tensor):
        yield value
    elif (parts := list_parts(value)) is not None:
        for part in parts:
            yield from tensors_of(part)


def map_tensors(value: Any, change: Callable[[Tensor], Any]) -> Any:
    """Return the value with every tensor changed; one that it contains twice is changed once.

    `change_elements` keeps strides and sharing too.
    """
    return _map_part(value, change, {})


def _map_part(
    part: Any, change: Callable[[Tensor], Any], changed: dict[int, tuple[Tensor, Any]]
) -> Any:
    # No function inside of `map_tensors`, which would refer to itself: large tensors would then
    # stay in memory until the garbage collector comes.
    if isinstance(part, Tensor):
        if id(part) not in changed:
            changed[id(part)] = part, change(part)
        return changed[id(part)][1]
    parts = list_parts(part)
    if parts is None:
        return part
    return replace_parts(part, [_map_part(each, change, changed) for each in parts])


def describe_value(value: Any, describe_tensor: Callable[[Tensor], Any], depth: int = 0) -> Spec:
    """Return the structure of a value, with what `describe_tensor` returns for each tensor.

    Raises TypeError that names the limit for what cannot pass.
    """
    if isinstance(value, Tensor):
        return {"tensor": describe_tensor(value)}
    if type(value) in NUMPY_SCALARS:  # before floats: numpy.float64 is one
        return {"numpy": [NUMPY_SCALARS[type(value)], value.item()]}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.dtype) and str(value).removeprefix("torch.") in DTYPES:
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    parts = list_parts(value)
    if parts is None:
        name = type(value).__name__
        raise TypeError(
            refuse_limit("value_types", f"{name} is neither a tensor nor a plain value")
        )
    if depth >= MOST_DEPTH:
        raise TypeError(refuse_limit("nesting", f"a value is nested deeper than {MOST_DEPTH}"))
    specs = [describe_value(part, describe_tensor, depth + 1) for part in parts]
    if isinstance(value, list):
        return {"list": specs}
    if isinstance(value, dict):
        for key in value:
            if type(key) not in (str, int):
                detail = f"a dict has the key {key!r:.40}, which is neither text nor a whole number"
                raise TypeError(refuse_limit("dict_keys", detail))
        kind = "keywords" if isinstance(value, Keywords) else "dict"
        return {kind: [list(pair) for pair in zip(value, specs, strict=True)]}
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        if names is None and hasattr(value, "n_sequence_fields"):
            names = type(value).__match_args__  # pyright: ignore[reportAttributeAccessIssue]
        if names is None:
            return {"tuple": specs}
        kind = "named_tuple"
    else:
        names = list(name_parts(value))
        kind = "dataclass"
    if not is_record(kind, [type(value).__name__, list(names), specs]):
        detail = f"a {type(value).__name__} has fields of odd names, or more of them than 255"
        raise TypeError(refuse_limit("value_types", detail))
    return {kind: [type(value).__name__, list(names), specs]}


def build_value(spec: Spec, build_tensor: Callable[[Any], Any]) -> Any:
    """Return the value of a structure that the schema has checked.

    build_tensor: makes the tensor of its description.
    """
    [(kind, body)] = spec.items()
    match kind:
        case "tensor":
            return build_tensor(body)
        case "value":
            return body
        case "list" | "tuple":
            parts = [build_value(part, build_tensor) for part in body]
            return parts if kind == "list" else tuple(parts)
        case "dict" | "keywords":
            named = {key: build_value(part, build_tensor) for key, part in body}
            return named if kind == "dict" else Keywords(named)
        case "named_tuple" | "dataclass":
            name, names, specs = body
            parts = [build_value(part, build_tensor) for part in specs]
            known = (kind, name, tuple(names))
            record = _imported.get(known) or _make_class(*known)
            if kind == "named_tuple":
                return tuple.__new__(record, parts)
            return _make_record(record, dict(zip(names, parts, strict=True)))
        case "complex":
            return complex(*body)
        case "numpy":
            name, number = body
            return numpy.array(number).astype(name)[()]
        case "dtype":
            return DTYPES[body]
        case "device":
            return torch.device(body)
        case _:
            raise AssertionError(kind)


def iterate_entries(spec: Spec) -> list[Any]:
    """Return the descriptions of the tensors of a structure, in order."""
    entries: list[Any] = []
    build_value(spec, entries.append)
    return entries


_imported: dict[tuple[str, str, tuple[str, ...]], type] = {}
"""Classes of the file that this process has imported: by kind, name and fields."""


def register_records(module: ModuleType) -> None:
    """Build named tuples and dataclasses of a module's classes from now on.

    A file that is imported again keeps the classes of its first import.
    """
    for name, value in list(vars(module).items()):
        if not isinstance(value, type):
            continue
        if dataclasses.is_dataclass(value):
            kind, fields = "dataclass", tuple(field.name for field in dataclasses.fields(value))
        elif issubclass(value, tuple) and isinstance(getattr(value, "_fields", None), tuple):
            kind, fields = "named_tuple", value._fields  # pyright: ignore
        else:
            continue
        setattr(module, name, _imported.setdefault((kind, value.__name__, fields), value))


@functools.lru_cache(maxsize=64)
def _make_class(kind: str, name: str, names: tuple[str, ...]) -> type:
    if kind == "named_tuple":
        return collections.namedtuple(name, names)  # pyright: ignore[reportUntypedNamedTuple]
    return dataclasses.make_dataclass(name, names)


def _make_record(record: type, parts: dict[str, Any]) -> Any:
    """Return an instance of a dataclass without running its constructor."""
    made = object.__new__(record)
    for name, part in parts.items():
        object.__setattr__(made, name, part)
    return made
