"""docs/cluster.md: engines beside DuckDB read an export, and get the figures of the lake."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import store
from store.exporters import parquet
from store.exporters.writing.run import Tables, export
from store.importers import starter
from store.importers.reading.pieces import run_import

PAGE = (Path(store.__file__).parents[1] / "docs" / "cluster.md").read_text("utf-8")
[POLARS] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
QUERY = """
SELECT task_id, arm, count(*) AS sessions, min(list_median(samples_ms)) AS best_ms
FROM timings GROUP BY ALL
"""


@pytest.fixture
def lake(lake_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> store.Lake:
    """Return a lake of measured kernels, whose timings are exported as several files."""
    monkeypatch.setattr(parquet, "FILE_ROWS", 1000)
    monkeypatch.setattr("store.exporters.writing.run.BATCH_ROWS", 250)
    with store.writer(lake_url, author="tests") as writer:
        run_import(writer, starter, None, starter.Config())
    opened = store.open(lake_url)
    export(opened, parquet, tmp_path / "tables", Tables(tables=("timings",)))
    assert len(list((tmp_path / "tables" / "timings.parquet").iterdir())) > 1
    return opened


def run_example(code: str, folder: Path, end: str) -> list[dict[str, Any]]:
    """Run an example of the page beside the exported tables; return the rows of its figures."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json\nprint(json.dumps(figures.{end}))"],
        cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def require_same(rows: list[dict[str, Any]], lake: store.Lake) -> None:
    """Require the rows that DuckDB gives for the same question; samples are 32-bit floats."""
    expected = {(row["task_id"], row["arm"]): row for row in lake.sql(QUERY).rows()}
    assert len(expected) == len(rows) == 90
    for row in rows:
        own = expected[row["task_id"], row["arm"]]
        assert row["sessions"] == own["sessions"]
        assert row["best_ms"] == pytest.approx(own["best_ms"], rel=1e-6)


@pytest.mark.slow
def test_polars_reads_an_export(lake: store.Lake, tmp_path: Path) -> None:
    require_same(run_example(POLARS, tmp_path, "to_dicts()"), lake)
