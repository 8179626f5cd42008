"""Options that several commands of `store` take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

from cyclopts import Parameter

from store.commandline.members import Common, Format
from store.lake.exclusions import Inclusions
from store.lake.limits import QueryLimits

if TYPE_CHECKING:
    import pyarrow as pa

    import store
    from store.lake.location import Location

At: TypeAlias = Annotated[
    str | None,
    Parameter(
        show_default=False,
        help="Read the lake at this tag, snapshot number or ISO time (default: newest).",
    ),
]
Include: TypeAlias = Annotated[Inclusions, Parameter(name="*", negative="")]
Limits: TypeAlias = Annotated[QueryLimits, Parameter(name="*")]
ListFormat: TypeAlias = Annotated[Format, Parameter(help="Format of the list.")]
QueryFormat: TypeAlias = Literal["table", "json", "csv", "parquet"]

COMMON = Common()
INCLUDING = Inclusions()
LIMITS = QueryLimits()


def open_lake(common: Common, at: str | None = None) -> store.Lake:
    """Open the lake that the options name."""
    import store

    return store.open(common.lake, at)


def locate_lake(common: Common) -> Location:
    """Return where the lake is that the options name."""
    from store.lake.location import Location

    return Location.of(common.lake)


def print_rows(rows: pa.Table, form: str, out: Path | None = None) -> None:
    """Print rows in the form that the options name."""
    from store.commandline import display

    display.write_rows(rows, form, out)
