"""The loop of a task's worker, which runs the task's code behind the walls of every worker.

It answers the judge's requests by JSON packets and shared memory. The judge checks every answer; a
forged one can only falsify verdicts of its own task.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from typing import Any

import torch

from evaluators.device.roofline import count_work
from evaluators.limits.kinds import refuse_limit
from evaluators.memory.cuda_driver import release_unused_memory
from evaluators.memory.tensors import (
    MappedBox,
    OwnedBox,
    Side,
    find_place,
    get_dtype_name,
    is_inexact,
    lay_out,
    tensors_of,
)
from evaluators.processes import messages
from evaluators.references.module import TaskFailed, TaskModule

_PAGE_ENTRIES = 256
_PAGE_BYTES = 1 << 30
_PAGE_NAMES = 1 << 16
_TEXT_LIMIT = 4000


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of a task's worker, as the judge sends them at its start."""

    device: str
    threads: int
    convolution_tf32: bool
    """Use TF32 in convolutions on a GPU, as PyTorch does by default."""


class TaskLoop:
    """One task; every public method answers one request."""

    def __init__(self, setting: Setting, files: dict[Side, int]) -> None:
        self._setting = setting
        self._files = files
        self._boxes: dict[tuple[Side, str], MappedBox | OwnedBox] = {}
        self._task: TaskModule | None = None
        self._waiting: Any = None
        """A value that did not fit, and whether it is dense."""

    def box(self, side: Side, place: str, size: int) -> dict[str, Any]:
        """Replace a box by one of another size, or remove it where the size is 0."""
        held = self._boxes.pop((side, place), None)
        if isinstance(held, OwnedBox):
            held.close()
        if not size:
            return {}
        if place == "cpu":
            self._boxes[side, place] = MappedBox(self._files[side], size)
            return {}
        torch.cuda.empty_cache()
        made = OwnedBox(size)
        self._boxes[side, place] = made
        return {"handle": made.handle}

    def load(self, path: str, axes: dict[str, Any]) -> dict[str, Any]:
        """Run the task's code and make its module; returns the constructor's arguments."""
        torch.set_num_threads(self._setting.threads)
        if self._setting.device == "cuda":
            torch.backends.cudnn.allow_tf32 = self._setting.convolution_tf32
            torch.backends.cuda.matmul.allow_tf32 = False
        self._task = TaskModule(path, axes, self._setting.device)
        return self._give(self._task.arguments, dense=False)

    def reset(self) -> dict[str, Any]:
        """Forget every call and every weight loaded."""
        self._loaded.reset()
        return {}

    def inputs(self, seed: int) -> dict[str, Any]:
        """Draw inputs."""
        return self._give(self._loaded.inputs(seed), dense=False)

    def input_sets(self, seeds: list[int]) -> dict[str, Any]:
        """Draw several sets of inputs."""
        return self._give([self._loaded.inputs(seed) for seed in seeds], dense=False)

    def value(self, place: str, inputs: dict[str, Any], seed: int) -> dict[str, Any]:
        """Answer inputs in the task's own precision."""
        given = self._take(place, inputs)
        return self._give([self._loaded.value(given, seed)])

    def answer(self, place: str, inputs: dict[str, Any], seed: int) -> dict[str, Any]:
        """Answer inputs, in the task's own precision and in double precision."""
        task = self._loaded
        given = self._take(place, inputs)
        answer = self._give([*task.answer(given, seed)])
        return {
            **answer,
            "draws": task.draws,
            "changed": task.changed,
            "keeps": task.keeps_inputs,
            "places": task.places_tensors,
        }

    def rules(self) -> dict[str, Any]:
        """Return the task's own rules; see `references.task`."""
        return self._loaded.rules()

    def check(self, place: str, values: dict[str, Any]) -> dict[str, Any]:
        """Ask the task's own checker whether an output is right: values are inputs and output."""
        inputs, output = self._take(place, values)
        accepted, text = self._loaded.check(inputs, output)
        return {"accepted": accepted, "text": text[:_TEXT_LIMIT]}

    def count_bytes(self, seed: int) -> dict[str, Any]:
        """Return the bytes of inputs and answer, as far as they can be told without a call."""
        return {"bytes": self._loaded.count_bytes(seed)}

    def sizes(self) -> dict[str, Any]:
        """Return the numbers of the task's text that set dimensions of inputs."""
        return {"sizes": [list(size) for size in self._loaded.sizes()]}

    def try_axes(self, axes: dict[str, Any], seed: int) -> dict[str, Any]:
        """Call the task's module at other sizes; return what its inputs and its answer are."""
        inputs, value = self._loaded.try_axes(axes, seed)
        answers = list(tensors_of(value))
        floating = (answer for answer in answers if is_inexact(answer.dtype))
        reply = {
            "inputs": [[get_dtype_name(t.dtype), list(t.shape)] for t in tensors_of(inputs)],
            "answers": [[get_dtype_name(t.dtype), list(t.shape)] for t in answers],
            "finite": all(bool(answer.isfinite().all()) for answer in floating),
        }
        del inputs, value, answers
        if self._setting.device == "cuda":
            release_unused_memory()
        return reply

    def depends_on_tf32(self, seed: int) -> dict[str, Any]:
        """Return whether the flag for TF32 in convolutions changes an answer."""
        return {"depends": self._loaded.depends_on_tf32(seed)}

    def shows_only_in_evaluation(self, names: list[str], seed: int) -> dict[str, Any]:
        """Return whether the present values of buffers show in evaluation mode alone."""
        return {"shows": self._loaded.shows_only_in_evaluation(names, seed)}

    def algorithms(
        self, place: str, inputs: dict[str, Any], seed: int, policy: str, limits: dict[str, float]
    ) -> dict[str, Any]:
        """Return the largest errors of the algorithms that a policy allows; see `EagerError`."""
        given = self._take(place, inputs)
        found = self._loaded.measure_algorithms(given, seed, policy, limits)
        if self._setting.device == "cuda":
            release_unused_memory()
        rows = [e and [e.scaled, list(e.shares), e.relative] for e in found.largest]
        return {"errors": rows, "rounds": found.rounds, "differ": found.differ}

    def steps(
        self, place: str, inputs: dict[str, Any], seed: int, limits: dict[str, float]
    ) -> dict[str, Any]:
        """Return how much another step changes an answer, and whether the task rounds at all."""
        given = self._take(place, inputs)
        changes, rounds = self._loaded.steps(given, seed, limits)
        return {**self._give(changes), "rounds": rounds}

    def choices(self, place: str, inputs: dict[str, Any], seed: int) -> dict[str, Any]:
        """Return the choices of indices in a call, each as the fields of `Choice`."""
        given = self._take(place, inputs)
        found = self._loaded.choices(given, seed)
        return self._give([[c.places, c.values, c.dim, c.ordered, c.exact] for c in found])

    def state(self, start: int, now: bool) -> dict[str, Any]:
        """Return a page of the state: name, whether it is a parameter, owner of the memory."""
        held = self._loaded.state(now=now)
        names = list(held)
        owners: dict[int, int] = {}
        first = [owners.setdefault(value.data_ptr(), at) for at, value in enumerate(held.values())]
        page: list[str] = []
        size = 0
        for name in names[start : start + _PAGE_ENTRIES]:
            page.append(name)
            size += held[name].nbytes
            if size > _PAGE_BYTES or sum(map(len, page)) > _PAGE_NAMES:
                break
        entries = [
            [name, name in self._loaded.parameters, first[at]]
            for at, name in enumerate(page, start=start)
        ]
        return {**self._give([held[name] for name in page]), "page": entries, "total": len(names)}

    def adopt(self, place: str, names: list[str], values: dict[str, Any]) -> dict[str, Any]:
        """Overwrite parameters and buffers by name until the next reset."""
        given = self._boxes["inbox", place].get(values)
        self._loaded.load(dict(zip(names, given, strict=True)))
        return {}

    def count(self, seeds: list[int]) -> dict[str, Any]:
        """Count the least work of a call, on two draws of inputs; see `device.roofline.count`."""
        task = self._loaded
        one, other = (task.inputs(seed) for seed in seeds)
        with torch.enable_grad():
            found = count_work(task.module(), one, other)
        return vars(found)

    def fetch(self) -> dict[str, Any]:
        """Return the value that did not fit before."""
        return self._give(*self._waiting)

    @property
    def _loaded(self) -> TaskModule:
        if self._task is None:
            raise ValueError("no task is loaded")
        return self._task

    def _take(self, place: str, spec: dict[str, Any]) -> Any:
        return self._boxes["inbox", place].get(spec, self._setting.device)

    def _give(self, value: Any, dense: bool = True) -> dict[str, Any]:
        """Put a value into the outbox, or keep it and report the bytes that it needs.

        dense: Without the memory around the tensors, for values that no kernel is called on.
        """
        place = find_place(value, self._setting.device)
        needed = lay_out(value, dense=dense).end
        held = self._boxes.get(("outbox", place))
        if held is None or held.size_bytes < needed:
            self._waiting = value, dense
            return {"place": place, "needs": needed}
        self._waiting = None
        spec = held.put(value, dense=dense)
        del value
        if self._setting.device == "cuda":
            release_unused_memory()
        return {"place": place, "spec": spec}


