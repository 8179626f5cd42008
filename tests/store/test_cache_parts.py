"""Views that are cached in parts, from temporary files with the rows of their tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builders as b
import duckdb
import pytest

import store
from store.errors import FlywheelError
from store.lake.cache import leaders, task_parts, view_cache
from store.lake.cache.cache_folder import CacheFolder
from store.lake.cache.kept_files import copy_rows
from store.lake.limits import QueryLimits
from store.lake.location import Location
from store.upkeep import integrity

VIEWS = tuple(view_cache.SOURCES)
TASKS = 3
NEVER = 10**9
SLOW = pytest.mark.slow


@pytest.fixture
def cached_url(lake_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a lake whose cached views have one part for each task."""
    monkeypatch.setattr(view_cache, "LARGE_ROWS", 1)
    monkeypatch.setattr(task_parts, "PART_ROWS", 1)
    monkeypatch.setattr(task_parts, "DIRECT_PARTS", 1)
    _fill(lake_url)
    return lake_url


def _fill(url: str) -> None:
    """Append rows of several tasks in one file, with a value in every column that views read."""
    tasks = [b.task(f"t{n}") for n in range(TASKS)]
    kernels = [b.kernel(f"k{n}") for n in range(4)]
    sizes, policy = [b.workload(task) for task in tasks], b.policy()
    device = b.device("H200", kind="cuda")
    rows: dict[str, list[b.Row]] = {"evaluations": [], "timings": [], "generations": []}
    for n in range(60):
        task, kernel = n % TASKS, kernels[n % len(kernels)]
        status = "incorrect" if n % 11 == 3 else "correct"
        about: dict[str, Any] = {
            "policy": ["allow_tf32", "torch_default", None][n % 3],
            "protocol": {5: "training", 6: "shape"}.get(n % 13),
            "flags": ["fails_positive"] if n % 7 == 1 else [],
            "equivalent": [True, False, None][n % 3] if status == "correct" else None,
            "log": "a log that no view reads",
            "seeds": [n],
        }
        judged = b.evaluation(
            kernel, tasks[task], sizes[task], device, status, version=1 + n // 30, minute=n, **about
        )
        rows["evaluations"].append(judged)
        if status == "correct":
            clock, cache = [("gpu", "cold"), (None, "cold"), (None, "warm")][n % 3]
            ratios = [1.0 + (n * k) % 17 for k in range(8)]
            arms = b.session(judged, [1.0] * 8, clock=clock, cache=cache, eager=ratios, minute=n)
            rows["timings"] += [arm | {"control_ratios": [0.9, 1.1] * 4} for arm in arms]
        rows["generations"].append(b.generation(policy, tasks[task], kernel, minute=n))
    # An attempt at a problem that is no task of the lake.
    rows["generations"].append(
        b.generation(policy, tasks[0], kernels[0], minute=99, task_id=None, problem="another")
    )
    fixed = {
        "tasks": tasks, "kernels": kernels, "workloads": sizes, "devices": [device],
        "policies": [policy],
    }  # fmt: skip
    with store.writer(url, author="tests") as writer:
        writer.append(fixed | rows, "judged kernels of several tasks")


def _answer(url: str, *views: str) -> dict[str, list[dict[str, Any]]]:
    with store.open(url) as lake:
        return {view: lake.sql(f"FROM {view} ORDER BY ALL").rows() for view in views or VIEWS}


def _answer_without_cache(url: str, *views: str) -> dict[str, list[dict[str, Any]]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view_cache, "LARGE_ROWS", NEVER)
        return _answer(url, *views)


