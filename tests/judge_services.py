"""Real judge services on loopback for tests, a judge that a test plays itself, and lakes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import builders as b
import httpx2
import one_thread
import told_judges

import store
from evaluators.judge import VERSION

ROOT = Path(__file__).parent.parent
TASKS = ("square", "cube")
QUICK_EVALUATOR = r'''"""Judges by comments in the text: `# until FILE`, `# wrong`, `# fault`."""

import ctypes
import re
import time
from dataclasses import dataclass
from pathlib import Path

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Config:
    total_s: float = 60.0


def judge(case, bench, config):
    for name in re.findall(r"# until (\w+)", case.code):
        ctypes.CDLL(None).prctl(15, name.encode(), 0, 0, 0)  # the name of this process
        while not Path(__file__).with_name(name).exists():
            time.sleep(0.01)
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

    def __init__(
        self,
        lake: str,
        *options: str,
        cwd: Path | None = None,
        port: int = 0,
        judges: ToldJudges | None = None,
        start: str = one_thread.__file__,
    ) -> None:
        """Start it, with judges of its own unless a test plays them.

        start: Program that runs the command.
        """
        self.lake = lake
        self._log: list[str] = []
        told: dict[str, str] = {}
        if judges is not None:
            start, told = told_judges.__file__, {told_judges.ADDRESS: str(judges.port)}
        self.process = subprocess.Popen(
            [
                *(sys.executable, start, "evaluators", "serve", "--lake", lake),
                *("--port", str(port), *options),
            ],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(ROOT), **told},
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

    def has_device(self) -> bool:
        """Whether a judge is ready."""
        classes: dict[str, Any] = self.call("GET", "/v1/health").json()["classes"]
        return any(one["devices"] for one in classes.values())

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


class ToldJudges:
    """The judge of a service as a test plays it (`told_judges.py`); it may lie."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.row = b.device()
        self._held: dict[str, IO[str]] = {}
        """Where the answer to a kernel goes."""

    def close(self) -> None:
        """Leave what is not answered."""
        self._listening.close()
        for stream in self._held.values():
            stream.close()

    def claim(self, wait_s: float = 120) -> list[dict[str, Any]]:
        """Return the case that a judge gets within some seconds, or none."""
        self._listening.settimeout(wait_s)
        try:
            connection, _ = self._listening.accept()
        except TimeoutError:
            return []
        with connection:
            stream = connection.makefile("rw", encoding="utf-8")
        case = json.loads(stream.readline())["judge"]
        self._held[case["kernel_id"]] = stream
        return [case]

    def reply(self, case: Mapping[str, Any], message: Mapping[str, Any]) -> None:
        """Answer a case with this message: tables, sick, unfit or lost."""
        with self._held.pop(case["kernel_id"]) as stream:
            stream.write(json.dumps(message) + "\n")

    def answer(self, case: Mapping[str, Any], **changes: Any) -> None:
        """Answer a case with a correct verdict, or one with other columns."""
        row = write_evaluation(case, self.row["device_id"]) | changes
        self.reply(case, {"tables": {"evaluations": [row]}})


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
