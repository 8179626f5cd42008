"""Verdicts of a service in place of judges of this machine."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from judge_services import FakeWorker, Service, count_evaluations, write_kernel, write_lake

import store
from evaluators.service.client import Client
from evaluators.service.connection import Unreachable
from evaluators.service.remote_pool import RemotePool
from store.errors import DeviceUnavailable, UnknownName


def append_kernels(lake: str, names: list[str]) -> list[tuple[str, str]]:
    """Append kernels; return their ids with that of a task."""
    rows: list[dict[str, Any]] = [
        {
            "kernel_id": store.ids.kernel_id({"own.py": write_kernel(name)}, "own.py"),
            "code": write_kernel(name), "path": "own.py", "entry_point": "ModelNew",
            "source": "tests",
        }
        for name in names
    ]  # fmt: skip
    with store.writer(lake, author="tests") as writer:
        writer.append({"kernels": rows}, "kernels")
    with store.open(lake) as opened:
        task = opened.sql("SELECT task_id FROM task_labels WHERE name = 'square'").rows()[0]
    return [(row["kernel_id"], task["task_id"]) for row in rows]


def answer_all(worker: FakeWorker, faults: set[str], count: int) -> threading.Thread:
    """Answer a number of claims in a thread: a fault where the text has one of these words."""

    def answer() -> None:
        for _ in range(count):
            [claim] = worker.claim()
            is_fault = any(word in claim["case"]["code"] for word in faults)
            fault = {"status": "evaluator_error", "reason": "internal", "message": "ours"}
            worker.answer(claim, **(fault if is_fault else {}))

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def test_rows_of_verdicts_come_into_the_own_lake(
    service: Service, worker: FakeWorker, tmp_path: Path, empty_lake: Path
) -> None:
    own = write_lake(tmp_path / "own", empty_lake)
    right, faulty = append_kernels(own, ["remote right", "remote faulty"])
    with RemotePool(own, Client(service.url)) as pool:
        assert pool.device == {"name": worker.row["name"], "kind": "cpu"}
        answering = answer_all(worker, {"faulty"}, 3)

        async def ask() -> list[Any]:
            return await asyncio.gather(*(pool.evaluate(*pair) for pair in (right, faulty, right)))

        verdicts = asyncio.run(ask())
        answering.join(60)
        assert [one.status for one in verdicts] == ["correct", "evaluator_error", "correct"]
        assert not verdicts[1].is_judged
        assert verdicts[1].message == "ours"
        again = pool.judge([right])[right]
        assert again.evaluation_id == verdicts[0].evaluation_id
        with pytest.raises(UnknownName):
            pool.judge([("0" * 64, right[1])])
    assert count_evaluations(own) == 1
    with store.open(own) as mine, store.open(service.lake) as theirs:
        sql = (
            "SELECT * EXCLUDE (run_id) FROM evaluations"
            f" WHERE evaluation_id = '{verdicts[0].evaluation_id}'"
        )
        assert mine.sql(sql).rows() == theirs.sql(sql).rows()
        assert mine.sql("SELECT kind FROM runs").rows() == [{"kind": "evaluation"}]
        assert mine.sql("SELECT name FROM devices").rows() == [{"name": worker.row["name"]}]


def test_the_lake_of_the_service_gets_no_row_twice(service: Service, worker: FakeWorker) -> None:
    [pair] = append_kernels(service.lake, ["in the lake of the service"])
    answering = answer_all(worker, set(), 1)
    with RemotePool(service.lake, Client(service.url)) as pool:
        assert pool.judge([pair])[pair].status == "correct"
    answering.join(60)
    assert count_evaluations(service.lake, f"kernel_id = '{pair[0]}'") == 1
    with store.open(service.lake) as lake:
        # The kernel was there before the request, so the request is no attempt of its client.
        assert lake.sql(f"SELECT * FROM generations WHERE kernel_id = '{pair[0]}'").rows() == []


def test_a_service_that_cannot_be_used_is_refused(service: Service, worker: FakeWorker) -> None:
    del worker
    with pytest.raises(DeviceUnavailable, match="0 device classes"):
        RemotePool(service.lake, Client(service.url, device_class="cuda")).__enter__()
    with pytest.raises(Unreachable):
        RemotePool(service.lake, Client("http://127.0.0.1:9")).__enter__()
