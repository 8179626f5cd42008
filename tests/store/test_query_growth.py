"""Queries of pipelines and views on large lakes: no operator puts out many more rows than it got.

The lake has 100,000 evaluations. Each test process that needs it waits for the first
one to make it.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import bounds
import pytest
from generate import Size, make

import store

CASES = bounds.list_cases()
PROGRAMS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="session")
def large_lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the URL of a lake with 100,000 evaluations, which all test processes share."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    lake = shared / "large" / "lake"
    lake.parent.mkdir(exist_ok=True)
    with (lake.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (lake.parent / "done").exists():
            size = Size(kernels=10_000, evaluations=100_000, tasks=100, timed=20, varied=1)
            make(str(lake), size, say=lambda _: None)
            (lake.parent / "done").touch()
    return str(lake)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_operator_puts_out_many_more_rows_than_it_gets(large_lake: str, name: str) -> None:
    done = bounds.measure(large_lake, name, CASES[name])
    assert done.rows or name.startswith("view")
    assert done.statements
    assert not [line for one in done.statements for line in one.find_growth()]


GROWING = {
    # The condition is evaluated for all pairs of attempts at a task.
    "HASH_JOIN": "SELECT count(*) FROM generations AS a JOIN generations AS b "
    "ON a.task_id = b.task_id AND md5(a.generation_id || b.task_id) = b.generation_id",
    # A condition on the left side of an outer join makes DuckDB compare all pairs.
    "BLOCKWISE_NL_JOIN": "SELECT count(b.task_id) FROM task_labels AS a "
    "LEFT JOIN tasks AS b ON a.task_id = b.task_id AND a.level = 1",
    "CROSS_PRODUCT": "SELECT count(a.code) + count(b.name) FROM tasks AS a, workloads AS b",
    "UNNEST": "SELECT count(*) FROM (SELECT unnest(minhash_bands) AS band FROM kernel_features)",
}


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("operator", GROWING)
def test_growth_is_found_unless_the_header_of_the_file_names_the_operator(
    large_lake: str, tmp_path: Path, operator: str
) -> None:
    def find(name: str, header: str) -> str:
        file = tmp_path / f"{name}.sql"
        file.write_text(header + GROWING[operator])
        sql = store.read_statement(file)
        done = bounds.measure(large_lake, name, lambda lake: len(lake.run(sql).rows()))
        return "\n".join(line for one in done.statements for line in one.find_growth())

    found = find("unexplained", "-- Counts.\n")
    assert f"{operator} puts out" in found
    assert "unexplained.sql" in found
    assert operator in find("another", "-- Counts.\n-- Grows at UNION: never.\n")
    assert operator in find("unstated", f"-- Counts.\n-- Grows at {operator}:\n")
    assert find("explained", f"-- Counts.\n-- Grows at {operator}: this is a test.\n") == ""


@pytest.mark.large
def test_pipelines_and_views_of_a_million_evaluations_stay_within_bounds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lake = str(tmp_path / "lake")
    size = ("--kernels", "250000", "--evaluations", "1000000", "--varied")
    subprocess.run([sys.executable, PROGRAMS / "generate.py", "--lake", lake, *size], check=True)
    done = subprocess.run(
        [sys.executable, PROGRAMS / "bounds.py", "--lake", lake], capture_output=True, text=True,
        check=False, env=os.environ | {"FLYWHEEL_SPILL_GB": "10"},
    )  # fmt: skip
    with capsys.disabled():
        sys.stdout.write(f"\n{done.stdout}")
    assert (done.returncode, done.stderr.strip()) == (0, "")
    assert done.stdout.count("\n|") == len(CASES) + 1
