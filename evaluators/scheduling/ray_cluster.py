"""Judges on a Ray cluster: one actor on each GPU, or several on processors.

Every node needs this package and Ray in the same versions, and the file of an evaluator of the
user's own. The process that holds the lake connects to the cluster; an actor receives texts and
returns rows. Nothing of a candidate is ever unpickled: the judge process on the node of an actor
makes its answers.

An actor that is lost, with its process or with its node, is replaced where the cluster still has
room for it. Where it has none, the device is unavailable and the other judges take its cases over.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import math
import signal
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from evaluators.judging.case import Case
from evaluators.scheduling import contract
from evaluators.scheduling.judges.process import JudgeProcess
from store import faults
from store.errors import DeviceUnavailable, FlywheelError, HostUnfit, SandboxFailed

GPU_DEVICE = "cuda:0"
"""Device of an actor to which Ray has given a GPU: the only one that its process sees."""
_START_LIMIT_S = 300.0
_LOOK_S = 1.0
_CLOSE_LIMIT_S = 30.0
_CONNECT_LIMIT_S = 5.0
_CPUS_PER_GPU = 4
_SIGACTION_BYTES = 256  # more than the struct has on any machine
_REFUSALS = {kind.__name__: kind for kind in (HostUnfit, SandboxFailed, DeviceUnavailable)}


class _Remote:
    """The actor: a judge process on its node, with the GPU that Ray gave the actor."""

    def __init__(self, evaluator: str, device: str, settings: dict[str, Any]) -> None:
        config = contract.load(evaluator).Config(**settings)
        self._process = JudgeProcess(evaluator, device, config)

    def call(self, name: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of the judge process; return its answer, or its refusal.

        Our errors do not survive Ray's pickling.
        """
        try:
            return {"answer": getattr(self._process, name)(*arguments), "row": self._process.row}
        except tuple(_REFUSALS.values()) as failed:
            kind, hint = type(failed).__name__, failed.hint
            return {"failed": kind, "message": failed.message, "hint": hint}

    def wait_ready(self) -> dict[str, Any]:
        """Wait until the judge process has its device; return what `call` returns."""
        return self.call("wait_ready")

    def close(self) -> None:
        self._process.close()


def check_device(device: str) -> None:
    """Raise DeviceUnavailable where --on names GPUs: those of a cluster have no names."""
    if device not in ("auto", "cpu", "cuda"):
        raise DeviceUnavailable(
            f'--ray cannot choose the device "{device}"',
            "Give --on cuda for all GPUs of the cluster, or --on cpu.",
        )


