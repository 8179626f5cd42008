"""Loads of several pieces and chunks: whole or not at all, whatever ends them."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import builders
import pyarrow as pa
import pytest

import store
from store import ids
from store.errors import LakeUnreachable, RowsRejected
from store.schema import catalog
from store.upkeep import integrity
from store.writing import bundle, transaction

TASK, KERNEL, DEVICE = builders.task(), builders.kernel(), builders.device()
SIZES = builders.workload(TASK)
JUDGED = builders.evaluation(KERNEL, TASK, SIZES, DEVICE)
BASE = {"tasks": [TASK], "kernels": [KERNEL], "devices": [DEVICE], "workloads": [SIZES]}
BATCH, PIECE, CHUNK, ROWS = 50, 100, 300, 1000
LATE = pytest.mark.parametrize(
    "place", [PIECE + 50, CHUNK + 50, ROWS - 1], ids=["a piece", "a chunk", "the last row"]
)

CHILD = """
import os, signal, sys
import pyarrow as pa
import store
from store import errors
from store.writing import transaction

url, name, start, stop, killed = *sys.argv[1:3], *map(int, sys.argv[3:])
transaction.CHUNK_ROWS, transaction.FIRST_SHARE = 300, 3
schema = pa.schema([(column, pa.string()) for column in ("policy_id", "name", "kind")])

def read():
    for place in range(start, stop, 50):
        if place == killed:
            os.kill(os.getpid(), signal.SIGKILL)
        ids = [f"p{number}" for number in range(place, place + 50)]
        yield pa.record_batch({"policy_id": ids, "name": [name] * 50, "kind": ["person"] * 50})

with store.writer(url, author=name) as writer:
    rows = pa.RecordBatchReader.from_batches(schema, read())
    writer.load({"policies": rows}, name, bundle_id=name)
    run = {"run_id": "r", "kind": "import", "created_at": "2026-01-01"}
    metric = {"run_id": "r", "name": "m", "created_at": "2026-01-01"}
    metrics = [metric | {"step": number, "value": 1.0} for number in range(start, stop)]
    try:
        writer.load({"metrics": metrics}, name, bundle_id=f"{name} metrics")
    except errors.RowsRejected as error:
        print(error.rule, error.count)
"""


@pytest.fixture(autouse=True)
def _shrink_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "CHUNK_ROWS", CHUNK)
    monkeypatch.setattr(transaction, "FIRST_SHARE", CHUNK // PIECE)


@pytest.fixture(autouse=True)
def _no_thread_stays() -> Iterator[None]:
    yield
    assert _list_busy() == []


def _list_busy() -> list[str]:
    """Name the threads that read or check; DuckDB's own are seen too, once they ran some Python."""
    return [one.name for one in threading.enumerate() if "Executor" in one.name]


def _policies(**at: dict[int, Any]) -> list[builders.Row]:
    """Return policies p0, p1, …; `at` gives columns other values at some places."""
    rows = [
        {"policy_id": f"p{n}", "name": str(n), "kind": "person", "created_at": builders.START}
        for n in range(ROWS)
    ]
    return _change(rows, at)


def _make_judged(**at: dict[int, Any]) -> list[builders.Row]:
    """Return evaluations e0, e1, …, likewise."""
    return _change([JUDGED | {"evaluation_id": f"e{n}"} for n in range(ROWS)], at)


def _change(rows: list[builders.Row], at: dict[str, dict[int, Any]]) -> list[builders.Row]:
    for column, values in at.items():
        for place, value in values.items():
            rows[place][column] = value
    return rows


def _stream(table: str, rows: list[builders.Row]) -> pa.RecordBatchReader:
    whole = bundle.conform(catalog.load().table(table), rows)
    return whole.to_reader(max_chunksize=BATCH)


