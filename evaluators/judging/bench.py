"""The place where kernels are judged: one device, its fork servers, and the task at hand.

One fork server runs the task for the judge, one runs candidates, and two run the baselines, one
worker each: the first in every way that is asked for, the second as eager again. Two, because the
noise of a session is what two processes differ by that do the same. The baseline `cudnn` has a
third: a process keeps the plan that it has first found for a convolution, whether cudnn.benchmark
was set or not, so that eager beside it would run what the benchmark chose. The baselines outlive
the candidates of their task, so that each is compiled once.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self

import torch

from evaluators.device import fingerprint
from evaluators.device.lock import DeviceLock
from evaluators.device.roofline import Floor, floor
from evaluators.diagnosis.bottleneck import Peaks, peaks
from evaluators.judging.case import Policy
from evaluators.judging.compare import compare
from evaluators.references.module import WEIGHT_SEED
from evaluators.references.task import Reference, ReferenceFailed
from evaluators.sandbox import isolation
from evaluators.sandbox.doctor import list_missing
from evaluators.sandbox.launcher import ForkServer, Limits
from evaluators.worker import baselines as variants
from evaluators.worker.build_cache import Build, Builds
from evaluators.worker.handle import Deadlines, Failed, Sample, WorkerHandle
from store.errors import SandboxFailed

_TASK_FILE = "task.py"
_APART = "cudnn"
_COMPILED = ("compile", "compile_reduce_overhead")
_COMPILERS = ("triton", "torch._dynamo", "torch._inductor.compile_fx")
"""What torch.compile imports in its first call, which takes seconds."""
_COMPILING = {
    # A pool of compilers would outlive the fork in which it works.
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    # Whether there is a GPU is asked at import; the answer must not start CUDA before the fork.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}
_PROBED = 1 << 28
_PROBE = """
import torch


class Model:
    def __call__(self):
        ones = torch.ones(1 << 28, dtype=torch.float32, device="cuda").view(1 << 14, 1 << 14)
        return (ones[:4096, :1024] @ ones[:1024, :1024]).double().sum().view(1) / 16
"""
_ENDLESS_S = 10**7
_LEFT_OUT_ON_A_GPU = (("own_root", "own_procfs"), ("own_root", "own_procfs", "seccomp"))
"""What is left out where a worker behind all walls, and then behind these, cannot use a GPU."""
_MOST_SLOTS = 256
_SLOTS_BYTES = 256 << 20
_TWO_SLOTS_BYTES = 1 << 30
"""Calls on other memory than the last are worth so much."""


@dataclass(frozen=True)
class Sizes:
    """Shared memory that the inputs and outputs of one call need, in bytes."""

    inputs: int
    outputs: int
    slots: int = 4
    """Sets of inputs that a worker holds beside each other."""

    @classmethod
    def of(cls, inputs: int, outputs: int) -> Self:
        """Sizes for a task's inputs and outputs, with as many slots as are affordable."""
        affordable = _SLOTS_BYTES // max(1, inputs)
        fewest = 2 if inputs <= _TWO_SLOTS_BYTES else 1
        return cls(inputs, outputs, max(fewest, min(_MOST_SLOTS, affordable)))


@dataclass
class Baselines:
    """The workers that run the task's own module, and the ways in which they can."""

    arm: WorkerHandle
    """Every baseline but `cudnn`; None stands for eager in its requests."""
    again: WorkerHandle
    """Eager once more, in a process of its own."""
    apart: WorkerHandle | None = None
    """`cudnn`, where it is asked for."""
    prepared: dict[str, float] = field(default_factory=dict)
    """Seconds that each baseline took to be compiled and warmed up; eager takes none."""

    @property
    def arms(self) -> list[WorkerHandle]:
        """Every worker."""
        return [arm for arm in (self.arm, self.again, self.apart) if arm is not None]

    def of(self, name: str) -> WorkerHandle:
        """The worker of a baseline."""
        return self.apart if name == _APART and self.apart is not None else self.arm

    def time(
        self, name: str, slots: list[int], *, cold: bool = False, gated: bool = False
    ) -> Sample:
        """Call one baseline once per slot named. Raises ReferenceFailed, LaunchBlocked."""
        variant = None if name == "eager" else name
        return self.of(name).time(slots, variant, cold=cold, gated=gated)


