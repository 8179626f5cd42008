"""How the workers of a bench are set up: device, threads, flags of the policy, cache flush."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import torch

from evaluators.clock.empty_kernel import time_empty_kernel
from evaluators.device import cache_flush
from evaluators.device.placement import count_threads
from evaluators.judging.case import Policy
from evaluators.judging.comparison import compare
from evaluators.references.task import Reference, ReferenceFailed
from evaluators.references.weight_seed import WEIGHT_SEED
from evaluators.sandbox.launcher import ForkServer, Limits
from evaluators.sandbox.template import Template
from evaluators.sandbox.worker_process import Share
from evaluators.worker import baselines as implementations
from evaluators.worker.builds.cache import Build, Builds
from evaluators.worker.handle import (
    Deadlines,
    Manner,
    Sample,
    Sizes,
    StartedWorker,
    WorkerHandle,
    start_worker,
)
from store.errors import SandboxFailed


class WorkerSetup:
    """Starts and prepares workers of one device."""

    def __init__(self, device: str, share: Share, template: Template | None = None) -> None:
        self.device = device
        self._share = share
        self.threads = count_threads()
        """Number of threads of loops, in the workers and in this process."""
        self.template = template or Template(self.threads)
        """The process that forks the fork servers of the workers."""
        self.policy: Policy = "torch_default"
        """Policy that sets the flags of workers started from here on."""
        torch.set_num_threads(self.threads)
        if device == "cuda":
            torch.backends.cudnn.allow_tf32 = False
        words = cache_flush.compute_flush_bytes(device) // torch.int32.itemsize
        self._flushed = torch.ones(words, dtype=torch.int32, device=device)
        cache_flush.flush_caches(self._flushed)
        if device == "cuda":
            time_empty_kernel()
            # The driver waits for an idle GPU to load a kernel, which none is behind a gate.
            torch.cuda.synchronize()

    def start(
        self,
        server: ForkServer,
        files: Mapping[str, str],
        limits: Limits,
        sizes: Sizes | None,
        build: Build | None = None,
        policy: Policy | None = None,
    ) -> StartedWorker:
        """Start the process of a worker (`start_worker`) with the flags of a policy.

        Without a policy it is the present one. Raises SandboxFailed.
        """
        flags = policy or self.policy
        setting = {
            "device": self.device,
            "threads": self.threads,
            "flush_bytes": cache_flush.compute_flush_bytes(self.device),
            "convolution_tf32": flags != "fp32_strict",
            "product_tf32": flags == "allow_tf32",
        }
        return start_worker(server, files, setting=setting, limits=limits, sizes=sizes, build=build)

    def prepare(
        self, started: StartedWorker, sizes: Sizes, deadlines: Deadlines, *, trusted: bool
    ) -> WorkerHandle:
        """Return a worker that is ready for requests. Raises SandboxFailed."""
        worker = WorkerHandle(
            started,
            sizes,
            deadlines=deadlines,
            trusted=trusted,
            flushed=self._flushed,
            share=self._share,
        )
        worker.prepare()
        return worker


class CandidateStarter:
    """Starts candidates one after the other, each in a fork of one warm process."""

    def __init__(self, setup: WorkerSetup, builds: Builds | None) -> None:
        self._setup = setup
        self._builds = builds
        self._environment: dict[str, str] = {}
        self._expected: tuple[Mapping[str, str], StartedWorker] | None = None
        self.server = ForkServer(setup.template)
        """The process that forks them."""

    def close(self) -> None:
        """End every process."""
        with contextlib.suppress(SandboxFailed):  # its server ends what is left of it
            self.end_expected()
        self.server.close()

    def restart(self, environment: Mapping[str, str]) -> None:
        """Fork from a new process with these variables."""
        self.server.close()
        self._environment = dict(environment)
        self.server = ForkServer(self._setup.template, self._environment)

    def expect(self, files: Mapping[str, str], task: tuple[str, str], limits: Limits) -> None:
        """Begin to start a candidate that `start` will prepare. Raises SandboxFailed.

        Its process gets a GPU, which takes half a second, while the reference answers its first
        question. On a processor nothing is gained, and nothing is started.
        """
        self.end_expected()
        if self._setup.device == "cuda":
            self._expected = files, self._fork(files, task, None, limits)

    def end_expected(self) -> None:
        """End a process that `start` has not taken. Raises SandboxFailed."""
        expected, self._expected = self._expected, None
        if expected is not None:
            expected[1].end()

    def start(
        self,
        files: Mapping[str, str],
        task: tuple[str, str],
        sizes: Sizes,
        limits: Limits,
        deadlines: Deadlines,
        policy: Policy | None = None,
    ) -> WorkerHandle:
        """Start a worker with the flags of a policy, or of the present one.

        Args:
            files: The candidate's files.
            task: Code and axes of its task.
            sizes: Memory that it shares with the judge.
            limits: Its limits.
            deadlines: Its deadlines.
            policy: Policy other than the present one.

        Raises:
            SandboxFailed: it cannot be started.
        """
        expected, self._expected = self._expected, None
        if expected is not None and expected[0] == files and policy is None:
            started = expected[1]
        else:
            if expected is not None:
                expected[1].end()
            started = self._fork(files, task, sizes, limits, policy)
        return self._setup.prepare(started, sizes, deadlines, trusted=False)

    def _fork(
        self,
        files: Mapping[str, str],
        task: tuple[str, str],
        sizes: Sizes | None,
        limits: Limits,
        policy: Policy | None = None,
    ) -> StartedWorker:
        if not self.server.is_alive:
            self.restart(self._environment)
        build = None if self._builds is None else self._builds.claim(files, *task)
        return self._setup.start(self.server, files, limits, sizes, build, policy)


# The workers of the baselines: processes that run the task's own module in each requested way.
#
# Two of them run eager, one worker each: the first runs every other baseline as well, the second
# is the noise control of a session. The noise of a session is the difference of two processes that
# do the same. A baseline that changes its whole process (`worker.baselines`) gets a process of its
# own. For example, under `cudnn` a process keeps the first plan that it found for a convolution,
# whether cudnn.benchmark was set or not, so eager in the same process would run the benchmark's
# choice.

TASK_FILE = "task.py"
"""Name of the task's text in the folder of a worker."""
_COMPILERS = ("triton", "torch._dynamo", "torch._inductor.compile_fx")
"""Modules that torch.compile imports in its first call, which takes seconds."""
_COMPILER_ENVIRONMENT = {
    # A pool of compilers would outlive the fork in which it works.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # The import checks for a GPU; that must not start CUDA before the fork.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}


@dataclass(frozen=True)
class BaselineTask:
    """A task whose own module runs as the baselines, and what its workers get."""

    code: str
    axes: Mapping[str, Any]
    sizes: Sizes
    deadlines: Deadlines


@dataclass
class BaselineWorkers:
    """The workers that run the task's own module, and the prepared baselines."""

    main: WorkerHandle
    """Eager, and every baseline without a process of its own."""
    control: WorkerHandle
    """Eager a second time, in a process of its own."""
    owned: dict[str, WorkerHandle] = field(default_factory=dict)
    """Workers of the baselines that have a process of their own, by baseline."""
    prepared: dict[str, float] = field(default_factory=dict)
    """Seconds that each baseline took to be compiled and warmed up; eager takes none."""

    @property
    def workers(self) -> list[WorkerHandle]:
        """Every worker."""
        return [self.main, self.control, *self.owned.values()]

    def get_worker(self, name: str) -> WorkerHandle:
        """Return the worker of a baseline."""
        return self.owned.get(name, self.main)

    def time(
        self,
        name: str,
        slots: list[int],
        *,
        cold: bool = False,
        copies: bool = False,
        manner: Manner = "end_to_end",
    ) -> Sample:
        """Call one baseline once per slot named. Raises ReferenceFailed, LaunchBlocked."""
        variant = None if name == "eager" else name
        worker = self.get_worker(name)
        sample = worker.time(
            slots, variant, cold=cold, copies=copies, manner=manner, describes=False
        )
        # They are not checked, and those of all baselines together take much memory.
        worker.release_outputs()
        return sample


def list_own_processes(names: Sequence[str]) -> list[str]:
    """Return the baselines among some names that need a process of their own."""
    known = implementations.BASELINES
    return [name for name in names if name in known and known[name].owns_process]


def explain_unimplemented(names: Sequence[str]) -> dict[str, str]:
    """Return the reasons for baselines of the catalog that this version does not implement."""
    known = implementations.BASELINES
    return {name: "this version does not implement it" for name in names if name not in known}


def count_own_processes(device: str, names: Sequence[str]) -> int:
    """Return how many processes of their own some baselines need, up to the last one named."""
    owners = list_own_processes(implementations.list_baselines(device))
    return max([1 + owners.index(name) for name in owners if name in names], default=0)


def start_server(
    device: str, names: Sequence[str], template: Template, environment: Mapping[str, str]
) -> ForkServer:
    """Start a fork server for the workers of some baselines."""
    is_compiling = device == "cuda" and any(
        implementation.compiles
        for name, implementation in implementations.BASELINES.items()
        if name in names
    )
    imports = _COMPILERS if is_compiling else ()
    return ForkServer(template, {**_COMPILER_ENVIRONMENT, **environment}, imports)


def load_task(
    worker: WorkerHandle, axes: Mapping[str, Any], arguments: list[Any], *, places: bool
) -> None:
    """Construct the task's own module in a worker; end the worker if that fails.

    places: Whether its calls make tensors on the device where they name none.

    Raises ReferenceFailed, SandboxFailed.
    """
    try:
        worker.load(TASK_FILE, "Model", axes)
        worker.construct(WEIGHT_SEED, arguments, places=places)
    except (ReferenceFailed, SandboxFailed):
        worker.end()
        raise


def await_workers(starting: Sequence[Future[WorkerHandle]]) -> list[WorkerHandle]:
    """Wait for workers. Raises ReferenceFailed or SandboxFailed where one of them has failed."""
    workers: list[WorkerHandle] = []
    failed: Exception | None = None
    for future in starting:
        try:
            workers.append(future.result())
        except (ReferenceFailed, SandboxFailed) as error:
            failed = error
    if failed is not None:
        for worker in workers:
            worker.end()
        raise failed
    return workers


def prepare_baseline(
    worker: WorkerHandle, name: str, reference: Reference, policy: Policy
) -> float:
    """Prepare a baseline other than eager, and check its answer to inputs that it has not seen.

    Returns the seconds it took. Raises ReferenceFailed where it cannot be prepared or is wrong.
    """
    worker.fill(0, reference.inputs(secrets.randbits(48)))
    compiles = implementations.BASELINES[name].compiles
    seconds = worker.prepare_variant(name, 0, compiles=compiles)
    inputs = reference.inputs(secrets.randbits(48))
    worker.fill(0, inputs)
    worker.time([0], name)
    wanted, output = reference.answer(inputs), worker.output(0)
    comparison = compare(wanted, output, policy, lambda: reference.choices(inputs))
    # A module that draws numbers or remembers calls answers differently in each baseline.
    if comparison.reason is not None and reference.repeatable:
        raise ReferenceFailed(f"its answer is wrong: {comparison.message}")
    return seconds
