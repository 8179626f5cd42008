"""The shape of a catalog file: which parts it has, and which of them are mappings, lists or texts.

`store.schema.catalog` reads a file that has this shape, and says what else is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

_KINDS: dict[type, str] = {
    dict: "a mapping",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a whole number",
}
_SECTIONS = {"baselines": False, "enums": True, "provenance": False, "tables": True}
"""Sections of the file, and whether each one is required."""
_TABLE = {
    "about": str,
    "columns": dict,
    "key": list,
    "duplicates": str,
    "sort": list,
    "inline": int,
}
_TABLE_OPTIONS = {"checks": dict, "id": dict}
_COLUMN = {"type": str}
_COLUMN_OPTIONS = {
    "about": str, "required": bool, "null_elements": bool, "unit": str, "enum": str,
    "references": str, "sensitivity": str, "null_means": str,
}  # fmt: skip
_ID_OPTIONS = {"form": str, "of": list, "kind": str, "unless": str, "unbound": str}


def find_fault(document: object) -> str | None:
    """Return what is wrong with the shape of a catalog and where, or None.

    >>> find_fault(None)
    'it is empty'
    >>> find_fault({"enums": {}, "tables": {"runs": {"about": "Runs.", "columns": []}}})
    'table runs: columns is a list, not a mapping'
    """
    if document is None:
        return "it is empty"
    if not isinstance(document, dict):
        return f"it is {_name_kind(document)}, not a mapping with enums and tables"
    return next(_list_faults(cast("dict[Any, Any]", document)), None)


def _list_faults(document: dict[Any, Any]) -> Iterator[str]:
    for section, is_required in _SECTIONS.items():
        if section in document:
            yield from _test(document[section], dict, section)
        elif is_required:
            yield f"it has no section {section}"
    if "schema" in document:
        yield from _test(document["schema"], int, "schema")
    for name, spec in document.get("baselines", {}).items():
        yield from _test(spec, dict, f"baseline {name}")
    for name, spec in document["enums"].items():
        yield from _list_enum_faults(f"enum {name}", spec)
    for name, columns in document.get("provenance", {}).items():
        yield from _test_names(columns, f"provenance of {name}")
    for name, spec in document["tables"].items():
        yield from _list_table_faults(f"table {name}", spec)


def _list_enum_faults(place: str, spec: object) -> Iterator[str]:
    if isinstance(spec, list):
        yield from _test_names(cast("list[Any]", spec), place)
    elif not isinstance(spec, dict):
        yield f"{place} is {_name_kind(spec)}, not a list of values or a mapping"
    else:
        for key, values in cast("dict[Any, Any]", spec).items():
            if key not in ("by", "baselines"):
                yield from _test_names(values, f"{place}: {key}")


def _list_table_faults(place: str, spec: Any) -> Iterator[str]:
    yield from _test(spec, dict, place)
    yield from _test_fields(spec, _TABLE, place, are_required=True)
    yield from _test_fields(spec, _TABLE_OPTIONS, place)
    for field in ("key", "sort"):
        yield from _test_names(spec[field], f"{place}: {field}")
    if not isinstance(spec.get("row_group", 1), int):
        yield f"{place}: row_group is {_name_kind(spec['row_group'])}, not a whole number"
    for name, check in spec.get("checks", {}).items():
        yield from _test(check, str, f'{place}: check "{name}"')
    if "id" in spec:
        yield from _test_fields(spec["id"], _ID_OPTIONS, f"{place}: id")
        yield from _test_names(spec["id"].get("of", []), f"{place}: id: of")
    for name, column in spec["columns"].items():
        yield from _test(column, dict, f"{place}, column {name}")
        yield from _test_fields(column, _COLUMN, f"{place}, column {name}", are_required=True)
        given = {field: value for field, value in column.items() if value is not None}
        yield from _test_fields(given, _COLUMN_OPTIONS, f"{place}, column {name}")


def _test_fields(
    spec: Mapping[Any, Any], kinds: Mapping[str, type], place: str, *, are_required: bool = False
) -> Iterator[str]:
    for field, kind in kinds.items():
        if field in spec:
            yield from _test(spec[field], kind, f"{place}: {field}")
        elif are_required:
            yield f"{place} has no {field}"


def _test_names(value: Any, place: str) -> Iterator[str]:
    yield from _test(value, list, place)
    for one in value:
        if not isinstance(one, str):
            yield f"{place} has {one!r}, which is {_name_kind(one)}, not a text: put it in quotes"


def _test(value: Any, kind: type, place: str) -> Iterator[str]:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        yield f"{place} is {_name_kind(value)}, not {_KINDS[kind]}"
    elif kind is dict:
        for key in value:
            if not isinstance(key, str):
                yield f"{place} has the name {key!r}, which is {_name_kind(key)}: put it in quotes"


def _name_kind(value: object) -> str:
    if value is None:
        return "empty"
    return _KINDS.get(type(value), f"a {type(value).__name__}")
