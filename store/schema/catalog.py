"""Reads catalog.yaml once: tables, columns, rules, and derived facts."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, cast

import msgspec

from store.errors import CatalogError, UnknownName
from store.ids import FORMS
from store.schema.sql_text import quote_values

if TYPE_CHECKING:
    import pyarrow as pa


VIEWS = Path(__file__).parent.parent / "views"
"""The folder of the views, one SQL file each."""
Text: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]


class Column(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One column of a table: its DuckDB type, unit, reference, description."""

    name: str
    provenance: bool
    """Whether it describes the row's origin: two lakes with the same row may differ in it."""
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
    renamed_from: str | None = None
    """Its name in earlier schemas, which older lakes, editions and bundles have."""

    @property
    def comment(self) -> str:
        """The description with the unit, as the lake stores it."""
        return self.about if self.unit is None else f"{self.about} [{self.unit}]"

    def build_sql(self, stored: Set[str], of: str = "") -> str:
        """Return SQL that selects it from a table that is stored with some columns.

        A column that is not among them reads as typed NULLs.
        """
        if self.name in stored:
            return f'{of}"{self.name}"'
        former = f'{of}"{self.renamed_from}"' if self.renamed_from in stored else None
        return f'{former or f"NULL::{self.type}"} AS "{self.name}"'


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


class Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, dict=True):
    """One table: columns, key, rules and how its files are laid out."""

    name: str
    columns: dict[str, Column]
    about: str
    key: tuple[str, ...]
    duplicates: str
    """What happens to a second row under a key: skip or reject."""
    sort: tuple[str, ...]
    row_group: int | None = None
    inline: int
    checks: dict[str, str] = {}
    id: ContentId | None = None

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

    @functools.cached_property
    def renamed(self) -> dict[str, str]:
        """The names of its renamed columns, by their former names."""
        return {c.renamed_from: c.name for c in self.columns.values() if c.renamed_from}

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


_ARROW_TYPES = {
    "VARCHAR": "string",
    "BOOLEAN": "bool_",
    "INTEGER": "int32",
    "BIGINT": "int64",
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "DATE": "date32",
    "TIMESTAMPTZ": "timestamp",
}
"""The types that a column or a part of one can have, with Arrow's names."""


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
    # Imported on first use, because its threads would prevent a process from entering a user
    # namespace.
    import pyarrow as pa

    kind, parts = _split_type(type_name)
    if kind == "list":
        return pa.list_(to_arrow_type(parts["element"]))
    if kind == "struct":
        return pa.struct([pa.field(name, to_arrow_type(part)) for name, part in parts.items()])
    check_type(type_name)
    if type_name == "TIMESTAMPTZ":
        return pa.timestamp("us", tz="UTC")
    return getattr(pa, _ARROW_TYPES[type_name])()


def _split_type(type_name: str) -> tuple[str, dict[str, str]]:
    """Return what kind of type this is (list, struct, simple), and the types of its parts."""
    if type_name.endswith("[]"):
        return "list", {"element": type_name[:-2]}
    struct = re.fullmatch(r"STRUCT\((.*)\)", type_name)
    if struct:
        return "struct", dict(field.split() for field in struct[1].split(","))
    return "simple", {"": type_name}


