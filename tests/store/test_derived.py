"""Answers that are kept beside the lake are those of the tables, at every snapshot, or unused."""

from __future__ import annotations

import copy
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import builders as b
import duckdb
import pytest
from example_counts import is_thorough
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lake_places import LakePlaces

import store
from store.errors import FlywheelError
from store.lake import view_cache
from store.lake.location import Location
from store.schema import catalog
from store.upkeep import integrity, maintenance

CACHED = tuple(view_cache.SOURCES)
VIEWS = (
    *CACHED,
    *view_cache.STORED_VIEWS,
    "best_kernels",
    *(("kernel_speedups", "task_results", "leaderboard") if is_thorough() else ()),
)
NEVER = 10**9
CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@pytest.fixture(autouse=True)
def _keep_small_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_small_answers(monkeypatch)


def keep_small_answers(patch: pytest.MonkeyPatch) -> None:
    """Keep the answers of small lakes as well, in parts, and bring no file up to date."""
    patch.setattr(view_cache, "LARGE_ROWS", 1)
    patch.setattr(view_cache, "PART_ROWS", 3)
    patch.setattr(view_cache, "NEW_KEYS", NEVER)


def _rewrite_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(view_cache, "NEW_KEYS", 0)
    patch.setattr(view_cache, "NEW_SHARE", 0)


def answers(url: str, at: int | None = None) -> dict[str, list[dict[str, Any]]]:
    with store.open(url, at) as opened:
        return {view: opened.sql(f"FROM {view} ORDER BY ALL").rows() for view in VIEWS}


