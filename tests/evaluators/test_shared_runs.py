"""Several runs over one lake: no kernel is judged twice into it, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import builders as b
import commands
import pytest

import store
from evaluators.device.fingerprint import read_fingerprint
from evaluators.scheduling import contract
from evaluators.scheduling.leased_cases import LeasedCases
from evaluators.scheduling.pending import Selection
from evaluators.scheduling.queue import JudgedCase
from evaluators.scheduling.run import append_result, start_run

ROOT = Path(contract.__file__).parents[2]
KERNELS = 12
SLOW = '''
"""Take a moment for every kernel."""

import time
from dataclasses import dataclass

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Config:
    seconds: float = 0.0
    """Seconds that a kernel takes."""


def judge(case, bench, config):
    time.sleep(config.seconds)
    return {"evaluations": [{
        "evaluation_id": "1", "evaluator": "slow", "evaluator_version": VERSION,
        "kernel_id": case.kernel_id, "task_id": case.task_id,
        "workload_id": case.workload_id, "device_id": bench.row["device_id"],
        "status": "correct",
    }]}
'''


@pytest.fixture
def lake(lake_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a lake with kernels, beside an evaluator of the user's own."""
    own = tmp_path / "flywheel" / "evaluators"
    own.mkdir(parents=True)
    (own / "slow.py").write_text(SLOW)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLYWHEEL_CACHE", str(tmp_path / "cache"))
    task, policy = b.task(), b.policy()
    kernels = [b.kernel(code=f"class ModelNew:\n    n = {n}\n") for n in range(KERNELS)]
    rows: dict[str, Any] = {
        "tasks": [task],
        "task_labels": [b.label(task)],
        "workloads": [b.workload(task)],
        "devices": [b.device()],
        "kernels": kernels,
        "policies": [policy],
        "generations": [b.generation(policy, task, kernel) for kernel in kernels],
    }
    with store.writer(lake_url, author="tests") as writer:
        writer.append(rows, "rows")
    return lake_url


def read_device(url: str) -> dict[str, Any]:
    with store.open(url) as opened:
        return opened.sql("SELECT * FROM devices ORDER BY kind LIMIT 1").rows()[0]


def count_verdicts(url: str) -> list[int]:
    """Return the number of evaluations of each kernel that has one."""
    with store.open(url) as opened:
        rows = opened.sql("SELECT count(*) AS n FROM evaluations GROUP BY kernel_id").rows()
        return [row["n"] for row in rows]


def command(url: str, *options: str) -> list[str]:
    return ["evaluators", "run", "--evaluator", "slow", "--device", "cpu", "--lake", url, *options]


def select(writer: store.Writer, leases: Any, url: str, **wanted: Any) -> LeasedCases:
    device = read_device(url)
    module = contract.load("slow")
    return LeasedCases(writer, leases, module, [device], Selection(**wanted), batch=5)


def test_a_run_takes_batches_up_to_its_limit_and_leaves_the_rest(lake: str) -> None:
    with (
        store.writer(lake, author="tests") as writer,
        store.Location.of(lake).open_leases() as leases,
    ):
        everything = select(writer, leases, lake)
        assert everything.total == KERNELS
        sizes = [len(batch) for batch in everything.read_batches()]
        assert sizes == [5, 5, 2]
        limited = select(writer, leases, lake, limit=7)
        assert limited.total == 7
        assert [len(batch) for batch in limited.read_batches()] == [5, 2]


def test_what_another_run_holds_is_left_to_it_until_it_ends(lake: str) -> None:
    options = command(lake)
    mine = read_fingerprint("cpu")
    with (
        store.writer(lake, author="tests") as writer,
        store.Location.of(lake).open_leases() as leases,
    ):
        held = LeasedCases(writer, leases, contract.load("slow"), [mine], Selection(), batch=4)
        assert len(next(held.read_batches())) == 4
        beside = commands.run(options, cwd=Path.cwd())
        assert beside.returncode == 0, beside.stderr
        assert beside.stdout.startswith(f"evaluations +{KERNELS - 4} ")
        assert "another run is judging 4 kernels, which are left to it" in beside.stderr
    with (
        store.writer(lake, author="tests") as writer,
        store.Location.of(lake).open_leases() as leases,
    ):
        after = LeasedCases(writer, leases, contract.load("slow"), [mine], Selection(), batch=9)
        assert [len(batch) for batch in after.read_batches()] == [4]
    assert count_verdicts(lake) == [1] * (KERNELS - 4)


def test_a_killed_run_holds_nothing_and_loses_nothing(lake: str, tmp_path: Path) -> None:
    spool = store.Location.of(lake).spool
    first = subprocess.Popen(
        [sys.executable, "-m", *command(lake, "--seconds", "0.2")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until = time.monotonic() + 120
        while time.monotonic() < until and not count_verdicts(lake) and first.poll() is None:
            if any(file.is_file() and file.stat().st_size for file in spool.glob("*")):
                break
            time.sleep(0.05)
        time.sleep(0.5)
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    done = commands.run(command(lake), cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    assert "another run" not in done.stderr
    assert count_verdicts(lake) == [1] * KERNELS


def test_of_two_runs_that_judged_one_case_the_lake_takes_one_verdict(lake: str) -> None:
    module = contract.load("slow")
    device = read_device(lake)
    with (
        store.writer(lake, author="tests") as writer,
        store.Location.of(lake).open_leases() as leases,
    ):
        cases = next(select(writer, leases, lake).read_batches())

        def append(case: dict[str, Any], run_id: str) -> None:
            row = {
                name: case[name] for name in ("kernel_id", "task_id", "workload_id")
            } | {
                "evaluation_id": store.ids.uuid7(), "evaluator": "slow", "evaluator_version": 1,
                "device_id": device["device_id"], "status": "correct",
            }  # fmt: skip
            tables = {"evaluations": [row], "timings": []}
            append_result(writer, module, run_id, JudgedCase(case, device, tables))

        runs = [start_run(writer, module, [device], {}, ("l", 1)) for _ in range(2)]
        for run_id in runs:
            append(cases[0], run_id)
        writer.flush()
        append(cases[0], runs[1])
        writer.flush()
        assert count_verdicts(lake) == [1]
        # Judged again on purpose, it has one more earlier verdict, and so another name.
        append({**cases[0], "earlier": 1}, runs[1])
        writer.flush()
        assert count_verdicts(lake) == [2]


@pytest.mark.slow
def test_a_cluster_that_loses_a_node_goes_on_with_the_other(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    small = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=small)
    try:
        lost = cluster.add_node(**small)
        words = command(
            lake, "--seconds", "1", "--ray", cluster.address, "--workers", "2", "--verbose"
        )
        first = subprocess.Popen(
            [sys.executable, "-m", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert first.stdout is not None
        said = ""
        while " correct" not in f" {said}" and first.poll() is None:
            said += first.stdout.readline()
        cluster.remove_node(lost, allow_graceful=False)
        said += first.communicate(timeout=400)[0]
        assert first.returncode == 0, said
        assert "an actor is lost" in said
    finally:
        cluster.shutdown()
    assert count_verdicts(lake) == [1] * KERNELS
