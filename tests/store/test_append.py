"""Appending: what breaks a rule is refused whole, retries are harmless, damage is set aside."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import builders
import duckdb
import pyarrow as pa
import pytest
from builders import Row

import store
from store import ids
from store.errors import FlywheelError, LakeUnreachable, RolloutRejected, RowsRejected, UnknownName
from store.lake import location
from store.schema import catalog
from store.upkeep import integrity, maintenance
from store.writing import bundle, spool, transaction
from store.writing.bundle import Bundle
from store.writing.spool import locate_folder
from store.writing.writer import Writer

TASK, KERNEL, DEVICE = builders.task(), builders.kernel(), builders.device()
SIZES = builders.workload(TASK)
JUDGED = builders.evaluation(KERNEL, TASK, SIZES, DEVICE)
BASE = {"tasks": [TASK], "kernels": [KERNEL], "devices": [DEVICE], "workloads": [SIZES]}


@pytest.fixture(scope="module")
def filled_writer(tmp_path_factory: pytest.TempPathFactory, empty_lake: Path) -> Iterator[Writer]:
    """Return a writer of a lake with one evaluation; tests with it change no row."""
    folder = tmp_path_factory.mktemp("append") / "lake"
    shutil.copytree(empty_lake, folder)
    with store.writer(str(folder), author="tests") as writer:
        writer.append(BASE | {"evaluations": [JUDGED]}, "base")
        yield writer


def _count(writer: Writer, table: str) -> int:
    row = writer._connection.execute(f"SELECT count(*) FROM lake.{table}").fetchone()
    assert row is not None
    return int(row[0])


def _policy(policy_id: str, **columns: Any) -> Row:
    return {"policy_id": policy_id, "name": policy_id, "kind": "person"} | columns


def _make_judged(number: int, **columns: Any) -> Row:
    return JUDGED | {"evaluation_id": f"e{number}"} | columns


def _arm(number: int, **columns: Any) -> Row:
    return builders.session(JUDGED, [1.0, 2.0], minute=number)[0] | columns


def _make_timed(microseconds: int) -> pa.Table:
    """Return two policies, made so many microseconds after 1970 and at its start."""
    times = pa.array([microseconds, 0]).view(pa.timestamp("us", tz="UTC"))
    return pa.Table.from_pylist([_policy("a"), _policy("b")]).append_column("created_at", times)


SHA = "0" * 64
REJECTED: list[tuple[str, dict[str, Any], tuple[str, str, int, str]]] = [
    ("an unknown column", {"kernels": [KERNEL | {"colour": "red"}, KERNEL]},
     ("kernels", "columns are kernel_id, code", 1, "unknown column colour")),
    ("an unknown column in Arrow", {"policies": pa.table({"colour": ["red", "blue"]})},
     ("policies", "columns are policy_id", 2, "unknown column colour")),
    ("text for a number", {"policies": [_policy("a", round="one"), _policy("b", round=1)]},
     ("policies", "round is INTEGER", 1, "one")),
    ("text for a number in Arrow", {"policies": pa.table({"policy_id": ["a"], "round": ["1"]})},
     ("policies", "round is INTEGER", 1, "string")),
    ("a number for text in Arrow", {"policies": pa.table({"policy_id": [1, 2]})},
     ("policies", "policy_id is VARCHAR", 2, "int64")),
    ("a fraction for a number", {"policies": pa.table({"round": [1.0, 2.5, 3.5]})},
     ("policies", "round is INTEGER", 2, "2.5")),
    ("a number too large", {"policies": [_policy(str(n), round=2**31) for n in range(5)]},
     ("policies", "round is INTEGER", 5, "2147483648")),
    ("truth for a number", {"policies": [_policy("a", round=True)]},
     ("policies", "round is INTEGER", 1, "True")),
    ("text that is not UTF-8", {"policies": [_policy("a", name="\ud800")]},
     ("policies", "name is VARCHAR, valid UTF-8", 1, "ud800")),
    ("bytes that are not UTF-8", {"policies": pa.table({"policy_id": pa.array(
        [b"a", b"\xff", b"\xfe"], pa.binary()).view(pa.string())})},
     ("policies", "policy_id is VARCHAR, valid UTF-8", 2, "xff")),
    ("a time that is none", {"policies": [_policy("a", created_at="yesterday")]},
     ("policies", "created_at is TIMESTAMPTZ", 1, "yesterday")),
    ("a scalar for a list", {"timings": [_arm(0, samples_ms=1.0)]},
     ("timings", "samples_ms is FLOAT[]", 1, "1.0")),
    ("a missing value", {"policies": [_policy(str(n), name=None) for n in range(4)]},
     ("policies", "name is required", 4, "policy_id='0'")),
    ("a missing key", {"policies": [{"name": "a", "kind": "person"}]},
     ("policies", "policy_id is required", 1, "policy_id='None'")),
    ("a missing time", {"policies": [_policy("a", created_at=None)]},
     ("policies", "created_at is required", 1, "policy_id='a'")),
    ("a value outside its enumeration", {"policies": [_policy("a", kind="robot")]},
     ("policies", "kind is one of model, endpoint", 1, "kind='robot'")),
    ("a reason of another status",
     {"evaluations": [_make_judged(1, status="timeout", reason="nan")]},
     ("evaluations", "what reason may be when status is timeout", 1, "reason='nan'")),
    ("a reason for being correct", {"evaluations": [_make_judged(1, reason="nan")]},
     ("evaluations", "what reason may be when status is correct", 1, "reason='nan'")),
    ("no reason for failing", {"evaluations": [_make_judged(1, status="crash", reason=None)]},
     ("evaluations", "a failure has a reason", 1, "status='crash'")),
    ("a broken check", {"kernels": [builders.kernel("other", kernel_id="short")]},
     ("kernels", "the id is a sha256", 1, "kernel_id='short'")),
    ("a check that cannot be computed", {"workloads": [SIZES | {"workload_id": "w", "axes": "{"}]},
     ("workloads", "axes are a JSON object", 1, "axes='{'")),
    ("JSON of another kind", {"workloads": [SIZES | {"workload_id": "w", "axes": "[]"}]},
     ("workloads", "axes are a JSON object", 1, "axes='[]'")),
    ("NaN for absence", {"evaluations": [_make_judged(1, wall_s=float("nan"))]},
     ("evaluations", "wall_s is finite", 1, "nan")),
    ("a time before the year 1", {"policies": _make_timed(-(2**61))},
     ("policies", "created_at is in the years 1 to 9999", 1, "71101-09-29 (BC)")),
    ("a time after the year 9999", {"policies": _make_timed(253_402_300_800_000_000)},
     ("policies", "created_at is in the years 1 to 9999", 1, "10000-01-01")),
    ("an infinite time", {"policies": _make_timed(2**63 - 1)},
     ("policies", "created_at is in the years 1 to 9999", 1, "created_at='infinity'")),
    ("a day after the year 9999", {"claims": pa.Table.from_pylist(
        [builders.claim(), builders.claim(speedup=3.0)]).append_column(
            "published_on", pa.array([6_585_322, 0], pa.int32()).view(pa.date32()))},
     ("claims", "published_on is in the years 1 to 9999", 1, "published_on='20000-01-01'")),
    ("a sample that is no time", {"timings": [_arm(1, samples_ms=[*[1.0] * 7, float("inf")])]},
     ("timings", "samples_ms holds finite numbers", 1, "inf")),
    ("a sample of no time", {"timings": [_arm(1, samples_ms=[0.0, *[1.0] * 7])]},
     ("timings", "samples are positive and finite", 1, "[0.0, 1.0")),
    ("a sample that is missing", {"timings": [_arm(1, samples_ms=[*[1.0] * 7, None])]},
     ("timings", "samples_ms holds no NULL", 1, "None")),
    ("a missing value inside a list", {"kernels": [builders.kernel("none", build_flags=[None])]},
     ("kernels", "build_flags holds no NULL", 1, "None")),
    ("samples without blocks", {"timings": [_arm(1, blocks=[0])]},
     ("timings", "every sample has its block", 1, "blocks='[0]'")),
    ("a key twice", {"evaluations": [_make_judged(1), _make_judged(1), _make_judged(2)]},
     ("evaluations", "(evaluation_id) identifies one row", 1, "evaluation_id='e1'")),
    ("a stored key", {"evaluations": [_make_judged(1), JUDGED]},
     ("evaluations", "(evaluation_id) identifies one row", 1, JUDGED["evaluation_id"])),
    ("a reference to nothing", {"evaluations": [_make_judged(n, kernel_id=SHA) for n in range(5)]},
     ("evaluations", "kernel_id is a kernel_id of kernels", 5, SHA)),
    ("a reference to nothing in a list", {"policies": [builders.policy()], "generations": [
        builders.generation(builders.policy(), TASK, exemplars=[(KERNEL, 1.0)])
        | {"exemplar_kernel_ids": [KERNEL["kernel_id"], SHA], "exemplar_scores": [1.0, 2.0]}]},
     ("generations", "exemplar_kernel_ids is a kernel_id of kernels", 1, SHA)),
    ("a NUL in a key", {"policies": [_policy("a\0b")]},
     ("policies", "policy_id holds no NUL", 1, "a\\x00b")),
    ("a NUL in a reference", {"policies": [_policy("a", parent_policy_id="a\0b")]},
     ("policies", "parent_policy_id holds no NUL", 1, "a\\x00b")),
    ("a NUL inside a list", {"kernels": [builders.kernel("nul", build_flags=["-O3", "a\0b"])]},
     ("kernels", "build_flags holds no NUL", 1, "x00b")),
    ("a NUL inside a struct", {"kernels": [
        builders.kernel("nul", other_files=[{"path": "a", "code": "a\0b"}])]},
     ("kernels", "other_files holds no NUL", 1, "x00b")),
    ("a score that is no number", {"policies": [builders.policy()], "generations": [
        builders.generation(builders.policy(), TASK, exemplars=[(KERNEL, float("nan"))])]},
     ("generations", "exemplar_scores holds finite numbers", 1, "nan")),
    ("one bad row among many", {"kernels": [builders.kernel(str(n)) for n in range(500)]
        + [builders.kernel("empty", code="", kernel_id=SHA)]},
     ("kernels", "the code is not empty", 1, SHA)),
]  # fmt: skip


@pytest.mark.repeats(run=6)
@pytest.mark.parametrize(
    ("tables", "expected"), [case[1:] for case in REJECTED], ids=[case[0] for case in REJECTED]
)
def test_what_breaks_a_rule_is_refused_with_all_that_came_with_it(
    filled_writer: Writer, tables: dict[str, Any], expected: tuple[str, str, int, str]
) -> None:
    whole = {"prompts": [{"prompt_id": ids.prompt_id([]), "messages": "[]"}], **tables}
    for attempt in (
        lambda: filled_writer.append(whole, "bad"),
        lambda: filled_writer.load(whole, "bad", bundle_id="bad"),
    ):
        with pytest.raises(RowsRejected) as caught:
            attempt()
        error = caught.value
        table, rule, count, example = expected
        assert (error.table, error.count) == (table, count)
        assert error.rule.startswith(rule)
        assert 1 <= len(error.examples) <= 3
        assert len(error.examples) == min(count, 3) or len(error.examples) == 1
        assert any(example in shown for shown in error.examples)
        assert all(len(shown) < 400 for shown in error.examples)
        assert str(error).startswith(f"{table}: {count} row")
        assert [_count(filled_writer, name) for name in ("prompts", "kernels", "evaluations")] == [
            0,
            1,
            1,
        ]
    assert not spool.list_files(filled_writer.location.spool)
    assert not list(filled_writer.location.spool.rglob("*.json"))


def test_an_unknown_table_is_refused_with_the_nearest(filled_writer: Writer) -> None:
    with pytest.raises(UnknownName, match='no table "kernel"\nDid you mean "kernels"'):
        filled_writer.append({"kernel": []}, "bad")


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_words_that_the_lake_cannot_hold_are_refused(filled_writer: Writer, word: str) -> None:
    for attempt in (
        lambda: filled_writer.append({}, word),
        lambda: filled_writer.append({}, "m", bundle_id=word),
        lambda: filled_writer.load({}, word, bundle_id="b"),
        lambda: filled_writer.load({}, "m", bundle_id=word),
    ):
        with pytest.raises(FlywheelError, match="cannot be a bundle's id, message or author"):
            attempt()


def test_errors_survive_a_process_boundary() -> None:
    rejected = RowsRejected("kernels", "a rule", 2, ["one", "two"])
    again = pickle.loads(pickle.dumps(rejected))
    assert (again.table, again.rule, again.count, again.examples) == (
        "kernels", "a rule", 2, ["one", "two"],
    )  # fmt: skip
    assert str(again) == str(rejected)
    rollout = pickle.loads(
        pickle.dumps(RolloutRejected(3, "prompt_ids", "is text", "Tokenize it."))
    )
    assert (rollout.number, rollout.key, rollout.hint) == (3, "prompt_ids", "Tokenize it.")
    for kind in FlywheelError.__subclasses__():
        if (
            kind not in (RowsRejected, RolloutRejected)
            and kind.__module__ == FlywheelError.__module__
        ):
            error = pickle.loads(pickle.dumps(kind("what", "do this")))
            assert (type(error), str(error)) == (kind, "what\ndo this")


@pytest.mark.slow
def test_what_is_left_out_is_filled_in(writer: Writer) -> None:
    before = datetime.now(UTC)
    writer.append({"policies": [_policy("a"), _policy("b", model="m")], "prompts": []}, "policies")
    with writer.reader() as opened:
        rows = opened.sql("FROM policies ORDER BY policy_id").rows()
    assert [row["model"] for row in rows] == [None, "m"]
    assert before <= rows[0]["created_at"] <= datetime.now(UTC)
    writer.append({}, "nothing", bundle_id="nothing")
    writer.append({"policies": []}, "no rows", bundle_id="no rows")
    assert writer.has_bundle("nothing")
    assert integrity.check(writer.location) == []


def test_a_bundle_is_stored_once_however_often_it_comes(writer: Writer) -> None:
    first = writer.append({"policies": [_policy("a")]}, "a", bundle_id="../odd id/")
    again = writer.append({"policies": [_policy("b")]}, "b", bundle_id="../odd id/")
    assert first == again
    assert writer.has_bundle("../odd id/")
    assert not writer.has_bundle("other")
    # Without an id the rows are the identity, though the store fills in the time.
    runs = [builders.run("r")]
    writer.append({"runs": runs}, "runs")
    metric = {"metrics": [{"run_id": runs[0]["run_id"], "name": "m", "step": 1, "value": 0.5}]}
    assert writer.append(metric, "metric") == writer.append(metric, "metric again")
    with pytest.raises(RowsRejected):
        writer.append({"metrics": [metric["metrics"][0] | {"value": 0.6}]}, "another value")
    assert [_count(writer, name) for name in ("policies", "metrics")] == [1, 1]
    assert integrity.check(writer.location) == []


@pytest.mark.slow
def test_a_writer_killed_before_its_file_was_deleted_stores_nothing_twice(writer: Writer) -> None:
    tables = BASE | {"evaluations": [JUDGED]}
    writer.append(tables, "judged", wait=False)
    (file,) = spool.list_files(writer.location.spool)
    data = file.read_bytes()
    snapshot = writer.flush()
    file.with_suffix(spool.SEALED).write_bytes(data)
    (file.parent / f"1-{file.name}").write_bytes(data)
    assert writer.flush() == snapshot
    assert not spool.list_files(writer.location.spool)
    assert integrity.check(writer.location) == []


def test_files_of_one_bundle_share_its_fate(writer: Writer) -> None:
    # Two processes retry the same refused bundle: neither may think that it was stored.
    bad = {"evaluations": [JUDGED]}
    writer.append(bad, "bad", bundle_id="same", wait=False)
    with pytest.raises(RowsRejected):
        writer.append(bad, "bad", bundle_id="same")
    assert len(list((writer.location.spool / "rejected").glob("*.json"))) == 1
    assert not writer.has_bundle("same")


def test_a_refused_bundle_is_told_of_once(writer: Writer, caplog: pytest.LogCaptureFixture) -> None:
    bad = {"evaluations": [JUDGED]}
    with pytest.raises(RowsRejected):
        writer.append(bad, "awaited")
    assert not caplog.records
    writer.append(bad, "spooled", wait=False)
    writer.flush()
    writer.flush()
    [record] = caplog.records
    (kept,) = locate_folder(writer.location.spool).glob("*.bundle")
    start = f"'spooled' is not stored and is kept as {kept}: evaluations: 1 row breaks the rule"
    assert record.getMessage().startswith(start)


def test_a_bundle_falls_with_the_one_it_refers_to_and_no_other(writer: Writer) -> None:
    writer.append(BASE, "base")
    writer.append({"evaluations": [_make_judged(1, device_id="none")]}, "falls", wait=False)
    arm = builders.session(_make_judged(1), [1.0])
    writer.append({"timings": arm}, "refers to it", wait=False)
    finding = builders.finding(KERNEL)
    writer.append({"standings": [builders.standing(finding)]}, "before its finding", wait=False)
    writer.append({"findings": [finding]}, "finding", wait=False)
    # Repeats a key of the bundle that falls: it is the first after all.
    writer.append({"evaluations": [_make_judged(1)]}, "same key", wait=False)
    writer.append({"evaluations": [_make_judged(2), JUDGED]}, "good", wait=False)
    writer.append({"evaluations": [_make_judged(3), JUDGED]}, "repeats a good one", wait=False)
    writer.flush()
    counts = [_count(writer, name) for name in ("evaluations", "timings", "findings", "standings")]
    assert counts == [3, 1, 1, 1]
    reports = [
        json.loads(file.read_text())["rows"][:3]
        for file in sorted((writer.location.spool / "rejected").glob("*.json"))
    ]
    assert reports == [
        ["evaluations", "device_id is a device_id of devices", 1],
        ["evaluations", "(evaluation_id) identifies one row", 1],
    ]


@pytest.mark.slow
def test_a_chain_of_references_falls_together(writer: Writer) -> None:
    writer.append({k: v for k, v in BASE.items() if k != "devices"}, "no device")
    writer.append({"evaluations": [JUDGED]}, "dangles", wait=False)
    writer.append({"timings": builders.session(JUDGED, [1.0])}, "refers to it", wait=False)
    writer.flush()
    assert [_count(writer, name) for name in ("evaluations", "timings")] == [0, 0]
    (problem,) = integrity.check(writer.location)
    assert (problem.table, problem.count) == ("spool", 2)


@pytest.mark.slow
def test_the_first_row_of_a_key_stands_where_repeats_are_dropped(writer: Writer) -> None:
    rows = [_policy("a", name=str(n)) for n in range(50)]
    writer.append({"policies": rows[::-1]}, "many")
    writer.append({"policies": [_policy("a", name="later"), _policy("b")]}, "again")
    writer.append({"policies": [_policy("c", name="one")]}, "spooled", wait=False)
    writer.append({"policies": [_policy("c", name="two")]}, "spooled", wait=False)
    writer.flush()
    loaded = [_policy("d", name=str(n)) for n in range(5000)]
    writer.load({"policies": [*loaded, _policy("a", name="l")]}, "load", bundle_id="load")
    with writer.reader() as opened:
        found = {r["policy_id"]: r["name"] for r in opened.sql("FROM policies").rows()}
        logged = opened.sql("SELECT row_counts FROM ingest_log ORDER BY committed_at").rows()
    assert found == {"a": "49", "b": "b", "c": "one", "d": "0"}
    added = [json.loads(row["row_counts"]).get("policies", 0) for row in logged]
    assert sorted(added) == [0, 1, 1, 1, 1]
    assert integrity.check(writer.location) == []


def test_waiting_is_a_choice(writer: Writer, lake_url: str) -> None:
    before = writer.append({"policies": [_policy("a")]}, "a")
    assert writer.append({"policies": [_policy("b")]}, "b", wait=False) == before
    assert _count(writer, "policies") == 1
    with store.writer(lake_url, author="another") as other:
        snapshot = other.flush()
    assert snapshot > before
    assert writer.flush() == snapshot
    with writer.reader(snapshot) as opened:
        assert opened.sql("SELECT count(*) AS n FROM policies").one() == {"n": 2}
        (log,) = opened.run("FROM ducklake_snapshots('lake') WHERE author = 'tests' "
                            "AND commit_message = 'b'").rows()  # fmt: skip
    assert log["snapshot_id"] == snapshot


def test_writers_that_wait_for_the_lock_share_one_commit(writer: Writer, lake_url: str) -> None:
    before = writer.flush()
    with ExitStack() as held, ThreadPoolExecutor(4) as threads:
        others = [held.enter_context(store.writer(lake_url, author=f"w{n}")) for n in range(4)]
        with writer.location.lock():
            waiting = [
                threads.submit(one.append, {"policies": [_policy(one.author)]}, one.author)
                for one in others
            ]
            # The first one waits for the lock and does not spool.
            while spool.count_bundles(catalog.load(), writer.location.spool) < len(others) - 1:
                time.sleep(0.01)
        assert {one.result() for one in waiting} == {before + 1}
    assert _count(writer, "policies") == len(others)


def _file(header: bytes, rows: bytes = b"") -> bytes:
    whole = header + b"\n" + rows
    return whole + zlib.crc32(whole).to_bytes(4)


STATED = {"bundle_id": "b", "message": "m", "author": "a"}


def _header(**fields: object) -> bytes:
    whole = {"bundles": [STATED | {"rows": {}}], "tables": {}}
    return json.dumps(whole | fields).encode()


def _damage(good: bytes) -> Iterator[tuple[str, bytes]]:
    arrow = bundle.serialize(pa.table({"policy_id": ["x"]}))
    red = bundle.serialize(pa.table({"colour": ["red"]}))
    policies = {"policies": len(arrow)}
    yield "random", bytes(range(256)) * 16
    yield "flipped", good[:300] + bytes([good[300] ^ 1]) + good[301:]
    yield "no header", _file(b"", arrow)
    yield "header is a list", _file(b"[]", arrow)
    yield "header is no JSON", _file(b"\xff{", arrow)
    yield "tables are a number", _file(_header(tables=1))
    yield "tables are a list", _file(_header(tables=["policies"]), arrow)
    yield "a length is no number", _file(_header(tables={"policies": "x"}), arrow)
    yield "a length is negative", _file(_header(tables={"policies": -3}), arrow)
    yield "rows are no Arrow", _file(_header(tables={"policies": 10}), b"ARROW1\0\0xx")
    yield (
        "more rows than there are",
        _file(_header(tables=policies, bundles=[STATED | {"rows": {"policies": 2}}]), arrow),
    )
    yield (
        "rows of no table",
        _file(_header(tables=policies, bundles=[STATED | {"rows": {"tasks": 1}}]), arrow),
    )
    yield "no bundles", _file(json.dumps({"tables": policies}).encode(), arrow)
    yield "an unknown table", _file(_header(tables={"x": len(arrow)}), arrow)
    yield "an unknown column", _file(_header(tables={"policies": len(red)}), red)


@pytest.mark.slow
def test_damaged_spool_files_are_set_aside_and_hold_up_nobody(writer: Writer) -> None:
    writer.append({"policies": [_policy("good")]}, "good", wait=False)
    (good,) = spool.list_files(writer.location.spool)
    damaged = dict(_damage(good.read_bytes()))
    for name, data in damaged.items():
        (good.parent / f"0-{name}.bundle").write_bytes(data)
    writer.append({"policies": [_policy("after")]}, "after")
    assert _count(writer, "policies") == 2
    rejected = locate_folder(good.parent)
    kept = {file.name: file.read_bytes() for file in rejected.glob("*.bundle")}
    assert kept == {f"0-{name}-000000-0000.bundle": data for name, data in damaged.items()}
    assert not spool.list_files(good.parent)
    (problem,) = integrity.check(writer.location)
    assert (problem.table, problem.count) == ("spool", len(damaged))
    assert all(problem.examples)


def test_an_append_cut_short_by_a_crash_was_never_acknowledged(writer: Writer) -> None:
    table = catalog.load().table("policies")
    whole = [
        spool.encode(
            [Bundle(bundle_id=n, message=n, tables={"policies": bundle.conform(table, [row])})],
            f"0-{n}",
        )
        for n, row in ((str(n), _policy(str(n))) for n in range(10))
    ]
    folder = writer.location.spool
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = (b"", b"\0" * 512, whole[9][:5], whole[9][:-1], whole[9][:-9])
    for number, some in enumerate(unfinished):
        (folder / f"0-{number}.bundle").write_bytes(whole[number] + some)
    writer.flush()
    assert _count(writer, "policies") == len(unfinished)
    assert not locate_folder(folder).exists()
    assert integrity.check(writer.location) == []


def test_a_flipped_byte_costs_one_record_and_is_told_of(
    writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever it is: in a header, at its end, in a length or in the rows."""
    folder = writer.location.spool
    for name in ("a", "b", "c"):
        # A text that looks like a record is no record.
        looks = '\n{"spool": "x", "bundles": [], "tables": {}, "crc": 0}\n'
        writer.append({"policies": [_policy(name, model=looks)]}, name, wait=False)
    (file,) = spool.list_files(folder)
    whole, known = file.read_bytes(), catalog.load()
    ends = [0]
    ((records, _),) = spool.read_groups(known, folder)
    for record in records:
        ends.append(ends[-1] + len(record.data))
    assert ends[-1] == len(whole)
    sealed = file.with_suffix(spool.SEALED)
    header = whole.index(b"\n") + 1
    for number in range(3):
        start, end = ends[number : number + 2]
        for place in [*range(start, start + header), *range(start + header, end, 17), end - 1]:
            flipped = bytes([whole[place] ^ (1 + place % 255)])
            sealed.write_bytes(whole[:place] + flipped + whole[place + 1 :])
            ((records, _),) = spool.read_groups(known, folder)
            assert [bool(record.damage) for record in records] == [
                one == number for one in range(3)
            ], place
            assert records[number].data == sealed.read_bytes()[start:end]
    sealed.write_bytes(whole[:50] + b"\xff" + whole[51:])
    writer.flush()
    assert _count(writer, "policies") == 2
    [told] = caplog.records
    (kept,) = locate_folder(folder).glob("*.bundle")
    assert told.levelname == "WARNING"
    assert told.getMessage().startswith(f"a record of the spool is damaged and is kept as {kept}")
    assert kept.read_bytes() == whole[:50] + b"\xff" + whole[51 : ends[1]]
    (problem,) = integrity.check(writer.location)
    assert (problem.table, problem.count) == ("spool", 1)


