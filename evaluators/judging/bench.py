"""The bench: one device, the fork servers of its workers, and the task at hand.

One fork server runs the task, one candidates, and at least two the baselines, which outlive the
candidates of their task, so that each is compiled once. All are forks of one template.
"""

from __future__ import annotations

import contextlib
import gc
import json
import math
import secrets
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from evaluators.clock.empty_kernel import time_empty_kernel
from evaluators.device import fingerprint, timing_conditions
from evaluators.device.lock import DeviceLock, SharedDevice
from evaluators.device.placement import count_threads
from evaluators.device.roofline import Floor, compute_floor
from evaluators.diagnosis.bottleneck import Peaks, measure_peaks
from evaluators.judging import host
from evaluators.judging.case import Case, Precision
from evaluators.judging.case_result import KnownVerdict, TimePart, hold
from evaluators.judging.comparison import compare
from evaluators.processes.process_tree import MACHINE_IS_SHORT
from evaluators.references.imported_file import WEIGHT_SEED
from evaluators.references.shapes import Shapes
from evaluators.references.task import Reference, ReferenceFailed, SizesExceeded
from evaluators.sandbox import isolation
from evaluators.sandbox.doctor import list_missing
from evaluators.sandbox.failures import Failed, lacks_memory
from evaluators.sandbox.launcher import ForkServer, Limits, Template
from evaluators.worker.baselines import BASELINES, list_baselines
from evaluators.worker.build_cache import Build, Builds
from evaluators.worker.handle import (
    Deadlines,
    Manner,
    Sample,
    Sizes,
    StartedWorker,
    WorkerHandle,
    start_worker,
)
from store.errors import DeviceUnavailable, HostUnfit, SandboxFailed

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
    return [name for name in names if name in BASELINES and BASELINES[name].owns_process]


def explain_unimplemented(names: Sequence[str]) -> dict[str, str]:
    """Return the reasons for baselines of the catalog that this version does not implement."""
    return {name: "this version does not implement it" for name in names if name not in BASELINES}


def count_own_processes(device: str, names: Sequence[str]) -> int:
    """Return how many processes of their own some baselines need, up to the last one named."""
    owners = list_own_processes(list_baselines(device))
    return max([1 + owners.index(name) for name in owners if name in names], default=0)


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


# Trials after a kernel has failed: whether code that is known to be right builds here, and whether
# the device still works.

_FILE = "host_trial.py"
_BUILD = """
from torch.utils.cpp_extension import load_inline

load_inline("host_trial", {sources}, is_python_module=False, no_implicit_headers={brief})
"""
_CPP = 'cpp_sources="#include <Python.h>\\n#include <vector>\\nint host_trial() { return 1; }"'
_CUDA = (
    _CPP + ', cuda_sources="#include <cuda_runtime.h>\\n__global__ void fill(float* out)'
    ' { out[threadIdx.x] = 1.0f; }\\nvoid launch() { fill<<<1, 1>>>(nullptr); }"'
)
_COMPILE = """
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
torch.compile(lambda x: torch.relu(x) * 2 + 1)(torch.ones(64, device=device))
"""
_TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def fill(out, BLOCK: tl.constexpr):
    tl.store(out + tl.arange(0, BLOCK), 1.0)


out = torch.zeros(64, device="cuda")
fill[(1,)](out, BLOCK=64)
assert out.sum().item() == 64
"""
_LIMITS = Limits(memory_bytes=None, file_bytes=1 << 30, open_files=1024, cpu_s=600)
_PATIENCE = Deadlines(import_s=60, build_s=240, first_call_s=60, call_s=60, total_s=300)


_PRODUCT = 1 << 28
_TRIAL = """
import torch


class Model:
    def __call__(self):
        ones = torch.ones(1 << 28, dtype=torch.float32, device="cuda").view(1 << 14, 1 << 14)
        return (ones[:4096, :1024] @ ones[:1024, :1024]).double().sum().view(1) / 16