def _list_cache(url: str) -> set[str]:
    """Return the names in the folder of the cache, except those of whole files and the lock."""
    found = {path.name for path in Location.of(url).derived.iterdir()}
    return {name for name in found if not name.endswith(".parquet") and name != "lock"}


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the folders of parts that are written, as a list that grows."""
    found: list[Path] = []

    def copy(
        connection: duckdb.DuckDBPyConnection, query: str, target: Path, *options: str
    ) -> None:
        copy_rows(connection, query, target, *options)
        found.extend(target.glob("part=*") if options else [])

    monkeypatch.setattr(task_parts, "copy_rows", copy)
    return found


def test_views_from_files_of_parts_are_those_of_the_tables(
    cached_url: str, written: list[Path]
) -> None:
    answer = _answer(cached_url)
    assert answer == _answer_without_cache(cached_url)
    assert all(answer[view] for view in VIEWS)
    of_timings = [path for path in written if path.parent.name == "timings"]
    # speedups, timed_arms and shape_verdicts read the samples' table once each.
    assert len(of_timings) == 3 * TASKS
    assert integrity.check(Location.of(cached_url)) == []
    assert _list_cache(cached_url) == set()


@pytest.mark.parametrize(
    ("delta_keys", "base_share"),
    [
        (0, NEVER),
        pytest.param(NEVER, NEVER, marks=SLOW),
        pytest.param(NEVER, 0.0, marks=SLOW),
    ],
)
def test_later_attempts_without_a_task_are_counted_once(
    cached_url: str, delta_keys: int, base_share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_cache, "DELTA_KEYS", delta_keys)
    monkeypatch.setattr(view_cache, "DELTA_SHARE", 0)
    monkeypatch.setattr(view_cache, "BASE_SHARE", base_share)
    monkeypatch.setattr(leaders, "FIRST_ROWS", 1)
    views = ("authors", "attempted_kernels", "attempted_tasks", "task_results")
    _answer(cached_url, *views)
    for number in range(2):
        policy = b.policy(f"p{number}")
        given = {"task_id": None, "problem": "another", "minute": 100 + number}
        attempt = b.generation(policy, b.task("t0"), b.kernel("k0"), **given)
        rows = {"policies": [policy], "generations": [attempt]}
        with store.writer(cached_url, author="tests") as writer:
            writer.append(rows, "an attempt at a problem that is no task")
        with store.open(cached_url) as lake:
            lake.sql("FROM attempted_kernels").rows()
        assert _answer(cached_url, *views) == _answer_without_cache(cached_url, *views)


def test_files_of_parts_lack_columns_that_the_view_does_not_name(
    cached_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns: dict[str, set[str]] = {}

    def copy(
        connection: duckdb.DuckDBPyConnection, query: str, target: Path, *options: str
    ) -> None:
        described = connection.execute(f"DESCRIBE {query}").fetchall()
        columns.setdefault(target.stem, set()).update(str(row[0]) for row in described)
        copy_rows(connection, query, target, *options)

    monkeypatch.setattr(task_parts, "copy_rows", copy)
    with store.open(cached_url) as lake:
        lake.sql("FROM speedups").rows()
    assert {"samples_ms", "blocks", "control_ratios", "session_id", "part"} <= columns["timings"]
    assert not {"temperature_c", "sm_clock_mhz"} & columns["timings"]
    assert {"status", "policy", "created_at"} <= columns["evaluations"]
    assert not {"log", "message", "seeds", "run_id"} & columns["evaluations"]


@pytest.mark.parametrize(
    ("spill_gb", "most", "groups"), [(1e-6, NEVER, [1, 1, 1]), (10.0, 2, [2, 1])]
)
def test_parts_beyond_the_allowed_space_or_number_are_written_later(
    cached_url: str,
    monkeypatch: pytest.MonkeyPatch,
    spill_gb: float,
    most: int,
    groups: list[int],
) -> None:
    at_once: list[int] = []

    def copy(
        connection: duckdb.DuckDBPyConnection, query: str, target: Path, *options: str
    ) -> None:
        copy_rows(connection, query, target, *options)
        if options and target.name == "timings":
            at_once.append(len(list(target.glob("part=*"))))

    monkeypatch.setattr(task_parts, "copy_rows", copy)
    monkeypatch.setattr(task_parts, "PARTS_AT_ONCE", most)
    with store.open(cached_url, limits=QueryLimits(spill_gb=spill_gb)) as lake:
        answer = lake.sql("FROM speedups ORDER BY ALL").rows()
    assert answer == _answer_without_cache(cached_url, "speedups")["speedups"]
    assert at_once == groups


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("error", [duckdb.InterruptException, KeyboardInterrupt])
@pytest.mark.parametrize("calls", [1, 3, 5])
def test_an_interrupted_fill_leaves_no_files_and_the_next_one_succeeds(
    cached_url: str, error: type[BaseException], calls: int
) -> None:
    left = calls

    def copy(
        connection: duckdb.DuckDBPyConnection, query: str, target: Path, *options: str
    ) -> None:
        nonlocal left
        copy_rows(connection, query, target, *options)
        left -= 1
        if not left:
            raise error("interrupted")

    expected = FlywheelError if error is duckdb.InterruptException else error
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(task_parts, "copy_rows", copy)
        patch.setattr(view_cache, "copy_rows", copy)
        with store.open(cached_url) as lake, pytest.raises(expected):
            lake.sql("FROM speedups").rows()
    assert {path.name for path in Location.of(cached_url).derived.iterdir()} == {"lock"}
    assert _answer(cached_url, "speedups") == _answer_without_cache(cached_url, "speedups")
    assert _list_cache(cached_url) == set()


def test_files_of_a_killed_fill_are_removed_and_those_of_a_running_one_are_not(
    cached_url: str,
) -> None:
    folder = Location.of(cached_url).derived
    (folder / "killed.partial" / "timings" / "part=0").mkdir(parents=True)
    (folder / "killed.partial" / "timings" / "part=0" / "data_0.parquet").write_bytes(b"half")
    with CacheFolder(folder, lambda _: True).make_scratch() as running:
        _answer(cached_url, "speedups")
        assert _list_cache(cached_url) == {running.name}
    assert _list_cache(cached_url) == set()
