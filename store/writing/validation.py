"""Check the rows of bundles against the rules that need no lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from store.schema import row_checks
from store.schema.catalog import Catalog
from store.writing import bundle as bundles
from store.writing.bundle import Rows

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


def check_bundles(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    given: Sequence[Mapping[str, Rows]],
) -> list[dict[str, pa.Table]]:
    """Return the rows of bundles in the catalog's schema; raise RowsRejected for the first defect.

    The rows of all bundles for a table are checked at once. Keys may repeat between bundles, which
    the commit decides on.
    """
    import pyarrow as pa

    checked: list[dict[str, pa.Table]] = [{} for _ in given]
    together: dict[str, list[pa.Table]] = {}
    for own, tables in zip(checked, given, strict=True):
        for name, rows in tables.items():
            own[name] = bundles.fit_schema(catalog.table(name), rows)
            together.setdefault(name, []).append(own[name])
    for name, parts in together.items():
        table = catalog.table(name)
        whole = pa.concat_tables(parts)
        if not bundles.is_whole(whole):
            for part in parts:
                bundles.conform(table, part)
        whole = whole.combine_chunks()
        row_checks.check_rows(connection, catalog, table, whole)
        if not row_checks.has_distinct_keys(table, whole):
            for part in parts:
                row_checks.check_keys(table, part)
    return checked