class RayJudge:
    """The judge of one actor, as the job queue uses it."""

    def __init__(self, cluster: _Cluster) -> None:
        """Let Ray start an actor; `wait_ready` comes next."""
        self._cluster = cluster
        self._actor = cluster.start_actor()
        self._is_lost = self._is_closed = False
        self.row: dict[str, Any] = {}
        """The `devices` row of the actor's device."""

    def wait_ready(self) -> None:
        """Wait until the actor has its device.

        Raises:
            DeviceUnavailable: the actor cannot start, or the cluster has no room for it any more.
            SandboxFailed, HostUnfit: the judge process cannot start on the actor's node.
        """
        ray, until = self._cluster.ray, time.monotonic() + _START_LIMIT_S
        replaces = self._is_lost
        request = self._actor.wait_ready.remote()
        while True:
            try:
                self.row = self._read(ray.get(request, timeout=_LOOK_S))["row"]
                self._is_lost = False
                return
            except ray.exceptions.GetTimeoutError:
                # Ray waits without end for a node with room, such as one that it starts itself.
                room = self._cluster.count_room()
                if replaces and room < self._cluster.judges:
                    self._abandon()
                    raise DeviceUnavailable(
                        f"the cluster has room for {room} judges",
                        "Check its nodes with: ray status",
                    ) from None
                if time.monotonic() > until or self._is_closed:
                    self._abandon()
                    raise DeviceUnavailable(
                        f"an actor has not started in {_START_LIMIT_S:g} s",
                        "Check the cluster with: ray status",
                    ) from None
            except ray.exceptions.RayError as error:
                self._abandon()
                raise DeviceUnavailable(
                    f"an actor cannot be started: {str(error).strip().splitlines()[-1][:300]}",
                    "Every node needs this package and its dependencies in the same version.",
                ) from error

    def judge(self, case: Case) -> contract.Tables:
        """Return the rows of one case.

        Raises:
            SandboxFailed: the actor, its node or its judge process is lost.
            HostUnfit: the node lacks what the kernel needs.
            DeviceUnavailable: the device of the actor has been found sick.
        """
        return self._call("judge", case)

    def restart(self) -> None:
        """Start another judge process, or another actor where the actor is lost."""
        if not self._is_lost:
            with contextlib.suppress(SandboxFailed):
                self._call("restart")
                return
        self._cluster.ray.kill(self._actor)
        self._actor = self._cluster.start_actor()
        self.wait_ready()

    def give_up(self) -> None:
        """Let `wait_ready`, in which another thread is, end with DeviceUnavailable."""
        self._is_closed = True

    def close(self) -> None:
        """End the actor and its processes."""
        ray, self._is_closed = self._cluster.ray, True
        if not self._is_lost:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.get(self._actor.close.remote(), timeout=_CLOSE_LIMIT_S)
        ray.kill(self._actor)

    def _call(self, name: str, *arguments: Any) -> Any:
        """Return the answer of the actor's judge process. It has time limits of its own."""
        try:
            reply = self._cluster.ray.get(self._actor.call.remote(name, *arguments))
        except self._cluster.ray.exceptions.RayError as error:
            # Unavailable or dead: Ray may know only later which, and what was sent is lost.
            self._is_lost = True
            raise SandboxFailed(
                f"an actor is lost: {type(error).__name__}", "Check the cluster with `ray status`."
            ) from error
        answer = self._read(reply)
        self.row = answer["row"]
        return answer["answer"]

    def _read(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Return an actor's reply. Raises what its judge process has raised."""
        if "failed" in reply:
            host = f"on {self.row['host']}: " if self.row else ""
            raise _REFUSALS[reply["failed"]](f"{host}{reply['message']}", reply["hint"])
        return reply

    def _abandon(self) -> None:
        self._is_lost = True
        self._cluster.judges -= 1


class _Cluster:
    """A connection to a cluster, and the actors that are wanted there."""

    def __init__(
        self, ray: Any, address: str, evaluator: str, device: str, config: Any, workers: int
    ) -> None:
        """Decide the number of judges and the resources of each.

        Raises DeviceUnavailable: there is no room for a judge.
        """
        self.ray = ray
        self._unit = "CPU" if device == "cpu" else "GPU"
        nodes = self._list_nodes()
        self.judges = workers if device == "cpu" else self.count_room()
        """Number of judges that are there or wait for their actors."""
        if not self.judges:
            raise DeviceUnavailable(
                f"the cluster at {address} has no GPU", "Use processors instead: --on cpu"
            )
        options: dict[str, float] = {"num_cpus": 1}
        if device != "cpu":
            share = min(node["CPU"] // node["GPU"] for node in nodes if node["GPU"])
            options = {"num_cpus": min(share, _CPUS_PER_GPU), "num_gpus": 1}
        self._actors = ray.remote(_Remote).options(scheduling_strategy="SPREAD", **options)
        given = "cpu" if device == "cpu" else GPU_DEVICE
        self._arguments = (evaluator, given, asdict(config))

    def start_actor(self) -> Any:
        """Ask Ray for another actor; return its handle."""
        return self._actors.remote(*self._arguments)

    def count_room(self) -> int:
        """Return the number of judges for which the nodes that live have room."""
        return sum(math.floor(node[self._unit]) for node in self._list_nodes())

    def _list_nodes(self) -> list[dict[str, float]]:
        nodes = (node["Resources"] for node in self.ray.nodes() if node["Alive"])
        return [{unit: node.get(unit, 0.0) for unit in ("CPU", "GPU")} for node in nodes]


def import_ray() -> Any:
    """Return the module. Raises FlywheelError where Ray is not installed."""
    faults.require_packages("ray")
    return importlib.import_module("ray")


@contextmanager
def start_judges(
    address: str, evaluator: str, device: str, config: Any, workers: int
) -> Generator[list[RayJudge]]:
    """Yield one judge per GPU of a cluster, or `workers` judges on processors; all are starting.

    Args:
        address: Of the cluster, as Ray takes it: auto, HOST:PORT or ray://HOST:PORT.
        device: cpu, or anything else for the cluster's GPUs.
        workers: Actors on processors; Ray spreads them over the nodes.

    Raises DeviceUnavailable: Ray is not installed, does not answer, or has no GPU.
    """
    ray = import_ray()
    host, _, port = address.removeprefix("ray://").rpartition(":")
    # Keep what this process does at SIGTERM: Ray's handler prints a stack and aborts after 3 s.
    # Python sets handlers in the main thread only, and a service connects in another one.
    sigaction, before = ctypes.CDLL(None).sigaction, ctypes.create_string_buffer(_SIGACTION_BYTES)
    sigaction(signal.SIGTERM, None, before)
    try:
        if host and port.isdigit():  # where nothing listens, Ray would retry for minutes
            socket.create_connection((host, int(port)), _CONNECT_LIMIT_S).close()
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError) as error:
        raise DeviceUnavailable(
            f"no Ray cluster at {address}: {error}", "Check it with: ray status"
        ) from error
    finally:
        sigaction(signal.SIGTERM, before, None)
    judges: list[RayJudge] = []
    try:
        cluster = _Cluster(ray, address, evaluator, device, config, workers)
        judges += [RayJudge(cluster) for _ in range(cluster.judges)]
        yield judges
    finally:
        for judge in judges:
            with contextlib.suppress(FlywheelError):
                judge.close()
        ray.shutdown()
