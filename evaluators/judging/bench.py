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
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import Any, Self

import torch

from evaluators.device import fingerprint
from evaluators.device.lock import DeviceLock
from evaluators.device.roofline import Floor, compute_floor
from evaluators.device.sharing import SharedDevice
from evaluators.diagnosis.bottleneck import Peaks, peaks
from evaluators.judging import host, trials
from evaluators.judging.case import Case, Policy
from evaluators.judging.case_result import KnownVerdicts, TimePart, hold
from evaluators.judging.trials import find_gpu_fault
from evaluators.judging.workers import (
    TASK_FILE,
    BaselineTask,
    BaselineWorkers,
    CandidateStarter,
    WorkerSetup,
    await_workers,
    count_own_processes,
    explain_unimplemented,
    list_own_processes,
    load_task,
    prepare_baseline,
    start_server,
)
from evaluators.references.shapes import Shapes
from evaluators.references.task import Reference, ReferenceFailed, SizesExceeded
from evaluators.sandbox import isolation
from evaluators.sandbox.doctor import list_missing
from evaluators.sandbox.failures import lacks_memory
from evaluators.sandbox.launcher import ForkServer, Limits
from evaluators.sandbox.template import Template
from evaluators.worker import baselines as implementations
from evaluators.worker.builds.cache import Builds
from evaluators.worker.handle import Deadlines, Failed, Sizes, WorkerHandle
from store.errors import DeviceUnavailable, HostUnfit, SandboxFailed

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
class _TaskAtHand:
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
    known: KnownVerdicts = field(default_factory=KnownVerdicts)
    """Verdicts that may hold by another policy."""
    shapes: dict[tuple[int | str, ...], Shapes] = field(
        default_factory=dict[tuple[int | str, ...], Shapes]
    )
    """Other shapes, by the number of shapes to draw and the named ones."""