SENSITIVITIES = ("public", "pseudonymous", "private")
NAME_RULE = "names are printable ASCII, with single spaces between words alone"
"""The rule for names of devices, by which views tell devices apart: look-alike letters and spaces
that nobody sees would make two devices of one. It is here and not in catalog.yaml, because a lake
could not adopt a new check of a column that it has."""
TIME_RANGES = {
    "TIMESTAMPTZ": ("0001-01-01 00:00:00+00", "9999-12-31 23:59:59.999999+00"),
    "DATE": ("0001-01-01", "9999-12-31"),
}
"""The first and last value of each type of times that a row may have."""
_SHAPE = "The comment at the top of the catalog.yaml of this project says what each part contains."
_KINDS = {
    "object": "a mapping",
    "array": "a list",
    "str": "a text",
    "bool": "true or false",
    "int": "a whole number",
    "null": "empty",
}
"""Words for the kinds of values that msgspec tells apart."""
_MISMATCH = re.compile(r"Expected (\w+), got (\w+)")
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Catalog:
    """Every table and enumeration of a lake."""

    tables: dict[str, Table]
    enums: dict[str, Enum]
    baselines: dict[str, Baseline] = field(default_factory=dict[str, Baseline])
    """By name, the plainest first."""
    schema: int = 0
    """Number of the schema, which rises with every change but descriptions. Lakes of versions
    before 0.2.0 have none, which is 0."""
    definition: str = ""
    """The content of the file as JSON, which each lake keeps in its table `catalogs`."""

    @functools.cached_property
    def digest(self) -> str:
        """The sha256 of the definition without its descriptions."""
        plain = json.dumps(_remove_descriptions(json.loads(self.definition)))
        return hashlib.sha256(plain.encode()).hexdigest()

    def table(self, name: str) -> Table:
        """Return a table by name; raises UnknownName with the nearest one."""
        if name not in self.tables:
            raise UnknownName.among("table", name, self.tables)
        return self.tables[name]

    def rules(self, table: Table) -> dict[str, str]:
        """Return every rule on single rows: name to SQL that is true for a good row."""
        rules: dict[str, str] = {}
        for column in table.columns.values():
            name = f'"{column.name}"'
            if column.required:
                rules[f"{column.name} is required"] = f"{name} IS NOT NULL"
            # What holds for each value but NULL.
            of_values: dict[str, str] = {}
            if column.enum is not None:
                allowed = self.enums[column.enum]
                listed = f"{name} IN ({quote_values(allowed.values)})"
                of_values[f"is one of {', '.join(allowed.values)}"] = listed
                for value, reasons in allowed.allowed.items():
                    listed = f"{name} IN ({quote_values(reasons)})" if reasons else "false"
                    rules[f"what {column.name} may be when {allowed.by} is {value}"] = (
                        f"\"{allowed.by}\" IS DISTINCT FROM '{value}' OR {name} IS NULL OR {listed}"
                    )
            if column.type in ("DOUBLE", "FLOAT"):
                of_values["is finite, or NULL where it is absent"] = f"isfinite({name})"
            if column.type in TIME_RANGES:
                first, last = (f"{column.type} '{one}'" for one in TIME_RANGES[column.type])
                # DuckDB has earlier, later and infinite times, which Python cannot represent.
                of_values["is in the years 1 to 9999"] = f"{name} BETWEEN {first} AND {last}"
            if column.type in ("DOUBLE[]", "FLOAT[]"):
                # NaN is greater than every other number.
                of_values["holds finite numbers"] = (
                    f"len({name}) = 0 OR list_min({name}) IS NULL OR "
                    f"isfinite(list_min({name})) AND isfinite(list_max({name}))"
                )
            if column.type.endswith("[]") and not column.null_elements:
                of_values["holds no NULL"] = f"len({name}) = list_count({name})"
            # DuckLake cannot search for a NUL, and one in nested text breaks the commit of inlined
            # rows.
            is_nested = column.type != "VARCHAR"
            if "VARCHAR" in column.type and (is_nested or table.is_looked_up(column)):
                text = f"{name}::VARCHAR" if is_nested else name
                of_values["holds no NUL"] = f"NOT contains({text}, chr(0))"
            for rule, holds in of_values.items():
                rules[f"{column.name} {rule}"] = f"{name} IS NULL OR {holds}"
        if table.name == "devices":
            rules[NAME_RULE] = "regexp_full_match(name, '[!-~]+( [!-~]+)*')"
        return rules | table.checks

    def references(self, table: Table) -> list[tuple[Column, Table]]:
        """Return the columns that refer to another table's key, with that table."""
        return [
            (column, self.tables[column.references])
            for column in table.columns.values()
            if column.references is not None
        ]


def find_catalog() -> Path:
    """Return the catalog file: FLYWHEEL_CATALOG, the installed one, or the checkout's."""
    named = os.environ.get("FLYWHEEL_CATALOG")
    if named:
        return Path(named)
    installed = Path(__file__).parent.parent / "catalog.yaml"
    return installed if installed.exists() else Path(__file__).parents[2] / "catalog.yaml"


