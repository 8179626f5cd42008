"""`store import measured`: rows of others override nothing, and --own rows count as own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builders as b
import commands
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from example_counts import is_thorough
from lake_places import LakePlaces

import store
from store.errors import ImportFailed, RowsRejected
from store.importers import measured
from store.importers.reading.pieces import run_import
from store.lake.location import Location
from store.upkeep import integrity

TASK, GPU = b.task(), b.device("H200", kind="cuda")
SIZES = b.workload(TASK)
WRONG, SLOW, NEW = b.kernel("wrong"), b.kernel("slow"), b.kernel("new")
NEWEST = 2**31 - 1
BEST = "SELECT kernel_id, speedup FROM best_kernels"
VERDICTS = "SELECT kernel_id, status, evaluator_version FROM verdicts ORDER BY ALL"


class Home:
    """A lake that has judged two kernels, and folders that it imports."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.slow = b.evaluation(SLOW, TASK, SIZES, GPU)

    def fill(self) -> None:
        """Append the verdicts on the two kernels."""
        wrong = b.evaluation(WRONG, TASK, SIZES, GPU, "incorrect")
        self.write({
            "tasks": [TASK], "task_labels": [b.label(TASK)], "workloads": [SIZES],
            "devices": [GPU], "kernels": [WRONG, SLOW, NEW], "evaluations": [wrong, self.slow],
            "timings": b.session(self.slow, [2.0] * 9, eager=[1.0] * 9),
        })  # fmt: skip

    def write(self, rows: dict[str, list[b.Row]]) -> None:
        with store.writer(self.url, author="tests") as writer:
            writer.append(rows, "rows")

    def ask(self, query: str) -> list[dict[str, Any]]:
        with store.open(self.url) as lake:
            return lake.sql(query).rows()

    def take(self, rows: dict[str, list[b.Row]], *, own: bool = False) -> dict[str, int]:
        """Import a folder with these rows, as Arrow types them; return the rows added."""
        self.folder.mkdir(exist_ok=True)
        for old in self.folder.iterdir():
            old.unlink()
        for name, listed in rows.items():
            pq.write_table(pa.Table.from_pylist(listed), self.folder / f"{name}.parquet")
        with store.writer(self.url, author="tests") as writer:
            config = measured.Config(own=own)
            added = run_import(writer, measured, self.folder, config).rows
        if own or is_thorough():
            assert integrity.check(Location.of(self.url)) == []
        return added


