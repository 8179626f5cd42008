"""Queries whose input rows are arguments, and results that stay inside DuckDB.

A step of a pipeline returns an Arrow table or a `Relation`, and the next step passes it to `query`
or `keep` under the name that the SQL reads it by. Steps share nothing else.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import store
from store.errors import UnknownName

if TYPE_CHECKING:
    import pyarrow as pa


_numbers = itertools.count()

Parameters: TypeAlias = "Sequence[object] | Mapping[str, object] | None"
Rows: TypeAlias = "pa.Table | Relation"
"""Input of a query."""


@dataclass(frozen=True, kw_only=True)
class Relation:
    """Rows that stay inside DuckDB, for later queries of the same lake."""

    sql: str
    """A query that reads no name that a later query binds."""

    def where(self, condition: str) -> Relation:
        """Return the rows that meet an SQL condition."""
        return Relation(sql=f"SELECT * FROM ({self.sql}) WHERE {condition}")


def query(lake: store.Lake, sql: str, parameters: Parameters = None, **inputs: Rows) -> pa.Table:
    """Return the answer to SQL of our own files.

    inputs: Rows that it reads, by the names that it uses for them.
    """
    _bind(lake, inputs)
    return lake.run(sql, parameters).arrow()


def keep(lake: store.Lake, sql: str, parameters: Parameters = None, **inputs: Rows) -> Relation:
    """Answer SQL of our own files into a table inside DuckDB; arguments are those of `query`."""
    _bind(lake, inputs)
    name = f"_kept_{next(_numbers)}"
    lake.keep(name, sql, parameters)
    return Relation(sql=f"FROM {name}")


def _bind(lake: store.Lake, inputs: Mapping[str, Rows]) -> None:
    for name, rows in inputs.items():
        if isinstance(rows, Relation):
            lake.define(name, rows.sql)
        else:
            lake.register(name, rows)


OURS = Path(__file__).parent.parent / "sql"
OWN = Path("flywheel/pipelines/sql")


@functools.cache
def sql(folder: str, name: str) -> str:
    """Return the SQL file `name` of a pipeline's folder, or of `shared`; raises UnknownName.

    The user's own pipelines have their files in ./flywheel/pipelines/sql/<pipeline>/.
    """
    for root in (OURS, OWN):
        file = root / folder / f"{name}.sql"
        if file.is_file():
            return store.read_statement(file)
    known = [file.stem for root in (OURS, OWN) for file in (root / folder).glob("*.sql")]
    raise UnknownName.among(f"SQL file of {folder}", name, known)


def sql_hash(folder: str) -> str:
    """Return the sha256 over the SQL files that a pipeline may use: its own and the shared ones."""
    digest = hashlib.sha256()
    for root in (OURS / "shared", OURS / folder, OWN / folder):
        for file in sorted(root.glob("*.sql")):
            digest.update(f"{root.name}/{file.name}\0{file.read_text('utf-8')}\0".encode())
    return digest.hexdigest()
