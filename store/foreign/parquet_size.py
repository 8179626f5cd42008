"""Measures what Parquet files expand to; a program of its own, run by `store.foreign.parquet`.

Reads a JSON object from standard input: `files`, `file_bytes`, `total_bytes`, `rows`. Writes one
JSON line per file, {"bytes": N} or {"error": TEXT}, and stops at the first that is too large. The
process limits its own memory and processor time first, so that a file with false metadata can only
end this process. It imports only pyarrow and the standard library.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from typing import Any

OWN_BYTES = 3 << 30
"""Address space for the interpreter, the libraries, and a second copy while a batch is made."""
CPU_S = 1800
BUFFER_BYTES = 1 << 20


def main() -> None:
    """Measure the files that standard input names."""
    # The default allocator reserves address space in advance, which would count against the limit.
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"
    # pyarrow imports NumPy if it can, which doubles the time of its import. Nothing here needs it.
    sys.modules["numpy"] = None  # pyright: ignore[reportArgumentType]
    asked = json.load(sys.stdin)
    _limit(resource.RLIMIT_AS, asked["file_bytes"] + OWN_BYTES)
    _limit(resource.RLIMIT_CPU, CPU_S)
    _limit(resource.RLIMIT_CORE, 0)
    total = 0
    for file in asked["files"]:
        found = _measure(file, asked["file_bytes"], asked["total_bytes"] - total, asked["rows"])
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()
        if "error" in found and not found.get("damaged"):
            return
        total += found.get("bytes", 0)


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def _measure(file: str, file_bytes: int, left_bytes: int, rows: int) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    allowed = min(file_bytes, left_bytes)
    what = "this file" if file_bytes <= left_bytes else "all files"
    try:
        opened = pq.ParquetFile(file, buffer_size=BUFFER_BYTES)
        meta = opened.metadata
        if meta.num_rows > rows:
            return {"error": f"states {meta.num_rows} rows, where {rows} are allowed"}
        # A page is decompressed as a whole, so check the size that the metadata states first.
        stated = sum(meta.row_group(at).total_byte_size for at in range(meta.num_row_groups))
        if stated > allowed:
            return {"error": f"states {stated} bytes, where {allowed} are allowed for {what}"}
        seen = 0
        for batch in opened.iter_batches(1_000, use_threads=False):
            seen += batch.nbytes
            if seen > allowed:
                return {"error": f"expands to more than the {allowed} bytes allowed for {what}"}
    except MemoryError:
        return {"error": f"expands to more than the {allowed} bytes allowed for {what}"}
    except (pa.ArrowException, OSError, ValueError) as error:
        return {"error": f"cannot be read as Parquet: {error!s:.300}", "damaged": True}
    return {"bytes": seen}


if __name__ == "__main__":
    main()
