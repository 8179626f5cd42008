"""Plain rows of task, code and reward become attempts; a bad row costs only itself."""

from __future__ import annotations

import csv
import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from new_lakes import copy_starter_lake

import store
from store import ids
from store.errors import ImportFailed, UnknownName
from store.importers import rows
from store.importers.reading import pieces, sources
from store.importers.reading.pieces import ImportSummary, run_import

CODE = "class ModelNew:\n    number = {n}\n"
TASK = "class Model: ...\n\n\ndef get_inputs(): ...\n\n\ndef get_init_inputs(): ...\n"


def row(n: int, **changes: Any) -> dict[str, Any]:
    columns = {"task": "layer_norm", "code": CODE.format(n=n), "reward": n / 2}
    return columns | {"prompt": "Make it fast.", "model": "m", "step": n} | changes


def write_json_lines(file: Path, records: list[Any]) -> Path:
    lines = [one if isinstance(one, str) else json.dumps(one) for one in records]
    file.write_text("\n".join(lines) + "\n")
    return file


def write_csv(file: Path, records: list[dict[str, Any]]) -> Path:
    with file.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, list(records[0]))
        writer.writeheader()
        writer.writerows(records)
    return file


def write_stream(file: Path, records: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(records)
    with pa.ipc.new_stream(str(file), table.schema) as stream:
        stream.write_table(table)


@pytest.fixture
def url(tmp_path: Path) -> str:
    copy_starter_lake(tmp_path / "lake")
    return str(tmp_path / "lake")


def import_rows(url: str, file: Path, **options: Any) -> ImportSummary:
    with store.writer(url, author="tests") as writer:
        return run_import(writer, rows, file, rows.Config(**options))


def list_attempts(url: str) -> list[tuple[Any, ...]]:
    with store.open(url) as lake:
        found = lake.sql(
            "SELECT task, code, raw, rule, policy_id, attempts.step, "
            "messages IS NOT NULL AS prompted "
            "FROM generations AS attempts "
            "JOIN task_names USING (task_id) JOIN kernels USING (kernel_id) "
            "LEFT JOIN rewards USING (generation_id) LEFT JOIN prompts USING (prompt_id) "
            "WHERE attempts.source = 'rows' ORDER BY raw, code"
        ).rows()
    return [tuple(one.values()) for one in found]


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("suffix", [".jsonl", ".CSV.gz", ".parquet", ".feather", ".arrow"])
def test_each_format_gives_the_same_attempts(url: str, tmp_path: Path, suffix: str) -> None:
    file, records = tmp_path / f"mine{suffix}", [row(n) for n in range(3)]
    table = pa.Table.from_pylist(records)
    match suffix:
        case ".jsonl":
            write_json_lines(file, records)
        case ".CSV.gz":
            file.write_bytes(gzip.compress(write_csv(tmp_path / "a.csv", records).read_bytes()))
        case ".parquet":
            pq.write_table(table, file)
        case ".feather":
            feather.write_feather(table, str(file))
        case _:
            write_stream(file, records)
    assert sources.detect(file)["rows"] == "columns task, code"
    assert import_rows(url, file).rows["generations"] == 3
    assert list_attempts(url) == [
        ("layer_norm", CODE.format(n=n), n / 2, "reward", "m", n, True) for n in range(3)
    ]
    assert import_rows(url, file).rows == {}
    assert len(list_attempts(url)) == 3


@pytest.mark.slow
def test_columns_are_mapped_and_a_task_is_a_name_an_id_or_a_text(url: str, tmp_path: Path) -> None:
    with store.open(url) as lake:
        [task] = lake.sql("SELECT task_id, code FROM tasks ORDER BY task_id LIMIT 1").rows()
    named = ["starter/layer_norm", task["task_id"], task["task_id"][:10], task["code"]]
    file = write_csv(
        tmp_path / "mine.csv",
        [{"problem": name, "answer": CODE.format(n=n)} for n, name in enumerate(named)],
    )
    with pytest.raises(ImportFailed, match="has no column task, code\nIt has problem, answer"):
        import_rows(url, file)
    with pytest.raises(UnknownName, match='Did you mean "task"'):
        import_rows(url, file, map=("tsk=problem",))
    import_rows(url, file, map=("task=problem,code=answer",), policy="alice")
    assert [one[2:6] for one in list_attempts(url)] == [(None, None, "alice", None)] * 4
    plain = write_csv(tmp_path / "plain.csv", [{"code": CODE.format(n=9)}])
    import_rows(url, plain, task="layer_norm")
    assert [one[4] for one in list_attempts(url)].count("plain") == 1


@pytest.mark.slow
def test_a_bad_row_costs_that_row_and_is_named(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad = [
        "{broken",
        row(2, task="nothing"),
        row(3, code=""),
        row(4, reward="fast"),
        row(5, step=-1),
        row(6, prompt=7),
        "[]",
        row(7, code="a\0b"),
        row(8, task="\ud800"),
    ]
    file = write_json_lines(tmp_path / "mine.jsonl", [row(0), *bad, row(9)])
    with caplog.at_level(logging.WARNING):
        assert import_rows(url, file).rows["generations"] == 2
    messages = [record.getMessage() for record in caplog.records]
    assert messages[-1] == "9 of 11 rows are left out"
    for number, message in enumerate(messages[:-1], start=2):
        assert any(f"{file}, line {number} is left out: " in one for one in messages), message
    assert [one[5] for one in list_attempts(url)] == [0, 9]
    ragged = write_csv(tmp_path / "mine.csv", [row(1)])
    ragged.write_text(ragged.read_text() + "layer_norm,a,b,c,d,e,f\nlayer_norm\n")
    assert import_rows(url, ragged).rows["generations"] == 1
    latin = write_csv(tmp_path / "latin.csv", [row(1), row(2, code="x = 1 # caf")])
    latin.write_bytes(latin.read_bytes().replace(b"# caf", b"# caf\xe9"))
    assert import_rows(url, latin).rows["generations"] == 1
    assert "latin.csv, line 5 is left out: not UTF-8" in caplog.text
    lines = write_json_lines(tmp_path / "cut.jsonl", [row(n) for n in range(300)]).read_bytes()
    (cut := tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(lines)[:-20])
    assert import_rows(url, cut).rows["generations"] > 100
    assert "is left out: Compressed file ended before" in caplog.text
    hopeless = write_json_lines(tmp_path / "other.jsonl", [row(1, task="nothing")])
    with pytest.raises(ImportFailed, match=r"no row .*\nImport the tasks first"):
        import_rows(url, hopeless)


def test_a_header_counts_without_rows_and_names_a_column_once(url: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("task,code,,\n")
    with pytest.raises(ImportFailed, match=r"no row of .* can be imported"):
        import_rows(url, file)
    file.write_text("task,code,code\nlayer_norm,x = 1,y = 2\n")
    with pytest.raises(ImportFailed, match="has the column 'code' twice"):
        import_rows(url, file)
    file.write_text("task,code\nlayer_norm,x\n", encoding="utf-16")
    with pytest.raises(ImportFailed, match=r"is UTF-16, not UTF-8\n`iconv"):
        import_rows(url, file)
    array = write_json_lines(tmp_path / "array.jsonl", [json.dumps([row(1)])])
    with pytest.raises(ImportFailed, match="line 1: an object is expected, not list"):
        import_rows(url, array)


@pytest.mark.slow
def test_an_interrupted_import_is_resumed(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE_RECORDS", 2)
    monkeypatch.setattr(pieces, "GROUP_BUNDLES", 1)
    file = write_json_lines(tmp_path / "mine.jsonl", [row(n) for n in range(6)])
    done: list[str] = []

    def stop(message: str, _: bool) -> None:
        done.append(message)
        if len(done) == 2:
            raise KeyboardInterrupt

    with store.writer(url, author="tests") as writer, pytest.raises(KeyboardInterrupt):
        run_import(writer, rows, file, rows.Config(), stop)
    summary = import_rows(url, file)
    assert (summary.files, summary.skipped) == (1, 2)
    assert [one[5] for one in list_attempts(url)] == list(range(6))


@pytest.mark.slow
def test_rows_enter_once_their_task_is_there(url: str, tmp_path: Path) -> None:
    file = write_json_lines(tmp_path / "mine.jsonl", [row(0), row(1, task=TASK)])
    assert import_rows(url, file).rows["rewards"] == 1
    text = ids.normalize(TASK)
    task = {"task_id": ids.task_id(text), "code": text, "source": "tests"}
    with store.writer(url, author="tests") as writer:
        writer.append({"tasks": [task]}, "a task")
    added = import_rows(url, file).rows
    assert (added["generations"], added["rewards"]) == (1, 1)
    assert import_rows(url, file).rows == {}
