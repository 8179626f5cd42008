"""The parts of a catalog: tables, columns, enumerations, ids, and their Arrow types."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, TypeAlias

import msgspec

from store.errors import CatalogError

if TYPE_CHECKING:
    import pyarrow as pa


Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]


class ColumnFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What catalog.yaml says about one column: its DuckDB type, unit, reference, description."""

    type: str
    about: Text
    null_means: str | None = None
    """What it says about a row that the column is NULL."""
    required: bool = False
    null_elements: bool = False
    unit: str | None = None
    enum: str | None = None
    references: str | None = None
    sensitivity: str = "public"


class Column(ColumnFields, frozen=True, kw_only=True):
    """One column of a table."""

    name: str
    provenance: bool = False
    """Whether it describes the row's origin: two lakes with the same row may differ in it."""

    @property
    def comment(self) -> str:
        """The description with the unit, as the lake stores it."""
        return self.about if self.unit is None else f"{self.about} [{self.unit}]"


class ContentId(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The columns whose hash is the id of a row, or why one row is not enough to compute it."""

    form: str | None = None
    """One of `store.ids.FORMS`; None if the id is not computed from the row."""
    of: tuple[str, ...] = ()
    """Columns that are hashed, in order."""
    kind: str | None = None
    """Word that is hashed with them."""
    unless: str | None = None
    """Column whose value exempts a row."""
    unbound: str | None = None
    """Why the store cannot compute the id."""


class Baseline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way to run a task's own module that kernels are compared with."""

    words: str
    """Its name in prompts."""
    about: str


class Enum(msgspec.Struct, frozen=True, kw_only=True):
    """Allowed values; with `by`, `allowed` has those for each value of that column."""

    values: tuple[str, ...]
    by: str | None = None
    allowed: dict[str, tuple[str, ...]] = {}


class TableFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What catalog.yaml says about one table beside its columns."""

    about: str
    key: tuple[str, ...]
    duplicates: str
    """What happens to a second row under a key: skip or reject."""
    sort: tuple[str, ...]
    row_group: int | None = None
    inline: int
    checks: dict[str, str] = {}
    id: ContentId | None = None


class Table(TableFields, frozen=True, kw_only=True, dict=True):
    """One table: columns, key, rules and how its files are laid out."""

    name: str
    columns: dict[str, Column]

    @functools.cached_property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema of a batch of rows."""
        import pyarrow as pa

        return pa.schema(
            [
                pa.field(column.name, to_arrow_type(column.type), nullable=not column.required)
                for column in self.columns.values()
            ]
        )

    @functools.cached_property
    def open_schema(self) -> pa.Schema:
        """The Arrow schema of rows before required columns are checked."""
        import pyarrow as pa

        return pa.schema([column.with_nullable(True) for column in self.arrow_schema])

    @property
    def time_column(self) -> str | None:
        """The required timestamp that the store fills in if a row lacks it."""
        names = [c.name for c in self.columns.values() if c.type == "TIMESTAMPTZ" and c.required]
        return names[0] if names else None

    def is_looked_up(self, column: Column) -> bool:
        """Return whether rows are found by this column: it is part of the key or refers to one."""
        return column.references is not None or column.name in self.key

    def ddl(self, qualified_name: str) -> str:
        """The CREATE TABLE statement for this table."""
        columns = ", ".join(f'"{c.name}" {c.type}' for c in self.columns.values())
        return f"CREATE TABLE {qualified_name} ({columns})"


_ARROW_TYPES: dict[str, Callable[[], pa.DataType]] = {
    "VARCHAR": lambda: _arrow().string(),
    "BOOLEAN": lambda: _arrow().bool_(),
    "INTEGER": lambda: _arrow().int32(),
    "BIGINT": lambda: _arrow().int64(),
    "FLOAT": lambda: _arrow().float32(),
    "DOUBLE": lambda: _arrow().float64(),
    "DATE": lambda: _arrow().date32(),
    "TIMESTAMPTZ": lambda: _arrow().timestamp("us", tz="UTC"),
}


def check_type(type_name: str) -> None:
    """Raise CatalogError if a catalog cannot have a DuckDB type; does not load Arrow."""
    for name in _split_type(type_name)[1].values():
        if name != type_name:
            check_type(name)
        elif name not in _ARROW_TYPES:
            raise CatalogError(
                f'a lake has no type "{name}"', f"Use one of {', '.join(_ARROW_TYPES)}."
            )


def to_arrow_type(type_name: str) -> pa.DataType:
    """Return the Arrow type of a DuckDB type of the catalog; raises CatalogError for others."""
    kind, parts = _split_type(type_name)
    if kind == "list":
        return _arrow().list_(to_arrow_type(parts["element"]))
    if kind == "struct":
        fields = [_arrow().field(name, to_arrow_type(part)) for name, part in parts.items()]
        return _arrow().struct(fields)
    check_type(type_name)
    return _ARROW_TYPES[type_name]()


def _split_type(type_name: str) -> tuple[str, dict[str, str]]:
    """Return what kind of type this is (list, struct, simple), and the types of its parts."""
    if type_name.endswith("[]"):
        return "list", {"element": type_name[:-2]}
    struct = re.fullmatch(r"STRUCT\((.*)\)", type_name)
    if struct:
        fields = [field.split() for field in struct[1].split(",")]
        return "struct", {name: kind for name, kind in fields}
    return "simple", {"": type_name}


def _arrow() -> ModuleType:
    # Imported on first use, because its threads would prevent a process from entering a user
    # namespace.
    import pyarrow as pa

    return pa
