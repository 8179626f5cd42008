"""Check ids against rows: find the rows whose id is not the hash of their content.

catalog.yaml says per table which columns an id is the hash of. The hashes are those of `store.ids`,
computed batch by batch. hashlib and json's encoder are several times as fast as DuckDB's sha256,
and this way each id has a single definition.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any

from store.errors import RowsRejected
from store.ids import compute_row_id
from store.schema.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

EXAMPLES = 3
BATCH_ROWS = 10_000


def is_bound(table: Table) -> bool:
    """Return whether the ids of a table can be computed from its rows."""
    return table.id is not None and table.id.form is not None


def list_columns(table: Table) -> tuple[str, ...]:
    """Return the columns that are needed to check the ids of a table, the id first."""
    if table.id is None or table.id.form is None:
        return ()
    return (*table.key, *table.id.of, *filter(None, [table.id.unless]))


def describe_id(table: Table) -> str:
    """Return the sentence that names what an id is."""
    hashed = ", ".join(table.id.of) if table.id is not None else ""
    return f"{table.key[0]} is the hash of {hashed}"


def find_wrong_ids(table: Table, rows: pa.Table) -> list[str]:
    """Return the ids that are not the hash of their row; a column that is missing is NULL."""
    made = table.id
    if made is None or made.form is None:
        return []
    wrong: list[str] = []
    for start in range(0, rows.num_rows, BATCH_ROWS):
        batch = rows.slice(start, BATCH_ROWS)
        stated = batch.column(table.key[0]).to_pylist()
        values = zip(*(_read_values(batch, name) for name in made.of), strict=False)
        exempt = repeat(None) if made.unless is None else _read_values(batch, made.unless)
        wrong += [
            str(one)
            for one, of, excuse in zip(stated, values, exempt, strict=False)
            if excuse is None and one != compute_row_id(made.form, made.kind, of)
        ]
    return wrong


def check_ids(table: Table, rows: pa.Table) -> None:
    """Raise RowsRejected if an id is not the hash of its row."""
    wrong = find_wrong_ids(table, rows)
    if wrong:
        examples = [f"{table.key[0]}={one!a:.90}" for one in wrong[:EXAMPLES]]
        raise RowsRejected(table.name, describe_id(table), len(wrong), examples)


def _read_values(rows: pa.Table, name: str) -> Any:
    """Return a column as Python values."""
    if name not in rows.column_names:
        return repeat(None)
    column = rows.column(name)
    return repeat(None) if column.null_count == len(column) else column.to_pylist()
