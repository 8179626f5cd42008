"""The bytes of a record in the spool: bundles with their rows, and a checksum."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from store.errors import FlywheelError
from store.schema.catalog import Catalog
from store.schema.tables import Table
from store.writing.bundle import Bundle, conform, serialize

if TYPE_CHECKING:
    import pyarrow as pa

CRC_BYTES = 4
"""Bytes of the checksum at the end."""


def encode(bundles: Sequence[Bundle]) -> bytes:
    """Return bundles as bytes: a line of JSON, one Arrow stream for each table, and a checksum.

    The line states the bundles, how many rows of each table they have, and the length of each
    stream in bytes. A stream contains the rows of all bundles. The last four bytes are the CRC-32
    of all before them.
    """
    import pyarrow as pa

    rows: dict[str, list[pa.Table]] = {}
    for one in bundles:
        for name, table in one.tables.items():
            rows.setdefault(name, []).append(table)
    parts = {
        name: serialize(pa.concat_tables(some).combine_chunks()) for name, some in rows.items()
    }
    header = {
        "bundles": [
            {
                "bundle_id": one.bundle_id,
                "message": one.message,
                "author": one.author,
                "rows": {name: table.num_rows for name, table in one.tables.items()},
            }
            for one in bundles
        ],
        "tables": {name: len(part) for name, part in parts.items()},
    }
    whole = b"".join([json.dumps(header).encode(), b"\n", *parts.values()])
    return whole + zlib.crc32(whole).to_bytes(CRC_BYTES)


def decode(catalog: Catalog, data: bytes) -> list[Bundle]:
    """Read bundles back and verify their checksum.

    Raises FlywheelError if they name tables or columns that the catalog lacks, ValueError if they
    are incomplete.
    """
    if zlib.crc32(data[:-CRC_BYTES]).to_bytes(CRC_BYTES) != data[-CRC_BYTES:]:
        raise ValueError("the checksum differs")
    try:
        place = data.index(b"\n") + 1
        header = json.loads(data[:place])
        tables: dict[str, pa.Table] = {}
        for name, length in header["tables"].items():
            rows = _read_ipc(data[place : place + length])
            tables[name] = _add_columns(catalog.table(name), rows)
            place += length
        return list(_split_bundles(header["bundles"], tables))
    except FlywheelError:
        raise
    except Exception as error:  # damaged bytes end in exceptions of every kind
        raise ValueError(repr(error)) from error


def _split_bundles(
    stated: Sequence[Mapping[str, Any]], tables: Mapping[str, pa.Table]
) -> Iterator[Bundle]:
    """Yield bundles with their parts of the rows."""
    taken = dict.fromkeys(tables, 0)
    for one in stated:
        own: dict[str, pa.Table] = {}
        for name, rows in one["rows"].items():
            own[name] = tables[name].slice(taken[name], rows)
            taken[name] += rows
            if own[name].num_rows != rows:
                raise ValueError(f"rows of {name} are missing")
        words = {word: str(one[word]) for word in ("bundle_id", "message", "author")}
        yield Bundle(tables=own, **words)


def _add_columns(table: Table, rows: pa.Table) -> pa.Table:
    """Return rows that were checked when they were spooled, with the columns added since then."""
    return rows if rows.schema.equals(table.open_schema) else conform(table, rows)


def _read_ipc(data: bytes) -> pa.Table:
    import pyarrow as pa

    return pa.ipc.open_stream(data).read_all()
