"""The spool: bundles as files, written durably and read back whole."""

from __future__ import annotations

import hashlib
import json
import os
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from store.errors import FlywheelError
from store.schema.catalog import Catalog
from store.schema.tables import Table
from store.writing.bundle import Bundle, conform, serialize

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = ".bundle"
_CRC_BYTES = 4


def write_bundle(folder: Path, bundle: Bundle) -> Path:
    """Write a bundle durably into the spool and return its file.

    It is complete once it carries its final name: temporary name, fsync, rename, fsync of the
    folder. The names sort in order of arrival.
    """
    folder.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(bundle.bundle_id.encode()).hexdigest()[:16]
    final = folder / f"{time.time_ns():020d}-{os.getpid()}-{name}{SUFFIX}"
    temporary = final.with_suffix(".partial")
    with open(temporary, "wb") as handle:
        handle.write(encode(bundle))
        handle.flush()
        os.fsync(handle.fileno())
    temporary.rename(final)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return final


def encode(bundle: Bundle) -> bytes:
    """Return a bundle as bytes: a line of JSON, one Arrow stream for each table, and a checksum.

    The line holds the words and the length of each stream in bytes; the last four bytes are the
    CRC-32 of all before them.
    """
    parts = {name: serialize(rows) for name, rows in bundle.tables.items()}
    header = {
        "bundle_id": bundle.bundle_id,
        "message": bundle.message,
        "author": bundle.author,
        "tables": {name: len(part) for name, part in parts.items()},
    }
    whole = b"".join([json.dumps(header).encode(), b"\n", *parts.values()])
    return whole + zlib.crc32(whole).to_bytes(_CRC_BYTES)


def decode(catalog: Catalog, data: bytes) -> Bundle:
    """Read a bundle back and verify its checksum.

    Raises FlywheelError if it names tables or columns that the catalog lacks, ValueError if it is
    incomplete.
    """
    try:
        if zlib.crc32(data[:-_CRC_BYTES]).to_bytes(_CRC_BYTES) != data[-_CRC_BYTES:]:
            raise ValueError("the checksum differs")
        place = data.index(b"\n") + 1
        header = json.loads(data[:place])
        words = {name: str(header[name]) for name in ("bundle_id", "message", "author")}
        tables: dict[str, pa.Table] = {}
        for name, length in header["tables"].items():
            rows = _read_ipc(data[place : place + length])
            tables[name] = _add_columns(catalog.table(name), rows)
            place += length
    except FlywheelError:
        raise
    except Exception as error:  # damaged bytes end in exceptions of every kind
        raise ValueError(f"not a whole bundle: {error!r}") from error
    return Bundle(tables=tables, **words)


def _add_columns(table: Table, rows: pa.Table) -> pa.Table:
    """Return rows that were checked when they were spooled, with the columns added since then."""
    return rows if rows.schema.equals(table.open_schema) else conform(table, rows)


def _read_ipc(data: bytes) -> pa.Table:
    import pyarrow as pa

    return pa.ipc.open_stream(data).read_all()