def _bundle(name: str, *rows: dict[str, Any], table: str = "policies") -> Bundle:
    return Bundle(bundle_id=name, message=name, tables={table: list(rows)})


def test_bundles_appended_together_are_stored_or_refused_one_by_one(writer: Writer) -> None:
    unknown = _make_judged(1, device_id="none")
    given = [
        _bundle("a", _policy("a"), _policy("b")),
        _bundle("bad rule", _make_judged(7, status="odd"), table="evaluations"),
        _bundle("a", _policy("e")),
        _bundle("dangles", unknown, table="evaluations"),
        _bundle("f", _policy("f")),
        _bundle("empty"),
    ]
    with pytest.raises(RowsRejected, match="status"):
        writer.append_all(given)
    with pytest.raises(RowsRejected, match="device_id is a device_id of devices"):
        writer.append_all(given[3:])
    snapshot = writer.append_all(given[:1] + given[4:])
    assert writer.append_all([]) == snapshot
    with writer.reader() as opened:
        found = opened.sql("SELECT policy_id FROM policies ORDER BY 1").rows()
        (log,) = opened.sql("SELECT DISTINCT author FROM ingest_log WHERE bundle_id = 'a'").rows()
    assert [row["policy_id"] for row in found] == ["a", "b", "f"]
    assert log == {"author": "tests"}
    assert integrity.check(writer.location) == []
    assert [writer.has_bundle(one.bundle_id) for one in given] == [True, False, True, False, True,
                                                                   True]  # fmt: skip