def _make_ending(place: int, end: Any) -> pa.RecordBatchReader:
    """Return a stream of policies that calls something at a place; the rest may still be read."""
    whole = _stream("policies", _policies())

    def read() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(whole):
            if number == place // BATCH:
                end()
            yield batch

    return pa.RecordBatchReader.from_batches(whole.schema, read())


def _count(writer: store.Writer, table: str) -> int:
    row = writer._connection.execute(f"SELECT count(*) FROM lake.{table}").fetchone()
    assert row is not None
    return int(row[0])


def _loads_afterwards(writer: store.Writer) -> None:
    """Nothing was stored, and what was refused or cut short can be loaded under the same id."""
    assert _count(writer, "policies") == 0
    good = {"policies": _stream("policies", _policies())}
    assert writer.load(good, "good", bundle_id="load") is not None
    assert _count(writer, "policies") == ROWS
    assert integrity.check(writer.location) == []


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@LATE
def test_a_load_that_fails_late_leaves_nothing(writer: store.Writer, place: int) -> None:
    bad = {"policies": _stream("policies", _policies(kind={place: "robot"}))}
    with pytest.raises(RowsRejected, match="kind is one of") as caught:
        writer.load(bad, "bad", bundle_id="load")
    assert f"policy_id='p{place}'" in caught.value.examples[0]
    dangling = {"policies": _stream("policies", _policies()), "evaluations": [JUDGED]}
    with pytest.raises(RowsRejected, match="kernel_id is a kernel_id of kernels"):
        writer.load(dangling, "bad", bundle_id="load")
    _loads_afterwards(writer)


@pytest.mark.slow
def test_the_memory_of_a_load_does_not_grow_with_its_rows(writer: store.Writer) -> None:
    """References of earlier chunks are let go, though the transaction is the same."""
    kernels = [builders.kernel(code=f"n = {n}\n") for n in range(CHUNK)]
    writer.append({**BASE, "kernels": kernels}, "base")
    chunk = bundle.conform(
        catalog.load().table("evaluations"),
        [JUDGED | {"kernel_id": one["kernel_id"], "evaluation_id": "e"} for one in kernels],
    )
    at = chunk.schema.get_field_index("evaluation_id")
    held: list[int] = []

    def read() -> Iterator[pa.RecordBatch]:
        for number in range(40):
            held.append(pa.total_allocated_bytes())
            rows = pa.array([f"e{number}-{n}" for n in range(CHUNK)])
            yield from chunk.set_column(at, "evaluation_id", rows).to_batches(BATCH)

    rows = pa.RecordBatchReader.from_batches(chunk.schema, read())
    writer.load({"evaluations": rows}, "many", bundle_id="load")
    assert _count(writer, "evaluations") == 40 * CHUNK
    size = chunk.column("kernel_id").nbytes
    assert max(held[30:]) - max(held[:10]) < 5 * size


@pytest.mark.slow
@LATE
def test_an_error_of_the_source_is_the_one_that_is_raised(writer: store.Writer, place: int) -> None:
    def fail() -> None:
        raise ValueError(f"line {place} is malformed")

    with pytest.raises(ValueError, match="is malformed") as caught:
        writer.load({"policies": _make_ending(place, fail)}, "torn", bundle_id="load")
    # Nor does one wait as long as the error is kept, with all that its traceback holds.
    assert (str(caught.value), _list_busy()) == (f"line {place} is malformed", [])
    _loads_afterwards(writer)


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@LATE
def test_an_interrupt_ends_a_load(writer: store.Writer, place: int) -> None:
    def interrupt() -> None:
        os.kill(os.getpid(), signal.SIGINT)

    # Where a shell has started the tests in the background, the signal is ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            writer.load(
                {"policies": _make_ending(place, interrupt)}, "interrupted", bundle_id="load"
            )
    finally:
        signal.signal(signal.SIGINT, before)
    _loads_afterwards(writer)


