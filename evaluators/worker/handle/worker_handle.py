"""One worker process as the judge sees it: requests with answers that have been checked."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import torch

from evaluators.clock.rounds import Round, Unfinished, time_rounds
from evaluators.diagnosis.bottleneck import Profile, read_profile
from evaluators.memory.frozen_gpu_memory import Pieces
from evaluators.processes.text import make_readable
from evaluators.references.task import ReferenceFailed
from evaluators.sandbox.failures import Failed, Stage, explain_end
from evaluators.sandbox.launcher import ForkServer, Limits
from evaluators.sandbox.worker_process import Died, Ended, Late, TimedOut, WorkerProcess
from evaluators.worker.build_cache import Build
from evaluators.worker.handle.deadlines import Deadlines, TimedRequests
from evaluators.worker.handle.inbox import SLACK_BYTES, Inbox
from evaluators.worker.handle.module_state import (
    Parameter,
    are_pieces,
    read_parameters,
    split_to_read,
    split_to_write,
)
from evaluators.worker.handle.outputs import OutputReader, read_outputs, share_memory
from evaluators.worker.handle.sample import LaunchBlocked, Sample
from evaluators.worker.handle.shared_boxes import SharedBoxes
from store.errors import SandboxFailed

_LAUNCH_S = 2.0
"""How long launching the calls of one sample may take before they count as waiting for the GPU."""


class WorkerHandle:
    """One worker with its shared memory.

    Methods raise Failed; those of a trusted worker, which runs the task's own module, raise
    ReferenceFailed, so that a candidate is never blamed for a baseline.
    """

    def __init__(
        self,
        fork_server: ForkServer,
        files: Mapping[str, str],
        *,
        setting: Mapping[str, Any],
        limits: Limits,
        deadlines: Deadlines,
        inbox_bytes: int,
        outbox_bytes: int,
        trusted: bool,
        slots: int = 1,
        build: Build | None = None,
        flushed: torch.Tensor | None = None,
    ) -> None:
        self._trusted = trusted
        self.deadlines = deadlines
        self._requests = TimedRequests(deadlines)
        self.device = str(setting["device"])
        self._ended: Ended | None = None
        self._build = build
        self._imported = False
        self._flushed = flushed
        self.threads = int(setting["threads"])
        """Number of threads of its loops."""
        self._answers: list[list[dict[str, Any]]] = [[], []]
        self._taken: list[Any] | None = None
        self._calls = 0
        self.slots = slots
        """Number of sets of inputs that it can hold at a time."""
        self._inbox = Inbox(inbox_bytes, slots)
        sizes = (self._inbox.size_bytes, outbox_bytes + SLACK_BYTES)
        if limits.memory_bytes is not None:
            limits = replace(limits, memory_bytes=limits.memory_bytes + sum(sizes))
        self._boxes = SharedBoxes(self.device, sizes)
        try:
            self._process: WorkerProcess = fork_server.start(
                files,
                setting={**setting, "inbox_bytes": sizes[0], "outbox_bytes": sizes[1]},
                limits=limits,
                inbox=self._boxes.fds[0],
                outbox=self._boxes.fds[1],
                build=build.folder if build is not None else None,
            )
            self._pieces = Pieces(self._process.let_run)
        except SandboxFailed:
            self._boxes.close()
            if build is not None:
                build.release()
            raise
        finally:
            self._boxes.close_fds()

    def prepare(self) -> None:
        """Wait until the worker has its device. Raises SandboxFailed: no code has run in it yet."""
        try:
            self._boxes.open(self._ask("prepare", "load").get("handles") or [])
            self._process.freeze_between_requests()
            inbox, outbox = self._boxes.boxes
        except (Failed, ReferenceFailed, RuntimeError, TimedOut, ValueError) as failed:
            self.end()
            raise SandboxFailed(f"a worker cannot be prepared: {failed}") from failed
        self._inbox.attach(inbox)
        self._outputs = OutputReader(self._process.pid, self.device, outbox, self._pieces)

    def load(self, path: str, entry_point: str, names: Mapping[str, Any]) -> None:
        """Import the file and find the entry point in it."""
        answer = self._ask("load", "load", path=path, entry_point=entry_point, names=dict(names))
        self._imported = True
        if answer.get("found") is not True:
            message = f"the file defines no {entry_point}"
            raise Failed("compile_error", "no_entry_point", message)

    def construct(self, seed: int, arguments: list[Any]) -> list[Parameter]:
        """Make the module under a seed and return its parameters and buffers."""
        self._ask("construct", "construct", seed=seed, arguments=self._inbox.put(arguments))
        return read_parameters(lambda start: self._ask("state", "call", start=start))

    def adopt(self, state: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters and buffers by name, in as many messages as the inbox needs."""
        for pieces, values in split_to_write(state, self._inbox.shared_bytes // 2):
            self._ask("adopt", "call", pieces=pieces, values=self._inbox.put(values))

    def current_state(self, wanted: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return parameters and buffers as they are now, in the shapes and types of `wanted`."""
        taken = {name: [tensor.new_empty(0, device="cpu")] for name, tensor in wanted.items()}
        for page in split_to_read(wanted, self._boxes.boxes[1].size_bytes):
            answer = self._ask("current_state", "call", pieces=page)
            values = self._outputs.take(answer.get("values"), "cpu")
            if not are_pieces(values, page):
                message = "the module's state is not described"
                raise Failed("rejected", "malformed_output", message)
            for (name, _, _), value in zip(page, values, strict=True):
                taken[name].append(value.to(wanted[name].dtype))
        return {name: torch.cat(parts).view(wanted[name].shape) for name, parts in taken.items()}

    def reseed(self, seed: int) -> None:
        """Seed the generators of the worker, for modules that draw numbers in a call."""
        self._ask("reseed", "call", seed=seed)

    def poison(self, sizes: list[int]) -> None:
        """Fill freed memory with NaN, in blocks of these sizes in bytes."""
        self._ask("poison", "call", sizes=sizes)

    def prepare_variant(self, name: str, slot: int) -> float:
        """Prepare one way of running a trusted module on a slot's inputs; returns its seconds."""
        self._inbox.write(slot)
        return float(self._ask("variant", "construct", name=name, slot=slot)["seconds"])

    def fill(self, slot: int, inputs: list[Any], *, strided: bool = False) -> None:
        """Replace the inputs of a slot.

        The judge writes them while the worker is frozen, on a GPU right before a call. The worker
        gets a request only for a new layout.
        """
        if strided:
            self._inbox.specs.pop(slot, None)
            self._ask("fill", "call", slot=slot, inputs=self._inbox.put(inputs), strided=True)
            return
        spec = self._inbox.lay_out(slot, inputs)
        if self._inbox.specs.get(slot) != spec:
            self._ask("fill", "call", slot=slot, inputs=spec)
            self._inbox.specs[slot] = spec
        self._inbox.stage(slot, inputs)
        if self.device != "cuda":
            self._inbox.write(slot)

    def call(self, slot: int, *, first: bool = False) -> Any:
        """Call the module on a slot and return its output."""
        self._inbox.write(slot)
        self._pieces.trim()
        answer = self._ask("call", "first_call" if first else "call", slot=slot)
        self._answers, self._taken = [[answer], self._answers[0]], None
        with self._blame_task():
            return self.output(0)

    def output(self, index: int, *, before: bool = False) -> Any:
        """Return an output of the last request, or of the one before it, as it is now.

        The judge reads it from the frozen worker's memory; where the system forbids that, the
        worker copies it. An output that was timed on a GPU is as it was at the end of its call.
        """
        if self._taken is not None and not before:
            return self._taken[index]
        answer: Mapping[str, Any] = self._answers[int(before)][index]
        if not self._outputs.can_read_memory or (before and "boxed" in answer):
            answer = self._ask("output", "call", index=index, before=before)
        return self._outputs.read(answer)

    def inputs(self, slot: int) -> Any:
        """Return the inputs of a slot as they are now."""
        self._inbox.write(slot)
        if slot in self._inbox.specs:
            return self._inbox.read(slot, self.device)
        spec = self._ask("inputs", "call", slot=slot).get("inputs")
        return self._outputs.take(spec, self.device)

    def check_clocks(self) -> None:
        """Raise Failed if the code has replaced a clock of its process."""
        replaced = self._ask("clocks", "call").get("replaced")
        if replaced != []:
            message = f"the code replaces {make_readable(str(replaced))[:200]}"
            raise Failed("rejected", "timer_mismatch", message)

    def prepare_empty(self, slot: int) -> None:
        """Prepare the variant `empty` of a trusted worker, which returns a ready answer."""
        self._inbox.write(slot)
        self._ask("empty", "call", slot=slot)

    def time(
        self,
        slots: list[int],
        variant: str | None = None,
        *,
        cold: bool = False,
        copies: bool = False,
        gated: bool = False,
    ) -> Sample:
        """Time one call of the module, or of a variant of it, per slot, and take the outputs.

        A sample begins before its inputs are written, or on a processor before the worker is
        thawed, and ends when the judge has the answers.

        Args:
            slots: The slots to call it on, in order.
            variant: A prepared way of running a trusted module.
            cold: Flush the caches of a GPU before each call; on a processor the caller does.
            copies: Copy each output before the next call, within the sample.
            gated: On a GPU, launch all calls first and time each while the worker is frozen.
                Raises LaunchBlocked where launching would have to wait for the GPU.
        """
        self._pieces.trim()
        if self.device == "cuda":
            self._inbox.restage(slots, self.device)
        if gated:
            return self._time_behind_gate(slots, variant, cold=cold)
        begin_ns = time.perf_counter_ns()
        for slot in slots:
            self._inbox.write(slot)
        if cold and self._flushed is not None:
            self._flushed.add_(1)
            torch.cuda.synchronize()
        answer = self._ask("time", "call", slots=slots, variant=variant, copies=copies)
        with self._blame_task():
            self._answers, self._taken = [read_outputs(answer, len(slots)), []], None
            if self.device != "cuda":
                return Sample(self._process.wall_ns)
            self._taken = [self._outputs.read(output) for output in self._answers[0]]
        return Sample(time.perf_counter_ns() - begin_ns)

    def _time_behind_gate(self, slots: list[int], variant: str | None, *, cold: bool) -> Sample:
        gate, first = self._boxes.gate, self._calls + 1
        assert gate is not None
        self._calls += len(slots)
        late: list[bool] = []

        def open_gate() -> None:
            late.append(True)
            gate.open_now(self._calls)

        fields = {"slots": slots, "first": first, "variant": variant}
        try:
            answer = self._ask("launch", "call", late=(_LAUNCH_S, open_gate), **fields)
            if late:
                self._ask("settle", "call")
                raise LaunchBlocked
            with self._blame_task():
                self._answers, self._taken = [read_outputs(answer, len(slots)), []], None
                taken = [self._outputs.prepare(output) for output in self._answers[0]]
            rounds = [
                Round(self._inbox.pair_staged(slot), copies)
                for slot, (_, copies) in zip(slots, taken, strict=True)
            ]
            flushed = self._flushed if cold else None
            times = time_rounds(gate, first, rounds, flushed, self.deadlines.call_s)
        except Unfinished:
            self._ask("settle", "call")
            message = f"not done after {self.deadlines.call_s:g} s"
            raise Failed("timeout", "call_timeout", message) from None
        finally:
            gate.open_now(self._calls)
        self._inbox.unstage(slots)
        self._taken = [value for value, _ in taken]
        return Sample(sum(round_time.call_ns for round_time in times), times)

    def outputs_overlap(self) -> bool:
        """Whether outputs of two calls of the last request share memory."""
        return share_memory(self._answers[0])

    def profile(self, slot: int) -> Profile:
        """Return a profile of one call, as the worker reports it."""
        self._inbox.write(slot)
        try:
            return read_profile(self._ask("profile", "first_call", slot=slot))
        except ValueError as error:
            message = f"a profile is no profile: {error}"
            raise Failed("rejected", "malformed_output", message) from error

    def excuse(self, seconds: float) -> None:
        """Do not count time in which the worker waited for the judge."""
        self._requests.excuse(seconds)

    def cpu_ns(self) -> int:
        """Return the processor time that the worker and all it has started have used so far."""
        return self._process.cpu_ns()

    def shares_device(self) -> bool:
        """Whether another process of the worker holds the GPU as well."""
        return self.device == "cuda" and bool(self._process.find_other_holders("/dev/nvidia"))

    def end(self) -> Ended:
        """End the worker; may be called twice."""
        if self._ended is None:
            self._pieces.close()
            self._boxes.close()
            try:
                self._ended = self._process.end()
                # Nothing of the candidate runs any more.
                if self._build is not None and self._imported:
                    self._build.keep()
            finally:
                if self._build is not None:
                    self._build.release()
        return self._ended

    def _ask(self, do: str, stage: Stage, late: Late | None = None, **fields: Any) -> Any:
        with self._blame_task():
            if self._ended is not None:  # a call that only raises flags may have ended it
                raise Failed("crash", "early_exit", "the process has ended before")
            try:
                return self._requests.ask(self._process, do, stage, late, fields)
            except Died as error:
                raise explain_end(self.end()) from error

    @contextlib.contextmanager
    def _blame_task(self) -> Generator[None]:
        """Turn a failure of a trusted worker into one of the task."""
        try:
            yield
        except Failed as failed:
            if self._trusted:
                message = f"the eager baseline failed: {failed.message}"
                raise ReferenceFailed(message) from failed
            raise