"""
_DEVICE_LIMITS = Limits(memory_bytes=None, file_bytes=1 << 20, open_files=256, cpu_s=60)
_DEVICE_PATIENCE = Deadlines(import_s=20, build_s=20, first_call_s=20, call_s=20, total_s=60)


_BASELINE_LIMITS = Limits(memory_bytes=None, file_bytes=1 << 30, open_files=1024, cpu_s=10**7)
"""Baselines outlive evaluations, and a compiler may run inside them without a process of its own.
The limits of a candidate do not apply to them."""
_LEFT_OUT_ON_GPU = (("own_root", "own_procfs"), ("own_root", "own_procfs", "seccomp"))
"""Parts of the isolation that are left out, in two steps, until a worker can use a GPU."""
HOST_TRIAL_S = 60.0
"""Seconds for which the result of a trial of the host holds."""
TRIAL_PAUSE_S = 2.0
"""Seconds between two trials of a device that fails."""


@dataclass
class TaskAtHand:
    """A task, its workers, and what is known for it alone. A fork server has one worker at a time.

    Another task replaces all but the fork servers.
    """

    server: ForkServer
    """Forks the worker of the task's reference."""
    baseline_servers: list[ForkServer] = field(default_factory=list[ForkServer])
    key: tuple[str, str] = ("", "{}")
    """Its code and axes."""
    reference: Reference | None = None
    baselines: BaselineWorkers | None = None
    starting: list[Future[WorkerHandle]] = field(default_factory=list[Future[WorkerHandle]])
    """Workers of baselines that are starting."""
    baseline_sizes: Sizes = field(default_factory=lambda: Sizes(0, 0))
    floor: Floor | None = None
    unavailable: dict[str, str] = field(default_factory=dict[str, str])
    """Baselines that are unavailable, each with the reason."""
    known: dict[tuple[str, ...], KnownVerdict] = field(
        default_factory=dict[tuple[str, ...], KnownVerdict]
    )
    """Verdicts on kernels of the task that may hold by another precision."""
    shapes: dict[tuple[int | str, ...], Shapes] = field(
        default_factory=dict[tuple[int | str, ...], Shapes]
    )
    """Other shapes, by the number of shapes to draw and the named ones."""