@pytest.mark.slow
def test_bundles_appended_together_keep_the_rules_of_keys(writer: Writer) -> None:
    writer.append(BASE, "base")
    repeats = [_bundle(str(n), JUDGED, table="evaluations") for n in range(3)]
    with pytest.raises(RowsRejected, match="evaluation_id"):
        writer.append_all(repeats)
    assert _count(writer, "evaluations") == 1
    twice = _bundle("twice", _make_judged(5), _make_judged(5), table="evaluations")
    with pytest.raises(RowsRejected, match="evaluation_id"):
        writer.append_all([_bundle("6", _make_judged(6), table="evaluations"), twice])
    assert _count(writer, "evaluations") == 2
    assert integrity.check(writer.location) == []


@pytest.mark.slow
def test_a_writer_goes_on_after_its_file_was_committed_by_another(
    writer: Writer, lake_url: str
) -> None:
    with store.writer(lake_url, author="another") as other:
        for number in range(4):
            writer.append({"policies": [_policy(f"a{number}")]}, "a", wait=False)
            other.append({"policies": [_policy(f"b{number}")]}, "b", wait=number < 2)
            writer.append({"policies": [_policy(f"c{number}")]}, "c", wait=number % 2 == 0)
        other.flush()
    assert _count(writer, "policies") == 12
    assert not spool.list_files(writer.location.spool)


