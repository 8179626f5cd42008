"""What a lake holds is read again by others' formats, and by our own importers of these."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest

import store
from store.errors import ExportRefused, UnknownName
from store.exporters import cuda_l1, flashinfer_trace, jsonl, kernelbench_run, parquet
from store.exporters._attempts import Which
from store.exporters._tables import Tables
from store.exporting import export
from store.importers import _kernelbench_results as results
from store.importers import cuda_l1 as cuda_l1_importer
from store.importers import flashinfer_trace as flashinfer_importer
from store.importers import starter
from store.importing import run_import

STARTER = Which(suite="starter", device="H200")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a lake with the starter suite and its rows of an H200."""
    url = str(tmp_path_factory.mktemp("starter") / "lake")
    with store.writer(url, author="tests") as writer:
        run_import(writer, starter, None, starter.Config())
    return url


def imported(tmp_path: Path, module: ModuleType, source: Path, config: Any) -> store.Lake:
    """Return a new lake with what an importer reads."""
    url = str(tmp_path / "again")
    with store.writer(url, author="tests") as writer:
        run_import(writer, module, source, config)
    return store.open(url)


def test_parquet_holds_every_row_and_nothing_private(url: str, tmp_path: Path) -> None:
    with store.open(url) as lake:
        counts = export(lake, parquet, tmp_path / "out", Tables())
        total = 0
        for file in sorted((tmp_path / "out").glob("*.parquet")):
            table = lake.catalog.table(file.stem)
            opened = pq.ParquetFile(file)
            assert opened.metadata.row_group(0).column(0).has_offset_index
            private = {c.name for c in table.columns.values() if c.sensitivity == "private"}
            assert not private & set(opened.schema_arrow.names)
            stored = lake.run(f"SELECT count(*) AS n FROM {file.stem}").rows()[0]["n"]
            assert opened.metadata.num_rows == stored
            total += stored
    assert counts == {"files": len(list((tmp_path / "out").iterdir())), "rows": total}


def test_json_lines_of_a_view_are_its_rows(url: str, tmp_path: Path) -> None:
    with store.open(url) as lake:
        export(lake, jsonl, tmp_path / "out", Tables(tables=("best_kernels", "devices")))
        lines = (tmp_path / "out/best_kernels.jsonl").read_text("utf-8").splitlines()
        wanted = lake.run("SELECT kernel_id FROM best_kernels").rows()
    found = [json.loads(line) for line in lines]
    assert sorted(row["kernel_id"] for row in found) == sorted(row["kernel_id"] for row in wanted)
    assert all(row["measured_at"].endswith("+00:00") for row in found)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "best_kernels.jsonl",
        "devices.jsonl",
    ]


def test_a_kernelbench_run_names_kernels_verdicts_and_times(url: str, tmp_path: Path) -> None:
    with store.open(url) as lake:
        counts = export(lake, kernelbench_run, tmp_path / "out", STARTER)
        known = {row["kernel_id"]: row for row in lake.run("FROM kernels").rows()}
        samples = {
            tuple(round(ms, 6) for ms in row["samples_ms"])
            for row in lake.run("SELECT samples_ms FROM timings WHERE arm = 'kernel'").rows()
        }
    files = list((tmp_path / "out").rglob("*_kernel.py"))
    assert counts["kernels"] == len(files) == len(known)
    assert {one.read_bytes().decode() for one in files} == {row["code"] for row in known.values()}
    verdicts = 0
    means = {statistics.fmean(one) for one in samples}
    for judged in (tmp_path / "out").rglob("eval_results.json"):
        level = judged.parent.name.removeprefix("level")
        for entry in results.entries(judged.read_text("utf-8"), judged):
            verdicts += 1
            stem = f"level_{level}_problem_{entry.problem_id}_sample_{entry.sample_id}_kernel.py"
            assert (judged.parent / stem).is_file()
            assert entry.hardware == "H200"
            if entry.latency_ms is not None:
                assert min(abs(entry.latency_ms - mean) for mean in means) < 1e-5
    assert verdicts == counts["verdicts"] > 0


def test_cuda_l1_lines_become_claims_again(url: str, tmp_path: Path) -> None:
    with store.open(url) as lake:
        export(lake, cuda_l1, tmp_path / "out", STARTER)
        best = lake.run(
            "SELECT task_id, max(speedup) AS speedup FROM kernel_speedups "
            "WHERE device = 'H200' AND baseline = 'eager' AND NOT quarantined GROUP BY task_id"
        ).rows()
    assert (tmp_path / "out/optimized_cuda_code/h200.json").is_file()
    config = cuda_l1_importer.Config(source_revision="ours")
    with imported(tmp_path, cuda_l1_importer, tmp_path / "out", config) as again:
        claims = again.run(
            "SELECT task_id, speedup, gpu FROM claims WHERE baseline = 'eager'"
        ).rows()
    assert {row["gpu"] for row in claims} == {"H200"}
    assert {row["task_id"]: row["speedup"] for row in claims} == {
        row["task_id"]: row["speedup"] for row in best
    }


@pytest.mark.slow
def test_flashinfer_traces_become_verdicts_again(url: str, tmp_path: Path) -> None:
    with store.open(url) as lake:
        counts = export(lake, flashinfer_trace, tmp_path / "out", STARTER)
        codes = {row["code"] for row in lake.run("SELECT code FROM kernels").rows()}
    config = flashinfer_importer.Config()
    with imported(tmp_path, flashinfer_importer, tmp_path / "out", config) as again:
        statuses = again.run("SELECT status, count(*) AS n FROM evaluations GROUP BY ALL").rows()
        others = again.run(
            "SELECT part.code FROM (SELECT unnest(other_files) AS part FROM kernels) "
            "WHERE part.path = 'kernel.py'"
        ).rows()
    assert sum(row["n"] for row in statuses) == counts["traces"]
    assert {row["status"] for row in statuses} >= {"correct", "incorrect"}
    assert codes == {row["code"] for row in others}


def test_what_cannot_be_written_is_refused_and_leaves_nothing(url: str, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    with store.open(url) as lake:
        with pytest.raises(ExportRefused, match="is there already"):
            export(lake, parquet, tmp_path / "full", Tables())
        with pytest.raises(UnknownName, match="best_kernel"):
            export(lake, jsonl, tmp_path / "out", Tables(tables=("best_kernel",)))
        with pytest.raises(UnknownName, match="stater"):
            export(lake, kernelbench_run, tmp_path / "out", Which(suite="stater"))
        nobody = Which(suite="starter", policy="nobody")
        with pytest.raises(ExportRefused, match="no kernel of one Python file by nobody"):
            export(lake, kernelbench_run, tmp_path / "out", nobody)
    assert [file.name for file in tmp_path.iterdir()] == ["full"]
    assert (tmp_path / "full/mine.txt").read_text() == "mine"


def test_the_command_says_what_it_wrote(url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "store", "export", "jsonl", "out", "--lake", url,
         "--tables", "tasks"],
        capture_output=True, text=True, cwd=tmp_path, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("jsonl: 1 files, 15 rows → out (snapshot ")
