"""Tables or views as JSON lines, one file each; times are ISO 8601 in UTC."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from store.commandline.display import list_rows
from store.exporters.writing.run import Tables, stream_tables
from store.lake.reader import Lake

Config = Tables


def write(lake: Lake, folder: Path, config: Tables) -> dict[str, int]:
    """Write TABLE.jsonl for every table with rows."""
    rows = files = 0
    for name, stream in stream_tables(lake, config):
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as handle:
            for batch in stream:
                for row in list_rows(batch):
                    handle.write(json.dumps(_make_plain(row), ensure_ascii=False) + "\n")
                rows += batch.num_rows
        files += 1
    return {"files": files, "rows": rows}


def _make_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _make_plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_make_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    return value.isoformat() if isinstance(value, date) else value
