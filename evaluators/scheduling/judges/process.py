"""A judge process: it judges cases on one device with one evaluator, and holds no lake."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Any, Self

from evaluators.device.placement import Place
from evaluators.judging.case import Case
from evaluators.judging.weak_tasks import VERSION as AUDITOR_VERSION
from evaluators.scheduling import answers, contract
from evaluators.scheduling.judges.channel import Channel, clip_text
from store.errors import DeviceUnavailable, SandboxFailed

_START_LIMIT_S = 180.0
_GRACE_S = 900.0
_STARTS = 3
_PAUSE_S = 2.0

log = logging.getLogger(__name__)


class JudgeProcess:
    """A process that judges cases on one device. Its context begins when it is ready."""

    def __init__(
        self,
        evaluator: str | None,
        device: str,
        config: Any = None,
        cores: Sequence[int] | None = None,
    ) -> None:
        """Start the process; `wait_ready` comes next.

        Args:
            evaluator: Name of the evaluator; None for a process that audits tasks, runs NVIDIA's
                tools and describes its walls, and judges nothing.
            device: auto, cpu, or a GPU such as cuda:0.
            config: Config of the evaluator.
            cores: Processor cores of the process; None for all.

        Raises:
            UnknownName: no evaluator has this name.
            SandboxFailed: the process cannot be started.
            DeviceUnavailable: CUDA_VISIBLE_DEVICES has no such GPU.
        """
        self._evaluator, self._version = "", 0
        if evaluator is not None:
            module = contract.load(evaluator)
            self._evaluator, self._version = contract.name_of(module), module.VERSION
        self._order: dict[str, Any] = {
            "evaluator": evaluator,
            "device": device.partition(":")[0],
            "config": asdict(config) if config is not None else {},
            "cores": list(cores) if cores is not None else None,
        }
        self._device = device
        self._is_given_up = False
        self._sick: str | None = None
        # Beside the candidate's own time: compiling baselines, and measuring a win once more.
        self._limit_s = 2 * float(getattr(config, "total_s", 600.0)) + _GRACE_S
        self._channel = self._launch()

    def _launch(self) -> Channel:
        return Channel(self._device, self._order["cores"], self._order)

    def wait_ready(self) -> None:
        """Wait until the process has its device. One that fails before is started again.

        Raises:
            SandboxFailed: no process starts. The last one has ended.
            DeviceUnavailable: the device is not there, or cannot be measured on, or others use it
                for too long. The process has ended.
        """
        left = _STARTS
        while True:
            try:
                started = self._channel.receive(_START_LIMIT_S)
                break
            except SandboxFailed as failed:
                self._channel.close()
                left -= 1
                if not left or self._is_given_up:
                    raise
                log.warning("a judge process is started again: %.300s", failed.message)
                time.sleep(_PAUSE_S)
                self._channel = self._launch()
            except BaseException:
                self._channel.close()
                raise
        self.row: dict[str, Any] = started["device"]
        """The `devices` row of this process's device."""
        self.arch: str | None = started["arch"]
        """Architecture that extensions are compiled for there, such as 9.0."""
        self.toolchain: str = started["toolchain"]
        """What a build there depends on besides its sources."""

    def __enter__(self) -> Self:
        self.wait_ready()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id; another one after `restart`."""
        return self._channel.pid

    def judge(self, case: Case) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of one case, and of nothing else (`answers.accept_judgement`).

        A refused answer becomes a row with the status evaluator_error.

        Raises:
            SandboxFailed: the process is gone or stuck.
            HostUnfit: the host lacks what the kernel needs.
            DeviceUnavailable: the previous case has left the device in a state that cannot be
                measured on, or others use it for too long.
        """
        self._check_device()
        answer = self._ask({"judge": case.write()})
        self._sick = clip_text(answer.get("sick"))
        try:
            return answers.accept_judgement(answer.get("tables"), self._subject(case))
        except answers.RefusedAnswer as error:
            log.warning("an answer of the evaluator is refused: %s", error)
            return self.build_fault(case, f"the evaluator's answer is refused: {error}")

    def build_fault(self, case: Case, why: str) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of a case that could not be judged, through no fault of its own."""
        return answers.build_fault(self._subject(case), why)

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

    def read_walls(self) -> tuple[list[str], dict[str, str]]:
        """Return the walls around candidates that hold here, and why each of the others does not.

        Raises SandboxFailed when the process is gone or stuck.
        """
        answer = self._ask({"walls": True})
        return answer["holds"], answer["reasons"]

    def run_tool(self, case: Case, tool: str) -> dict[str, list[dict[str, Any]]]:
        """Return rows of `analyses` and `findings` of a case by one of NVIDIA's tools.

        Raises SandboxFailed where the tool gives none, or the process is gone or stuck.
        """
        answer = self._ask({"look": case.write(), "tool": tool})
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
        self._channel = self._launch()
        self.wait_ready()

    def give_up(self) -> None:
        """Let `wait_ready`, in which another thread is, end with SandboxFailed."""
        self._is_given_up = True
        self._channel.interrupt()

    def close(self) -> None:
        """End the process, even in the middle of a case; its own workers end with it."""
        self._channel.close()

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

    def _subject(self, case: Case) -> answers.Subject:
        """Return what an answer about a case must be about."""
        device_id = self.row["device_id"]
        return answers.Subject(case, device_id, evaluator=self._evaluator, version=self._version)


@contextmanager
def start_judges(
    evaluator: str | None, places: Sequence[Place], config: Any = None
) -> Generator[list[JudgeProcess]]:
    """Start judge processes at places of this machine side by side, and end them afterwards.

    Raises what `JudgeProcess` and `wait_ready` raise.
    """
    with ExitStack() as stack:
        judges: list[JudgeProcess] = []
        for place in places:  # all import torch at the same time, while the first is waited for
            judges.append(JudgeProcess(evaluator, place.device, config, place.cores))
            stack.callback(judges[-1].close)
        for judge in judges:
            judge.wait_ready()
        yield judges