class Bench(contextlib.AbstractContextManager["Bench"]):
    """One device with warm processes. Use as a context manager. Raises DeviceUnavailable."""

    def __init__(
        self,
        device: str,
        builds: Builds | None = None,
        lock: DeviceLock | None = None,
        template: Template | None = None,
        memory: DeviceLock | None = None,
        timing_cores: Collection[int] = (),
    ) -> None:
        if device not in ("cpu", "cuda"):
            raise DeviceUnavailable(f"a judge cannot run on {device!r}", "Give cpu or cuda.")
        self.device = device
        self.timing_cores = timing_cores
        """Cores on which nothing runs but what is timed; none where there are no such cores."""
        self.lock = lock if lock is not None else DeviceLock()
        """Shared by judges that ask for answers, held alone by one that times."""
        self._memory = memory if memory is not None else DeviceLock()
        """Shared by judges with workers on the device, held alone where one lacks memory."""
        self._memory_hold = contextlib.ExitStack()
        self.has_memory_alone = memory is None
        """Whether no other judge has workers on the device, or none is known."""
        self.foreign_bytes = 0
        """Bytes of a GPU that programs other than judges held when this one took it alone."""
        # One judge after the other, because drivers have failed when several processes began to use
        # a GPU.
        with self.lock.hold_exclusive():
            self.row = fingerprint.read_fingerprint(device)
            """The `devices` row of this bench."""
            self.clocks = fingerprint.Clocks(device)
            self._share = SharedDevice(
                self.lock, device, lambda: not all(f.done() for f in self.task.starting)
            )
            self._threads = count_threads()
            """Number of threads of loops, in the workers and in this process."""
            self._template = template or Template(self._threads)
            """The process that forks the fork servers of the workers."""
            self._precision: Precision = "torch_default"
            """Precision that sets the flags of workers started from here on."""
            torch.set_num_threads(self._threads)
            if device == "cuda":
                torch.backends.cudnn.allow_tf32 = False
            words = timing_conditions.compute_flush_bytes(device) // torch.int32.itemsize
            self._flushed = torch.ones(words, dtype=torch.int32, device=device)
            timing_conditions.flush_caches(self._flushed)
            if device == "cuda":
                time_empty_kernel()
                # The driver waits for an idle GPU to load a kernel, which none is behind a gate.
                torch.cuda.synchronize()
        self._environment: dict[str, str] = {}
        self.task = TaskAtHand(ForkServer(self._template))  # the first that is needed
        self.candidate_server = ForkServer(self._template)
        """The process that forks the workers of candidates, one after the other."""
        self._builds = builds
        self._expected: tuple[Mapping[str, str], StartedWorker] | None = None
        """Files of the candidate whose process has begun to start, and the process."""
        self._side = ThreadPoolExecutor(2, "bench")
        self._task_aside: TaskAtHand | None = None
        """The fork servers of other shapes of a task."""
        self._built_for: tuple[str, str] | None = None
        """Task whose builds of candidates are used, if it is not the one at hand."""
        self._host_trials: dict[host.Need, tuple[float, str | None]] = {}
        """When the host built something of its own, and what was wrong."""
        if device == "cuda":
            with contextlib.suppress(SandboxFailed):  # the trial says why
                self.candidate_server.wait_ready()
        with self.lock.hold_exclusive():
            self._relax_isolation()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process of the bench."""
        with contextlib.suppress(SandboxFailed):
            self.end_baselines()
        self._end_reference()
        self._side.shutdown()
        for task in filter(None, (self.task, self._task_aside)):
            for server in (task.server, *task.baseline_servers):
                server.close()
        with contextlib.suppress(SandboxFailed):  # its server ends what is left of it
            self.end_expected()
        self.candidate_server.close()
        self._template.close()
        self._memory_hold.close()

    @property
    def sandbox_level(self) -> str:
        """Isolation in force, as it is written into every row."""
        return " ".join(self.candidate_server.limits)

    @property
    def sandbox_missing(self) -> str | None:
        """Isolation that the machine does not provide; None if not yet known."""
        limits = self.candidate_server.limits
        return " ".join(list_missing(limits)) if limits else None

    def read_isolation(self) -> dict[str, Any]:
        """Return the isolation in force and why the rest is missing. Raises SandboxFailed."""
        self.candidate_server.wait_ready()
        reasons = {**isolation.missing, **self.candidate_server.missing}
        return {"holds": self.candidate_server.limits, "reasons": reasons}

    @property
    def freezes(self) -> bool:
        """Whether everything that a worker starts is reliably frozen between requests."""
        return "freezer" in self.candidate_server.limits

    def open_reference(self, code: str, axes: Mapping[str, Any]) -> Reference:
        """Return the task's reference, in a worker that lives until the task changes or it fails.

        Raises ReferenceFailed, SandboxFailed.
        """
        self._set_task(code, axes)
        if self.task.reference is None or not self.task.reference.is_alive:
            self._end_reference()
            if not self.task.server.is_alive:
                self.task.server.close()
                self.task.server = ForkServer(self._template, self._environment)
            self.task.reference = Reference(
                code,
                axes,
                self.device,
                self.task.server,
                self._threads,
                convolution_tf32=self._precision == "torch_default",
            )
        return self.task.reference

    def _set_task(self, code: str, axes: Mapping[str, Any]) -> None:
        key = (code, json.dumps(axes, sort_keys=True))
        if self.task.key != key:
            self._end_reference()
            self.end_baselines()
            self.task = TaskAtHand(self.task.server, self.task.baseline_servers, key)

    @contextlib.contextmanager
    def set_task_aside(self) -> Generator[None]:
        """Judge at another shape of the task at hand, and keep the workers of its own meanwhile.

        Candidates take the builds that they have made for the task's own shape.
        """
        own = self.task
        if self._task_aside is None:
            self._task_aside = TaskAtHand(ForkServer(self._template, self._environment))
        self.task, self._built_for = self._task_aside, own.key
        try:
            yield
        finally:
            with contextlib.suppress(SandboxFailed):
                self.end_expected()
            self._end_reference()
            with contextlib.suppress(SandboxFailed):
                self.end_baselines()
            at_shape = self.task
            self._task_aside = TaskAtHand(at_shape.server, at_shape.baseline_servers)
            self.task, self._built_for = own, None

    def _end_reference(self) -> None:
        held, self.task.reference = self.task.reference, None
        if held is not None:
            held.close()

    def set_precision(self, precision: Precision) -> None:
        """Judge under a precision from here on, which holds for candidates and baselines alike."""
        # All are the same on a processor.
        if precision != self._precision and self.device == "cuda":
            self._end_reference()
            self.end_baselines()
            self.task.unavailable = {}
        self._precision = precision

    def expect_candidate(
        self, code: str, axes: Mapping[str, Any], files: Mapping[str, str], limits: Limits
    ) -> None:
        """Begin to start a candidate of a task for `start_candidate`. Raises SandboxFailed.

        Its process gets a GPU, which takes half a second, while the reference answers its first
        probe. On a processor nothing is gained, and nothing is started.
        """
        self._set_task(code, axes)
        self.end_expected()
        if self.device == "cuda":
            self._expected = files, self._fork_candidate(files, None, limits)

    def end_expected(self) -> None:
        """End a process that `start_candidate` has not taken. Raises SandboxFailed."""
        expected, self._expected = self._expected, None
        if expected is not None:
            expected[1].end()

    def step_aside(self, expect: Callable[[], None]) -> None:
        """Let a judge that waits to time have the device, while no worker of this one starts.

        expect: Begins to start the candidate that is expected, which is ended before.
        """
        if self._share.is_wanted():
            self.end_expected()
            self._share.step_aside()
            expect()

    def await_starts(self) -> None:
        """Wait until no worker is starting."""
        wait(self.task.starting)

    def start_candidate(
        self,
        files: Mapping[str, str],
        sizes: Sizes,
        limits: Limits,
        deadlines: Deadlines,
        precision: Precision | None = None,
    ) -> WorkerHandle:
        """Start a candidate's worker with the flags of a precision, or of the present one.

        Raises SandboxFailed.
        """
        expected, self._expected = self._expected, None
        if expected is not None and expected[0] == files and precision is None:
            started = expected[1]
        else:
            if expected is not None:
                expected[1].end()
            started = self._fork_candidate(files, sizes, limits, precision)
        return self._prepare_worker(started, sizes, deadlines, trusted=False)

    def _fork_candidate(
        self,
        files: Mapping[str, str],
        sizes: Sizes | None,
        limits: Limits,
        precision: Precision | None = None,
    ) -> StartedWorker:
        if not self.candidate_server.is_alive:
            self.candidate_server.close()
            self.candidate_server = ForkServer(self._template, self._environment)
        build = None
        if self._builds is not None:
            build = self._builds.claim(files, *(self._built_for or self.task.key))
        return self._start_worker(self.candidate_server, files, limits, sizes, build, precision)

    def _start_worker(
        self,
        server: ForkServer,
        files: Mapping[str, str],
        limits: Limits,
        sizes: Sizes | None,
        build: Build | None = None,
        precision: Precision | None = None,
    ) -> StartedWorker:
        flags = precision or self._precision
        setting = {
            "device": self.device,
            "threads": self._threads,
            "flush_bytes": timing_conditions.compute_flush_bytes(self.device),
            "convolution_tf32": flags != "fp32_strict",
            "product_tf32": flags == "allow_tf32",
        }
        return start_worker(server, files, setting=setting, limits=limits, sizes=sizes, build=build)

    def _prepare_worker(
        self, started: StartedWorker, sizes: Sizes, deadlines: Deadlines, *, trusted: bool
    ) -> WorkerHandle:
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

    def _relax_isolation(self) -> None:
        """Find the isolation under which a GPU's driver works, and leave out the rest.

        A fault may pass, as one does while processes of another judge end, so no wall is left out
        before a second trial. `sandbox_missing` of every verdict names what is left out. Raises
        DeviceUnavailable where no worker can use the device at all.
        """
        fault = self.find_device_fault()
        for parts in ((), *_LEFT_OUT_ON_GPU):
            if fault is None:
                return
            time.sleep(TRIAL_PAUSE_S)
            self._environment = {isolation.WITHOUT: ",".join(parts)} if parts else {}
            self.candidate_server.close()
            self.candidate_server = ForkServer(self._template, self._environment)
            self.task.server.close()
            self.task.server = ForkServer(self._template, self._environment)
            fault = self.find_device_fault()
        if fault is not None:
            self.close()
            raise DeviceUnavailable(
                f"this device cannot be measured on: {fault}",
                "Check it with nvidia-smi, then run again.",
            )

    def find_device_fault(self) -> str | None:
        """Try the device after a crash; returns what is wrong with it, if anything.

        A fresh worker multiplies matrices on a GPU. This process also waits for its own work there:
        a fault of the device would have broken its context as well.
        """
        if self.device != "cuda":
            return None
        files = {TASK_FILE: _TRIAL}
        try:
            worker = self.start_candidate(files, Sizes(0, 64), _DEVICE_LIMITS, _DEVICE_PATIENCE)
        except SandboxFailed as failed:
            return f"no worker can use it: {failed.message}"
        try:
            worker.load(TASK_FILE, "Model", {})
            worker.construct(WEIGHT_SEED, [])
            worker.fill(0, [])
            if int(worker.call(0, first=True)) != _PRODUCT:
                return "it multiplies matrices wrongly"
            torch.cuda.synchronize()
        except (Failed, ReferenceFailed, RuntimeError) as failed:
            return f"it does not answer: {failed}"
        finally:
            worker.end()
        return None

    def find_build_fault(self, need: host.Need, *, brief: bool) -> str | None:
        """Build right code in a fresh worker; return what is wrong, if anything.

        It is a worker like a kernel's, so it meets the same compilers, folders and limits.

        brief: Leave out PyTorch's headers, which take seconds, much memory and much disk.
        """
        token = secrets.token_hex(16)
        sources = _CUDA if need == "cuda" else _CPP
        text = {"compile": _COMPILE, "triton": _TRITON}.get(
            need, _BUILD.format(sources=sources, brief=brief)
        )
        # A file whose import fails leaves nothing in the build cache: the next trial builds again.
        text += f"raise RuntimeError({token!r})\n"
        try:
            worker = self.start_candidate({_FILE: text}, Sizes(0, 64), _LIMITS, _PATIENCE)
        except SandboxFailed as failed:
            return f"no worker can be started: {failed.message}"
        try:
            worker.load(_FILE, "Model", {})
        except (Failed, ReferenceFailed) as failed:
            return None if token in str(failed) else str(failed)
        finally:
            worker.end()
        return "a file that raises an error is imported"

    def require_host(self, case: Case) -> None:
        """Raise HostUnfit where this host lacks what a kernel needs, before it is judged."""
        needs = self._find_needs(case)
        # What needs a GPU fails on a processor for that reason, and has a verdict of it.
        if self.device == "cpu":
            needs -= {"cuda"}
        if unfit := host.find_unfit(needs, self.device):
            raise unfit
        for need in needs:
            tried, why = self._host_trials.get(need, (0.0, None))
            if why is not None and time.monotonic() - tried < HOST_TRIAL_S:
                raise _describe_trial(need, why)

    def _find_needs(self, case: Case) -> set[host.Need]:
        task = {f"task/{TASK_FILE}": case.task_code}
        return host.find_needs({**case.files, **task}, self.device)

    def blame_host(self, case: Case, failed: Exception) -> HostUnfit | None:
        """Return the error to raise if this host, and not the kernel, is why a judgment failed.

        What the kernel says does not count. Call it once the kernel's processes have ended.
        """
        needs = self._find_needs(case)
        if unfit := host.find_unfit(needs, self.device):
            return unfit
        if not isinstance(failed, Failed) or failed.reason in ("syntax_error", "no_entry_point"):
            return None
        if failed.status not in ("compile_error", "crash", "timeout"):
            return None
        brief = not host.is_scarce()
        for need in sorted(needs):
            if self.device == "cpu" and need == "cuda":  # its driver is on no such host
                continue
            tried, why = self._host_trials.get(need, (-math.inf, None))
            if time.monotonic() - tried > HOST_TRIAL_S:
                with self.lock.hold_shared():
                    why = self.find_build_fault(need, brief=brief)
                self._host_trials[need] = (time.monotonic(), why)
            if why is not None:
                return _describe_trial(need, why)
        return None

    def expect_baselines(self, task: BaselineTask, names: Sequence[str] = ("eager",)) -> None:
        """Begin to start eager's two workers for `start_baselines`, unless they run already.

        Their processes, and others that these baselines need, start while a candidate is built and
        judged.
        """
        self.open_reference(task.code, task.axes)
        if self.task.baseline_sizes != task.sizes:
            self.end_baselines()
        if self.task.baselines is None and not self.task.starting:
            self.task.baseline_sizes = task.sizes
            self.warm_up(names)
            self.task.starting = self._start_reference_workers(task, range(2))

    def start_baselines(
        self,
        task: BaselineTask,
        names: Sequence[str] = ("eager",),
        time_part: TimePart = hold,
    ) -> BaselineWorkers:
        """Return workers that run the task's own module as these baselines and as eager.

        A baseline that fails, or gives a wrong answer, is left out; `task.unavailable` says why.
        Raises ReferenceFailed if eager itself fails, SandboxFailed.

        Args:
            names: Baselines; eager runs in any case.
            time_part: Times a step, which holds the lock given. The device is free between two
                baselines, so that a judge that times does not wait for all of them.
        """
        reference = self.open_reference(task.code, task.axes)
        self.task.unavailable.update(explain_unimplemented(names))
        available = list_baselines(self.device)
        wanted = [name for name in reversed(available) if name in names]
        while True:
            if self.task.baselines is None or self.task.baseline_sizes != task.sizes:
                with time_part(self.lock.hold_shared()):
                    self.expect_baselines(task, names)
                    starting, self.task.starting = self.task.starting, []
                    main, control = await_workers(starting)
                self.task.baselines = BaselineWorkers(main, control, prepared={"eager": 0.0})
            known = {*self.task.baselines.prepared, *self.task.unavailable}
            name = next((name for name in wanted if name not in known), None)
            if name is None:
                return self.task.baselines
            if name in list_own_processes(wanted) and name not in self.task.baselines.owned:
                number = 2 + list_own_processes(available).index(name)
                with time_part(self.lock.hold_shared()):
                    self.warm_up(names)
                    [self.task.baselines.owned[name]] = await_workers(
                        self._start_reference_workers(task, [number])
                    )
            try:
                worker = self.task.baselines.get_worker(name)
                with time_part(self.lock.hold_shared()):
                    seconds = self._prepare_baseline(worker, name, reference)
                self.task.baselines.prepared[name] = seconds
            except SizesExceeded:
                raise  # all workers are started again, with more memory
            except (Failed, ReferenceFailed) as failed:
                if lacks_memory(failed) and not self.has_memory_alone:
                    raise  # the case is judged again alone
                # Do not time in a process with remains of a failed capture or compilation.
                self.task.unavailable[name] = str(failed)
                self.end_baselines()

    def _prepare_baseline(self, worker: WorkerHandle, name: str, reference: Reference) -> float:
        """Prepare a baseline other than eager, and check its answer to unseen inputs.

        Returns the seconds it took. Raises ReferenceFailed if it cannot be prepared or is wrong.
        """
        worker.fill(0, reference.inputs(secrets.randbits(48)))
        seconds = worker.prepare_variant(name, 0, compiles=BASELINES[name].compiles)
        inputs = reference.inputs(secrets.randbits(48))
        worker.fill(0, inputs)
        worker.time([0], name)
        expected, output = reference.answer(inputs), worker.output(0)
        precision = self._precision
        comparison = compare(expected, output, precision, lambda: reference.choices(inputs))
        # A module that draws numbers or remembers calls answers differently in each baseline.
        if comparison.reason is not None and reference.repeatable:
            raise ReferenceFailed(f"its answer is wrong: {comparison.message}")
        return seconds

    def warm_up(self, names: Sequence[str] = ("eager",)) -> None:
        """Start the fork servers of some baselines, with torch imported once for all servers."""
        for ended in [server for server in self.task.baseline_servers if not server.is_alive]:
            ended.close()
            self.task.baseline_servers.remove(ended)
        while len(self.task.baseline_servers) < 2 + count_own_processes(self.device, names):
            # All that compile run in the first one.
            is_first = not self.task.baseline_servers
            compiles = any(BASELINES[name].compiles for name in BASELINES.keys() & set(names))
            imports = _COMPILERS if self.device == "cuda" and compiles and is_first else ()
            variables = {**_COMPILER_ENVIRONMENT, **self._environment}
            server = ForkServer(self._template, variables, imports)
            server.begin()
            self.task.baseline_servers.append(server)

    def _start_reference_workers(
        self, task: BaselineTask, numbers: Iterable[int]
    ) -> list[Future[WorkerHandle]]:
        reference = self.open_reference(task.code, task.axes)
        arguments, places = reference.arguments, reference.places_tensors
        deadlines = replace(task.deadlines, import_s=task.deadlines.build_s, total_s=math.inf)

        servers = self.task.baseline_servers

        def start(number: int) -> WorkerHandle:
            server = servers[number]
            files = {TASK_FILE: task.code}
            started = self._start_worker(server, files, _BASELINE_LIMITS, task.sizes)
            worker = self._prepare_worker(started, task.sizes, deadlines, trusted=True)
            try:
                worker.load(TASK_FILE, "Model", task.axes)
                worker.construct(WEIGHT_SEED, arguments, places=places)
            except (ReferenceFailed, SandboxFailed):
                worker.end()
                raise
            return worker

        return [self._side.submit(start, number) for number in numbers]

    def compute_floor(self) -> Floor:
        """Return the least times of a call at the task at hand; none on a processor."""
        if self.task.floor is None and self.task.reference is not None:
            self.task.floor = compute_floor(
                self.task.reference.count([secrets.randbits(48), secrets.randbits(48)]),
                cache_bytes=self.row["l2_bytes"] or 0,
                bandwidth=self.clocks.read_bandwidth(),
                float_peak=self.clocks.read_float_peak(),
            )
        return self.task.floor or Floor()

    def compute_peaks(self) -> Peaks:
        """Return the peaks of the device: NVML's figures, or those that a processor reaches."""
        if self.device == "cpu":
            return measure_peaks()
        bandwidth, float_peak = self.clocks.read_bandwidth(), self.clocks.read_float_peak()
        return Peaks(bandwidth=bandwidth, float_peak=float_peak)

    def share_memory(self) -> None:
        """Hold the device's memory, with other judges unless this one has it alone already."""
        self.yield_memory()
        if not self._memory.is_held:
            self._memory_hold.enter_context(self._memory.hold_shared())

    def yield_memory(self) -> None:
        """End every worker if another judge waits for the device's memory."""
        if self._memory.is_held and self._memory.is_waited_for():
            self._release_memory()

    def take_memory_alone(self) -> None:
        """Wait until no other judge has workers on the device; ends every worker of this one.

        The memory is this judge's until another one waits for it and `yield_memory` is called.
        """
        self._release_memory()
        self._memory_hold.enter_context(self._memory.hold_exclusive())
        self.has_memory_alone = True
        self.foreign_bytes = self._find_foreign_memory()

    def _release_memory(self) -> None:
        self.end_workers()
        self._memory_hold.close()
        self.has_memory_alone, self.foreign_bytes = False, 0

    def require_memory(self, task: BaselineTask, names: Sequence[str]) -> None:
        """Raise SandboxFailed where the free memory of a GPU that is shared holds no new workers.

        The workers are those of the candidate and of the baselines, unless these run already.
        """
        is_new = self.task.baselines is None and not self.task.starting
        if self.device != "cuda" or self.has_memory_alone or not is_new:
            return
        state = self.open_reference(task.code, task.axes).state()
        # A worker keeps the answers of a burst, one for each set of inputs.
        each_bytes = sum(task.sizes.boxes) + task.sizes.slots * task.sizes.outputs
        each_bytes += sum(tensor.nbytes for tensor in state.values())
        needed_bytes = each_bytes * (3 + count_own_processes(self.device, names))
        free_bytes, _ = torch.cuda.mem_get_info()
        if needed_bytes > free_bytes:
            raise SandboxFailed(
                f"out of memory: workers take {needed_bytes} bytes, and {free_bytes} are free"
            )

    def _find_foreign_memory(self) -> int:
        """Return the bytes of a GPU that other processes hold, beside contexts without data.

        Only for a bench without workers.
        """
        if self.device != "cuda":
            return 0
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        held_bytes = total_bytes - free_bytes - torch.cuda.memory_reserved()
        return held_bytes if held_bytes > total_bytes // 10 else 0

    @property
    def shares_memory(self) -> bool:
        """Whether other judges or programs may hold memory that a worker lacks."""
        return not self.has_memory_alone or self.foreign_bytes > 0

    def lacks_memory(self, failed: Exception, oom_kills: int) -> bool:
        """Whether a failure may be due to memory that others can hold.

        On a processor, a candidate has a limit of its own, which others do not change.

        oom_kills: What `count_oom_kills` returned before.
        """
        if MACHINE_IS_SHORT in str(failed):
            return True
        if lacks_memory(failed):
            return self.device == "cuda" or not isinstance(failed, Failed)
        # The count alone shows no lack: it also rises with what a limit of its own has ended.
        may_be_killed = not isinstance(failed, Failed) or (
            (failed.reason == "signal" and "SIGKILL" in failed.message)
            or (failed.status == "compile_error" and "Killed" in failed.detail)
        )
        return may_be_killed and host.count_oom_kills() > oom_kills

    def end_workers(self) -> None:
        """End every worker, so that the next case starts new ones.

        Raises RuntimeError where the judge's own context of a GPU is lost, which no process
        survives.
        """
        with contextlib.suppress(SandboxFailed):
            self.end_expected()
        self._end_reference()
        with contextlib.suppress(SandboxFailed):
            self.end_baselines()
        if self.device == "cuda":
            torch.cuda.synchronize()
            gc.collect()  # tensors in the frames of errors
            torch.cuda.empty_cache()

    def end_baselines(self) -> None:
        """End the baselines' workers, so that the next session starts new ones."""
        starting, self.task.starting = self.task.starting, []
        for future in starting:
            with contextlib.suppress(ReferenceFailed, SandboxFailed):  # nothing is left of it
                future.result().end()
        held, self.task.baselines = self.task.baselines, None
        if held is not None:
            for worker in held.workers:
                worker.end()


def _describe_trial(need: host.Need, why: str) -> HostUnfit:
    return HostUnfit(
        f"the kernel {host.WORDS[need]}, and here code that is known to be right fails to do so:"
        f" {why}",
        "`evaluators doctor` lists what this host lacks.",
    )
