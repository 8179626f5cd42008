"""An exported flashinfer-trace folder in the published flashinfer-bench, where it is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from new_lakes import copy_starter_lake

import store
from store.exporters import flashinfer_trace
from store.exporters.writing.run import Which, export
from store.importers import flashinfer_trace as importer
from store.importers.reading.pieces import run_import

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "exported_traces.py"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("flashinfer_bench") is None, reason="needs flashinfer-bench"
)


def use(tmp_path: Path) -> dict[str, str]:
    """Export the starter suite, and return the rows of the program's table."""
    with store.open(copy_starter_lake(tmp_path / "lake")) as lake:
        export(lake, flashinfer_trace, tmp_path / "out", Which(suite="starter", device="H200"))
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path / "out")],
        env=os.environ | {"FIB_CACHE_PATH": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    return dict(re.findall(r"^\| (.*?) \| (.*?) \|$", done.stdout, re.MULTILINE))


@pytest.mark.slow
def test_the_package_loads_builds_and_applies_what_is_exported(tmp_path: Path) -> None:
    rows = use(tmp_path)
    assert rows["definitions, solutions"] == "15, 101"
    assert rows["definitions with a best trace"] == "15"
    agreeing = re.search(r"(\d+) agrees", rows["solutions that passed, called here"])
    assert agreeing is not None
    assert int(agreeing[1]) >= 30
    assert "differs" not in rows["solutions that passed, called here"]
    assert "reference" not in rows["calls through apply"]


@pytest.mark.gpu
def test_traces_of_its_run_are_read_again(tmp_path: Path) -> None:
    rows = use(tmp_path)
    added = {what: int(n) for n, what in re.findall(r"(\d+) (\w+)", rows["traces that run added"])}
    assert added["PASSED"] >= 10
    assert rows["calls through apply"] == "15 kernel"
    with store.writer(str(tmp_path / "again"), author="tests") as writer:
        run_import(writer, importer, tmp_path / "out", importer.Config())
        with writer.reader() as lake:
            [row] = lake.sql("SELECT count(*) AS n FROM evaluations").rows()
    exported = int(rows["traces, of which passed"].partition(",")[0])
    assert row["n"] == exported + sum(added.values()) == exported + 15
