"""Snapshots: the log, names for them, reading them by number, tag or time, and what differs."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import builders
import pytest

import store
from store.errors import FlywheelError, RowsRejected, SnapshotNotFound, UnknownName
from store.lake.attachment import resolve_snapshot
from store.upkeep import history


def _policy(writer: store.Writer, name: str) -> int:
    row = {"policy_id": name, "name": name, "kind": "person"}
    return writer.append({"policies": [row]}, f"policy {name}")


def _policies(lake: store.Lake) -> set[str]:
    return {row["policy_id"] for row in lake.sql("FROM policies").rows()}


def test_the_log_says_who_and_why_newest_first(writer: store.Writer) -> None:
    snapshot = _policy(writer, "ada")
    history.add_tag(writer, "v1", snapshot, "first")
    history.add_tag(writer, "also", snapshot, None)
    with writer.reader() as lake:
        rows = history.list_snapshots(lake).to_pylist()
    assert [row["snapshot"] for row in rows] == sorted(
        (row["snapshot"] for row in rows), reverse=True
    )
    named = next(row for row in rows if row["snapshot"] == snapshot)
    assert (named["author"], named["message"], named["tags"]) == (
        "tests",
        "policy ada",
        "also, v1",
    )
    assert rows[0]["message"] == f"tag also at snapshot {snapshot}"
    assert rows[-1]["snapshot"] == 0


@pytest.mark.slow
def test_every_snapshot_is_read_as_it_was(writer: store.Writer) -> None:
    first = _policy(writer, "ada")
    moment = datetime.now(UTC)
    time.sleep(0.01)
    second = _policy(writer, "bob")
    history.add_tag(writer, "one", first, None)
    local = moment.astimezone().isoformat()
    naive = moment.replace(tzinfo=None).isoformat()
    for at, names in {
        first: {"ada"},
        str(second): {"ada", "bob"},
        "one": {"ada"},
        moment.isoformat(): {"ada"},
        local: {"ada"},
        naive: {"ada"},
        None: {"ada", "bob"},
        0: set(),
    }.items():
        with writer.reader(at) as lake:
            assert _policies(lake) == names, at


def test_a_reader_stays_where_it_is_pinned(writer: store.Writer) -> None:
    first = _policy(writer, "ada")
    with writer.reader() as lake:
        _policy(writer, "bob")
        assert lake.snapshot == first
        assert _policies(lake) == {"ada"}


@pytest.mark.slow
def test_before_the_first_commit_tables_are_empty_and_typed(writer: store.Writer) -> None:
    _policy(writer, "ada")
    with writer.reader(0) as old, writer.reader() as new:
        for name in new.catalog.tables:
            was, now = old.sql(f"FROM {name}").arrow(), new.sql(f"FROM {name}").arrow()
            assert was.num_rows == 0
            assert was.schema == now.schema, name
        assert old.lake_id == ""
        assert old.sql("FROM verdicts").rows() == []


NEVER = [
    "99", 99, "-1", "v2", "", " ", "1.5", "1999-01-01", "2026-13-01", "\u00b2", "\u0663",
    "9" * 30, "HEAD",
]  # fmt: skip


@pytest.mark.slow
def test_a_moment_that_never_was_is_refused(writer: store.Writer) -> None:
    # The writer's own connection: opening a reader for each of them would take seconds.
    for at in NEVER:
        with pytest.raises(SnapshotNotFound):
            resolve_snapshot(writer._connection, at)


def test_a_missing_snapshot_teaches(writer: store.Writer) -> None:
    history.add_tag(writer, "release", None, None)
    with pytest.raises(SnapshotNotFound, match=r'"relaese" is not a tag.*\nDid you mean "release"'):
        writer.reader("relaese")
    with pytest.raises(SnapshotNotFound, match="no snapshot 99; the newest is"):
        writer.reader(99)


@pytest.mark.slow
def test_a_tag_moves_and_goes_and_its_history_stays(writer: store.Writer) -> None:
    first, second = _policy(writer, "ada"), _policy(writer, "bob")
    assert history.add_tag(writer, "best", first, "one") == first
    assert history.add_tag(writer, "best", second, "two") == second
    with writer.reader() as lake:
        (tag,) = history.list_tags(lake).to_pylist()
        assert (tag["name"], tag["snapshot"], tag["note"]) == ("best", second, "two")
    history.remove_tag(writer, "best", "gone")
    with writer.reader() as lake:
        assert history.list_tags(lake).num_rows == 0
        notes = lake.sql("SELECT note FROM tags ORDER BY created_at, tag_id").rows()
        assert [row["note"] for row in notes] == ["one", "two", "gone"]
    with pytest.raises(SnapshotNotFound):
        writer.reader("best")
    with pytest.raises(UnknownName):
        history.remove_tag(writer, "best", None)
    assert history.add_tag(writer, "best", None, None) > second
    with writer.reader() as lake:
        assert history.list_tags(lake).num_rows == 1


@pytest.mark.slow
def test_a_tag_has_the_note_of_its_last_change_alone(writer: store.Writer) -> None:
    first, second = _policy(writer, "ada"), _policy(writer, "bob")
    history.add_tag(writer, "best", first, "one")
    history.add_tag(writer, "other", first, "stays")
    history.add_tag(writer, "best", second, None)
    history.add_tag(writer, "gone", second, "to be removed")
    history.remove_tag(writer, "gone", None)
    with writer.reader() as lake:
        tags = history.list_tags(lake).to_pylist()
        rows = lake.sql("SELECT name, snapshot_id, note FROM current_tags").rows()
        changes = lake.sql("SELECT name, max(created_at) AS at FROM tags GROUP BY name").rows()
    assert [(row["name"], row["snapshot"], row["note"]) for row in tags] == [
        ("best", second, None),
        ("other", first, "stays"),
    ]
    assert [tuple(row.values()) for row in rows] == [
        (row["name"], row["snapshot"], row["note"]) for row in tags
    ]
    newest = {row["name"]: row["at"] for row in changes}
    assert [row["since"] for row in tags] == [newest["best"], newest["other"]]


def test_a_name_that_is_a_number_a_time_or_not_plain_is_no_tag(writer: store.Writer) -> None:
    names = ["", "7", "1st", "2026-01-01", " v1", "v1 ", "v1\n", "x\x1b[31m", "../x", "a/b", "é"]
    for name in (*names, "v" * 101):
        with pytest.raises(FlywheelError, match="cannot be a tag"):
            history.add_tag(writer, name, None, None)


@pytest.mark.slow
def test_a_tag_of_100_plain_characters_is_taken(writer: store.Writer) -> None:
    for name in ("v1.0-rc_2", "v" * 100):
        snapshot = history.add_tag(writer, name, None, None)
        with store.open(writer.location.url, name) as lake:
            assert lake.snapshot == snapshot


def test_a_tag_on_a_missing_snapshot_is_refused(writer: store.Writer) -> None:
    with pytest.raises(SnapshotNotFound):
        history.add_tag(writer, "v1", 99, None)
    with pytest.raises(RowsRejected):
        writer.append({"tags": [{"tag_id": "x", "name": "12", "snapshot_id": 1}]}, "by hand")


@pytest.mark.slow
def test_a_difference_counts_rows_and_names_changed_verdicts_and_best_kernels(
    writer: store.Writer,
) -> None:
    task, kernel, device = builders.task(), builders.kernel("fast"), builders.device("laptop")
    sizes = builders.workload(task)
    base = {
        "tasks": [task], "kernels": [kernel], "devices": [device], "workloads": [sizes],
    }  # fmt: skip
    first = writer.append(base, "a kernel")
    judged = builders.evaluation(kernel, task, sizes, device)
    arms = builders.session(judged, [1.0] * 20, eager=[2.0] * 20)
    second = writer.append({"evaluations": [judged], "timings": arms}, "judged")
    with writer.reader(first) as before, writer.reader(second) as after:
        found = history.compare(before, after)
        assert found.rows_added == {"evaluations": 1, "timings": len(arms), "ingest_log": 1}
        (verdict,) = found.new_verdicts.to_pylist()
        assert found.verdicts.num_rows == 0
        assert (verdict["status_before"], verdict["status_after"]) == (None, "correct")
        (best,) = found.best_kernels.to_pylist()
        assert (best["kernel_before"], best["kernel_after"]) == (None, kernel["kernel_id"])
        assert best["speedup_after"] == pytest.approx(2.0)
        (row,) = history.list_added_rows(before, after, "evaluations").to_pylist()
        assert row["evaluation_id"] == judged["evaluation_id"]
        assert history.list_added_rows(before, after, "kernels").num_rows == 0
        same = history.compare(after, after)
        assert (same.rows_added, same.verdicts.num_rows, same.best_kernels.num_rows) == ({}, 0, 0)
        with pytest.raises(FlywheelError, match="Name the older one first"):
            history.compare(after, before)
        with pytest.raises(UnknownName, match='Did you mean "kernels"'):
            history.list_added_rows(before, after, "kernel")


@pytest.mark.slow
def test_a_verdict_that_changed_is_told_apart_from_a_new_one(writer: store.Writer) -> None:
    task, kernel, device = builders.task(), builders.kernel("fast"), builders.device("laptop")
    sizes = builders.workload(task)
    base = {"tasks": [task], "kernels": [kernel], "devices": [device], "workloads": [sizes]}
    judged = builders.evaluation(kernel, task, sizes, device)
    first = writer.append({**base, "evaluations": [judged]}, "judged")
    failed = builders.evaluation(kernel, task, sizes, device, "incorrect", minute=1)
    second = writer.append({"evaluations": [failed]}, "judged again")
    with writer.reader(first) as before, writer.reader(second) as after:
        found = history.compare(before, after)
    assert found.new_verdicts.num_rows == 0
    (verdict,) = found.verdicts.to_pylist()
    assert (verdict["status_before"], verdict["status_after"]) == ("correct", "incorrect")


@pytest.mark.slow
def test_a_best_kernel_found_on_another_host_replaces_the_one_before(writer: store.Writer) -> None:
    task, slow, fast = builders.task(), builders.kernel("slow"), builders.kernel("fast")
    sizes = builders.workload(task)
    hosts = [
        builders.device("H200", kind="cuda", device_id=store.ids.content_id("device", host))
        for host in ("one", "two")
    ]
    base = {"tasks": [task], "kernels": [slow, fast], "devices": hosts, "workloads": [sizes]}
    writer.append(base, "kernels")
    snapshots: list[int] = []
    for kernel, host, factor in [(slow, hosts[0], 2.0), (fast, hosts[1], 3.0)]:
        judged = builders.evaluation(kernel, task, sizes, host)
        arms = builders.session(judged, [1.0] * 20, eager=[factor] * 20)
        snapshots.append(writer.append({"evaluations": [judged], "timings": arms}, "judged"))
    first, second = snapshots
    with writer.reader(first) as before, writer.reader(second) as after:
        (best,) = history.compare(before, after).best_kernels.to_pylist()
    assert (best["kernel_before"], best["kernel_after"]) == (slow["kernel_id"], fast["kernel_id"])
    assert (best["speedup_before"], best["speedup_after"]) == pytest.approx((2.0, 3.0))


@pytest.mark.slow
def test_verdicts_of_two_precisions_are_compared_each_with_its_own(writer: store.Writer) -> None:
    task, kernel = builders.task(), builders.kernel("fast")
    device, sizes = builders.device("H200", kind="cuda"), builders.workload(task)
    strict, default = (
        builders.evaluation(kernel, task, sizes, device, status, precision=precision, minute=minute)
        for minute, (precision, status) in enumerate(
            [("fp32_strict", "incorrect"), ("torch_default", "correct")]
        )
    )
    base = {"tasks": [task], "kernels": [kernel], "devices": [device], "workloads": [sizes]}
    first = writer.append(base | {"evaluations": [strict]}, "judged strictly")
    second = writer.append({"evaluations": [default]}, "judged by PyTorch's own flags")
    with writer.reader(first) as before, writer.reader(second) as after:
        (changed,) = history.compare(before, after).new_verdicts.to_pylist()
        assert history.compare(after, after).verdicts.num_rows == 0
    assert changed["precision"] == "torch_default"
    assert (changed["status_before"], changed["status_after"]) == (None, "correct")


def test_a_snapshot_number_belongs_to_one_lake(writer: store.Writer, lake_url: str) -> None:
    with store.open(lake_url) as lake:
        assert len(lake.lake_id) == 36
        (row,) = lake.sql("FROM lakes").rows()
        assert row["lake_id"] == lake.lake_id
        assert row["created_at"] <= datetime.now(UTC) + timedelta(seconds=1)