_OPERATIONS = {n: each for n, each in vars(TaskLoop).items() if not n.startswith("_")}


def serve(channel: socket.socket, setting: Setting, inbox_fd: int, outbox_fd: int) -> None:
    """Answer requests until the judge closes the channel."""
    worker = TaskLoop(setting, {"inbox": inbox_fd, "outbox": outbox_fd})
    while True:
        try:
            request = messages.receive(channel)
        except messages.Closed:
            return
        number, operation = request.pop("number"), request.pop("do")
        try:
            reply: dict[str, Any] = _OPERATIONS[operation](worker, **request)
        except Exception as error:
            reply = {"error": _describe_error(error), "lost": False}
            if setting.device == "cuda":
                try:
                    torch.cuda.synchronize()
                except RuntimeError:  # the GPU's context is broken: nothing can run in it
                    reply["lost"] = True
        try:
            messages.send(channel, {"number": number, **reply})
        except ValueError as error:
            detail = f"too many inputs or outputs: {error}"
            error = TaskFailed(refuse_limit("value_count", detail))
            messages.send(channel, {"number": number, "error": _describe_error(error)})


def _describe_error(error: Exception) -> str:
    """Return an error's text; even reading that may fail."""
    text = type(error).__name__
    with contextlib.suppress(Exception):
        text = str(error) if isinstance(error, TaskFailed) else f"{text}: {error}"
    return text[:_TEXT_LIMIT]
