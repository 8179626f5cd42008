"""What happens inside a commit: keys and references against the lake, then the inserts.

Every function here runs inside the caller's transaction and under the lake's lock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from store import bundle as bundles
from store import validate
from store.bundle import Bundle, Rows
from store.catalog import Catalog, Table
from store.errors import RowsRejected
from store.validate import Need, columns, describe

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

GROUP_BUNDLES = 256
GROUP_BYTES = 256 << 20
STREAM_ROWS = 250_000
STREAM_BYTES = 768 << 20


def groups(files: list[Path]) -> Iterator[list[Path]]:
    """Cut waiting spool files into groups that are committed in one transaction each."""
    group: list[Path] = []
    size = 0
    for file in files:
        length = file.stat().st_size
        if group and (len(group) == GROUP_BUNDLES or size + length > GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(file)
        size += length
    if group:
        yield group


def committed(connection: duckdb.DuckDBPyConnection, bundle_ids: list[str]) -> set[str]:
    """Return those of the bundle ids that the lake already holds."""
    rows = connection.execute(
        "SELECT bundle_id FROM lake.ingest_log WHERE bundle_id IN (SELECT unnest(?))", [bundle_ids]
    ).fetchall()
    return {str(row[0]) for row in rows}


def log(
    connection: duckdb.DuckDBPyConnection, stored: list[Bundle], counts: list[dict[str, int]]
) -> None:
    """Write the ingest_log rows of bundles."""
    import pyarrow as pa

    now = datetime.now(UTC)
    rows = pa.table(
        {
            "bundle_id": [made.bundle_id for made in stored],
            "author": [made.author for made in stored],
            "message": [made.message for made in stored],
            "row_counts": [json.dumps(count) for count in counts],
            "committed_at": pa.array([now] * len(stored), pa.timestamp("us", tz="UTC")),
        }
    )
    connection.register("_log", rows)
    connection.execute("INSERT INTO lake.ingest_log BY NAME SELECT * FROM _log")
    connection.unregister("_log")


def group(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, made: list[Bundle]
) -> dict[int, RowsRejected]:
    """Insert the rows of bundles that keep keys and references; return the others by position."""
    staged = _stage(connection, catalog, made)
    alive = set(range(len(made)))
    rejected: dict[int, RowsRejected] = {}
    for table in staged.values():
        rejected |= _stored_keys(connection, table)
    # A bundle may point at rows of another one that is refused: repeat until nothing falls.
    while True:
        alive -= rejected.keys()
        if not alive:
            break
        more = _dangling(connection, catalog, staged, alive, all_alive=len(alive) == len(made))
        if not more:
            break
        rejected |= more
    if alive:
        for table in staged.values():
            _insert_staged(connection, table, alive, all_alive=len(alive) == len(made))
        kept = [made[index] for index in sorted(alive)]
        counts = [{name: rows.num_rows for name, rows in b.tables.items()} for b in kept]
        log(connection, kept, counts)
    for table in staged.values():
        connection.unregister(f"_stage_{table.name}")
    return rejected


def stream(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    tables: Mapping[str, Rows | pa.RecordBatchReader],
) -> dict[str, int]:
    """Insert tables chunk by chunk, checking each; keys and references stand at the end.

    Returns rows inserted per table. Memory is bounded by a chunk and the narrow key columns.
    """
    counts: dict[str, int] = {}
    wanted: list[Need] = []
    for name, rows in tables.items():
        table = catalog.table(name)
        counts[name] = 0
        for index, chunk in enumerate(_chunks(rows)):
            conformed = bundles.conform(table, chunk)
            connection.register("_chunk", conformed)
            validate.check_rules(connection, catalog, table, "_chunk")
            validate.check_repeats(connection, table, "_chunk")
            counts[name] += _insert_chunk(connection, table)
            for position, need in enumerate(validate.needs(catalog, table, "_chunk")):
                values = f"_need_{name}_{position}"
                if index == 0:
                    connection.execute(f"CREATE TEMP TABLE {values} AS {need.values}")
                    wanted.append(Need(table, need.column, need.target, f"FROM {values}"))
                else:
                    connection.execute(f"INSERT INTO {values} {need.values}")
            connection.unregister("_chunk")
    for need in wanted:
        missing = _missing(connection, need)
        if missing:
            raise RowsRejected(
                need.table.name,
                validate.reference_rule(need),
                len(missing),
                describe((need.column,), [(value,) for value in missing[: validate.EXAMPLES]]),
            )
        connection.execute(f"DROP TABLE {need.values.removeprefix('FROM ')}")
    return counts


def _stage(
    connection: duckdb.DuckDBPyConnection, catalog: Catalog, made: list[Bundle]
) -> dict[str, Table]:
    """Register the rows of all bundles, table by table, with the position of their bundle."""
    import pyarrow as pa

    staged: dict[str, Table] = {}
    for name, table in catalog.tables.items():
        parts: list[pa.Table] = []
        for index, one in enumerate(made):
            if name in one.tables and one.tables[name].num_rows:
                rows = one.tables[name]
                position = pa.repeat(pa.scalar(index, pa.int32()), rows.num_rows)
                parts.append(rows.append_column("_bundle", position))
        if parts:
            connection.register(f"_stage_{name}", pa.concat_tables(parts))
            staged[name] = table
    return staged


def _stored_keys(connection: duckdb.DuckDBPyConnection, table: Table) -> dict[int, RowsRejected]:
    """Find bundles that repeat a key of the lake or of an earlier bundle where that is refused."""
    if table.duplicates == "skip":
        return {}
    key = columns(table.key)
    rows = connection.execute(
        f"""
        WITH candidates AS (
            SELECT {key}, _bundle, _bundle <> min(_bundle) OVER (PARTITION BY {key}) AS repeated
            FROM _stage_{table.name}
        ), stored AS (
            SELECT DISTINCT {key} FROM lake.{table.name}
            JOIN (SELECT DISTINCT {key} FROM candidates) USING ({key})
        )
        SELECT _bundle, {key} FROM candidates WHERE repeated
        UNION ALL
        SELECT _bundle, {key} FROM candidates JOIN stored USING ({key})
        """
    ).fetchall()
    return _by_bundle(table, validate.unique_rule(table), table.key, rows)


def _dangling(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    staged: dict[str, Table],
    alive: set[int],
    *,
    all_alive: bool,
) -> dict[int, RowsRejected]:
    """Find bundles that refer to rows which neither the lake nor a surviving bundle holds."""
    rejected: dict[int, RowsRejected] = {}
    for table in staged.values():
        relation = _surviving(table, alive, all_alive=all_alive)
        for need in validate.needs(catalog, table, f"({relation})"):
            values = need.values
            if need.target.name in staged:
                known = _surviving(need.target, alive, all_alive=all_alive)
                values += f' AND v NOT IN (SELECT "{need.target.key[0]}" FROM ({known}))'
            missing = _missing(connection, Need(table, need.column, need.target, values))
            if not missing:
                continue
            is_list = table.columns[need.column].type.endswith("[]")
            test = "list_has_any" if is_list else "list_contains"
            value = f'"{need.column}"'
            arguments = f"{value}, ?" if is_list else f"?, {value}"
            rows = connection.execute(
                f"SELECT _bundle, {columns(table.key)}, {value} FROM ({relation}) "
                f"WHERE {test}({arguments})",
                [missing],
            ).fetchall()
            names = (*table.key, need.column)
            rejected |= _by_bundle(table, validate.reference_rule(need), names, rows)
    return rejected


def _missing(connection: duckdb.DuckDBPyConnection, need: Need) -> list[str]:
    """Return values that are no key of the target in the lake."""
    key = f'"{need.target.key[0]}"'
    # The join builds on the few values, so that their range prunes the lake's files.
    rows = connection.execute(
        f"""
        WITH needed AS MATERIALIZED (SELECT DISTINCT v FROM ({need.values})),
        found AS (SELECT DISTINCT v FROM lake.{need.target.name} JOIN needed ON v = {key})
        SELECT v FROM needed WHERE v NOT IN (FROM found) ORDER BY v
        """
    ).fetchall()
    return [str(row[0]) for row in rows]


def _by_bundle(
    table: Table, rule: str, names: tuple[str, ...], rows: list[tuple[object, ...]]
) -> dict[int, RowsRejected]:
    found: dict[int, list[tuple[object, ...]]] = {}
    for position, *values in rows:
        assert isinstance(position, int)
        found.setdefault(position, []).append(tuple(values))
    return {
        position: RowsRejected(
            table.name, rule, len(bad), describe(names, bad[: validate.EXAMPLES])
        )
        for position, bad in found.items()
    }


def _surviving(table: Table, alive: set[int], *, all_alive: bool) -> str:
    relation = f"FROM _stage_{table.name}"
    if all_alive:
        return relation
    return f"{relation} WHERE _bundle IN ({', '.join(map(str, sorted(alive)))})"


def _insert_staged(
    connection: duckdb.DuckDBPyConnection, table: Table, alive: set[int], *, all_alive: bool
) -> None:
    rows = _surviving(table, alive, all_alive=all_alive)
    if table.duplicates == "skip":
        rows = _unstored(connection, table, rows, order="_bundle")
    _insert(connection, table, rows)


def _insert_chunk(connection: duckdb.DuckDBPyConnection, table: Table) -> int:
    rows = "FROM _chunk"
    if table.duplicates == "skip":
        return _insert(connection, table, _unstored(connection, table, rows, order="NULL"))
    repeated = connection.execute(
        f"{_stored_among(table, rows)} LIMIT {validate.EXAMPLES}"
    ).fetchall()
    if repeated:
        raise RowsRejected(
            table.name, validate.unique_rule(table), len(repeated), describe(table.key, repeated)
        )
    return _insert(connection, table, rows)


def _insert(connection: duckdb.DuckDBPyConnection, table: Table, rows: str) -> int:
    names = columns(tuple(table.columns))
    inserted = connection.execute(
        f"INSERT INTO lake.{table.name} ({names}) SELECT {names} FROM ({rows})"
    ).fetchone()
    assert inserted is not None
    return int(inserted[0])


def _stored_among(table: Table, rows: str) -> str:
    """Return SQL for the keys of rows that the lake holds already."""
    key = columns(table.key)
    return (
        f"SELECT DISTINCT {key} FROM lake.{table.name} "
        f"JOIN (SELECT DISTINCT {key} FROM ({rows})) USING ({key})"
    )


def _unstored(
    connection: duckdb.DuckDBPyConnection, table: Table, rows: str, *, order: str
) -> str:
    """Return SQL for the rows whose key is new, each key once, the first by `order`.

    The rows carry whole texts, so the costly forms are used only where they are needed.
    """
    key = columns(table.key)
    found = connection.execute(
        f"SELECT count(*) > count(DISTINCT ({key})) FROM ({rows}) "
        f"UNION ALL SELECT count(*) > 0 FROM ({_stored_among(table, rows)})"
    ).fetchall()
    repeats, stored = bool(found[0][0]), bool(found[1][0])
    if stored:
        rows = f"SELECT * FROM ({rows}) ANTI JOIN ({_stored_among(table, rows)}) USING ({key})"
    if repeats:
        window = f"row_number() OVER (PARTITION BY {key} ORDER BY {order})"
        rows = f"SELECT * FROM ({rows}) QUALIFY {window} = 1"
    return rows


def _chunks(rows: Rows | pa.RecordBatchReader) -> Iterator[Rows]:
    import pyarrow as pa

    if not isinstance(rows, pa.RecordBatchReader):
        yield rows
        return
    batches: list[pa.RecordBatch] = []
    size = count = 0
    for batch in rows:
        batches.append(batch)
        size += batch.nbytes
        count += batch.num_rows
        if count >= STREAM_ROWS or size >= STREAM_BYTES:
            yield pa.Table.from_batches(batches, rows.schema)
            batches, size, count = [], 0, 0
    if batches or not count:
        yield pa.Table.from_batches(batches, rows.schema)
