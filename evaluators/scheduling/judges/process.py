"""A judge process: it judges cases on one device with one evaluator, and holds no lake."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, Self

from evaluators.device.lock import DeviceLock
from evaluators.device.placement import Place
from evaluators.judging.weak_tasks import VERSION as AUDITOR_VERSION
from evaluators.scheduling import answers, contract
from evaluators.scheduling.judges.channel import Channel, clip_text
from store.errors import DeviceUnavailable, SandboxFailed

_START_LIMIT_S = 180.0
_DEVICE_LIMIT_S = 3600.0
"""How long a new process waits for a device that others use: a training may have it for minutes."""
_GRACE_S = 900.0
_STARTS = 3
_PAUSE_S = 2.0

log = logging.getLogger(__name__)


class JudgeProcess:
    """A process that judges cases on one device. Use as a context manager."""

    def __init__(
        self,
        evaluator: str | None,
        device: str,
        config: Any = None,
        cores: Sequence[int] | None = None,
    ) -> None:
        """Start the process.

        Args:
            evaluator: Name of the evaluator; None for a process that audits tasks, runs NVIDIA's
                tools and describes its walls, and judges nothing.
            device: auto, cpu, or a GPU such as cuda:0.
            config: Config of the evaluator.
            cores: Processor cores of the process; None for all.

        Raises:
            UnknownName: no evaluator has this name.
            SandboxFailed: the process cannot be started.
            DeviceUnavailable: the device is not there, or cannot be measured on.
        """
        self._evaluator, self._version = "", 0
        if evaluator is not None:
            module = contract.load(evaluator)
            self._evaluator, self._version = contract.name_of(module), module.VERSION
        self._order = {
            "evaluator": evaluator,
            "device": device.partition(":")[0],
            "config": asdict(config) if config is not None else {},
            "cores": list(cores) if cores is not None else None,
        }
        self._device = device
        self._lock = DeviceLock.of_device(device, cores)
        self._sick: str | None = None
        # Beside the candidate's own time: compiling baselines, and measuring a win once more.
        self._limit_s = 2 * float(getattr(config, "total_s", 600.0)) + _GRACE_S
        self._start()

    def _start(self) -> None:
        left = _STARTS
        while True:
            left -= 1
            try:
                started = self._launch()
                break
            except SandboxFailed as failed:
                if not left:
                    raise
                log.warning("a judge process is started again: %.300s", failed.message)
                time.sleep(_PAUSE_S)
        self.row: dict[str, Any] = started["device"]
        """The `devices` row of this process's device."""
        self.arch: str | None = started["arch"]
        """Architecture that extensions are compiled for there, such as 9.0."""
        self.toolchain: str = started["toolchain"]
        """What a build there depends on besides its sources."""

    def _launch(self) -> dict[str, Any]:
        """Start the process and return its description of the device."""
        self._channel = Channel(self._device, self._lock, self._order)
        try:
            self._channel.receive(_START_LIMIT_S)  # it waits for the device
            self._channel.receive(_DEVICE_LIMIT_S)  # it has it alone
            return self._channel.receive(_START_LIMIT_S)
        except BaseException:
            self._channel.close()
            self._lock.release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id; another one after `restart`."""
        return self._channel.pid

    def judge(self, case: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of one case, and of nothing else.

        A refused answer becomes a row with the status evaluator_error.

        Raises:
            SandboxFailed: the process is gone or stuck.
            DeviceUnavailable: the previous case has left the device in a state that cannot be
                measured on.
        """
        self._check_device()
        answer = self._ask(case)
        self._sick = clip_text(answer.get("sick"))
        subject = self._subject(case)
        try:
            return answers.accept_judgement(answer.get("tables"), subject)
        except answers.RefusedAnswer as error:
            log.warning("an answer of the evaluator is refused: %s", error)
            return answers.build_fault(subject, f"the evaluator's answer is refused: {error}")

    def remeasure(
        self, case: Mapping[str, Any]
    ) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
        """Return the rows of a second timing session of a case, or how the kernel failed in it.

        Returns no rows and None where the evaluator itself has failed. Raises as `judge` does.
        """
        self._check_device()
        answer = self._ask({"remeasure": case})
        self._sick = clip_text(answer.get("sick"))
        try:
            return answers.accept_session(
                answer.get("timings"), answer.get("failed"), self._subject(case)
            )
        except answers.RefusedAnswer as error:
            raise SandboxFailed(f"a second session is refused: {error}") from error

    def audit(self, task: Mapping[str, Any], limit_s: float) -> tuple[dict[str, Any] | None, str]:
        """Return the row of `task_audits` for a task, or None and why it cannot be run.

        Raises SandboxFailed when the process is gone, or has not answered after `limit_s`.
        """
        self._channel.send({"audit": task})
        answer = self._channel.receive(limit_s)
        if answer.get("row") is None:
            return None, str(clip_text(answer.get("why")))
        expected = {name: task[name] for name in ("task_id", "workload_id")} | {
            "device_id": self.row["device_id"],
            "auditor_version": AUDITOR_VERSION,
        }
        try:
            return answers.accept_audit(answer["row"], expected), ""
        except answers.RefusedAnswer as error:
            return None, f"the audit's answer is refused: {error}"

    def walls(self) -> tuple[list[str], dict[str, str]]:
        """Return the walls around candidates that hold here, and why each of the others does not.

        Raises SandboxFailed when the process is gone or stuck.
        """
        answer = self._ask({"walls": True})
        return answer["holds"], answer["reasons"]

    def run_tool(self, case: Mapping[str, Any], tool: str) -> dict[str, list[dict[str, Any]]]:
        """Return rows of `analyses` and `findings` of a case by one of NVIDIA's tools.

        Raises SandboxFailed where the tool gives none, or the process is gone or stuck.
        """
        answer = self._ask({"look": case, "tool": tool})
        match answer.get("why"):
            case [message, hint]:
                raise SandboxFailed(str(clip_text(message)), clip_text(hint))
            case _:
                pass
        try:
            return answers.accept_remarks(answer.get("tables"), self._subject(case))
        except answers.RefusedAnswer as error:
            raise SandboxFailed(f"the answer of {tool} is refused: {error}") from error

    def restart(self) -> None:
        """End the process and start another one. Raises SandboxFailed, DeviceUnavailable."""
        self._channel.close()
        self._lock.release()
        self._start()

    def close(self) -> None:
        """End the process, even in the middle of a case; its own workers end with it."""
        self._channel.close()
        self._lock.release()
        self._lock.close()

    def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._channel.send(message)
        return self._channel.receive(self._limit_s)

    def _check_device(self) -> None:
        """Raise DeviceUnavailable where the device was found sick after the previous case."""
        if self._sick is not None:
            raise DeviceUnavailable(
                f"{self.row['name']} cannot be measured on: {self._sick}",
                "Check it with nvidia-smi, then run again.",
            )

    def _subject(self, case: Mapping[str, Any]) -> answers.Subject:
        """Return what an answer about a case must be about."""
        return answers.Subject(
            kernel_id=case["kernel_id"],
            task_id=case["task_id"],
            workload_id=case["workload_id"],
            device_id=self.row["device_id"],
            evaluator=self._evaluator,
            version=self._version,
            files=tuple(path for path, _ in case["other_files"]),
        )


def start_judges(
    evaluator: str | None, places: Sequence[Place], config: Any = None
) -> list[JudgeProcess]:
    """Start judge processes at places of this machine side by side.

    Raises what `JudgeProcess` raises. The other processes end then, each as soon as it has started.
    """
    # Most of a start is importing torch and waiting for the GPU.
    threads = ThreadPoolExecutor(len(places))
    starts = [
        threads.submit(JudgeProcess, evaluator, place.device, config, place.cores)
        for place in places
    ]
    try:
        return [one.result() for one in starts]
    except BaseException:
        for one in starts:
            one.add_done_callback(_close_started)
        raise
    finally:
        threads.shutdown(wait=False)


def _close_started(start: Future[JudgeProcess]) -> None:
    if start.exception() is None:
        start.result().close()