class Bench:
    """One device with warm processes. Use as a context manager. Raises DeviceUnavailable."""

    def __init__(
        self,
        device: str,
        builds: Builds | None = None,
        lock: DeviceLock | None = None,
        template: Template | None = None,
        memory: DeviceLock | None = None,
    ) -> None:
        if device not in ("cpu", "cuda"):
            raise DeviceUnavailable(f"a judge cannot run on {device!r}", "Give cpu or cuda.")
        self.device = device
        self.lock = lock if lock is not None else DeviceLock()
        """Shared by judges that ask for answers, held alone by one that times."""
        self._memory = memory if memory is not None else DeviceLock()
        """Shared by judges with workers on the device, held alone where one lacks memory."""
        self._memory_hold = contextlib.ExitStack()
        self.has_memory_alone = memory is None
        """Whether no other judge has workers on the device, or none is known."""
        # One judge after the other, because drivers have failed when several processes began to use
        # a GPU.
        with self.lock.hold_exclusive():
            self.row = fingerprint.read_fingerprint(device)
            """The `devices` row of this bench."""
            self.clocks = fingerprint.Clocks(device)
            self._share = SharedDevice(
                self.lock, device, lambda: not all(f.done() for f in self._task.starting)
            )
            self._setup = WorkerSetup(device, self._share, template)
        self._environment: dict[str, str] = {}
        self._task = _TaskAtHand(ForkServer(self._setup.template))  # the first that is needed
        self.candidates = CandidateStarter(self._setup, builds)
        """Starts the candidates' workers."""
        self._side = ThreadPoolExecutor(2, "bench")
        self._task_aside: _TaskAtHand | None = None
        """The fork servers of other shapes of a task."""
        self._built_for: tuple[str, str] | None = None
        """Task whose builds of candidates are used, if it is not the one at hand."""
        self._host_trials: dict[host.Need, tuple[float, str | None]] = {}
        """When the host built something of its own, and what was wrong."""
        if device == "cuda":
            with contextlib.suppress(SandboxFailed):  # the trial says why
                self.candidates.server.wait_ready()
        with self.lock.hold_exclusive():
            self._relax_isolation()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process of the bench."""
        with contextlib.suppress(SandboxFailed):
            self.end_baselines()
        self._end_reference()
        self._side.shutdown()
        for task in filter(None, (self._task, self._task_aside)):
            for server in (task.server, *task.baseline_servers):
                server.close()
        self.candidates.close()
        self._setup.template.close()
        self._memory_hold.close()

    @property
    def sandbox_level(self) -> str:
        """Isolation in force, as it is written into every row."""
        return " ".join(self.candidates.server.limits)

    @property
    def sandbox_missing(self) -> str | None:
        """Isolation that the machine does not provide; None if not yet known."""
        limits = self.candidates.server.limits
        return " ".join(list_missing(limits)) if limits else None

    def read_isolation(self) -> dict[str, Any]:
        """Return the isolation in force and why the rest is missing. Raises SandboxFailed."""
        self.candidates.server.wait_ready()
        reasons = {**isolation.missing, **self.candidates.server.missing}
        return {"holds": self.candidates.server.limits, "reasons": reasons}

    @property
    def freezes(self) -> bool:
        """Whether everything that a worker starts is reliably frozen between requests."""
        return "freezer" in self.candidates.server.limits

    def open_reference(self, code: str, axes: Mapping[str, Any]) -> Reference:
        """Return the task's reference, in a worker that lives until the task changes or it fails.

        Raises ReferenceFailed, SandboxFailed.
        """
        self._set_task(code, axes)
        if self._task.reference is None or not self._task.reference.is_alive:
            self._end_reference()
            if not self._task.server.is_alive:
                self._task.server.close()
                self._task.server = ForkServer(self._setup.template, self._environment)
            self._task.reference = Reference(
                code,
                axes,
                self.device,
                self._task.server,
                self._setup.threads,
                convolution_tf32=self._setup.policy == "torch_default",
            )
        return self._task.reference

    @property
    def unavailable(self) -> dict[str, str]:
        """Baselines that are unavailable for the task at hand, each with the reason."""
        return self._task.unavailable

    @property
    def known(self) -> KnownVerdicts:
        """Verdicts of the task at hand that may hold by another policy."""
        return self._task.known

    @property
    def shapes(self) -> dict[tuple[int | str, ...], Shapes]:
        """Other shapes of the task at hand, by the number of shapes to draw and the named ones."""
        return self._task.shapes

    def _set_task(self, code: str, axes: Mapping[str, Any]) -> None:
        """End the workers of the last task if this is another one."""
        key = (code, json.dumps(axes, sort_keys=True))
        if self._task.key != key:
            self._end_reference()
            self.end_baselines()
            self._task = _TaskAtHand(self._task.server, self._task.baseline_servers, key)

    @contextlib.contextmanager
    def set_task_aside(self) -> Generator[None]:
        """Judge at another shape of the task at hand, and keep the workers of its own meanwhile.

        Candidates take the builds that they have made for the task's own shape.
        """
        own = self._task
        if self._task_aside is None:
            self._task_aside = _TaskAtHand(ForkServer(self._setup.template, self._environment))
        self._task, self._built_for = self._task_aside, own.key
        try:
            yield
        finally:
            with contextlib.suppress(SandboxFailed):
                self.candidates.end_expected()
            self._end_reference()
            with contextlib.suppress(SandboxFailed):
                self.end_baselines()
            at_shape = self._task
            self._task_aside = _TaskAtHand(at_shape.server, at_shape.baseline_servers)
            self._task, self._built_for = own, None

    def _end_reference(self) -> None:
        held, self._task.reference = self._task.reference, None
        if held is not None:
            held.close()

    def set_policy(self, policy: Policy) -> None:
        """Judge under a policy from here on, which holds for candidates and baselines alike."""
        # All are the same on a processor.
        if policy != self._setup.policy and self.device == "cuda":
            self._end_reference()
            self.end_baselines()
            self._task.unavailable = {}
        self._setup.policy = policy

    def expect_candidate(
        self, code: str, axes: Mapping[str, Any], files: Mapping[str, str], limits: Limits
    ) -> None:
        """Begin to start a candidate of a task for `start_candidate`. Raises SandboxFailed."""
        self._set_task(code, axes)
        self.candidates.expect(files, self._built_for or self._task.key, limits)

    def step_aside(self, expect: Callable[[], None]) -> None:
        """Let a judge that waits to time have the device, while no worker of this one starts.

        expect: Begins to start the candidate that is expected, which is ended before.
        """
        if self._share.is_wanted():
            self.candidates.end_expected()
            self._share.step_aside()
            expect()

    def await_starts(self) -> None:
        """Wait until no worker is starting."""
        wait(self._task.starting)

    def start_candidate(
        self,
        files: Mapping[str, str],
        sizes: Sizes,
        limits: Limits,
        deadlines: Deadlines,
        policy: Policy | None = None,
    ) -> WorkerHandle:
        """Start a candidate's worker with the flags of a policy. Raises SandboxFailed."""
        built_for = self._built_for or self._task.key
        return self.candidates.start(files, built_for, sizes, limits, deadlines, policy)

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
            self.candidates.restart(self._environment)
            self._task.server.close()
            self._task.server = ForkServer(self._setup.template, self._environment)
            fault = self.find_device_fault()
        if fault is not None:
            self.close()
            raise DeviceUnavailable(
                f"this device cannot be measured on: {fault}",
                "Check it with nvidia-smi, then run again.",
            )

    def find_device_fault(self) -> str | None:
        """Try the device after a crash; returns what is wrong with it, if anything."""
        return find_gpu_fault(self.start_candidate) if self.device == "cuda" else None

    def require_host(self, case: Case) -> None:
        """Raise HostUnfit where this host lacks what a kernel needs, before it is judged."""
        needs = _find_needs(case, self.device)
        # What needs a GPU fails on a processor for that reason, and has a verdict of it.
        if self.device == "cpu":
            needs -= {"cuda"}
        fault = host.find_fault(needs, self.device)
        if fault is not None:
            raise HostUnfit(host.explain(needs, fault), fault.mend)
        for need in needs:
            tried, why = self._host_trials.get(need, (0.0, None))
            if why is not None and time.monotonic() - tried < HOST_TRIAL_S:
                raise _describe_trial(need, why)

    def blame_host(self, case: Case, failed: Exception) -> HostUnfit | None:
        """Return the error to raise if this host, and not the kernel, is why a judgment failed.

        What the kernel says does not count. Call it once the kernel's processes have ended.
        """
        needs = _find_needs(case, self.device)
        fault = host.find_fault(needs, self.device)
        if fault is not None:
            return HostUnfit(host.explain(needs, fault), fault.mend)
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
                    why = trials.find_build_fault(self.start_candidate, need, brief=brief)
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
        if self._task.baseline_sizes != task.sizes:
            self.end_baselines()
        if self._task.baselines is None and not self._task.starting:
            self._task.baseline_sizes = task.sizes
            self.warm_up(names)
            self._task.starting = self._start_reference_workers(task, range(2))

    def start_baselines(
        self,
        task: BaselineTask,
        names: Sequence[str] = ("eager",),
        time_part: TimePart = hold,
    ) -> BaselineWorkers:
        """Return workers that run the task's own module as these baselines and as eager.

        A baseline that fails, or gives a wrong answer, is left out, and `unavailable` says why.
        Raises ReferenceFailed if eager itself fails, SandboxFailed.

        Args:
            task: The task.
            names: Baselines; eager runs in any case.
            time_part: Times a step, which holds the lock given. The device is free between two
                baselines, so that a judge that times does not wait for all of them.
        """
        reference = self.open_reference(task.code, task.axes)
        self.unavailable.update(explain_unimplemented(names))
        available = implementations.list_baselines(self.device)
        wanted = [name for name in reversed(available) if name in names]
        while True:
            if self._task.baselines is None or self._task.baseline_sizes != task.sizes:
                with time_part(self.lock.hold_shared()):
                    self.expect_baselines(task, names)
                    starting, self._task.starting = self._task.starting, []
                    main, control = await_workers(starting)
                self._task.baselines = BaselineWorkers(main, control, prepared={"eager": 0.0})
            known = {*self._task.baselines.prepared, *self.unavailable}
            name = next((name for name in wanted if name not in known), None)
            if name is None:
                return self._task.baselines
            if name in list_own_processes(wanted) and name not in self._task.baselines.owned:
                number = 2 + list_own_processes(available).index(name)
                with time_part(self.lock.hold_shared()):
                    self.warm_up(names)
                    [self._task.baselines.owned[name]] = await_workers(
                        self._start_reference_workers(task, [number])
                    )
            try:
                worker = self._task.baselines.get_worker(name)
                with time_part(self.lock.hold_shared()):
                    seconds = prepare_baseline(worker, name, reference, self._setup.policy)
                self._task.baselines.prepared[name] = seconds
            except SizesExceeded:
                raise  # all workers are started again, with more memory
            except (Failed, ReferenceFailed) as failed:
                if lacks_memory(failed) and not self.has_memory_alone:
                    raise  # the case is judged again alone
                # Do not time in a process with remains of a failed capture or compilation.
                self.unavailable[name] = str(failed)
                self.end_baselines()

    def warm_up(self, names: Sequence[str] = ("eager",)) -> None:
        """Start the fork servers of some baselines, with torch imported once for all servers."""
        for ended in [server for server in self._task.baseline_servers if not server.is_alive]:
            ended.close()
            self._task.baseline_servers.remove(ended)
        while len(self._task.baseline_servers) < 2 + count_own_processes(self.device, names):
            server = start_server(self.device, names, self._setup.template, self._environment)
            server.begin()
            self._task.baseline_servers.append(server)

    def _start_reference_workers(
        self, task: BaselineTask, numbers: Iterable[int]
    ) -> list[Future[WorkerHandle]]:
        """Start workers with the task's module in them, each of the fork server of its number."""
        reference = self.open_reference(task.code, task.axes)
        arguments, places = reference.arguments, reference.places_tensors
        deadlines = replace(task.deadlines, import_s=task.deadlines.build_s, total_s=math.inf)

        servers = self._task.baseline_servers

        def start(number: int) -> WorkerHandle:
            server = servers[number]
            files = {TASK_FILE: task.code}
            started = self._setup.start(server, files, _BASELINE_LIMITS, task.sizes)
            worker = self._setup.prepare(started, task.sizes, deadlines, trusted=True)
            load_task(worker, task.axes, arguments, places=places)
            return worker

        return [self._side.submit(start, number) for number in numbers]

    def compute_floor(self) -> Floor:
        """Return the least times of a call at the task at hand; none on a processor."""
        if self._task.floor is None and self._task.reference is not None:
            self._task.floor = compute_floor(
                self._task.reference.count([secrets.randbits(48), secrets.randbits(48)]),
                cache_bytes=self.row["l2_bytes"] or 0,
                bandwidth=self.clocks.read_bandwidth(),
                float_peak=self.clocks.read_float_peak(),
            )
        return self._task.floor or Floor()

    def compute_peaks(self) -> Peaks:
        """Return the peaks of the device: NVML's figures, or those that a processor reaches."""
        return peaks(self.device, self.clocks.read_bandwidth(), self.clocks.read_float_peak())

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

    def _release_memory(self) -> None:
        self.end_workers()
        self._memory_hold.close()
        self.has_memory_alone = False

    def require_memory(self, task: BaselineTask, names: Sequence[str]) -> None:
        """Raise SandboxFailed where the free memory of a GPU that is shared holds no new workers.

        The workers are those of the candidate and of the baselines, unless these run already.
        """
        is_new = self._task.baselines is None and not self._task.starting
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

    def find_foreign_memory(self) -> int:
        """Return the bytes of a GPU that other processes hold, beside contexts without data.

        Only for a bench without workers.
        """
        if self.device != "cuda":
            return 0
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        held_bytes = total_bytes - free_bytes - torch.cuda.memory_reserved()
        return held_bytes if held_bytes > total_bytes // 10 else 0

    def end_workers(self) -> None:
        """End every worker, so that the next case starts new ones.

        Raises RuntimeError where the judge's own context of a GPU is lost, which no process
        survives.
        """
        with contextlib.suppress(SandboxFailed):
            self.candidates.end_expected()
        self._end_reference()
        with contextlib.suppress(SandboxFailed):
            self.end_baselines()
        if self.device == "cuda":
            torch.cuda.synchronize()
            gc.collect()  # tensors in the frames of errors
            torch.cuda.empty_cache()

    def end_baselines(self) -> None:
        """End the baselines' workers, so that the next session starts new ones."""
        starting, self._task.starting = self._task.starting, []
        for future in starting:
            with contextlib.suppress(ReferenceFailed, SandboxFailed):  # nothing is left of it
                future.result().end()
        held, self._task.baselines = self._task.baselines, None
        if held is not None:
            for worker in held.workers:
                worker.end()


def _find_needs(case: Case, device: str) -> set[host.Need]:
    task = {f"task/{TASK_FILE}": case.task_code}
    return host.find_needs({**case.files, **task}, device)


def _describe_trial(need: host.Need, why: str) -> HostUnfit:
    return HostUnfit(
        f"the kernel {host.WORDS[need]}, and here code that is known to be right fails to do so:"
        f" {why}",
        "`evaluators doctor` lists what this host lacks.",
    )
