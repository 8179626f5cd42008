"""Several runs over one lake: no kernel is judged twice into it, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import commands
import pytest
import slow_evaluator
from slow_evaluator import KERNELS, command, count_verdicts

import store
from evaluators.device.fingerprint import read_fingerprint
from evaluators.judging.case import Case
from evaluators.scheduling import contract
from evaluators.scheduling.judge_threads import Judge, JudgedCase
from evaluators.scheduling.run import LeasedCases, Selection, append_results, record_evaluation, run
from store.errors import SandboxFailed

ROOT = Path(contract.__file__).parents[2]


@pytest.fixture
def lake(lake_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a lake with kernels, beside an evaluator of the user's own."""
    monkeypatch.setenv("FLYWHEEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    slow_evaluator.write(tmp_path)
    slow_evaluator.append_kernels(lake_url)
    return lake_url


def read_device(url: str) -> dict[str, Any]:
    with store.open(url) as opened:
        return opened.sql("SELECT * FROM devices ORDER BY kind LIMIT 1").rows()[0]


def select(writer: store.Writer, leases: Any, url: str, **wanted: Any) -> LeasedCases:
    device = read_device(url)
    module = contract.load("slow")
    return LeasedCases(writer, leases, module, [device], Selection(**wanted), batch=5)


@pytest.mark.slow
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


@pytest.mark.slow
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
        assert beside.stdout.startswith(f"evaluations +{KERNELS - 4}, ")
        assert "another run is judging 4 kernels, which are left to it" in beside.stderr
    with (
        store.writer(lake, author="tests") as writer,
        store.Location.of(lake).open_leases() as leases,
    ):
        after = LeasedCases(writer, leases, contract.load("slow"), [mine], Selection(), batch=9)
        assert [len(batch) for batch in after.read_batches()] == [4]
    assert count_verdicts(lake) == [1] * (KERNELS - 4)


@pytest.mark.slow
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


@pytest.mark.slow
def test_of_two_runs_that_judged_one_case_the_lake_takes_one_verdict(lake: str) -> None:
    module = contract.load("slow")
    device = read_device(lake)
    with (
        store.writer(lake, author="tests") as writer,
        store.Location.of(lake).open_leases() as leases,
        ExitStack() as stack,
    ):
        cases = next(select(writer, leases, lake).read_batches())

        def append(case: Case, run_id: str) -> None:
            row = {
                name: getattr(case, name) for name in ("kernel_id", "task_id", "workload_id")
            } | {
                "evaluation_id": store.ids.uuid7(), "evaluator": "slow", "evaluator_version": 1,
                "device_id": device["device_id"], "status": "correct",
            }  # fmt: skip
            tables = {"evaluations": [row], "timings": []}
            append_results(writer, module, run_id, [JudgedCase(case, device, tables)])

        opened = [record_evaluation(writer, module, [device], {}, ("l", 1)) for _ in range(2)]
        runs = [stack.enter_context(one).run_id for one in opened]
        for run_id in runs:
            append(cases[0], run_id)
        writer.flush()
        append(cases[0], runs[1])
        writer.flush()
        assert count_verdicts(lake) == [1]
        # Judged again on purpose, it has one more earlier verdict, and so another name.
        append(replace(cases[0], earlier=1), runs[1])
        writer.flush()
        assert count_verdicts(lake) == [2]


class Scripted:
    """A judge in this process, which finds every kernel correct."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.row = row

    def make_row(self, case: Case, evaluator: str = "slow") -> dict[str, Any]:
        """Return the row of a verdict."""
        about = {name: getattr(case, name) for name in ("kernel_id", "task_id", "workload_id")}
        return about | {
            "evaluation_id": store.ids.uuid7(), "evaluator": evaluator, "evaluator_version": 1,
            "device_id": self.row["device_id"], "status": "correct",
        }  # fmt: skip

    def judge(self, case: Case) -> dict[str, list[dict[str, Any]]]:
        return {"evaluations": [self.make_row(case)], "timings": []}

    def restart(self) -> None:
        pass


def judge_with(judge: Judge, lake: str) -> None:
    module = contract.load("slow")
    run(lake, module, [judge], [], module.Config(), Selection(), lambda *_: None)


@pytest.mark.slow
def test_verdicts_of_a_judge_that_restarts_on_another_gpu_are_stored(lake: str) -> None:
    class Moving(Scripted):
        tries = 0

        def judge(self, case: Case) -> dict[str, list[dict[str, Any]]]:
            self.tries += 1
            if self.tries == 4:
                raise SandboxFailed("its host is gone")
            return super().judge(case)

        def restart(self) -> None:
            self.row = self.row | {"gpu_uuid": "another", "device_id": "f" * 64}

    judge_with(Moving(read_device(lake)), lake)
    with store.open(lake) as opened:
        counts = opened.sql("SELECT count(*) AS n FROM evaluations GROUP BY device_id ORDER BY n")
        assert counts.rows() == [{"n": 3}, {"n": KERNELS - 3}]


@pytest.mark.slow
def test_what_another_evaluator_judges_meanwhile_is_judged_all_the_same(
    lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evaluators.scheduling.run.CASES_PER_JUDGE", 4)

    class Beside(Scripted):
        others = ""

        def judge(self, case: Case) -> dict[str, list[dict[str, Any]]]:
            if not self.others:
                self.others = "SELECT kernel_id FROM kernels ORDER BY kernel_id"
                with store.open(lake) as opened:
                    kernels = opened.sql(self.others).rows()
                rows = [self.make_row(replace(case, **kernel), "other") for kernel in kernels]
                with store.writer(lake, author="tests") as writer:
                    writer.append({"evaluations": rows}, "another evaluator")
            return super().judge(case)

    judge_with(Beside(read_device(lake)), lake)
    assert count_verdicts(lake) == [2] * KERNELS


@pytest.mark.slow
def test_a_fault_of_one_run_keeps_out_no_verdict_of_another(lake: str) -> None:
    module, device = contract.load("slow"), read_device(lake)
    judge = Scripted(device)
    with (
        store.writer(lake, author="tests") as writer,
        store.Location.of(lake).open_leases() as leases,
    ):
        case = next(select(writer, leases, lake).read_batches())[0]
        for tables in (None, judge.judge(case)):
            with record_evaluation(writer, module, [device], {}, ("l", 1)) as record:
                # Text that cannot be stored as it is ends no run.
                judged = JudgedCase(case, device, tables, "lost \ud800")
                append_results(writer, module, record.run_id, [judged])
        writer.flush()
    with store.open(lake) as opened:
        rows = opened.sql("SELECT status FROM evaluations ORDER BY status").rows()
        assert [row["status"] for row in rows] == ["correct", "evaluator_error"]
