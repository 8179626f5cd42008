"""Arguments of tools as agents send them: numbers as texts, texts as numbers, null for a default.

The schema of each parameter has one type, because some clients refuse unions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

_TYPES: dict[object, str] = {
    str: "string", str | None: "string", int: "integer", float: "number"
}  # fmt: skip


def accept_other_spellings(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a parameter that also takes other spellings of its type; choices stay as they are."""
    from pydantic import Field, PlainValidator, WithJsonSchema

    name = _TYPES.get(parameter.annotation)
    if name is None:
        return parameter
    kind = str if name == "string" else parameter.annotation
    read = _make_reader(name, parameter.default)
    hidden = Field(json_schema_extra=_drop_null_default)
    schema = WithJsonSchema({"type": name})
    return parameter.replace(annotation=Annotated[kind, PlainValidator(read), schema, hidden])


def _drop_null_default(schema: dict[str, Any]) -> None:
    if schema.get("default", "") is None:
        del schema["default"]


def _make_reader(name: str, default: object) -> Callable[[Any], Any]:
    """Return a function that reads an argument, and raises ValueError with what is wanted."""

    def read(value: Any) -> Any:
        is_null = value is None or (value == "null" and default is None)
        if is_null and default is not inspect.Parameter.empty:
            return default
        number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
        if name == "string":
            if isinstance(value, str):
                return value.encode("utf-8", "replace").decode()
            if number is not None:
                return str(int(number) if float(number).is_integer() else number)
            raise ValueError("give one text")
        try:
            if isinstance(value, str):
                number = float(value) if name == "number" or "." in value else int(value)
            if number is not None and (name == "number" or float(number).is_integer()):
                return float(number) if name == "number" else int(number)
        except (ValueError, OverflowError):
            pass
        example = "" if default is inspect.Parameter.empty else f", such as {default}"
        raise ValueError(f"give a {'whole number' if name == 'integer' else 'number'}{example}")

    return read
