"""One worker process as the judge sees it: requests with answers that have been checked."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Any

import torch

from evaluators.diagnosis.bottleneck import Profile, read_profile
from evaluators.memory.frozen_gpu_memory import Pieces
from evaluators.memory.frozen_memory import Captured, Place
from evaluators.memory.tensors import LaidOut, layout
from evaluators.processes.text import make_readable
from evaluators.references.connection import SizesExceeded
from evaluators.references.task import ReferenceFailed
from evaluators.sandbox.failures import Failed, Stage, explain_end
from evaluators.sandbox.worker_process import (
    Died,
    Ended,
    Late,
    Meanwhile,
    Share,
    TimedOut,
    WorkerProcess,
)
from evaluators.worker.handle.deadlines import Deadlines, TimedRequests
from evaluators.worker.handle.inbox import Inbox
from evaluators.worker.handle.module_state import (
    Parameter,
    Piece,
    are_pieces,
    read_parameters,
    split_pages,
    split_to_read,
    split_to_write,
)
from evaluators.worker.handle.outputs import OutputReader, read_outputs, share_memory
from evaluators.worker.handle.sample import Manner, Sample
from evaluators.worker.handle.sizes import Sizes
from evaluators.worker.handle.started_worker import StartedWorker
from evaluators.worker.handle.timed_calls import Request, TimedCalls
from store.errors import SandboxFailed


class WorkerHandle:
    """One worker with its shared memory.

    Methods raise Failed; those of a trusted worker, which runs the task's own module, raise
    ReferenceFailed, so that a candidate is never blamed for a baseline.
    """

    def __init__(
        self,
        started: StartedWorker,
        sizes: Sizes,
        *,
        deadlines: Deadlines,
        trusted: bool,
        flushed: torch.Tensor | None = None,
        share: Share | None = None,
    ) -> None:
        """Take a process that has been started; `prepare` makes it ready for requests.

        Args:
            started: The process.
            sizes: Sizes of the memory that it shares with the judge.
            deadlines: Its deadlines.
            trusted: Whether it runs the task's own module.
            flushed: Memory of a GPU to write in order to flush its caches.
            share: The device, which other judges may have while this worker compiles, and between
                two of its calls.
        """
        self._started = started
        self._process: WorkerProcess = started.process
        self._sizes = sizes
        self._trusted = trusted
        self.deadlines = deadlines
        self._requests = TimedRequests(deadlines)
        self.device = started.device
        self._share = share
        self.threads = started.threads
        """Number of threads of its loops."""
        self.slots = sizes.slots
        """Number of sets of inputs that it can hold at a time."""
        self.reply_calls = sizes.reply_calls
        """Number of calls whose outputs fit one of its replies."""
        self._inbox = Inbox(sizes, trusted=trusted)
        self._pieces = Pieces(self._process.let_run)
        self._flushed = flushed
        self._ended: Ended | None = None
        self._imported = False
        self._answers: list[list[dict[str, Any]]] = [[], []]
        self._taken: Mapping[int, Any] | None = None
        """Outputs of timed calls that the judge has read."""
        self._places: list[Place] = []
        self._captured: dict[int, Captured] = {}

    def prepare(self) -> None:
        """Wait until the worker has its device. Raises SandboxFailed: no code has run in it yet."""
        boxes, (inbox_bytes, outbox_bytes) = self._started.boxes, self._sizes.boxes
        try:
            answer = self._ask(
                "prepare", "load", inbox_bytes=inbox_bytes, outbox_bytes=outbox_bytes
            )
            boxes.open(answer["handles"], (inbox_bytes, outbox_bytes))
            self._process.freeze_between_requests()
            inbox, outbox = boxes.boxes
        except (Failed, ReferenceFailed, RuntimeError, TimedOut, ValueError) as failed:
            self.end()
            raise SandboxFailed(f"a worker cannot be prepared: {failed}") from failed
        self._inbox.attach(inbox)
        self._outputs = OutputReader(self._process.pid, self.device, outbox, self._pieces)
        self._timed_calls = TimedCalls(
            self._ask,
            self._inbox,
            self._outputs,
            boxes.gate,
            flushed=self._flushed,
            call_s=self.deadlines.call_s,
            read_interval_ns=lambda: (self._process.begin_ns, self._process.end_ns),
            pass_turn=self._process.pass_turn,
            blame_task=self._blame_task,
        )

    def load(self, path: str, entry_point: str, names: Mapping[str, Any]) -> None:
        """Import the file and find the entry point in it."""
        answer = self._ask(
            "load",
            "load",
            share=self._building_share,
            path=path,
            entry_point=entry_point,
            names=dict(names),
        )
        self._imported = True
        if not answer["found"]:
            message = f"the file defines no {entry_point}"
            raise Failed("compile_error", "no_entry_point", message)

    def construct(
        self, seed: int, arguments: list[Any], *, places: bool = False
    ) -> list[Parameter]:
        """Make the module under a seed and return its parameters and buffers.

        places: Whether its calls make tensors on the device where they name none.
        """
        self._ask(
            "construct",
            "construct",
            share=self._building_share,
            seed=seed,
            arguments=self._inbox.put(arguments),
            places=places,
        )
        return read_parameters(lambda start: self._ask("state", "call", start=start))

    @property
    def _building_share(self) -> Share | None:
        """The device while the module is imported and made.

        Trusted workers start beside a candidate, in threads of the judge that hold no lock.
        """
        return None if self._trusted else self._share

    def adopt(self, state: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters and buffers by name, in as many messages as the inbox needs."""
        for pieces, values in split_to_write(state, self._sizes.shared_bytes // 2):
            self._ask("adopt", "call", pieces=pieces, values=self._inbox.put(values, dense=True))

    def current_state(self, wanted: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return parameters and buffers as they are now, in the shapes and types of `wanted`."""
        taken = {name: [tensor.new_empty(0, device="cpu")] for name, tensor in wanted.items()}
        pieces = list(split_to_read(wanted, self._started.boxes.boxes[1].size_bytes))
        for (name, _, _), value in zip(pieces, self.read_pieces(pieces), strict=True):
            taken[name].append(value.to(wanted[name].dtype))
        return {name: torch.cat(parts).view(wanted[name].shape) for name, parts in taken.items()}

    def read_pieces(self, pieces: Iterable[Piece]) -> list[torch.Tensor]:
        """Return pieces of parameters and buffers as they are now."""
        taken: list[torch.Tensor] = []
        for page in split_pages(pieces, self._started.boxes.boxes[1].size_bytes):
            answer = self._ask("current_state", "call", pieces=page)
            values = self._outputs.take(answer["values"], "cpu")
            if not are_pieces(values, page):
                message = "the module's state is not described"
                raise Failed("rejected", "malformed_output", message)
            taken += values
        return taken

    def reseed(self, seed: int) -> None:
        """Seed the generators of the worker, for modules that draw numbers in a call."""
        self._ask("reseed", "call", seed=seed)

    def poison(self, sizes: list[int]) -> None:
        """Fill freed memory with NaN, in blocks of these sizes in bytes."""
        self._ask("poison", "call", sizes=sizes)

    def prepare_variant(self, name: str, slot: int, *, compiles: bool) -> float:
        """Prepare one way of running a trusted module on a slot's inputs; returns its seconds.

        compiles: Whether it mostly compiles, and other judges may time meanwhile.
        """
        self._inbox.write([slot])
        share = self._share if compiles else None
        paused_s = self._process.paused_s
        answer = self._ask("variant", "construct", share=share, name=name, slot=slot)
        return float(answer["seconds"]) - (self._process.paused_s - paused_s)

    def require_room(self, answer: Any) -> None:
        """Raise SizesExceeded where the outbox has no room for an answer.

        Its size may depend on the numbers, and so differ from that of the first answer.
        """
        answer_bytes = layout(answer)[1]
        if answer_bytes > self._sizes.boxes[1]:
            raise SizesExceeded(0, answer_bytes)

    def fill(
        self,
        slot: int,
        inputs: list[Any],
        *,
        known: LaidOut | None = None,
        strided: bool = False,
        copied: bool = False,
    ) -> LaidOut | None:
        """Replace the inputs of a slot. Raises SizesExceeded where there is no room for them.

        The judge writes them while the worker is frozen, right before a call.
        The worker gets a request only for a new layout, and for inputs that it copies.

        known: What this has returned for the same inputs and another worker, which saves time.
        """
        if strided or copied:
            self._inbox.specs.pop(slot, None)
            spec = self._inbox.put(inputs, dense=strided)
            self._ask("fill", "call", slot=slot, inputs=spec, strided=strided, copied=copied)
            return None
        laid_out = self._inbox.lay_out(slot, inputs, known)
        if self._inbox.specs.get(slot) != laid_out.spec:
            self._ask("fill", "call", slot=slot, inputs=laid_out.spec)
            self._inbox.specs[slot] = laid_out.spec
        self._inbox.stage(slot)
        return laid_out

    def call(self, slot: int, *, first: bool = False) -> Any:
        """Call the module on a slot and return its output."""
        self._inbox.write([slot])
        self._pieces.trim()
        stage: Stage = "first_call" if first else "call"
        answer = self._ask("call", stage, share=self._share if first else None, slot=slot)
        self._answers, self._taken, self._places = [[answer], self._answers[0]], None, []
        with self._blame_task():
            return self.output(0)

    def output(self, index: int, *, before: bool = False) -> Any:
        """Return an output of the last request, or of the one before it, as it is now.

        The judge reads it from the frozen worker's memory; where the system forbids that, the
        worker copies it. An output that was timed on a GPU is as it was at the end of its call.
        """
        if self._places and not before:
            return self.timed_outputs([index])[0][0]
        if self._taken is not None and not before:
            return self._taken[index]
        answer: Mapping[str, Any] = self._answers[int(before)][index]
        if not self._outputs.can_read_memory or (before and "boxed" in answer):
            answer = self._ask("output", "call", index=index, before=before)
        return self._outputs.read(answer)

    def capture_outputs(self, calls: Sequence[int]) -> None:
        """Read outputs of timed calls from the memory that the worker has named within their time.

        To be called before the next request: what the worker does in it is then of no effect.
        """
        if self.device == "cuda":
            if self._taken is None:
                with self._blame_task():
                    values = self._outputs.read_all([self._answers[0][call] for call in calls])
                self._taken = dict(zip(calls, values, strict=True))
        elif self._outputs.can_read_memory:
            places = {call: self._places[call] for call in calls if self._places}
            self._captured = {call: self._outputs.capture(at) for call, at in places.items()}

    def timed_outputs(self, calls: Sequence[int]) -> list[tuple[Any, bool]]:
        """Return outputs of timed calls, and whether each consists of what has been captured."""
        if self._taken is not None:
            return [(self._taken[call], True) for call in calls]
        if not self._outputs.can_read_memory:
            ask = functools.partial(self._ask, "output", "call", before=False)
            return [(self._outputs.read(ask(index=call)), True) for call in calls]
        captured = [self._captured.get(call) for call in calls]
        with self._blame_task():
            answers = self._describe(calls)
            return list(map(self._outputs.read_captured, answers, captured))

    def _describe(self, calls: Sequence[int]) -> list[dict[str, Any]]:
        return read_outputs(self._ask("describe", "call", calls=list(calls)), len(calls))

    def inputs(self, slot: int) -> Any:
        """Return the inputs of a slot as they are now."""
        self._inbox.write([slot])
        if slot in self._inbox.specs:
            return self._inbox.read(slot, self.device)
        answer = self._ask("inputs", "call", slot=slot)
        return self._outputs.take(answer["inputs"], self.device)

    def check_clocks(self) -> None:
        """Raise Failed if the code has replaced a clock of its process."""
        replaced = self._ask("clocks", "call")["replaced"]
        if replaced:
            message = f"the code replaces {make_readable(', '.join(replaced))[:200]}"
            raise Failed("rejected", "timer_mismatch", message)

    def prepare_empty(self, slot: int, *, launches: bool = False) -> None:
        """Prepare the variant `empty` of a trusted worker, which returns a ready answer.

        launches: Whether it launches a kernel that does nothing.
        """
        self._inbox.write([slot])
        self._ask("empty", "call", slot=slot, launches=launches)

    def time_empty(self, calls: int, *, alone: bool) -> int:
        """Return the nanoseconds of calls of `empty` by the clock of a trusted worker itself.

        alone: Wait for the GPU after each call.
        """
        return int(self._ask("time_empty", "call", calls=calls, alone=alone)["taken_ns"])

    def time(
        self,
        slots: list[int],
        variant: str | None = None,
        *,
        cold: bool = False,
        copies: bool = False,
        manner: Manner = "end_to_end",
        describes: bool = True,
    ) -> Sample:
        """Time one call of the module, or of a variant of it, per slot, and keep the outputs.

        Args:
            slots: The slots to call it on, in order.
            variant: A prepared way of running a trusted module.
            cold: Flush the caches of a GPU before each call; those of a processor before the first,
                and make each call alone.
            copies: Copy each output before the next call, within the sample.
            manner: How to time it (`TimedCalls`).
            describes: Whether the outputs of a burst on a GPU can be checked (`Request`).
        """
        self._pieces.trim()
        self.release_outputs()  # this sample's outputs can take their memory
        self._inbox.restage(slots, self.device)
        sample, self._answers, self._taken, self._places = self._timed_calls.time(
            Request(slots, variant, cold=cold, copies=copies, describes=describes), manner
        )
        self._captured = {}
        self._inbox.note_timed(slots)
        return sample

    def release_outputs(self) -> None:
        """Free the judge's copies of the last outputs; `output` then reads the worker's memory."""
        self._taken = None

    def outputs_overlap(self) -> bool:
        """Whether outputs of two calls of the last request share memory."""
        count = len(self._places)
        return share_memory(self._describe(range(count)) if count else self._answers[0])

    def profile(self, slot: int) -> Profile:
        """Return a profile of one call, as the worker reports it."""
        self._inbox.write([slot])
        return read_profile(self._ask("profile", "first_call", slot=slot))

    def step_aside(self) -> float:
        """Let another judge that wants the device have it now; return the seconds of that."""
        if self._share is None or not self._share.is_wanted():
            return 0.0
        aside_s = self._share.step_aside()
        self.excuse(aside_s)
        return aside_s

    def excuse(self, seconds: float) -> None:
        """Do not count time in which the worker waited for the judge."""
        self._requests.excuse(seconds)

    def cpu_ns(self) -> int:
        """Return the processor time that the worker and all it has started have used so far."""
        return self._process.cpu_ns()

    def running_ns(self) -> int:
        """Return the time in which a worker on a processor has not been frozen so far."""
        return self._process.running_ns

    def pin(self, cores: Collection[int]) -> bool:
        """Let every thread of the worker run on these cores only; whether that was possible."""
        return self._process.pin(cores)

    def is_pinned(self, cores: Collection[int]) -> bool:
        """Whether every thread of the worker runs on these cores only."""
        return self._process.list_cores() == {*cores}

    def shares_device(self) -> bool:
        """Whether another process of the worker holds the GPU as well."""
        return self.device == "cuda" and bool(self._process.find_other_holders("/dev/nvidia"))

    def end(self) -> Ended:
        """End the worker; may be called twice."""
        if self._ended is None:
            self._pieces.close()
            self._ended = self._started.end(keeps_build=self._imported)
        return self._ended

    def _ask(
        self,
        do: str,
        stage: Stage,
        late: Late | None = None,
        meanwhile: Meanwhile | None = None,
        share: Share | None = None,
        **fields: Any,
    ) -> Any:
        with self._blame_task():
            if self._ended is not None:  # a call that only raises flags may have ended it
                raise Failed("crash", "early_exit", "the process has ended before")
            with self._inbox.expose(fields):
                try:
                    return self._requests.ask(
                        self._process, do, stage, late, meanwhile, share, fields
                    )
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
