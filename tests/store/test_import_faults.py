"""What each importer of foreign history promises: whole files, resumption, limits, no row twice."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from import_layouts import LAYOUTS, Layout, break_record
from import_sources import count, import_source, kernel, query, write_json, write_lines

import store
from store.bounds import ParquetLimits
from store.errors import FlywheelError, ImportFailed
from store.foreign import parquet, text_files
from store.importers import accelopt, openevolve
from store.importers.reading import pieces, sources
from store.importers.reading.pieces import run_import

BY_NAME = {layout.name: layout for layout in LAYOUTS}
QUICK = ("agent-kernel-arena", "claude-code", "kernelbot")
"""One of each form of source; `make test-all` tries all."""
EACH = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in BY_NAME]


class Interrupted(Exception):
    """Raised by a test in the middle of an import."""


def interrupt(_: str, fresh: bool) -> None:
    """Stop an import after its first stored bundle."""
    if fresh:
        raise Interrupted


def write(layout: Layout, root: Path) -> Path:
    """Write a source and return what is imported."""
    root.mkdir()
    layout.write(root)
    return root / layout.path


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("name", EACH)
def test_what_cannot_be_read_is_named_and_an_import_resumes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pieces, "PIECE_RECORDS", 1)
    monkeypatch.setattr(pieces, "GROUP_BUNDLES", 1)
    layout, lake = BY_NAME[name], tmp_path / "lake"
    damaged = write(layout, tmp_path / "damaged")
    place = break_record(tmp_path / "damaged" / layout.target)
    told = ""
    try:
        assert import_source(lake, layout.importer, damaged, **layout.options).left_out == 1
    except ImportFailed as error:  # the file is all that there is
        told = str(error)
    assert (count(lake, "kernels") == 0) == bool(told)
    assert place in (told or caplog.text)

    source, lake = write(layout, tmp_path / "source"), tmp_path / "other"
    assert list(sources.detect(source)) == [name]
    config = layout.importer.Config(**layout.options)
    with store.writer(str(lake), author="tests") as writer:
        with pytest.raises(Interrupted):
            run_import(writer, layout.importer, source, config, interrupt)
        resumed = run_import(writer, layout.importer, source, config)
        again = run_import(writer, layout.importer, source, config)
    assert resumed.skipped == 1
    assert (resumed.left_out, resumed.unread) == (0, 0)
    assert resumed.files >= 1
    assert (again.rows, again.files) == ({}, 0)
    stated = "MIT" if name == "kernelbook" else config.license
    assert query(lake, "SELECT DISTINCT license FROM kernels") == [(stated,)]
    assert query(lake, "SELECT DISTINCT license FROM generations") == [(stated,)]
    assert count(lake, "timings") == 0


@pytest.mark.slow
def test_bombs_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 1 << 20)
    lake, file = tmp_path / "lake", tmp_path / "evolution_trace.jsonl"
    first = '{"child_id": "a", "parent_id": "b", "child_metrics": {}}\n'
    bad = {
        '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}": "line 2 is nested",
        '{"a": ' + "9" * 100_000 + "}": "line 3 is left out",
        '{"a": 1, "a": 2}': "line 4 is left out: an object has the name 'a' twice",
        "[]": "line 5 is left out: an object is expected",
        '{"a": "' + "x" * (2 << 20) + '"}': "line 6 is longer than 1 MiB",
    }
    file.write_text(first + "".join(f"{line}\n" for line in bad))
    assert import_source(lake, openevolve, file).left_out == len(bad)
    for message in bad.values():
        assert message in caplog.text
    packed = file.with_name("evolution_trace.jsonl.gz")
    packed.write_bytes(gzip.compress(first.encode() + b"x" * (64 << 20)))
    assert packed.stat().st_size < 1 << 20
    import_source(lake, openevolve, packed)
    assert "evolution_trace.jsonl.gz, line 2 is longer than 1 MiB" in caplog.text
    assert query(lake, "SELECT count(*) FROM generations") == [(2,)]


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("name", [one.name for one in LAYOUTS if one.target.endswith(".parquet")])
def test_parquet_that_expands_is_refused(name: str, tmp_path: Path) -> None:
    source = write(BY_NAME[name], tmp_path / "source")
    limits = ParquetLimits(max_file_gb=1e-7)
    with (
        parquet.use_limits(limits),
        pytest.raises(FlywheelError, match="allowed for this file"),
    ):
        import_source(tmp_path / "lake", BY_NAME[name].importer, source)
    assert count(tmp_path / "lake", "kernels") == 0


def test_a_source_without_rows_is_no_silent_success(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write_json(tmp_path / "executor_results.json", {"executor_results": None})
    import_source(tmp_path / "lake", accelopt, file)
    assert f"{file} has no row that accelopt reads" in caplog.text


def test_a_number_that_another_unit_makes_infinite_is_absent(tmp_path: Path) -> None:
    layout, source = BY_NAME["kernelbot"], tmp_path / "source"
    write(layout, source)
    rows = pq.read_table(source / layout.target).to_pylist()
    table = pa.Table.from_pylist([row | {"score": 1e308} for row in rows])
    pq.write_table(table, source / layout.target)
    import_source(tmp_path / "lake", layout.importer, source)
    assert count(tmp_path / "lake", "kernels") == 2
    assert query(tmp_path / "lake", "FROM claims WHERE metric <> 'correct'") == []


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    outside = write_lines(tmp_path / "outside.jsonl", [{"child_id": "a", "parent_id": "b"}])
    folder = tmp_path / "source"
    folder.mkdir()
    step = {"child_id": "a", "parent_id": "b", "child_metrics": {}, "child_code": kernel()}
    write_lines(outside, [step])
    (folder / "evolution_trace.jsonl").symlink_to(outside)
    with pytest.raises(ImportFailed, match="is a link to"):
        import_source(tmp_path / "lake", openevolve, folder)
    assert query(tmp_path / "lake", "SELECT count(*) FROM kernels") == [(0,)]


def test_links_to_folders_are_named_and_a_mark_of_byte_order_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "source"
    (folder / "inside").mkdir(parents=True)
    (folder / "again").symlink_to(folder / "inside")
    (folder / "jobs").symlink_to(tmp_path, target_is_directory=True)
    step = {"child_id": "a", "parent_id": "b", "child_metrics": {}, "child_code": kernel()}
    file = write_lines(folder / "inside" / "evolution_trace.jsonl", [step])
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    done = import_source(tmp_path / "lake", openevolve, folder)
    assert (done.left_out, done.unread, count(tmp_path / "lake", "kernels")) == (0, 1, 1)
    assert "1 link to a folder (jobs)" in caplog.text