def load(path: Path | None = None) -> Catalog:
    """Read a catalog file (default: `find_catalog()`); raises CatalogError if it is invalid."""
    file = path or find_catalog()
    try:
        return _parse(file, file.stat().st_mtime_ns)
    except OSError as error:
        raise CatalogError(
            f"cannot read the catalog {file}: {error.strerror}",
            "Name one with --catalog or FLYWHEEL_CATALOG.",
        ) from error


@functools.lru_cache(maxsize=8)
def _parse(file: Path, _modified: int) -> Catalog:
    import yaml

    try:
        document = yaml.load(file.read_text("utf-8"), Loader=yaml.CSafeLoader)
    except UnicodeDecodeError as error:
        raise CatalogError(
            f"{file} is not a catalog: byte {error.start + 1} is not UTF-8", _SHAPE
        ) from error
    except yaml.YAMLError as error:
        said = " ".join(str(error).split())
        if isinstance(error, yaml.MarkedYAMLError) and (mark := error.problem_mark) is not None:
            said = ", ".join(filter(None, [error.context, error.problem]))
            said = f"line {mark.line + 1}, column {mark.column + 1}: {said}"
        raise CatalogError(f"{file} is not a catalog: it is not YAML; {said}", _SHAPE) from error
    catalog = _build_catalog(document, str(file))
    views = {view.stem for view in VIEWS.glob("*.sql")}
    for name in catalog.tables:
        if name.lower() in views:
            raise CatalogError(
                f"table {name} of {file} has the name of a view",
                "Give the table another name. `store views` lists the views.",
            )
    return catalog


def read_definition(definition: str, origin: str) -> Catalog:
    """Return the catalog that a lake keeps as JSON; raises CatalogError, naming `origin`."""
    try:
        document = json.loads(definition)
    except ValueError as error:
        raise CatalogError(f"{origin} is not a catalog: it is not JSON; {error}") from error
    return _build_catalog(document, origin)


class _CatalogFile(msgspec.Struct, kw_only=True):
    """The sections of the file, whose parts are read one by one, so that faults name them."""

    enums: dict[str, Any]
    tables: dict[str, Any]
    baselines: dict[str, Any] = {}
    provenance: dict[str, tuple[str, ...]] = {}
    schema: int = 0


def _build_catalog(document: Any, origin: str) -> Catalog:
    try:
        file = _read_part(document, _CatalogFile, "")
        baselines = {
            name: _read_part(part, Baseline, f"baseline {name}")
            for name, part in file.baselines.items()
        }
        enums = {
            name: _build_enum(f"enum {name}", part, tuple(baselines))
            for name, part in file.enums.items()
        }
        everywhere = file.provenance.get("*", ())
        tables = {
            name: _build_table(name, part, {*everywhere, *file.provenance.get(name, ())})
            for name, part in file.tables.items()
        }
        definition = json.dumps(document, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        # Such as a date among the fields, which YAML has and JSON has not.
        raise CatalogError(f"{origin} is not a catalog: {error}", _SHAPE) from error
    catalog = Catalog(
        tables=tables, enums=enums, baselines=baselines, schema=file.schema, definition=definition
    )
    for table in tables.values():
        _check_table(table, catalog)
    return catalog


def _read_part(
    part: object, kind: type[_T], place: str, known: Mapping[str, object] | None = None
) -> _T:
    """Return a part of the file, with the fields that are known without it."""
    try:
        if known is not None:
            stated = msgspec.convert(part, dict[str, Any])
            for name in known.keys() & stated:
                raise msgspec.ValidationError(f"Object contains unknown field `{name}`")
            part = {**stated, **known}
        return msgspec.convert(part, kind)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).replace("`", "").partition(" - at $")
        if (mismatch := _MISMATCH.search(reason)) is not None:
            wanted, given = (_KINDS.get(kind, f"a {kind}") for kind in mismatch.groups())
            reason = reason.replace(mismatch[0], f"is {given}, not {wanted}")
        reason = reason.replace("Object missing required field", "has no")
        reason = reason.replace("Object contains unknown field", "has an unknown field")
        if reason.endswith(", not a text") and not reason.startswith("is empty"):
            reason += ": put it in quotes"
        inner = re.sub(r"\.(?=\w)", ": ", path.removeprefix("."))
        subject = ": ".join(filter(None, [place, inner])) or "it"
        raise ValueError(f"{subject} {reason}") from error