def ask_tables(url: str, at: int | None = None) -> dict[str, list[dict[str, Any]]]:
    """Return the answers of the tables themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view_cache, "LARGE_ROWS", NEVER)
        return answers(url, at)


def files(url: str) -> list[str]:
    return sorted(file.name for file in Location.of(url).derived.glob("*.parquet"))


class History:
    """A lake whose kernels are judged and timed again and again, by chance."""

    def __init__(self, writer: store.Writer, seed: int | random.Random) -> None:
        chance = random.Random(seed) if isinstance(seed, int) else seed
        self.writer, self.chance, self.minute = writer, chance, 0.0
        self.tasks = [b.task(f"t{i}") for i in range(2)]
        self.devices = [b.device(f"d{i}") for i in range(2)]
        self.kernels = [b.kernel(f"k{i}") for i in range(4)]
        self.sizes = [b.workload(task, name) for task in self.tasks for name in ("default", "wide")]
        self.policies = [b.policy(f"p{i}") for i in range(2)]
        self.open_arms: list[b.Row] = []
        self.findings: list[b.Row] = []
        self.snapshots: list[int] = []
        writer.append(
            {
                "tasks": self.tasks, "devices": self.devices, "kernels": self.kernels,
                "workloads": self.sizes, "policies": self.policies,
                "task_labels": [b.label(task, f"level1/{i}") for i, task in enumerate(self.tasks)],
                "generations": [b.generation(self.policies[0], self.tasks[0], self.kernels[0])],
            },
            "what is judged",
        )  # fmt: skip

    def step(self, bundles: int = 4) -> int:
        """Append bundles; arms of one session may come in different ones."""
        for _ in range(bundles):
            pick = self.chance.choice
            self.minute += 1
            task = pick(self.tasks)
            sizes = pick([one for one in self.sizes if one["task_id"] == task["task_id"]])
            judged = b.evaluation(
                pick(self.kernels), task, sizes, pick(self.devices),
                pick(["correct"] * 6 + ["incorrect", "evaluator_error", "rejected"]),
                version=pick([1, 1, 2]), evaluator=pick(["judge", "strict"]), minute=self.minute,
            )  # fmt: skip
            arms: list[b.Row] = []
            if judged["status"] == "correct":
                ratios = [self.chance.uniform(0.5, 3) for _ in range(7)]
                arms = b.session(judged, [1.0] * 7, eager=ratios, minute=self.minute)
            kept = self.chance.random() < 0.5
            late, self.open_arms = self.open_arms, arms[1:] if kept else []
            now = [*late, *(arms[:1] if kept else arms)]
            tables = {"evaluations": [judged], "timings": now, "generations": []} | self._decide()
            for _ in range(pick([0, 1, 2])):
                kernel = pick([None, *self.kernels])
                # Some are attempts at a problem that is no task of the lake.
                place: Any = pick([{}, {}, {"task_id": None, "problem": "another"}])
                made = b.generation(pick(self.policies), pick(self.tasks), kernel, **place)
                tables["generations"].append(
                    made | {"generation_id": store.ids.uuid7(), "created_at": b.at(self.minute)}
                )
            self.snapshots.append(self.writer.append(tables, "judged"))
        return self.snapshots[-1]

    def _decide(self) -> dict[str, list[b.Row]]:
        """Return a new finding, a decision on an earlier one, or an audit of a task, by chance."""
        chosen = self.chance.random()
        if chosen < 0.2:
            kernel = self.chance.choice(self.kernels)
            self.findings.append(b.finding(kernel, line=len(self.findings)))
            return {"findings": [self.findings[-1]]}
        if chosen < 0.5 and self.findings:
            finding = self.chance.choice(self.findings)
            decision = self.chance.choice(["confirmed", "dismissed"])
            return {"standings": [b.standing(finding, decision, minute=self.minute)]}
        if chosen < 0.6:
            sizes, device = self.chance.choice(self.sizes), self.chance.choice(self.devices)
            passes = self.chance.choice([[], ["zeros"]])
            return {
                "task_audits": [b.task_audit(sizes, device, passes, created_at=b.at(self.minute))]
            }
        return {}


@pytest.fixture(scope="module")
def long_past(
    places: LakePlaces, empty_url: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, History]:
    """Return the URL of a lake with some history, to be copied, and how it came about.

    Its answers are kept, for copies in a folder as well.
    """
    url = places.choose_url(tmp_path_factory.mktemp("past") / "lake")
    places.copy(empty_url, url)
    with store.writer(url, author="tests") as writer, pytest.MonkeyPatch.context() as patch:
        past = History(writer, 1)
        past.step(8)
        keep_small_answers(patch)
        answers(url)
    return url, past


@pytest.fixture
def history(places: LakePlaces, lake_url: str, long_past: tuple[str, History]) -> Iterator[History]:
    """Return a lake with some history; its answers are kept."""
    url, past = long_past
    places.copy(url, lake_url)
    with store.writer(lake_url, author="tests") as writer:
        own = copy.deepcopy(past, {id(past.writer): writer})
        if not files(lake_url):
            answers(lake_url)
        yield own


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [
        pytest.param("live", 2, marks=pytest.mark.slow),
        pytest.param("rewritten", 1, marks=pytest.mark.slow),
        pytest.param("rewritten", 2, marks=pytest.mark.slow),
    ],
)
def test_kept_answers_are_those_of_the_tables(
    lake_url: str, writer: store.Writer, monkeypatch: pytest.MonkeyPatch, kind: str, rounds: int
) -> None:
    past = History(writer, seed=len(kind))
    past.step(2)
    answers(lake_url)
    if kind == "rewritten":
        _rewrite_files(monkeypatch)
    newest = 0
    for _ in range(rounds):
        newest = past.step()
        assert answers(lake_url) == ask_tables(lake_url)
    of_speedups = [name for name in files(lake_url) if name.startswith("speedups-")]
    snapshots = [int(Path(name).stem.split("-")[2]) for name in of_speedups]
    assert (snapshots == [newest]) == (kind == "rewritten")
    assert integrity.check(Location.of(lake_url)) == []
    older = {one: ask_tables(lake_url, one) for one in past.snapshots[::9]}
    assert all(answers(lake_url, one) == older[one] for one in older)
    maintenance.compact(Location.of(lake_url))
    past.step()
    assert answers(lake_url) == ask_tables(lake_url)
    assert all(answers(lake_url, one) == older[one] for one in older)
    maintenance.expire(Location.of(lake_url), timedelta(0))
    past.step()
    assert answers(lake_url) == ask_tables(lake_url)


@pytest.mark.slow
@settings(max_examples=6, deadline=None, suppress_health_check=CHECKS)
@given(
    chance=st.randoms(use_true_random=False),
    rewrites=st.lists(st.booleans(), min_size=1, max_size=3),
)
def test_any_history_gives_the_answers_of_the_tables(
    places: LakePlaces,
    empty_url: str,
    tmp_path: Path,
    chance: random.Random,
    rewrites: list[bool],
) -> None:
    url = places.choose_url(Path(mkdtemp(dir=tmp_path)) / "lake")
    places.copy(empty_url, url)
    with store.writer(url, author="tests") as writer, pytest.MonkeyPatch.context() as patch:
        past = History(writer, chance)
        past.step(3)
        answers(url)
        for rewrite in rewrites:
            if rewrite:
                _rewrite_files(patch)
            past.step(chance.randint(1, 5))
            assert answers(url) == ask_tables(url)


@pytest.mark.slow
def test_a_new_spread_of_sessions_changes_all_kept_figures_and_none_of_earlier_snapshots(
    lake_url: str, history: History
) -> None:
    before, earlier = answers(lake_url), history.snapshots[-1]
    spreads = [
        b.session_spread(device, 0.5, evaluator=evaluator, evaluator_version=version)
        | {"spread_id": store.ids.uuid7()}
        for device in history.devices
        for evaluator in ("judge", "strict")
        for version in (1, 2)
    ]
    history.writer.append({"session_spreads": spreads}, "an estimate")
    after = answers(lake_url)
    assert after == ask_tables(lake_url)
    assert after["speedups"]
    assert {row["spread"] for row in after["speedups"]} == {0.5}
    assert {row["spread"] for row in before["speedups"]} == {0.125}
    for view in ("speedups", "pooled_speedups", "leading_speedups", "best_kernels"):
        lows = [{row["speedup_low"] for row in rows[view]} for rows in (before, after)]
        assert lows[0].isdisjoint(lows[1]), view
    assert answers(lake_url, earlier) == before
    history.step()
    assert answers(lake_url) == ask_tables(lake_url)
    assert integrity.check(Location.of(lake_url)) == []


def test_tables_that_hide_the_snapshot_of_a_row_are_known() -> None:
    hiding = [t.name for t in catalog.load().tables.values() if "snapshot_id" in t.columns]
    cached = {table for tables in view_cache.SOURCES.values() for table in tables}
    assert tuple(name for name in hiding if name in cached) == view_cache.OWN_SNAPSHOT_ID


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("error", [duckdb.InterruptException, duckdb.OutOfMemoryException])
@pytest.mark.parametrize("place", ["_scan", "ViewCache._keep_keys"])
@pytest.mark.parametrize("view", ["speedups", "leading_speedups"])
def test_a_query_that_ends_while_it_looks_into_the_files_does_not_read_the_tables(
    lake_url: str, history: History, error: type[duckdb.Error], place: str, view: str
) -> None:
    history.step()

    def fail(*_: object) -> str:
        raise error("ended")

    with pytest.MonkeyPatch.context() as patch, store.open(lake_url) as lake:
        patch.setattr(f"store.lake.view_cache.{place}", fail)
        with pytest.raises(FlywheelError):
            lake.sql(f"FROM {view}").rows()
    assert answers(lake_url) == ask_tables(lake_url)


@pytest.mark.slow
def test_a_view_has_the_same_columns_from_a_file(lake_url: str, history: History) -> None:
    for view in view_cache.SOURCES:
        query = f"DESCRIBE {view}"
        with store.open(lake_url) as opened, pytest.MonkeyPatch.context() as patch:
            by_file = opened.sql(query).rows()
            patch.setattr(view_cache, "LARGE_ROWS", NEVER)
            with store.open(lake_url) as plain:
                assert by_file == plain.sql(query).rows()


@pytest.mark.slow
def test_a_file_that_lies_is_found(lake_url: str, history: History) -> None:
    location = Location.of(lake_url)
    assert integrity.check(location) == []
    file = next(location.derived.glob("speedups-*.parquet"))
    with closing(duckdb.connect()) as connection:
        connection.execute(f"CREATE TABLE t AS FROM read_parquet('{file}')")
        connection.execute("UPDATE t SET speedup = 2 * speedup")
        connection.execute(f"COPY t TO '{file}' (FORMAT parquet)")
    problems = integrity.check(location)
    assert [one.table for one in problems if one.table == "speedups"] == ["speedups"]
    assert "kept answers" in problems[0].rule
    shutil.rmtree(location.derived)
    assert integrity.check(location) == []
    assert answers(lake_url) == ask_tables(lake_url)


@pytest.mark.slow
def test_a_file_that_is_cut_short_is_made_anew(lake_url: str, history: History) -> None:
    for file in Location.of(lake_url).derived.glob("*.parquet"):
        file.write_bytes(file.read_bytes()[:-20])
    before = files(lake_url)
    assert answers(lake_url) == ask_tables(lake_url)
    assert integrity.check(Location.of(lake_url)) == []
    assert files(lake_url) == before


@pytest.mark.slow
@pytest.mark.folder
def test_a_lake_put_back_to_a_backup_uses_nothing_of_the_time_after_it(
    lake_url: str, history: History, tmp_path: Path
) -> None:
    location = Location.of(lake_url)
    maintenance.backup(location, tmp_path / "backup")
    assert not (tmp_path / "backup" / "derived").exists()
    newest = history.step(1)
    shutil.rmtree(location.derived)
    answers(lake_url)
    assert f"-{newest}-" in files(lake_url)[0]
    history.writer.close()
    shutil.copytree(location.derived, tmp_path / "backup" / "derived")
    with store.writer(str(tmp_path / "backup"), author="tests") as writer:
        other = History(writer, 2)
        while other.step(1) < newest:
            pass
    assert answers(str(tmp_path / "backup")) == ask_tables(str(tmp_path / "backup"))


@pytest.mark.slow
def test_a_file_whose_snapshot_expired_is_made_anew(lake_url: str, history: History) -> None:
    before = files(lake_url)
    history.step(2)
    expiry = maintenance.expire(Location.of(lake_url), timedelta(0))
    assert expiry.expired
    assert answers(lake_url) == ask_tables(lake_url)
    assert not set(files(lake_url)) & set(before)


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_costs_nothing(lake_url: str, history: History) -> None:
    folder = Location.of(lake_url).derived
    shutil.rmtree(folder)
    folder.write_text("in the way")
    assert answers(lake_url) == ask_tables(lake_url)


@pytest.mark.slow
def test_a_reader_keeps_its_file_until_it_lets_go(
    lake_url: str, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    _rewrite_files(monkeypatch)
    before = files(lake_url)
    with store.open(lake_url) as opened:
        first = opened.sql("FROM speedups ORDER BY ALL").rows()
        history.step(2)
        answers(lake_url)
        assert set(before) - set(files(lake_url)) == {
            name
            for name in before
            if name.split("-")[0] in view_cache.SOURCES and not name.startswith("speedups-")
        }
        assert opened.sql("FROM speedups ORDER BY ALL").rows() == first
    history.step(2)
    answers(lake_url)
    assert not set(before) & set(files(lake_url))


@pytest.mark.slow
def test_what_a_killed_process_left_is_removed(lake_url: str, history: History) -> None:
    folder = Location.of(lake_url).derived
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "speedups-0-1-2.partial").write_bytes(b"half")
    (folder / "speedups-nothing.parquet").write_bytes(b"")
    (folder / "speedups-a-b-c.parquet").write_bytes(b"")
    assert answers(lake_url) == ask_tables(lake_url)
    assert not list(folder.glob("*.partial"))
    assert {name.split("-")[0] for name in files(lake_url)} == set(CACHED)


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("error", [duckdb.InterruptException, KeyboardInterrupt])
@pytest.mark.parametrize("calls", [1, 2])
def test_an_interrupted_fill_leaves_no_files_and_the_next_one_succeeds(
    lake_url: str, history: History, error: type[BaseException], calls: int
) -> None:
    folder, left = Location.of(lake_url).derived, calls
    shutil.rmtree(folder)

    def copy(*asked: Any) -> None:
        nonlocal left
        copy_rows(*asked)
        left -= 1
        if not left:
            raise error("interrupted")

    copy_rows = view_cache.copy_rows
    with pytest.MonkeyPatch.context() as patch, store.open(lake_url) as lake:
        patch.setattr(view_cache, "copy_rows", copy)
        with pytest.raises(FlywheelError if error is duckdb.InterruptException else error):
            lake.sql("FROM authors").rows()
    assert [path.name for path in folder.iterdir()] == ["lock"]
    assert answers(lake_url) == ask_tables(lake_url)
    assert not list(folder.glob("*.partial"))


@pytest.mark.slow
def test_several_processes_make_files_at_once(lake_url: str, history: History) -> None:
    shutil.rmtree(Location.of(lake_url).derived)
    script = (
        "import sys, store\n"
        "from store.lake import view_cache\n"
        "view_cache.LARGE_ROWS = 1\n"
        "with store.open(sys.argv[1]) as lake:\n"
        "    print(lake.sql('FROM speedups ORDER BY ALL').rows())\n"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", script, lake_url], stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    printed = {process.communicate()[0] for process in processes}
    assert all(process.returncode == 0 for process in processes)
    assert len(printed) == 1
    assert len([name for name in files(lake_url) if name.startswith("speedups-")]) == 1


@pytest.mark.slow
def test_few_rows_are_not_kept(
    lake_url: str, history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(Location.of(lake_url).derived)
    monkeypatch.setattr(view_cache, "LARGE_ROWS", 100_000)
    answers(lake_url)
    assert not Location.of(lake_url).derived.exists()


@pytest.mark.slow
def test_user_sql_cannot_name_what_is_kept(lake_url: str, history: History) -> None:
    history.step(2)
    file = next(Location.of(lake_url).derived.glob("speedups-*.parquet"))
    with store.open(lake_url) as opened:
        opened.sql("FROM speedups").arrow()
        for query in (
            "FROM _touched_speedups",
            f"FROM '{file}'",
            f"FROM read_parquet('{file}')",
            f"COPY (SELECT 1) TO '{file}'",
        ):
            with pytest.raises(FlywheelError):
                opened.sql(query).rows()


@pytest.mark.slow
def test_compaction_brings_answers_up_to_date(lake_url: str, history: History) -> None:
    shutil.rmtree(Location.of(lake_url).derived)
    maintenance.compact(Location.of(lake_url))
    assert {name.split("-")[0] for name in files(lake_url)} == set(CACHED)
    assert answers(lake_url) == ask_tables(lake_url)
