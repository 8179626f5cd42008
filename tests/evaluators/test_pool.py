"""A persistent pool: the same rows as a run, each kernel judged once, faults reported apart.

`make test` has the pool behind the tools of test_mcp_submissions.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import slow_evaluator

import store
from evaluators.judge import VERSION, Config
from evaluators.processes.process_tree import find_descendants
from evaluators.scheduling import contract
from evaluators.scheduling.pool import Pool
from store.errors import LakeNotFound, UnknownName

TASK = (
    "import torch\nN = 8\nclass Model(torch.nn.Module):\n    def forward(self, x): return x * 2\n"
    "def get_inputs(): return [torch.randn(N, N)]\ndef get_init_inputs(): return []\n"
)
BROKEN = TASK.replace("return x * 2", "raise RuntimeError('no reference')")
KERNEL = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return {}\n"
QUICK = Config(
    draw_shapes=0,
    import_s=120.0,
    call_s=120.0,
    calls=2,
    robustness=False,
    diagnosis=False,
    timing_s=0.05,
    timing_limit_s=0.5,
    blocks=20,
)


def task_rows(code: str) -> dict[str, Any]:
    """Return the rows of a task."""
    code = store.ids.normalize(code)
    task_id = store.ids.task_id(code)
    return {
        "tasks": {"task_id": task_id, "code": code, "source": "tests"},
        "workloads": {
            "workload_id": store.ids.workload_id(task_id),
            "task_id": task_id,
            "name": "default",
            "axes": "{}",
            "generator": "get_inputs",
        },
    }


def kernel_row(forward: str) -> dict[str, Any]:
    """Return a kernel with this forward method, as a policy's completion leaves it."""
    code = KERNEL.format(forward)
    return {
        "kernel_id": store.ids.kernel_id({"kernel.py": code}, "kernel.py"),
        "code": code,
        "path": "kernel.py",
        "entry_point": "ModelNew",
        "source": "tests",
    }


TASKS = [task_rows(TASK), task_rows(BROKEN)]
TASK_ID, BROKEN_ID = (rows["tasks"]["task_id"] for rows in TASKS)
RIGHT, ALSO_RIGHT, WRONG, UNUSED = (
    kernel_row(text) for text in ("x + x", "x * 2.0", "x * 3", "x - -x")
)