def _remove_descriptions(part: object) -> object:
    if isinstance(part, list):
        return [_remove_descriptions(item) for item in cast("list[object]", part)]
    if not isinstance(part, dict):
        return part
    return {
        # A column may have one of these names; its value is no text.
        name: ""
        if name in ("about", "unbound") and isinstance(value, str)
        else _remove_descriptions(value)
        for name, value in cast("dict[str, object]", part).items()
        if name != "null_means"
    }


def _build_enum(place: str, part: object, baselines: tuple[str, ...]) -> Enum:
    if isinstance(part, list):
        return Enum(values=_read_part(part, tuple[str, ...], place))
    fields = _read_part(part, dict[str, Any], place)
    by = fields.pop("by", None)
    if by is None and fields.pop("baselines", False) is True:
        before = _read_part(fields.get("before", ()), tuple[str, ...], f"{place}: before")
        return Enum(values=(*before, *baselines))
    if by is None:
        raise CatalogError(f"{place}: a mapping needs `by`, the column that decides")
    allowed = _read_part(fields, dict[str, tuple[str, ...]], place)
    values = tuple(dict.fromkeys(value for group in allowed.values() for value in group))
    return Enum(values=values, by=str(by), allowed=allowed)


def _build_table(name: str, part: object, provenance: set[str]) -> Table:
    place = f"table {name}"
    fields = _read_part(part, dict[str, Any], place)
    parts = _read_part(fields.pop("columns", None), dict[str, Any], f"{place}: columns")
    columns: dict[str, Column] = {}
    for column, inner in parts.items():
        known = {"name": column, "provenance": column in provenance}
        columns[column] = _read_part(inner, Column, f"{place}, column {column}", known)
    table = _read_part(fields, Table, place, {"name": name, "columns": columns})
    rule = table.id
    if rule is not None and (rule.unbound is None) != bool(rule.form and rule.of):
        raise CatalogError(
            f"{place}: id does not say what it is the hash of",
            "Write {form: …, of: [columns]}, with kind and unless where needed, or {unbound: why}.",
        )
    return table


def _check_table(table: Table, catalog: Catalog) -> None:
    for column in table.columns.values():
        check_type(column.type)
        target = catalog.tables.get(column.references or "")
        for what, is_wrong in {
            "sensitivity is no such word": column.sensitivity not in SENSITIVITIES,
            "renamed_from is another column of the table": column.renamed_from in table.columns,
            f"no enum {column.enum}": column.enum not in (None, *catalog.enums),
            f"no table {column.references}": column.references is not None and target is None,
            f"{column.references} has a key of several columns, which cannot be pointed at": (
                target is not None and len(target.key) != 1
            ),
        }.items():
            if is_wrong:
                raise CatalogError(f"column {table.name}.{column.name}: {what}")
    for name in (*table.key, *table.sort):
        if name not in table.columns:
            raise CatalogError(f"table {table.name}: key or sort names no column {name}")
        if name in table.key and not table.columns[name].required:
            raise CatalogError(f"table {table.name}: {name} is part of the key, so it is required")
    if table.id is not None and table.id.form is not None:
        if table.id.form not in FORMS:
            raise CatalogError(
                f'table {table.name}: id has no form "{table.id.form}"',
                f"Forms are {', '.join(FORMS)}.",
            )
        if len(table.key) != 1:
            raise CatalogError(f"table {table.name}: an id is a key of one column")
        for name in (*table.id.of, *filter(None, [table.id.unless])):
            if name not in table.columns or name in table.key:
                raise CatalogError(f"table {table.name}: id names no other column {name}")
    if table.duplicates not in ("skip", "reject"):
        raise CatalogError(f"table {table.name}: duplicates is skip or reject")