class Bench:
    """One device with warm processes. Use as a context manager. Raises DeviceUnavailable."""

    def __init__(
        self, device: str, builds: Builds | None = None, lock: DeviceLock | None = None
    ) -> None:
        self.device = device
        self.lock = lock if lock is not None else DeviceLock()
        """Shared by judges that ask for answers, held alone by one that times."""
        self._builds = builds
        self.row = fingerprint.fingerprint(device)
        """The `devices` row of this bench."""
        self.clocks = fingerprint.Clocks(device)
        self._threads = fingerprint.threads()
        torch.set_num_threads(self._threads)
        if device == "cuda":
            torch.backends.cudnn.allow_tf32 = False
        # The judge flushes the caches, while every worker is frozen.
        words = fingerprint.flush_bytes(device) // 4
        self._flushed = torch.zeros(words, dtype=torch.int32, device=device)
        self._environment: dict[str, str] = {}
        self._tasks = ForkServer(self._threads)  # the first that is needed
        self._trusted: list[ForkServer] = []
        # They import torch while the caller is still looking for its first candidate.
        self._untrusted = ForkServer(self._threads)
        if device != "cuda":  # where what they import besides depends on the baselines asked for
            self._warm_up(("eager",))
        self._side = ThreadPoolExecutor(2, "bench")
        self._starting: list[Future[WorkerHandle]] = []
        self._task: tuple[str, str] | None = None
        self._reference: Reference | None = None
        self._baselines: Baselines | None = None
        self._baseline_sizes = Sizes(0, 0)
        self._floor: Floor | None = None
        self._policy: Policy = "fp32_strict"
        self.unavailable: dict[str, str] = {}
        """Baselines that cannot be had of the task at hand, each with the reason."""
        self._leave_walls_out()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every process of the bench."""
        with contextlib.suppress(SandboxFailed):
            self.end_baselines()
        self._end_reference()
        self._tasks.close()
        self._side.shutdown()
        for fork_server in self._trusted:
            fork_server.close()
        self._untrusted.close()

    @property
    def sandbox_level(self) -> str:
        """Isolation in force, as it is written into every row."""
        return " ".join(self._untrusted.limits)

    @property
    def sandbox_missing(self) -> str | None:
        """Isolation that the machine does not grant; None while that is not known yet."""
        limits = self._untrusted.limits
        return " ".join(list_missing(limits)) if limits else None

    def walls(self) -> dict[str, Any]:
        """Walls around candidates that hold, and why others do not. Raises SandboxFailed."""
        self._untrusted.wait_ready()
        reasons = {**isolation.missing, **self._untrusted.missing}
        return {"holds": self._untrusted.limits, "reasons": reasons}

    @property
    def freezes(self) -> bool:
        """Whether everything that a worker starts is frozen surely while it is not asked."""
        return "freezer" in self._untrusted.limits

    def reference(self, code: str, axes: Mapping[str, Any]) -> Reference:
        """The task's reference, in a worker that stays as long as the task, or until it fails.

        Raises ReferenceFailed, SandboxFailed.
        """
        key = (code, json.dumps(axes, sort_keys=True))
        if self._task != key:
            self._task = key
            self._end_reference()
            self.end_baselines()
            self.unavailable = {}
            self._floor = None
        if self._reference is None or not self._reference.is_alive:
            self._end_reference()
            if not self._tasks.is_alive:
                self._tasks.close()
                self._tasks = ForkServer(self._threads, self._environment)
            self._reference = Reference(code, axes, self.device, self._tasks, self._threads)
        return self._reference

    def _end_reference(self) -> None:
        """End the worker of the task at hand."""
        held, self._reference = self._reference, None
        if held is not None:
            held.close()

    def use(self, policy: Policy) -> None:
        """Judge under a policy from here on, which holds for candidates and baselines alike."""
        if policy != self._policy:
            self.end_baselines()
            self.unavailable = {}
        self._policy = policy

    def candidate(
        self, files: Mapping[str, str], sizes: Sizes, limits: Limits, deadlines: Deadlines
    ) -> WorkerHandle:
        """Start the worker of one candidate of the task at hand. Raises SandboxFailed."""
        if not self._untrusted.is_alive:
            self._untrusted.close()
            self._untrusted = ForkServer(self._threads, self._environment)
        build = None
        if self._builds is not None:
            build = self._builds.claim(files, *(self._task or ("", "{}")))
        return self._start(self._untrusted, files, sizes, limits, deadlines, build)

    def flush(self) -> None:
        """Push everything out of the caches of a processor; an arm flushes those of a GPU."""
        if self.device != "cuda":
            self._flushed.add_(1)

    def _leave_walls_out(self) -> None:
        """Find out which walls a GPU's driver works behind, and leave the others out.

        `sandbox_missing` of every verdict names them.
        """
        for walls in _LEFT_OUT_ON_A_GPU:
            if self.ailment() is None:
                return
            self._environment = {isolation.WITHOUT: ",".join(walls)}
            self._untrusted.close()
            self._tasks.close()
            self._untrusted = ForkServer(self._threads, self._environment)
            self._tasks = ForkServer(self._threads, self._environment)

    def ailment(self) -> str | None:
        """Try the device after a candidate has crashed on it; returns what is wrong, if anything.

        A fresh worker multiplies matrices, and this process waits for its own work: a fault of the
        device would have broken its context as well.
        """
        if self.device != "cuda":
            return None
        limits = Limits(memory_bytes=None, file_bytes=1 << 20, open_files=256, cpu_s=60)
        deadlines = Deadlines(import_s=20, build_s=20, first_call_s=20, call_s=20, total_s=60)
        try:
            arm = self.candidate({_TASK_FILE: _PROBE}, Sizes(0, 64), limits, deadlines)
        except SandboxFailed as failed:
            return f"no worker can use it: {failed}"
        try:
            arm.load(_TASK_FILE, "Model", {})
            arm.construct(WEIGHT_SEED, [])
            arm.fill(0, [])
            if int(arm.call(0, first=True)) != _PROBED:
                return "it multiplies matrices wrongly"
            torch.cuda.synchronize()
        except (Failed, ReferenceFailed, RuntimeError) as failed:
            return f"it does not answer: {failed}"
        finally:
            arm.end()
        return None

    def expect(
        self,
        code: str,
        axes: Mapping[str, Any],
        sizes: Sizes,
        limits: Limits,
        deadlines: Deadlines,
        names: Sequence[str] = ("eager",),
    ) -> None:
        """Begin to start eager's two workers, unless they run: `baselines` will ask for them.

        Their processes, and those that the ways named need besides, come up while a candidate is
        built and gives its answers.
        """
        self.reference(code, axes)
        if self._baseline_sizes != sizes:
            self.end_baselines()
        if self._baselines is None and not self._starting:
            self._baseline_sizes = sizes
            self._warm_up(names)
            self._starting = self._reference_arms(code, axes, sizes, limits, deadlines, range(2))

    def baselines(
        self,
        code: str,
        axes: Mapping[str, Any],
        sizes: Sizes,
        limits: Limits,
        deadlines: Deadlines,
        names: Sequence[str] = ("eager",),
    ) -> Baselines:
        """Workers that run the task's own module in the ways named, eager among them in any case.

        A way that fails, or gives a wrong answer, is left out, and `unavailable` says why. Raises
        ReferenceFailed where eager itself fails, SandboxFailed.
        """
        reference = self.reference(code, axes)
        wanted = [name for name in reversed(variants.names(self.device)) if name in names]
        while True:
            self.expect(code, axes, sizes, limits, deadlines, names)
            if self._baselines is None:
                starting, self._starting = self._starting, []
                arm, again = _started(starting)
                self._baselines = Baselines(arm, again)
            missing = [n for n in wanted if n not in {*self._baselines.prepared, *self.unavailable}]
            if not missing:
                return self._baselines
            if missing[0] == _APART and self._baselines.apart is None:
                self._warm_up(names)
                [self._baselines.apart] = _started(
                    self._reference_arms(code, axes, sizes, limits, deadlines, range(2, 3))
                )
            try:
                arm = self._baselines.of(missing[0])
                seconds = _prepared(arm, missing[0], reference, self._policy)
                self._baselines.prepared[missing[0]] = seconds
            except (Failed, ReferenceFailed) as failed:
                # What is left of a failed capture or compiler is not to be timed in.
                self.unavailable[missing[0]] = str(failed)
                self.end_baselines()

    def _warm_up(self, names: Sequence[str]) -> None:
        """See to fork servers for these ways to run the task; they import torch side by side."""
        compiled = self.device == "cuda" and any(name in names for name in _COMPILED)
        warm = _COMPILERS if compiled else ()
        while len(self._trusted) < (3 if _APART in names else 2):
            self._trusted.append(ForkServer(self._threads, _COMPILING | self._environment, warm))

    def _reference_arms(
        self,
        code: str,
        axes: Mapping[str, Any],
        sizes: Sizes,
        limits: Limits,
        deadlines: Deadlines,
        which: range,
    ) -> list[Future[WorkerHandle]]:
        """Begin workers with the task's module in them, of the trusted fork servers numbered so."""
        arguments = self.reference(code, axes).arguments
        # They outlive evaluations, and a compiler may be at work in them without a process of its
        # own: the limits of one candidate are not theirs.
        deadlines = replace(deadlines, import_s=deadlines.build_s, total_s=math.inf)
        limits = replace(limits, memory_bytes=None, cpu_s=_ENDLESS_S)

        def started(number: int) -> WorkerHandle:
            files = {_TASK_FILE: code}
            arm = self._start(self._trusted[number], files, sizes, limits, deadlines)
            try:
                arm.load(_TASK_FILE, "Model", axes)
                arm.construct(WEIGHT_SEED, arguments)
            except (ReferenceFailed, SandboxFailed):
                arm.end()
                raise
            return arm

        return [self._side.submit(started, number) for number in which]

    def floor(self) -> Floor:
        """Least times of one call at the task at hand, computed once; none on a processor."""
        reference = self._reference
        if self._floor is None and reference is not None:
            self._floor = floor(
                reference.count([secrets.randbits(48), secrets.randbits(48)]),
                cache_bytes=self.row["l2_bytes"] or 0,
                bandwidth=self.clocks.bandwidth(),
                float_peak=self.clocks.float_peak(),
            )
        return self._floor or Floor()

    def peaks(self) -> Peaks:
        """The most that the device can do: what NVML says, or what a processor reaches."""
        return peaks(self.device, self.clocks.bandwidth(), self.clocks.float_peak())

    def end_baselines(self) -> None:
        """End the baselines' workers, so that the next session starts new ones."""
        starting, self._starting = self._starting, []
        for future in starting:
            with contextlib.suppress(ReferenceFailed, SandboxFailed):  # nothing is left of it
                future.result().end()
        held, self._baselines = self._baselines, None
        if held is not None:
            for arm in held.arms:
                arm.end()

    def _start(
        self,
        fork_server: ForkServer,
        files: Mapping[str, str],
        sizes: Sizes,
        limits: Limits,
        deadlines: Deadlines,
        build: Build | None = None,
    ) -> WorkerHandle:
        setting = {
            "device": self.device,
            "threads": self._threads,
            "flush_bytes": fingerprint.flush_bytes(self.device),
            "allow_tf32": self._policy == "allow_tf32",
        }
        arm = WorkerHandle(
            fork_server,
            files,
            setting=setting,
            limits=limits,
            deadlines=deadlines,
            inbox_bytes=sizes.inputs,
            outbox_bytes=sizes.outputs,
            trusted=fork_server is not self._untrusted,
            slots=sizes.slots,
            build=build,
            flushed=self._flushed if self.device == "cuda" else None,
        )
        arm.prepare()
        return arm