@pytest.fixture(scope="module")
def lake_url(empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a lake with two tasks, of which one has a reference that fails, and four kernels."""
    url = str(tmp_path_factory.mktemp("pool") / "lake")
    shutil.copytree(empty_lake, url)
    with store.writer(url, author="tests") as writer:
        writer.append(
            {
                "tasks": [rows["tasks"] for rows in TASKS],
                "workloads": [rows["workloads"] for rows in TASKS],
                "kernels": [RIGHT, ALSO_RIGHT, WRONG, UNUSED],
            },
            "kernels to judge",
        )
    return url


@pytest.fixture(scope="module")
def pool(lake_url: str) -> Iterator[Pool]:
    """Return one pool on the processor, for all tests."""
    with Pool(lake_url, "cpu", QUICK) as opened:
        yield opened


def count(url: str, table: str, where: str = "true") -> int:
    """Return the number of rows."""
    with store.open(url) as lake:
        return lake.sql(f"SELECT count(*) AS n FROM {table} WHERE {where}").rows()[0]["n"]


@pytest.mark.slow
def test_verdicts_are_rows_of_one_run_and_asked_once(lake_url: str, pool: Pool) -> None:
    right, wrong = (RIGHT["kernel_id"], TASK_ID), (WRONG["kernel_id"], TASK_ID)
    first = pool.judge([right, wrong, right])
    assert (first[right].status, first[right].fresh) == ("correct", True)
    assert (first[wrong].status, first[wrong].reason) == ("incorrect", "incorrect_numerical")
    assert (first[right].equivalent, first[wrong].equivalent) == (True, None)
    assert count(lake_url, "evaluations", f"run_id = '{pool.run_id}'") == 2
    assert count(lake_url, "runs", "kind = 'evaluation'") == 1
    stored = pool.judge([wrong, right])
    assert [verdict.fresh for verdict in stored.values()] == [False, False]
    assert stored[right].evaluation_id == first[right].evaluation_id
    assert count(lake_url, "evaluations") == 2
    with store.open(lake_url) as lake:
        [row] = lake.sql(
            "SELECT speedup, speedup_low FROM kernel_speedups WHERE baseline = 'eager'"
        ).rows() or [{"speedup": None, "speedup_low": None}]
    assert (stored[right].speedup, stored[right].speedup_low) == tuple(row.values())
    assert pool.judge([]) == {}


@pytest.mark.slow
def test_many_that_wait_at_once_are_judged_together(lake_url: str, pool: Pool) -> None:
    before = count(lake_url, "evaluations")
    pair = (ALSO_RIGHT["kernel_id"], TASK_ID)

    async def ask() -> list[Any]:
        hasty = asyncio.wait_for(pool.evaluate(*pair), 0.001)
        asked = [pool.evaluate(*pair) for _ in range(3)]
        return await asyncio.gather(hasty, *asked, return_exceptions=True)

    hasty, *verdicts = asyncio.run(ask())
    assert isinstance(hasty, TimeoutError)
    assert {verdict.status for verdict in verdicts} == {"correct"}
    assert count(lake_url, "evaluations") == before + 1


@pytest.mark.slow
def test_a_fault_of_ours_is_tried_again_and_reported_apart(
    lake_url: str, pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    pair = (RIGHT["kernel_id"], BROKEN_ID)
    verdict = pool.judge([pair])[pair]
    assert not verdict.is_judged
    assert (verdict.status, verdict.reason) == ("evaluator_error", "reference_failed")
    assert "no reference" in caplog.text
    assert count(lake_url, "evaluations", f"task_id = '{BROKEN_ID}'") == 2


def is_judging(pid: int) -> bool:
    """Whether a process is a judge that has a kernel."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text() == "judging\n"
    return False


@pytest.mark.slow
def test_an_interrupt_ends_a_batch_with_the_next_verdict(
    empty_lake: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(tmp_path / "lake")
    shutil.copytree(empty_lake, url)
    monkeypatch.chdir(tmp_path)
    slow_evaluator.write(tmp_path)
    slow_evaluator.append_kernels(url)
    with store.open(url) as lake:
        rows = lake.sql("SELECT kernel_id, task_id FROM generations").rows()
    slow = contract.load("slow").Config(seconds=2)
    main = threading.get_ident()
    pairs = [(row["kernel_id"], row["task_id"]) for row in rows]

    def interrupt() -> None:
        while not any(map(is_judging, find_descendants(os.getpid()))):
            time.sleep(0.05)
        signal.pthread_kill(main, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt, daemon=True)
    with Pool(url, "cpu", slow, evaluator="slow") as pool:
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            pool.judge(pairs)
    assert 0 < len(slow_evaluator.count_verdicts(url)) < slow_evaluator.KERNELS


@pytest.mark.slow
def test_what_is_not_in_the_lake_is_refused(pool: Pool, lake_url: str, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="cannot be judged"):
        pool.judge([("0" * 64, TASK_ID)])
    with pytest.raises(UnknownName, match="cannot be judged"):
        asyncio.run(pool.evaluate(RIGHT["kernel_id"], "0" * 64))
    with pytest.raises(LakeNotFound), Pool(str(tmp_path / "none"), "cpu", QUICK):
        pass


@pytest.mark.slow
def test_a_failure_outweighs_a_pass_and_a_confirmed_finding_is_told(
    lake_url: str, pool: Pool
) -> None:
    pair = (UNUSED["kernel_id"], TASK_ID)
    assert pool.judge([pair])[pair].status == "correct"
    finding = {
        "finding_id": "f" * 64,
        "kernel_id": pair[0],
        "detector": "tests",
        "detector_version": 1,
        "class": "result_caching",
    }
    standing = {
        "standing_id": "s" * 64,
        "finding_id": "f" * 64,
        "decision": "confirmed",
        "author": "tests",
        "why": "seen",
    }
    failure = {
        "evaluation_id": store.ids.uuid7(),
        "kernel_id": pair[0],
        "task_id": TASK_ID,
        "workload_id": TASKS[0]["workloads"]["workload_id"],
        "device_id": pool.device["device_id"],
        "evaluator": "judge",
        "evaluator_version": VERSION,
        "status": "incorrect",
        "reason": "nan",
    }
    with store.writer(lake_url, author="tests") as writer:
        writer.append(
            {"findings": [finding], "standings": [standing], "evaluations": [failure]}, "later"
        )
    verdict = pool.judge([pair])[pair]
    assert (verdict.status, verdict.reason, verdict.fresh) == ("incorrect", "nan", False)
    assert (verdict.findings, verdict.quarantined) == (("result_caching",), True)
    assert verdict.speedup is None


@pytest.mark.slow
def test_training_ranks_nothing_but_its_leader_is_judged_in_full(
    lake_url: str, tmp_path: Path
) -> None:
    url = str(tmp_path / "lake")
    shutil.copytree(lake_url, url)
    quick = replace(QUICK, protocol="training", rank_unfrozen=True)
    task = task_rows(TASK.replace("N = 8", "N = 16"))
    task_id = task["tasks"]["task_id"]
    with store.writer(url, author="tests") as writer:
        writer.append({name: [row] for name, row in task.items()}, "a task of its own")
    pairs = [(kernel["kernel_id"], task_id) for kernel in (RIGHT, ALSO_RIGHT, WRONG)]
    with Pool(url, "cpu", quick) as pool:
        verdicts = pool.judge(pairs)
        assert [verdicts[pair].status for pair in pairs] == ["correct", "correct", "incorrect"]
        assert not any(verdict.fresh for verdict in pool.judge(pairs).values())
    mine = f"task_id = '{task_id}'"
    assert count(url, "evaluations", f"{mine} AND protocol = 'training'") == 3
    full = count(url, "evaluations", f"{mine} AND protocol = 'full'")
    timed = count(url, "training_speedups", mine)
    assert full == 1 or not timed, "a busy machine times nothing that could lead"
    assert count(url, "outcomes", mine) == full
