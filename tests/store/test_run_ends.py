"""The end of a run is a row, and its lease tells whether an open run still runs."""

from __future__ import annotations

import asyncio
import json
import platform
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import builders as b
import commands
import pytest
import yaml

import store
from store.dossier import pages
from store.dossier.pages import find_state
from store.errors import FlywheelError
from store.explore.page.model import View
from store.explore.pages import run as run_page
from store.explore.server.readers import Readers
from store.lake.location import FolderLeases
from store.schema import catalog as catalogs

RUN = """
import sys, store
url, run_id, resumed = sys.argv[1:]
with store.writer(url, author="tests") as writer:
    run = store.make_run(kind="training", name="sft", config={"seed": 1}, run_id=run_id)
    with store.record_run(writer, run, "sft begins", resumed=resumed == "resumed"):
        print("begun", flush=True)
        error = sys.stdin.readline().strip()
        if error:
            raise RuntimeError(error.replace("|", chr(10)) + chr(27) + "[2J")
"""


@contextmanager
def start(url: str, run_id: str, resumed: str = "new") -> Generator[subprocess.Popen[str]]:
    """Start a run in a process of its own; it ends when it gets a line, which may be an error."""
    words = [sys.executable, "-c", RUN, url, run_id, resumed]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        try:
            yield process
        finally:
            process.kill()


def read_state(url: str, run_id: str) -> dict[str, Any]:
    """Return the row of run_states."""
    with store.open(url) as lake:
        row = lake.sql("FROM run_states WHERE run_id = $1", [run_id]).one()
    assert row is not None
    return row


def ask(url: str, run_id: str) -> str:
    """Return the state of a run on its page."""
    with store.open(url) as lake:
        page = pages.read_page(lake, run_id)
    assert page.kind == "run"
    return page.row["state"]