def test_ducklake_does_not_search_the_variables_of_python(
    writer: store.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupt would be lost in such a search, which begins with the current frame."""
    searching: list[threading.Thread] = []

    def note() -> FrameType:
        searching.append(threading.current_thread())
        return sys._getframe(1)

    monkeypatch.setattr(inspect, "currentframe", note)
    writer.load({"policies": _stream("policies", _policies())}, "rows", bundle_id="load")
    # The checks read variables in a thread of their own, where no interrupt arrives.
    assert threading.main_thread() not in searching


@pytest.mark.slow
@pytest.mark.parametrize("pause_s", [0.0, 0.02], ids=["at once", "slowly"])
def test_a_load_ends_where_duckdb_cannot_write(writer: store.Writer, pause_s: float) -> None:
    """Slowly: one of DuckDB's threads waits for a piece while another finds that it cannot."""
    folder = Path(writer.location.files.url) / "main" / "policies"
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("in the way")
    whole = _stream("policies", _policies())

    def read() -> Iterator[pa.RecordBatch]:
        for batch in whole:
            time.sleep(pause_s)
            yield batch

    rows = pa.RecordBatchReader.from_batches(whole.schema, read())
    with pytest.raises(LakeUnreachable, match="policies is a file, not a folder"):
        writer.load({"policies": rows}, "m", bundle_id="load")
    assert _list_busy() == []
    folder.unlink()
    _loads_afterwards(writer)


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("place", [1, PIECE, CHUNK, ROWS - 1])
def test_a_key_that_comes_again_in_the_load(writer: store.Writer, place: int) -> None:
    twice = {"policies": _stream("policies", _policies(policy_id={place: "p0"}))}
    writer.load(twice, "the first stands", bundle_id="load")
    row = writer._connection.execute(
        "SELECT count(*), min(name) FILTER (policy_id = 'p0') FROM lake.policies"
    ).fetchone()
    assert row == (ROWS - 1, "0")
    repeated = _stream("evaluations", _make_judged(evaluation_id={place: "e0"}))
    with pytest.raises(RowsRejected, match="identifies one row") as caught:
        writer.load(BASE | {"evaluations": repeated}, "refused", bundle_id="bad")
    assert (caught.value.count, caught.value.examples) == (1, ["evaluation_id='e0'"])
    assert _count(writer, "kernels") == 0
    assert integrity.check(writer.location) == []


@pytest.mark.slow
def test_keys_that_the_lake_holds(writer: store.Writer) -> None:
    early, late = _make_judged()[5], _make_judged()[ROWS - 5]
    known = [{"policy_id": f"p{n}", "name": "known", "kind": "person"} for n in (7, ROWS - 7)]
    writer.append(BASE | {"evaluations": [early, late], "policies": known}, "known")
    with pytest.raises(RowsRejected, match="identifies one row") as caught:
        writer.load({"evaluations": _stream("evaluations", _make_judged())}, "m", bundle_id="bad")
    assert caught.value.count == 2
    assert caught.value.examples == ["evaluation_id='e5'", "evaluation_id='e995'"]
    writer.load({"policies": _stream("policies", _policies())}, "m", bundle_id="load")
    row = writer._connection.execute(
        "SELECT count(*), count(*) FILTER (name = 'known') FROM lake.policies"
    ).fetchone()
    assert row == (ROWS, 2)
    assert _count(writer, "evaluations") == 2
    assert integrity.check(writer.location) == []


@pytest.mark.slow
@LATE
def test_a_reference_that_is_missing_late(writer: store.Writer, place: int) -> None:
    rows = _make_judged(kernel_id={place: "0" * 64})
    with pytest.raises(RowsRejected, match="kernel_id is a kernel_id of kernels") as caught:
        writer.load(BASE | {"evaluations": _stream("evaluations", rows)}, "m", bundle_id="bad")
    assert caught.value.count == 1
    assert f"evaluation_id='e{place}'" in caught.value.examples[0]
    assert _count(writer, "kernels") == 0
    assert integrity.check(writer.location) == []


@pytest.mark.slow
def test_rows_refer_to_the_first_and_last_rows_of_their_load(writer: store.Writer) -> None:
    kernels = [builders.kernel(f"k{number}") for number in range(CHUNK + PIECE)]
    rows = [builders.evaluation(one, TASK, SIZES, DEVICE) for one in kernels]
    tables = {"kernels": _stream("kernels", kernels), "evaluations": _stream("evaluations", rows)}
    assert writer.load(BASE | tables, "good", bundle_id="good") is not None
    assert _count(writer, "evaluations") == len(kernels)
    assert integrity.check(writer.location) == []


@pytest.mark.slow
def test_a_load_does_not_hold_on_to_what_it_has_stored(
    writer: store.Writer, tmp_path: Path
) -> None:
    # The columns of a batch that was read from a stream share one buffer.
    rows = [row | {"message": "x" * 20_000} for row in _make_judged()[:BATCH]]
    whole = bundle.conform(catalog.load().table("evaluations"), rows)
    file = tmp_path / "rows.arrow"
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_stream(sink, whole.schema) as stream:
        at = whole.schema.get_field_index("evaluation_id")
        for part in range(50):
            ids = [f"{part}-{n}" for n in range(BATCH)]
            stream.write_table(whole.set_column(at, whole.schema.field(at), pa.array(ids)))
    held: list[int] = []

    def read(source: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        for batch in source:
            held.append(pa.total_allocated_bytes())
            yield batch

    with pa.OSFile(str(file), "rb") as opened:
        source = pa.ipc.open_stream(opened)
        reader = pa.RecordBatchReader.from_batches(source.schema, read(source))
        writer.load(BASE | {"evaluations": reader}, "m", bundle_id="load")
    assert _count(writer, "evaluations") == 50 * BATCH
    assert max(held) - held[0] < file.stat().st_size / 2


def _child(url: str, name: str, start: int, stop: int, killed: int = -1) -> subprocess.Popen[str]:
    arguments = [url, name, str(start), str(stop), str(killed)]
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize(
    "killed_at",
    [[CHUNK + 50], pytest.param([PIECE + 50, CHUNK + 50, ROWS - 50], marks=pytest.mark.slow)],
    ids=["one place", "several places"],
)
def test_a_load_that_is_killed_leaves_nothing(
    writer: store.Writer, lake_url: str, killed_at: list[int]
) -> None:
    for place in killed_at:
        killed = _child(lake_url, "load", 0, ROWS, place)
        killed.communicate()
        assert killed.returncode == -signal.SIGKILL
    _loads_afterwards(writer)
    again = {"policies": _stream("policies", _policies())}
    assert writer.load(again, "again", bundle_id="load") is None


@pytest.mark.slow
def test_processes_that_load_the_same_keys_at_once(writer: store.Writer, lake_url: str) -> None:
    writer.append({"runs": [builders.run("import") | {"run_id": "r"}]}, "a run")
    loading = [_child(lake_url, "one", 0, ROWS), _child(lake_url, "two", ROWS // 2, 2 * ROWS)]
    while any(child.poll() is None for child in loading):
        number = _count(writer, "prompts")
        asked = [{"role": "user", "content": str(number)}]
        prompt = {"prompt_id": ids.prompt_id(asked), "messages": ids.messages_json(asked)}
        writer.append({"prompts": [prompt]}, "meanwhile")
    said = [child.communicate() for child in loading]
    assert [child.returncode for child in loading] == [0, 0], said
    assert _count(writer, "policies") == 2 * ROWS
    # Of the metrics whichever came second was refused whole.
    assert sorted(out for out, _ in said) == [
        "",
        f"(run_id, name, step) identifies one row {ROWS // 2}\n",
    ]
    assert _count(writer, "metrics") in (ROWS, 2 * ROWS - ROWS // 2)
    assert integrity.check(writer.location) == []
