"""An exported flashinfer-trace folder in the published flashinfer-bench, where it is installed."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
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


def export_suite(tmp_path: Path) -> dict[str, int]:
    """Export the starter suite."""
    with store.open(copy_starter_lake(tmp_path / "lake")) as lake:
        which = Which(suite="starter", device="H200")
        return export(lake, flashinfer_trace, tmp_path / "out", which)


def use(tmp_path: Path) -> dict[str, str]:
    """Return the rows of the program's table about an export."""
    export_suite(tmp_path)
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


@pytest.mark.slow
def test_traces_that_the_package_writes_are_read_again(tmp_path: Path) -> None:
    counts = export_suite(tmp_path)
    code = (
        "import sys; from flashinfer_bench.data import TraceSet; "
        "made, given = map(TraceSet.from_path, sys.argv[1:]); "
        "[made.add_traces(traces) for traces in given.traces.values()]"
    )
    for part in ("definitions", "solutions", "workloads"):
        shutil.copytree(tmp_path / "out" / part, tmp_path / "theirs" / part)
    places = [str(tmp_path / "theirs"), str(tmp_path / "out")]
    subprocess.run([sys.executable, "-c", code, *places], check=True, timeout=300)
    assert count_imported(tmp_path / "theirs", tmp_path / "again") == counts["traces"]


def count_imported(folder: Path, lake: Path) -> int:
    """Import a dataset into a new lake, and return its number of verdicts."""
    with store.writer(str(lake), author="tests") as writer:
        run_import(writer, importer, folder, importer.Config())
        with writer.reader() as reader:
            [row] = reader.sql("SELECT count(*) AS n FROM evaluations").rows()
    return int(row["n"])


@pytest.mark.gpu
def test_traces_of_its_run_are_read_again(tmp_path: Path) -> None:
    rows = use(tmp_path)
    added = {what: int(n) for n, what in re.findall(r"(\d+) (\w+)", rows["traces that run added"])}
    assert added["PASSED"] >= 10
    assert rows["calls through apply"] == "15 kernel"
    exported = int(rows["traces (passed)"].partition(",")[0])
    count = count_imported(tmp_path / "out", tmp_path / "again")
    assert count == exported + sum(added.values()) == exported + 15