def test_a_group_of_bundles_is_cut_at_its_limits(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool, "GROUP_BUNDLES", 3)
    before = writer.flush()
    for number in range(7):
        writer.append({"policies": [_policy(str(number))]}, "one", wait=False)
    assert writer.flush() == before + 3
    assert _count(writer, "policies") == 7


def test_a_full_disk_costs_one_append(writer: Writer) -> None:
    import resource

    writer.append({"policies": [_policy("before")]}, "before", wait=False)
    (file,) = spool.list_files(writer.location.spool)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 50, limits[1]))
    try:
        with pytest.raises(LakeUnreachable, match=r"larger than files may be"):
            writer.append({"policies": [_policy("lost")]}, "lost", wait=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    writer.append({"policies": [_policy("after")]}, "after")
    with writer.reader() as opened:
        found = opened.sql("SELECT policy_id FROM policies ORDER BY 1").rows()
    assert [row["policy_id"] for row in found] == ["after", "before"]
    assert integrity.check(writer.location) == []


@pytest.mark.slow
def test_rows_that_duckdb_cannot_store_hold_up_nobody(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert: Callable[..., None] = transaction.insert_rows

    def refuse_poison(stage: Any, table: Any, rows: pa.Table) -> None:
        if table.name == "policies" and "poison" in rows.column("policy_id").to_pylist():
            raise duckdb.ConversionException("cannot convert")
        insert(stage, table, rows)

    monkeypatch.setattr(transaction, "insert_rows", refuse_poison)
    for name in ("one", "poison", "two"):
        writer.append({"policies": [_policy(name)]}, name, wait=False)
    writer.flush()
    assert _count(writer, "policies") == 2
    (problem,) = integrity.check(writer.location)
    assert "DuckDB cannot store the rows: cannot convert" in problem.examples[0]
    with pytest.raises(FlywheelError, match="cannot convert"):
        writer.append({"policies": [_policy("poison")]}, "poison again")
    writer.append({"policies": [_policy("three")]}, "three")
    assert _count(writer, "policies") == 3


def test_a_load_is_one_transaction_and_is_made_once(writer: Writer) -> None:
    def read() -> Iterator[pa.RecordBatch]:
        for part in range(5):
            names = [f"{part}-{n}" for n in range(1000)]
            kinds = ["person"] * 1000
            yield pa.record_batch({"policy_id": names, "name": names, "kind": kinds})

    schema = pa.schema([(name, pa.string()) for name in ("policy_id", "name", "kind")])
    batches = pa.RecordBatchReader.from_batches(schema, read())
    first = writer.load({"policies": batches}, "many", bundle_id="many")
    assert first is not None
    assert _count(writer, "policies") == 5000
    untouched = pa.RecordBatchReader.from_batches(schema, read())
    assert writer.load({"policies": untouched}, "many", bundle_id="many") is None
    assert untouched.read_next_batch().num_rows == 1000
    with writer.reader() as opened:
        assert opened.snapshot == first
    # A bundle of the same id counts as stored too.
    assert writer.append({"policies": [_policy("new")]}, "many", bundle_id="many") == first
    assert integrity.check(writer.location) == []


@pytest.mark.slow
def test_rows_may_refer_to_each_other_inside_a_bundle_and_a_load(writer: Writer) -> None:
    chain = [
        _policy("child", parent_policy_id="parent"),
        _policy("parent", parent_policy_id="root"),
        _policy("root"),
    ]
    writer.append({"policies": chain}, "chain")
    more = [_policy("x", parent_policy_id="y"), _policy("y", parent_policy_id="child")]
    writer.load({"policies": more}, "more", bundle_id="more")
    whole = {"evaluations": [JUDGED], "timings": builders.session(JUDGED, [1.0])} | BASE
    writer.load(whole, "children before parents", bundle_id="whole")
    assert integrity.check(writer.location) == []


@pytest.mark.slow
def test_the_index_of_keys_is_made_anew_when_it_is_lost_or_damaged(writer: Writer) -> None:
    index = writer.location.root / "keys.sqlite"
    writer.append(BASE | {"evaluations": [JUDGED]}, "base", bundle_id="base")
    for number, damage in enumerate((lambda: index.unlink(), lambda: index.write_bytes(b"x" * 99))):
        writer.close()
        damage()
        writer = store.writer(writer.location.url, author="tests")
        with pytest.raises(RowsRejected, match="identifies one row"):
            writer.append({"evaluations": [JUDGED]}, "again")
        writer.append(BASE, "repeats only", bundle_id="base")
        writer.append({"evaluations": [_make_judged(number)]}, "new")
    assert _count(writer, "evaluations") == 3
    assert _count(writer, "kernels") == 1
    writer.close()
    assert integrity.check(writer.location) == []


@pytest.mark.slow
def test_the_index_of_keys_follows_other_ways_in(writer: Writer, lake_url: str) -> None:
    writer.append(BASE, "base")
    with store.writer(lake_url, author="another") as other:
        other.load({"evaluations": [JUDGED, _make_judged(1)]}, "load", bundle_id="load")
        other.append({"evaluations": [_make_judged(2)]}, "append")
    ids = store.ids
    timed = [_make_judged(0, evaluation_id=ids.uuid7()) for _ in range(3)]
    writer.load({"evaluations": timed[1:2]}, "timed", bundle_id="timed")
    for repeated in (JUDGED, _make_judged(1), _make_judged(2), timed[1]):
        with pytest.raises(RowsRejected, match="identifies one row"):
            writer.append({"evaluations": [repeated]}, "again")
    for new in (timed[0], timed[2]):
        writer.append({"evaluations": [new]}, "new")
    assert _count(writer, "evaluations") == 6
    assert integrity.check(writer.location) == []


@pytest.mark.slow
@pytest.mark.folder
def test_a_lake_put_back_to_its_backup_is_not_taken_for_the_later_one(
    writer: Writer, tmp_path: Path
) -> None:
    writer.append(BASE, "base")
    backup = tmp_path / "backup"
    maintenance.backup(writer.location, backup)
    writer.append({"evaluations": [JUDGED]}, "later", bundle_id="later")
    root = writer.location.root
    writer.close()
    for file in root.glob("catalog.sqlite*"):
        file.unlink()
    shutil.copy(backup / "catalog.sqlite", root / "catalog.sqlite")
    # As many snapshots as before, with other rows in them.
    with store.writer(str(root), author="tests") as again:
        again.append({"evaluations": [_make_judged(7)]}, "other", bundle_id="other")
        again.append({"evaluations": [JUDGED]}, "later", bundle_id="later")
        assert _count(again, "evaluations") == 2
    assert integrity.check(location.FolderLocation(root)) == []


@pytest.mark.slow
def test_data_files_are_on_disk_before_their_bundle_leaves_the_spool(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: dict[str, int] = {}
    real = os.fsync

    def record_sync(descriptor: int) -> None:
        waiting = len(spool.list_files(writer.location.spool))
        synced.setdefault(os.readlink(f"/proc/self/fd/{descriptor}"), waiting)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", record_sync)
    many = [builders.kernel(str(n)) for n in range(30)]
    writer.append({"kernels": many}, "many", wait=False)
    writer.flush()
    writer.append({"policies": [_policy("a")]}, "inlined")
    maintenance.compact(writer.location)
    files = {str(file) for file in Path(writer.location.files.url).rglob("*.parquet")}
    assert len(files) >= 2
    assert files <= synced.keys()
    assert {str(Path(file).parent) for file in files} <= synced.keys()
    assert max(synced[file] for file in files) == 1


def test_a_rejected_bundle_is_on_disk_before_it_leaves_the_spool(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append({"evaluations": [JUDGED]}, "bad", wait=False)
    durable: set[Path] = set()
    real = os.fsync

    def record_sync(descriptor: int) -> None:
        real(descriptor)
        synced = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if spool.list_files(writer.location.spool):
            durable.update([synced, *(synced.glob("*") if synced.is_dir() else ())])

    monkeypatch.setattr(os, "fsync", record_sync)
    writer.flush()
    folder = locate_folder(writer.location.spool)
    kept = list(folder.iterdir())
    assert sorted(file.suffix for file in kept) == [".bundle", ".json"]
    assert {folder, *kept, *(file.with_name(f"{file.name}.partial") for file in kept)} <= durable