def _started(starting: Sequence[Future[WorkerHandle]]) -> list[WorkerHandle]:
    """Wait for workers. Raises ReferenceFailed or SandboxFailed where one of them has failed."""
    arms: list[WorkerHandle] = []
    failed: Exception | None = None
    for future in starting:
        try:
            arms.append(future.result())
        except (ReferenceFailed, SandboxFailed) as error:
            failed = error
    if failed is not None:
        for arm in arms:
            arm.end()
        raise failed
    return arms


def _prepared(arm: WorkerHandle, name: str, reference: Reference, policy: Policy) -> float:
    """Prepare one way to run the reference and check its answer to inputs that it has not seen.

    Returns the seconds it took. Raises ReferenceFailed where it cannot be prepared or is wrong.
    """
    if name == "eager":
        return 0.0
    arm.fill(0, reference.inputs(secrets.randbits(48)))
    seconds = arm.prepare_variant(name, 0)
    inputs = reference.inputs(secrets.randbits(48))
    arm.fill(0, inputs)
    arm.time([0], name)
    wanted, output = reference.answer(inputs), arm.output(0)
    found = compare(wanted, output, policy, lambda: reference.choices(inputs))
    # What draws numbers or remembers answers otherwise in every way that it is run.
    if found.reason is not None and reference.repeatable:
        raise ReferenceFailed(f"its answer is wrong: {found.message}")
    return seconds
