"""Rows measured in another lake join the texts that are here."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import store
from store.cli import show
from store.dossier import pages
from store.errors import ImportFailed, UnknownName
from store.importers import measured, starter
from store.importers.reading.pieces import run_import

DOCS = Path(store.__file__).parent.parent / "docs"


@pytest.fixture
def suite_lake(lake_url: str) -> str:
    """Return a lake with the starter suite and nothing measured."""
    with store.writer(lake_url, author="tests") as writer:
        run_import(writer, starter, None, starter.Config(measured=False))
    return lake_url


def import_folder(url: str, folder: Path) -> dict[str, int]:
    """Import a folder; return the rows added."""
    with store.writer(url, author="tests") as writer:
        return run_import(writer, measured, folder, measured.Config()).rows


@pytest.mark.slow
def test_what_belongs_to_kernels_of_the_lake_is_taken_and_only_once(
    suite_lake: str, tmp_path: Path
) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    for file in starter.MEASURED.glob("*.parquet"):
        (folder / file.name).write_bytes(file.read_bytes())
    rows = pq.read_table(folder / "timings.parquet")
    kernel = rows["kernel_id"][0].as_py()
    strange = pa.array(["0" * 64 if k == kernel else k for k in rows["kernel_id"].to_pylist()])
    place = rows.column_names.index("kernel_id")
    pq.write_table(rows.set_column(place, "kernel_id", strange), folder / "timings.parquet")
    added = import_folder(suite_lake, folder)
    unknown = sum(k == "0" * 64 for k in strange.to_pylist())
    assert unknown > 0
    assert added["timings"] == rows.num_rows - unknown
    assert sum(import_folder(suite_lake, folder).values()) == 0


@pytest.mark.slow
def test_rows_of_other_kernels_and_broken_files_are_refused(
    suite_lake: str, tmp_path: Path
) -> None:
    with pytest.raises(ImportFailed, match="belongs to a kernel"):
        import_folder(suite_lake, DOCS / "h200")
    (tmp_path / "evaluations.parquet").write_bytes(b"not Parquet")
    with pytest.raises(ImportFailed, match=r"evaluations\.parquet"):
        import_folder(suite_lake, tmp_path)
    with pytest.raises(ImportFailed, match="does not exist"):
        import_folder(suite_lake, tmp_path / "none")


@pytest.mark.slow
def test_a_shape_that_the_lake_does_not_have_comes_with_its_verdicts(
    suite_lake: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    evaluations = pq.read_table(starter.MEASURED / "evaluations.parquet").slice(0, 1)
    with store.open(suite_lake) as lake:
        workload = {**lake.sql("SELECT * FROM workloads WHERE name = 'default' LIMIT 1").rows()[0]}
        schema = lake.catalog.table("workloads").arrow_schema
    task = evaluations["task_id"][0].as_py()
    shape = store.ids.workload_id(task, '{"ROWS": 3}')
    workload |= {"workload_id": shape, "task_id": task, "name": "drawn", "axes": '{"ROWS": 3}'}
    pq.write_table(pa.Table.from_pylist([workload], schema), folder / "workloads.parquet")
    place = evaluations.column_names.index("workload_id")
    judged = evaluations.set_column(place, "workload_id", pa.array([shape]))
    pq.write_table(judged, folder / "evaluations.parquet")
    for name in ("devices", "runs"):
        rows = pq.read_table(starter.MEASURED / f"{name}.parquet")
        pq.write_table(rows, folder / f"{name}.parquet")
    added = import_folder(suite_lake, folder)
    assert (added["workloads"], added["evaluations"]) == (1, 1)
    assert "not read" not in caplog.text


@pytest.mark.parametrize("name", ["h100", "h200", "h200/judge-13"])
def test_shipped_rows_have_no_texts_and_no_names_of_machines(name: str) -> None:
    hidden = {"evaluations": "log", "findings": "quote", "runs": "host", "devices": "gpu_uuid"}
    for table, column in hidden.items():
        rows = pq.read_table(DOCS / name / f"{table}.parquet")
        assert rows[column].null_count == rows.num_rows > 0


@pytest.mark.slow
def test_a_task_is_shown_by_its_name(suite_lake: str, capsys: pytest.CaptureFixture[str]) -> None:
    import_folder(suite_lake, starter.MEASURED)
    with store.open(suite_lake) as lake:
        page = pages.read_page(lake, "diag_matmul")
        assert page.kind == "task"
        assert page.sections["Judged"].num_rows > 0
        assert page.sections["Measured"].num_rows > 0
        show.print_page(page, "table")
        show.print_page(page, "json")
        kernel = lake.sql("SELECT kernel_id FROM kernels LIMIT 1").rows()[0]["kernel_id"]
        assert pages.read_page(lake, kernel[:20]).kind == "kernel"
        with pytest.raises(UnknownName):
            pages.read_page(lake, "L9-99")
    printed = capsys.readouterr().out
    assert "Claimed: nothing published" in printed
    assert '"measured"' in printed


def test_the_page_counts_the_verdicts_of_version_13_as_its_rows_do() -> None:
    def read_own(name: str) -> dict[str, tuple[str, bool | None]]:
        folder = DOCS / "h200" / name
        devices = pq.read_table(folder / "devices.parquet").to_pylist()
        h200 = {row["device_id"] for row in devices if row["name"] == "H200"}
        outcomes: dict[str, tuple[str, bool | None]] = {}
        for row in pq.read_table(folder / "evaluations.parquet").to_pylist():
            # Rows of version 8 have an earlier name of the precision, and no other shapes.
            is_default = row.get("precision", row.get("policy")) == "torch_default"
            if row["device_id"] in h200 and is_default and row.get("protocol") != "shape":
                outcome = row["status"], row["equivalent"]
                # One fault on any card is enough.
                if outcomes.get(row["kernel_id"], ("correct", None))[0] == "correct":
                    outcomes[row["kernel_id"]] = outcome
        return outcomes

    before, since = read_own("."), read_own("judge-13")
    page = " ".join((DOCS / "h200" / "README.md").read_text("utf-8").split())
    same = sum(before[kernel] == since[kernel] for kernel in since)
    mended = sum(before[kernel][0] != "correct" == since[kernel][0] for kernel in since)
    assert f"`judge-13` has {len(since)} of the 210 kernels" in page
    assert f"{same} verdicts are the same; {mended} kernels with wrong" in page
    correct = sum(status == "correct" for status, _ in since.values())
    assert f"| all | {correct} |" in page
