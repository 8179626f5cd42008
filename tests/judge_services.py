"""Real judge services on loopback for tests, a worker that a test plays itself, and lakes."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import builders as b
import httpx2
import one_thread

import store
from evaluators.judge import VERSION

ROOT = Path(__file__).parent.parent
TASKS = ("square", "cube")
QUICK_EVALUATOR = '''"""Judges by comments in the text: `# sleep S`, `# wrong`, `# fault`."""

import re
import time
from dataclasses import dataclass

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Config:
    total_s: float = 60.0


def judge(case, bench, config):
    for seconds in re.findall(r"# sleep ([0-9.]+)", case.code):
        time.sleep(float(seconds))
    wrong, fault = "# wrong" in case.code, "# fault" in case.code
    return {"evaluations": [{
        "evaluation_id": "1", "evaluator": "quick", "evaluator_version": VERSION,
        "kernel_id": case.kernel_id, "task_id": case.task_id, "workload_id": case.workload_id,
        "device_id": bench.row["device_id"],
        "status": "evaluator_error" if fault else "incorrect" if wrong else "correct",
        "reason": "internal" if fault else "nan" if wrong else None,
        "message": "as told" if fault else None,
    }]}
'''


def write_lake(folder: Path, empty_lake: Path) -> str:
    """Write a lake with two tasks; return its path."""
    shutil.copytree(empty_lake, folder)
    tasks = [b.task(name) for name in TASKS]
    with store.writer(str(folder), author="tests") as writer:
        writer.append(
            {
                "tasks": tasks,
                "workloads": [b.workload(task) for task in tasks],
                "task_labels": [
                    b.label(task, name) for task, name in zip(tasks, TASKS, strict=True)
                ],
            },
            "tasks",
        )
    return str(folder)


def write_kernel(text: str) -> str:
    """Return the text of a kernel with a comment."""
    return f"# {text}\nclass ModelNew:\n    pass\n"


def wait_until(check: Callable[[], Any], limit_s: float = 120.0) -> Any:
    """Return what a check gives once that is true."""
    until = time.monotonic() + limit_s
    while not (value := check()):
        assert time.monotonic() < until, "this took too long"
        time.sleep(0.05)
    return value


class Service:
    """A process of `evaluators serve`. Use as a context manager."""

    def __init__(self, lake: str, *options: str, cwd: Path | None = None, port: int = 0) -> None:
        self.lake = lake
        self._log: list[str] = []
        self.process = subprocess.Popen(
            [
                *(sys.executable, one_thread.__file__, "evaluators", "serve", "--lake", lake),
                *("--port", str(port), *options),
            ],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().partition(" ")[0]
        self._reading = threading.Thread(target=self._read_log)
        self._reading.start()
        wait_until(self.is_up)

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self.url.rpartition(":")[2])

    @property
    def log(self) -> str:
        """What it has written to stderr."""
        return "".join(self._log)

    def is_up(self) -> bool:
        """Whether it answers."""
        assert self.process.poll() is None, self.log
        return self.call("GET", "/v1/health").status_code in (200, 401)

    def call(
        self, method: str, address: str, body: Any = None, token: str | None = None, **more: Any
    ) -> httpx2.Response:
        """Send one request."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        if body is not None:
            more["json"] = body
        return httpx2.request(
            method,
            self.url + address,
            headers=headers | more.pop("headers", {}),
            timeout=300,
            verify=False,  # plain HTTP needs no certificates, and loading them takes 30 ms
            **more,
        )

    def submit(self, text: str, task: str = "square", **fields: Any) -> dict[str, Any]:
        """Submit a kernel and return the judgement."""
        token = fields.pop("token", None)
        body = {"task": task, "code": write_kernel(text)} | fields
        reply = self.call("POST", "/v1/judgements", body, token)
        assert reply.is_success, reply.text
        return reply.json()

    def wait(self, judgement_id: str, token: str | None = None) -> dict[str, Any]:
        """Return a judgement that has ended."""
        while True:
            address = f"/v1/judgements/{judgement_id}?wait=60"
            view = self.call("GET", address, token=token).json()
            if view["status"] in ("done", "fault", "cancelled"):
                return view

    def kill(self) -> None:
        """Kill the process at once."""
        self.process.kill()
        self._close()

    def stop(self) -> int:
        """Let it end as SIGTERM does; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(120)
        self._close()
        return code

    def _close(self) -> None:
        self.process.wait()
        self._reading.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._log.append(line)


class FakeWorker:
    """A worker that a test plays itself; it may lie."""

    def __init__(self, service: Service, token: str | None = None, device: str = "laptop") -> None:
        self._service, self._token = service, token
        self.row = b.device(device)
        self.row["created_at"] = self.row["created_at"].isoformat()
        reply = self.post("/v1/workers", {"host": "tests", "devices": [self.row]})
        assert reply.status_code == 201, reply.text
        self.worker_id = reply.json()["worker_id"]
        self.held: list[str] = []

    def post(self, address: str, body: Any) -> httpx2.Response:
        """Send one request."""
        return self._service.call("POST", address, body, self._token)

    def claim(self, capacity: int = 1, wait_s: float = 60) -> list[dict[str, Any]]:
        """Claim cases, and wait for the first of them."""
        until = time.monotonic() + wait_s
        while True:
            body = {"capacity": capacity, "holding": self.held}
            address = f"/v1/workers/{self.worker_id}/claim?wait={min(wait_s, 10)}"
            reply = self.post(address, body)
            assert reply.is_success, reply.text
            cases = reply.json()["cases"]
            if cases or time.monotonic() > until:
                self.held += [one["judgement_id"] for one in cases]
                return cases

    def keep_alive(self, running: Sequence[str] = (), sick: str | None = None) -> dict[str, Any]:
        """Send a heartbeat."""
        body = {"running": list(running), "quarantine": {self.row["device_id"]: sick}}
        return self.post(f"/v1/workers/{self.worker_id}/heartbeat", body).json()

    def answer(
        self, claim: Mapping[str, Any], judged_s: float = 0.5, **changes: Any
    ) -> httpx2.Response:
        """Answer a claim with a correct verdict, or one with other columns."""
        evaluation = write_evaluation(claim["case"], self.row["device_id"]) | changes
        reply = self.post(
            f"/v1/workers/{self.worker_id}/answers",
            {
                "judgement_id": claim["judgement_id"],
                "lease": claim["lease"],
                "device_id": self.row["device_id"],
                "judged_s": judged_s,
                "tables": {"evaluations": [evaluation]},
            },
        )
        self.held.remove(claim["judgement_id"])
        return reply


def write_evaluation(case: Mapping[str, Any], device_id: str) -> dict[str, Any]:
    """Return the row of a correct kernel."""
    return {
        "evaluation_id": "1",
        "evaluator": "judge",
        "evaluator_version": VERSION,
        "kernel_id": case["kernel_id"],
        "task_id": case["task_id"],
        "workload_id": case["workload_id"],
        "device_id": device_id,
        "status": "correct",
        "reason": None,
    }


def count_evaluations(lake: str, where: str = "true") -> int:
    """Return the number of evaluations in a lake."""
    with store.open(lake) as opened:
        return opened.sql(f"SELECT count(*) AS n FROM evaluations WHERE {where}").rows()[0]["n"]
