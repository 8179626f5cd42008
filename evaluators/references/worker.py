"""The loop of a task's worker: the task's text runs here, behind the walls of every worker.

It answers the judge's requests by JSON packets and shared memory. Nothing it says is believed
unchecked, and all that it can make wrong are verdicts of its own task.
"""

from __future__ import annotations

import contextlib
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from evaluators.device.roofline import count_work
from evaluators.memory.boxes import MappedBox, OwnedBox, Side, place_of
from evaluators.memory.tensors import layout
from evaluators.processes import messages
from evaluators.references.module import TaskFailed, TaskModule

_PAGE_ENTRIES = 256
_PAGE_BYTES = 1 << 30
_PAGE_NAMES = 1 << 16
_TEXT_LIMIT = 4000
_CACHE_BYTES = 2 << 30
"""GPU memory that may lie unused in this process while the candidate's works."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a task's worker is told when it starts."""

    device: str
    threads: int


class TaskWorker:
    """One task; every public method answers one request."""

    def __init__(self, setting: Setting, files: dict[Side, int]) -> None:
        self._setting = setting
        self._files = files
        self._boxes: dict[tuple[Side, str], MappedBox | OwnedBox] = {}
        self._task: TaskModule | None = None
        self._waiting: Any = None

    def box(self, side: Side, place: str, size: int) -> dict[str, Any]:
        """Exchange a box for one of another size, or for none where the size is 0."""
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
        """Run the task's text and make its module; gives the constructor's arguments."""
        torch.set_num_threads(self._setting.threads)
        if self._setting.device == "cuda":
            torch.backends.cudnn.allow_tf32 = False
            torch.backends.cuda.matmul.allow_tf32 = False
        code = Path(path).read_text("utf-8", errors="surrogateescape")
        self._task = TaskModule(code, axes, self._setting.device)
        return self._give(self._task.arguments)

    def reset(self) -> dict[str, Any]:
        """Forget every call and every weight loaded."""
        self._own.reset()
        return {}

    def inputs(self, seed: int) -> dict[str, Any]:
        """Draw inputs."""
        return self._give(self._own.inputs(seed))

    def answer(self, place: str, inputs: dict[str, Any], seed: int) -> dict[str, Any]:
        """Answer inputs, in the task's own precision and in double precision."""
        task = self._own
        given = self._boxes["inbox", place].box.get(inputs, self._setting.device)
        answer = self._give([*task.answer(given, seed)])
        return {**answer, "draws": task.draws, "mutates": task.mutates}

    def choices(self, place: str, inputs: dict[str, Any], seed: int) -> dict[str, Any]:
        """Say what a call chooses indices by: the fields of every `Choice`."""
        given = self._boxes["inbox", place].box.get(inputs, self._setting.device)
        found = self._own.choices(given, seed)
        return self._give([[c.places, c.values, c.dim, c.ordered, c.exact] for c in found])

    def state(self, start: int, now: bool) -> dict[str, Any]:
        """A page of parameters and buffers: name, whether a parameter, and whose memory it is."""
        held = self._own.state(now=now)
        parameters = self._own.parameters()
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
            [name, name in parameters, first[at]] for at, name in enumerate(page, start=start)
        ]
        return {**self._give([held[name] for name in page]), "page": entries, "total": len(names)}

    def adopt(self, place: str, names: list[str], values: dict[str, Any]) -> dict[str, Any]:
        """Overwrite parameters and buffers by name until the next reset."""
        given = self._boxes["inbox", place].box.get(values)
        self._own.load(dict(zip(names, given, strict=True)))
        return {}

    def count(self, seeds: list[int]) -> dict[str, Any]:
        """Count what a call has to do, given two draws of inputs; see `_roofline.count`."""
        task = self._own
        one, other = (task.inputs(seed) for seed in seeds)
        with torch.enable_grad():
            found = count_work(task.module(), one, other)
        return vars(found)

    def fetch(self) -> dict[str, Any]:
        """Give once more what did not fit."""
        return self._give(self._waiting)

    @property
    def _own(self) -> TaskModule:
        if self._task is None:
            raise ValueError("no task is loaded")
        return self._task

    def _give(self, value: Any) -> dict[str, Any]:
        """Put a value into the outbox; where that is too small, keep it and say what it needs."""
        place = place_of(value, self._setting.device)
        needed = layout(value)[1]
        held = self._boxes.get(("outbox", place))
        if held is None or held.box.size_bytes < needed:
            self._waiting = value
            return {"place": place, "needs": needed}
        self._waiting = None
        spec = held.box.put(value)
        del value
        self._trim()
        return {"place": place, "spec": spec}

    def _trim(self) -> None:
        if self._setting.device == "cuda":
            unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
            if unused > _CACHE_BYTES:
                torch.cuda.empty_cache()


_OPERATIONS = {n: each for n, each in vars(TaskWorker).items() if not n.startswith("_")}


def serve(channel: socket.socket, setting: Setting, inbox_fd: int, outbox_fd: int) -> None:
    """Answer requests until the judge closes the channel."""
    worker = TaskWorker(setting, {"inbox": inbox_fd, "outbox": outbox_fd})
    while True:
        try:
            request = messages.receive(channel)
        except messages.Closed:
            return
        number, operation = request.pop("number"), request.pop("do")
        try:
            reply = _OPERATIONS[operation](worker, **request)
        except Exception as error:
            reply = {"error": _described(error), "lost": _is_lost(setting.device)}
        messages.send(channel, {"number": number, **reply})


def _is_lost(device: str) -> bool:
    """Whether an error has broken the GPU's context, in which nothing can run any more."""
    if device != "cuda":
        return False
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def _described(error: Exception) -> str:
    """What is said of an error, which may fail even at telling what it is."""
    text = type(error).__name__
    with contextlib.suppress(Exception):
        text = str(error) if isinstance(error, TaskFailed) else f"{text}: {error}"
    return text[:_TEXT_LIMIT]