@pytest.fixture(scope="module")
def filled_url(places: LakePlaces, empty_url: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of the lake of `Home`, to be copied."""
    url = places.choose_url(tmp_path_factory.mktemp("home") / "lake")
    places.copy(empty_url, url)
    Home(url, tmp_path_factory.mktemp("nobody")).fill()
    return url


@pytest.fixture
def home(places: LakePlaces, filled_url: str, lake_url: str, tmp_path: Path) -> Home:
    places.copy(filled_url, lake_url)
    return Home(lake_url, tmp_path / "stranger")


def claim_fast(kernel: b.Row, version: int = NEWEST, **columns: Any) -> dict[str, list[b.Row]]:
    """Return a verdict by which a kernel is correct, and a session by which it is very fast."""
    row = b.evaluation(
        kernel, TASK, SIZES, GPU, version=version, minute=9, equivalent=True, **columns
    )
    return {
        "evaluations": [row],
        "timings": b.session(row, [0.001] * 9, eager=[1000.0] * 9),
    }


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("kernel", [WRONG, SLOW], ids=["wrong", "slow"])
@pytest.mark.parametrize("columns", [{}, {"evaluator": "trust_me"}], ids=["same", "other"])
def test_rows_of_others_change_nothing_that_this_lake_judged(
    home: Home, kernel: b.Row, columns: dict[str, Any]
) -> None:
    before = home.ask(VERDICTS), home.ask(BEST)
    assert home.take(claim_fast(kernel, **columns))["timings"] == 2
    assert (home.ask(VERDICTS), home.ask(BEST)) == before
    origins = home.ask("SELECT DISTINCT origin FROM evaluations ORDER BY ALL")
    assert origins == [{"origin": "stranger"}, {"origin": None}]


@pytest.mark.slow
def test_a_timing_that_names_a_verdict_of_this_lake_stays_out(home: Home) -> None:
    before = home.ask(BEST)
    forged = claim_fast(NEW)
    late = b.session(home.slow, [0.001] * 9, eager=[1000.0] * 9, minute=50)
    added = home.take(forged | {"timings": forged["timings"] + late})
    assert added == {"evaluations": 1, "timings": 2}
    assert home.ask(f"{BEST} WHERE kernel_id = '{SLOW['kernel_id']}'") == []  # NEW leads
    home.write({"evaluations": [b.evaluation(NEW, TASK, SIZES, GPU, "crash", minute=1)]})
    assert home.ask(BEST) == before


@pytest.mark.slow
def test_an_audit_that_states_a_device_of_this_lake_does_not_keep_out_an_own_one(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    other = b.device("A100", kind="cuda")
    forged = [b.task_audit(SIZES, device, [], weak=False) for device in (GPU, other)]
    added = home.take({"task_audits": forged, "devices": [GPU, other]})
    assert added == {"devices": 1, "task_audits": 1}
    assert "kept out of task_audits: 1 that would join this lake's devices" in caplog.text
    home.write({"task_audits": [b.task_audit(SIZES, GPU, ["zeros"])]})
    assert home.ask("FROM weak_tasks") == [{"task_id": TASK["task_id"]}]


@pytest.mark.slow
def test_rows_of_others_rank_until_this_lake_has_judged_the_kernel(home: Home) -> None:
    home.take(claim_fast(NEW))
    [best] = home.ask(BEST)
    assert best["kernel_id"] == NEW["kernel_id"]
    # The version that the others state does not outlive an own verdict.
    home.write({"evaluations": [b.evaluation(NEW, TASK, SIZES, GPU, "incorrect", minute=1)]})
    [best] = home.ask(BEST)
    assert best == {"kernel_id": SLOW["kernel_id"], "speedup": 0.5}


@pytest.mark.slow
def test_own_rows_count_as_measured_here_even_after_the_same_rows_of_others(home: Home) -> None:
    rows = claim_fast(NEW, version=1)
    assert home.take(rows) == {"evaluations": 1, "timings": 2}
    assert home.take(rows) == {}
    assert home.take(rows, own=True) == {"evaluations": 1, "timings": 2}
    assert home.take(rows, own=True) == {}
    assert home.take(rows) == {}
    [best] = home.ask("SELECT evaluation_id FROM best_kernels")
    assert best["evaluation_id"] == rows["evaluations"][0]["evaluation_id"]
    query = "SELECT origin FROM counted_evaluations WHERE kernel_id = "
    assert home.ask(f"{query}'{NEW['kernel_id']}'") == [{"origin": None}]


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("own", [False, True])
def test_a_later_import_adds_the_rows_of_kernels_that_came_meanwhile(home: Home, own: bool) -> None:
    unknown = b.kernel("unknown")
    first, second = claim_fast(NEW), claim_fast(unknown)
    both = {name: [*first[name], *second[name]] for name in first}
    assert home.take(both, own=own) == {"evaluations": 1, "timings": 2}
    home.write({"kernels": [unknown]})
    assert home.take(both, own=own) == {"evaluations": 1, "timings": 2}


@pytest.mark.slow
def test_own_rows_with_the_key_of_other_rows_stay_out(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    changed = home.slow | {"status": "incorrect", "reason": "nan"}
    assert home.take({"evaluations": [changed]}, own=True) == {}
    assert "kept out of evaluations: 1 whose key this lake has with other values" in caplog.text
    assert {"status": "correct"} in home.ask("SELECT status FROM verdicts")


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("changes", [{"kind": "cpu"}, {"name": "h200"}], ids=["kind", "case"])
def test_a_device_that_passes_for_one_of_this_lake_is_refused(
    home: Home, changes: b.Row, own: bool
) -> None:
    rows = claim_fast(NEW) | {"devices": [GPU | {"device_id": "another"} | changes]}
    with pytest.raises(ImportFailed, match="would rank with or beside 'H200' of kind cuda"):
        home.take(rows, own=own)
    assert home.ask("SELECT count(*) AS n FROM evaluations") == [{"n": 2}]


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("own", [False, True])
def test_a_device_of_this_lake_keeps_its_name(home: Home, own: bool) -> None:
    home.take(claim_fast(NEW) | {"devices": [GPU | {"name": "B200"}]}, own=own)
    assert home.ask("SELECT name, kind FROM devices") == [{"name": "H200", "kind": "cuda"}]


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("own", [False, True])
def test_columns_without_any_value_are_stored_as_null(home: Home, own: bool) -> None:
    rows = claim_fast(NEW, reason=None, flags=[], message=None)
    assert home.take(rows, own=own)["evaluations"] == 1
    query = "SELECT reason, flags, message FROM evaluations WHERE kernel_id = "
    assert home.ask(f"{query}'{NEW['kernel_id']}'") == [
        {"reason": None, "flags": [], "message": None}
    ]
    # The stored row is compared with the same columns, and with one that has values.
    again = claim_fast(NEW, reason=None, flags=None, message=None)
    assert home.take(again, own=own) == {}


@pytest.mark.slow
def test_a_required_column_without_any_value_is_refused(home: Home) -> None:
    with pytest.raises(RowsRejected, match="evaluator"):
        home.take(claim_fast(NEW, evaluator=None))


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("own", [False, True])
def test_ids_may_be_binary_columns(home: Home, own: bool) -> None:
    ids = ("kernel_id", "task_id", "workload_id")
    rows = {
        name: [row | {column: row[column].encode() for column in ids} for row in listed]
        for name, listed in claim_fast(NEW).items()
    }
    assert home.take(rows, own=own)["evaluations"] == 1
    rows["evaluations"][0]["kernel_id"] = b"\xff"
    with pytest.raises(ImportFailed, match=r"evaluations\.parquet cannot be read"):
        home.take(rows, own=own)


def test_a_missing_required_column_is_named(home: Home) -> None:
    rows = claim_fast(NEW)
    rows["evaluations"] = [{k: v for k, v in rows["evaluations"][0].items() if k != "device_id"}]
    with pytest.raises(ImportFailed, match="evaluations: a file lacks device_id"):
        home.take(rows)


@pytest.mark.slow
def test_the_command_says_whose_rows_they_are(home: Home) -> None:
    home.take(claim_fast(NEW))
    said = [
        commands.run(
            ["store", "import", "measured", str(home.folder), *option, "--lake", home.url],
            cwd=home.folder.parent,
        )
        for option in ([], ["--own"])
    ]
    assert "the origin stranger" in said[0].stderr
    assert said[1].stderr == ""
    assert "evaluations +1, timings +2" in said[1].stdout
