"""Judges on a Ray cluster: one actor per GPU, or per worker where there is none.

Every node needs this package and Ray in the same versions, and the file of an evaluator of the
user's own. The coordinator, which alone holds the lake, stays here; an actor receives texts and
returns rows. Nothing of a candidate is ever unpickled: the judge process on the node of an actor
makes its answers.
"""

from __future__ import annotations

import contextlib
import importlib
import socket
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from evaluators.judging.case import Case
from evaluators.scheduling import contract
from evaluators.scheduling.judges.process import JudgeProcess
from store.errors import DeviceUnavailable, FlywheelError, HostUnfit, SandboxFailed

_START_LIMIT_S = 300.0
_CONNECT_LIMIT_S = 5.0
_CPUS_PER_GPU = 4


class _Remote:
    """The actor: a judge process on its node, with the GPU that Ray gave the actor."""

    def __init__(self, evaluator: str, device: str, settings: dict[str, Any]) -> None:
        config = contract.load(evaluator).Config(**settings)
        self._process = JudgeProcess(evaluator, device, config)
        self._process.wait_ready()

    def row(self) -> dict[str, Any]:
        return self._process.row

    def judge(self, case: Case) -> dict[str, Any]:
        """Return the rows of a case, or the refusal: our errors do not survive Ray's pickling."""
        try:
            return {"tables": self._process.judge(case)}
        except (HostUnfit, SandboxFailed, DeviceUnavailable) as failed:
            return _describe_refusal(failed)

    def restart(self) -> None:
        self._process.restart()

    def close(self) -> None:
        self._process.close()


def _describe_refusal(failed: HostUnfit | SandboxFailed | DeviceUnavailable) -> dict[str, Any]:
    return {"failed": type(failed).__name__, "message": failed.message, "hint": failed.hint}


class RayJudge:
    """The judge of one actor, as the job queue uses it."""

    def __init__(self, ray: Any, remote: Any, arguments: tuple[Any, ...]) -> None:
        """Let Ray start an actor; `wait_ready` comes next."""
        self._ray = ray
        self._remote = remote
        self._arguments = arguments
        self._actor = remote.remote(*arguments)
        self.row: dict[str, Any] = {}
        """The `devices` row of the actor's device."""

    def wait_ready(self) -> None:
        """Wait until the actor has its device. Raises DeviceUnavailable where it cannot start."""
        try:
            self.row = self._ray.get(self._actor.row.remote(), timeout=_START_LIMIT_S)
        except self._ray.exceptions.RayError as error:
            raise DeviceUnavailable(
                f"an actor cannot be started: {str(error).strip().splitlines()[-1][:300]}",
                "Every node needs this package and its dependencies in the same version.",
            ) from error

    def judge(self, case: Case) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of one case.

        Raises:
            SandboxFailed: the actor, its node or its judge process is lost.
            HostUnfit: the node lacks what the kernel needs.
            DeviceUnavailable: the device of the actor has been found sick.
        """
        return self._await_answer(self._actor.judge.remote(case))["tables"]

    def _await_answer(self, request: Any) -> dict[str, Any]:
        try:
            answer = self._ray.get(request)
        except self._ray.exceptions.RayError as error:
            raise SandboxFailed(
                f"an actor is lost: {type(error).__name__}", "Check the cluster with `ray status`."
            ) from error
        if "failed" in answer:
            kinds = {kind.__name__: kind for kind in (HostUnfit, SandboxFailed, DeviceUnavailable)}
            raise kinds[answer["failed"]](
                f"on {self.row['host']}: {answer['message']}", answer["hint"]
            )
        return answer

    def restart(self) -> None:
        """Start another judge process, or another actor where the actor is gone."""
        try:
            self._ray.get(self._actor.restart.remote(), timeout=_START_LIMIT_S)
        except self._ray.exceptions.RayError:
            self.close()
            self._actor = self._remote.remote(*self._arguments)
            self.wait_ready()

    def close(self) -> None:
        """End the actor and its processes."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.get(self._actor.close.remote(), timeout=30)
        self._ray.kill(self._actor)


@contextmanager
def open_judges(
    address: str, evaluator: str, device: str, config: Any, workers: int
) -> Generator[list[RayJudge]]:
    """Yield one judge per GPU of a cluster, or `workers` judges where device is cpu.

    Args:
        address: Of the cluster, as Ray takes it: auto, HOST:PORT or ray://HOST:PORT.
        evaluator: Name of the evaluator.
        device: cpu, or anything else for the cluster's GPUs.
        config: Its settings.
        workers: Actors on processors; Ray spreads them over the nodes.

    Raises:
        DeviceUnavailable: Ray is not installed, does not answer, or has no GPU.
    """
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise DeviceUnavailable(
            "Ray is not installed", "Run on every node: pip install 'kernel-flywheel[ray]'"
        ) from error
    _check_reachable(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise DeviceUnavailable(
            f"no Ray cluster at {address}: {error}", "Check it with: ray status"
        ) from error
    judges: list[RayJudge] = []
    try:
        on_cpu = device == "cpu"
        gpus = int(ray.cluster_resources().get("GPU", 0))
        if not on_cpu and not gpus:
            raise DeviceUnavailable(
                f"the cluster at {address} has no GPU", "Use processors instead: --device cpu"
            )
        options = {"num_cpus": 1} if on_cpu else {"num_cpus": _CPUS_PER_GPU, "num_gpus": 1}
        remote = ray.remote(_Remote).options(scheduling_strategy="SPREAD", **options)
        arguments = (evaluator, "cpu" if on_cpu else "cuda:0", asdict(config))
        for _ in range(workers if on_cpu else gpus):
            judges.append(RayJudge(ray, remote, arguments))
        for judge in judges:
            judge.wait_ready()
        yield judges
    finally:
        for judge in judges:
            with contextlib.suppress(FlywheelError):
                judge.close()
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raise DeviceUnavailable where nothing listens; Ray itself would retry for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdigit()):
        return
    try:
        socket.create_connection((host, int(port)), _CONNECT_LIMIT_S).close()
    except OSError as error:
        raise DeviceUnavailable(
            f"no Ray cluster at {address}: {error}", "Check it with: ray status"
        ) from error
