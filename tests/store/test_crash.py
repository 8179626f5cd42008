"""Killed writers lose, double and tear nothing: the short form of benchmarks/crash.py."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from object_storage import find_program
from postgres_server import find_binary

import store
from store.lake import attachment, location

pytestmark = pytest.mark.folder
HARNESS = Path(__file__).parents[2] / "benchmarks" / "crash.py"


@pytest.fixture(scope="module")
def crash() -> ModuleType:
    spec = importlib.util.spec_from_file_location("crash", HARNESS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["crash"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize(("writers", "readers", "bundles", "kills"), [(2, 1, 3, 1), (8, 3, 8, 10)])
def test_kill_9_at_random_points_loses_doubles_and_tears_nothing(
    writers: int, readers: int, bundles: int, kills: int
) -> None:
    command = [sys.executable, str(HARNESS), "--writers", str(writers), "--readers", str(readers)]
    done = subprocess.run(
        [*command, "--bundles", str(bundles), "--kills", str(kills), "--limit-s", "500"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    for name in ("lost", "doubled", "torn", "changed_snapshots"):
        assert figures[name] == "0"
    assert figures["problems"] == "[]"
    assert (figures["acked"], figures["kills"]) == (str(writers * bundles), str(kills))
    assert int(figures["kills_of_lock_holders"]) > 0
    assert int(figures["snapshots_read"]) > 0


@pytest.mark.slow
def test_on_servers_that_fail_nothing_is_lost_doubled_or_torn() -> None:
    if find_binary("initdb") is None or find_program() is None or shutil.which("cc") is None:
        pytest.skip("PostgreSQL, SeaweedFS or a C compiler is not installed")
    command = [sys.executable, str(HARNESS.with_name("crash_servers.py")), "--writers", "8"]
    faults = ("--kills", "4", "--restarts", "1", "--outages", "1", "--partitions", "1")
    done = subprocess.run(
        [*command, "--bundles", "4", "--readers", "1", *faults, "--limit-s", "900"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (figures["lost"], figures["doubled"], figures["torn"]) == ("0", "0", "0")
    assert (figures["acked"], figures["kills"], figures["restarts"]) == ("32", "4", "1")
    assert int(figures["rounds_of_upkeep"]) > 0


@pytest.mark.slow
def test_the_harness_sees_what_is_lost_doubled_or_torn(
    crash: ModuleType, writer: store.Writer, lake_url: str
) -> None:
    names = [crash.bundle_id(0, number) for number in range(4)]
    for number, name in enumerate(names):
        writer.append(crash.rows(0, number), name, bundle_id=name)
    assert crash.judge(lake_url, set(names), set(names)).clean
    writer.close()  # SQLite's locks go with the first copy that this process reads
    missing = {*names, crash.bundle_id(7, 0)}
    assert crash.judge(lake_url, missing, set(names)).lost == 1
    for statement, (doubled, torn) in {
        "INSERT INTO lake.timings FROM lake.timings LIMIT 1": (1, 0),
        f"DELETE FROM lake.evaluations WHERE message = '{names[2]}'": (0, 1),
        f"DELETE FROM lake.kernels WHERE code LIKE '# {names[1]}%'": (0, 1),
    }.items():
        copy = Path(lake_url).with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(lake_url, copy)
        connection = attachment.connect()
        attachment.attach(connection, location.FolderLocation(copy), writable=True)
        connection.execute("CALL lake.set_option('require_commit_message', false)")
        connection.execute(statement)
        connection.close()
        outcome = crash.judge(str(copy), set(names), set(names))
        assert (outcome.doubled, outcome.torn) == (doubled, torn), statement
        assert outcome.problems
        assert not outcome.clean