def read_printed_state(url: str, run_id: str) -> str:
    """Return the state that `store show` prints."""
    done = commands.run(["store", "show", run_id[:20], "--lake", url], cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    [printed] = re.findall(r"^state +(.*)$", done.stdout, re.MULTILINE)
    return printed


@pytest.mark.parametrize(
    "names",
    [
        ("killed", "failed"),
        pytest.param(("killed", "interrupted", "failed", "finished"), marks=pytest.mark.slow),
    ],
    ids=["two", "four"],
)
@pytest.mark.slow
def test_a_killed_run_an_interrupted_one_a_failed_one_and_one_that_finished(
    lake_url: str, names: tuple[str, ...]
) -> None:
    store.writer(lake_url, author="tests").close()
    ids = {name: store.ids.uuid7() for name in names}
    with ExitStack() as stack:
        runs = {name: stack.enter_context(start(lake_url, ids[name])) for name in names}
        assert {read_state(lake_url, run_id)["state"] for run_id in ids.values()} == {"open"}
        assert ask(lake_url, ids["killed"]) == "running"
        # Asking takes the lease from nobody.
        assert read_printed_state(lake_url, ids["killed"]) == "running"
        with pytest.raises(FlywheelError, match="another process runs sft"):  # noqa: SIM117
            with start_here(lake_url, ids["killed"]):
                pass
        runs["killed"].kill()
        runs["failed"].communicate("boom|the second line\n")
        if "interrupted" in names:
            runs["interrupted"].send_signal(signal.SIGINT)
            runs["finished"].communicate("\n")
        for process in runs.values():
            process.wait()
    assert read_printed_state(lake_url, ids["killed"]).startswith("killed (its process is gone")
    assert read_state(lake_url, ids["killed"])["ended_at"] is None
    for name in names[1:]:
        row = read_state(lake_url, ids[name])
        assert row["state"] == name == ask(lake_url, ids[name])
        assert row["started_at"] < row["ended_at"] <= datetime.now(UTC)
        took_s = (row["ended_at"] - row["started_at"]).total_seconds()
        assert row["seconds"] == pytest.approx(took_s)
        assert row["error"] == ("RuntimeError: boom" if name == "failed" else None)
    with store.open(lake_url) as lake:
        first = lake.sql("SELECT min(snapshot_id) AS n FROM commits WHERE message = 'sft begins'")
        [row] = first.rows()
    with store.open(lake_url, row["n"] + len(names) - 1) as lake:
        page = pages.read_page(lake, ids["failed"])
        assert page.kind == "run"
        assert page.row["state"] == "open at this snapshot, and failed since"


@pytest.mark.slow
def test_a_killed_or_interrupted_run_that_is_resumed_is_open_again(lake_url: str) -> None:
    store.writer(lake_url, author="tests").close()
    killed, interrupted = store.ids.uuid7(), store.ids.uuid7()
    with start(lake_url, killed):
        pass
    with start(lake_url, interrupted) as run:
        run.send_signal(signal.SIGINT)
        run.wait()
    with start(lake_url, killed, "resumed"):
        assert ask(lake_url, killed) == "running"
    assert ask(lake_url, killed).startswith("killed")
    with start(lake_url, interrupted, "resumed") as again:
        assert ask(lake_url, interrupted) == "running"
        again.communicate("\n")
    with store.open(lake_url) as lake:
        rows = lake.sql(
            "SELECT outcome FROM run_ends WHERE run_id = $1 ORDER BY number", [interrupted]
        ).rows()
    assert [row["outcome"] for row in rows] == ["interrupted", "resumed", "finished"]


@contextmanager
def start_here(url: str, run_id: str) -> Generator[store.RunRecord]:
    """Run in this process, as the run of another process."""
    with store.writer(url, author="tests") as writer:
        run = store.make_run(kind="training", name="sft", config={}, run_id=run_id)
        with store.record_run(writer, run, "sft begins", resumed=True) as record:
            yield record


@pytest.mark.slow
def test_the_page_of_a_run_asks_its_lease(lake_url: str) -> None:
    async def read_end(run_id: str) -> str:
        async with Readers(store.Location.of(lake_url), None, store.QueryLimits()) as readers:
            view = View(readers, readers.newest, f"/run/{run_id}", {"run": run_id}, {})
            page = await run_page.build(view)
        assert page.live == page.intro.endswith("This page follows it.")
        return page.intro

    run_id = store.ids.uuid7()
    with start(lake_url, run_id) as process:
        assert asyncio.run(read_end(run_id)) == "Running. This page follows it."
        process.kill()
        process.wait()
        assert asyncio.run(read_end(run_id)).startswith("Killed")
    with pytest.raises(ValueError, match="<b>"), start_here(lake_url, run_id):
        raise ValueError("<b>")
    end = asyncio.run(read_end(run_id))
    assert re.fullmatch(r"Failed after [\d,.e+]+ s: ValueError: <b>[.]", end), end


@pytest.mark.slow
def test_the_first_line_of_an_error_is_kept_short_and_shown_harmlessly(lake_url: str) -> None:
    run_id = store.ids.uuid7()
    with pytest.raises(FlywheelError), start_here(lake_url, run_id):
        raise FlywheelError("no such\x1b[2J file " + "x" * 1000 + "\nmore", "Do this.")
    row = read_state(lake_url, run_id)
    assert row["error"].startswith("no such\x1b[2J file xxx")
    assert (len(row["error"]), "more" in row["error"]) == (300, False)
    done = commands.run(["store", "show", run_id, "--lake", lake_url], cwd=Path.cwd())
    assert "state      failed" in done.stdout
    assert "\x1b" not in done.stdout
    done = commands.run(
        ["store", "show", run_id, "--lake", lake_url, "--format", "json"], cwd=Path.cwd()
    )
    page = json.loads(done.stdout)
    assert (page["run_id"], page["state"]) == (run_id, "failed")
    assert [end["outcome"] for end in page["ends"]] == ["failed"]


def test_an_end_that_cannot_be_stored_hides_no_error(lake_url: str) -> None:
    run = store.make_run(kind="audit", name="detectors", config={})

    def fail() -> None:
        with (
            store.writer(lake_url, author="tests") as writer,
            store.record_run(writer, run, "begins"),
        ):
            writer.close()
            raise ValueError("the cause")

    with pytest.raises(ValueError, match="the cause"):
        fail()
    assert read_state(lake_url, run["run_id"])["state"] == "open"


@pytest.mark.slow
def test_a_run_of_another_host_is_not_said_to_be_killed(writer: store.Writer) -> None:
    here, elsewhere = (
        store.make_run(kind="audit", name="detectors", config={}) | {"host": host}
        for host in (platform.node(), "another-host")
    )
    writer.append({"runs": [here, elsewhere]}, "two runs without a process")
    location = writer.location
    with writer.reader() as lake:
        rows = {row["host"]: row for row in lake.sql("FROM run_states").rows()}
    states = {host: find_state(location, row) for host, row in rows.items()}
    assert states[platform.node()].startswith("killed")
    said = states["another-host"]
    assert said.startswith("killed" if location.sees_every_host else "open on another host")


@pytest.mark.slow
def test_runs_from_before_ends_were_recorded_are_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, old = str(tmp_path / "lake"), tmp_path / "catalog.yaml"
    known = yaml.safe_load(catalogs.find_catalog().read_text("utf-8"))
    del known["tables"]["run_ends"], known["provenance"]["run_ends"]
    known["schema"] -= 1
    old.write_text(yaml.safe_dump(known, sort_keys=False))
    began = datetime.now(UTC) - timedelta(hours=1)
    rows = [b.run(name, "training") | {"started_at": began} for name in ("open", "ended")]
    rows[1]["finished_at"] = began + timedelta(seconds=90)
    with monkeypatch.context() as before:
        before.setenv("FLYWHEEL_CATALOG", str(old))
        with store.writer(url, author="tests") as writer:
            snapshot = writer.append({"runs": rows}, "old runs")
    wanted = {rows[0]["run_id"]: ("unknown", None), rows[1]["run_id"]: ("finished", 90.0)}

    def read(at: int | None) -> dict[str, tuple[str, float | None]]:
        with store.open(url, at) as lake:
            states = lake.sql("FROM run_states").rows()
        return {row["run_id"]: (row["state"], row["seconds"]) for row in states}

    assert read(None) == wanted  # the table is not there yet
    store.writer(url, author="tests").close()
    assert read(None) == read(snapshot) == wanted


def test_leases_of_one_process_do_not_release_one_another(tmp_path: Path) -> None:
    store.writer(str(tmp_path), author="tests").close()
    location = store.Location.of(str(tmp_path))
    assert location.find_held(["a"]) == set()
    assert not (tmp_path / "leases").exists(), "asking makes no file"
    ask_elsewhere = (
        f"import store; print(sorted(store.Location.of({str(tmp_path)!r}).find_held(['a', 'b'])))"
    )

    def find_from_outside() -> str:
        words = [sys.executable, "-c", ask_elsewhere]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()

    with FolderLeases(tmp_path / "leases") as first:
        assert first.take(["a"]) == {"a"}
        with FolderLeases(tmp_path / "leases") as second:
            assert second.take(["a", "b"]) == {"b"}, "a name has one holder, also in one process"
            second.release(["a"])  # it is not the second's to release
            assert location.find_held(["a", "b", "c"]) == {"a", "b"}
        assert location.find_held(["a", "b"]) == {"a"}
        assert find_from_outside() == "['a']"
    assert location.find_held(["a", "b"]) == set()


@pytest.mark.slow
def test_an_import_is_stored_with_its_end(lake_url: str) -> None:
    done = commands.run(["store", "import", "published", "--lake", lake_url], cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    with store.open(lake_url) as lake:
        [row] = lake.sql("SELECT kind, state, seconds, error FROM run_states").rows()
        [run] = lake.sql("SELECT finished_at FROM runs").rows()
    assert (row["kind"], row["state"], row["error"]) == ("import", "finished", None)
    assert row["seconds"] >= 0
    assert run["finished_at"] is None, "one place says when a run ended"
