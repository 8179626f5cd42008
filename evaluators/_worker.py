"""The loop inside a worker process: build a module, take inputs, call it, return its outputs.

The same loop runs the candidate (untrusted) and the eager baseline (trusted), so that both arms of
a timing session go through the same code. It states no verdict: it returns output bytes and clock
readings, and the judge decides. Whatever is captured at import time is captured before any code of
a candidate has run.
"""

from __future__ import annotations

import importlib.util
import itertools
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import torch

from evaluators import _channel
from evaluators._tensors import Box, BoxFull, layout, tensors_of

_TEXT_LIMIT = 6000
# Functions that tell or order time; a candidate that replaces one means to be measured wrongly.
_CLOCKS = (
    (time, "time"),
    (time, "perf_counter"),
    (time, "perf_counter_ns"),
    (time, "monotonic"),
    (time, "monotonic_ns"),
    (torch.cuda, "synchronize"),
    (torch.cuda.Event, "record"),
    (torch.cuda.Event, "elapsed_time"),
)
_GENUINE = [getattr(owner, name) for owner, name in _CLOCKS]
_MODULE_NAME = "candidate"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a worker is told when it starts."""

    device: str
    threads: int
    flush_bytes: int
    inbox_bytes: int
    outbox_bytes: int


class Worker:
    """One module under test with its inputs; every public method answers one request."""

    def __init__(self, setting: Setting, inbox: Box, outbox: Box) -> None:
        torch.set_num_threads(setting.threads)
        self._device = setting.device
        self._inbox = inbox
        self._outbox = outbox
        self._module: Any = None
        self._entry: Any = None
        self._slots: dict[int, Any] = {}
        self._outputs: list[Any] = []
        self._synchronize: Callable[[], None] = lambda: None
        self._event: Any = None
        if setting.device == "cuda":
            torch.backends.cudnn.allow_tf32 = False
            self._synchronize = torch.cuda.synchronize
            self._event = torch.cuda.Event
        words = setting.flush_bytes // 4
        self._flushed = torch.zeros(words, dtype=torch.int32, device=self._device)

    def load(self, path: str, entry_point: str, names: dict[str, Any]) -> dict[str, Any]:
        """Run a file as a module; `names` replace module-level names afterwards."""
        spec = importlib.util.spec_from_file_location(_MODULE_NAME, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[_MODULE_NAME] = module
        spec.loader.exec_module(module)
        vars(module).update(names)
        self._entry = getattr(module, entry_point, None)
        return {"found": self._entry is not None}

    def construct(self, seed: int, arguments: dict[str, Any]) -> dict[str, Any]:
        """Make the module under a public seed, by which a candidate matches the weights."""
        arguments_read = self._inbox.get(arguments)
        torch.manual_seed(seed)
        module = self._entry(*arguments_read)
        self._module = module.to(self._device) if isinstance(module, torch.nn.Module) else module
        return {}

    def fill(self, slot: int, inputs: dict[str, Any]) -> dict[str, Any]:
        """Put inputs into a slot; the same storage is used again where the layout is the same.

        A refill goes through `.data`, so that neither address nor version counter betrays it.
        """
        held = self._slots.get(slot)
        if held is not None and layout(held)[0] == inputs:
            for tensor, view in zip(tensors_of(held), self._inbox.views(inputs), strict=True):
                tensor.data.copy_(view)
        else:
            self._slots[slot] = self._inbox.get(inputs, self._device)
        self._synchronize()
        return {}

    def call(self, slot: int) -> dict[str, Any]:
        """Call the module on a slot and return what it gave."""
        output = self._module(*self._slots[slot])
        self._synchronize()
        self._outputs = [output, *self._outputs[:1]]
        return self.output(0)

    def output(self, back: int) -> dict[str, Any]:
        """Return an output again: the last one (0) or the one before it (1)."""
        value = self._outputs[back]
        odd = _odd(value)
        if odd is not None:
            return {"odd": odd}
        devices = sorted({t.device.type for t in tensors_of(value)})
        try:
            return {"output": self._outbox.put(value), "devices": devices}
        except BoxFull:
            return {"output": layout(value)[0], "devices": devices, "full": True}

    def inputs(self, slot: int) -> dict[str, Any]:
        """Return the inputs as they are after the calls."""
        return {"inputs": self._outbox.put(self._slots[slot])}

    def flush(self) -> dict[str, Any]:
        """Push everything out of the caches."""
        self._flushed.add_(1)
        self._synchronize()
        return {}

    def clocks(self) -> dict[str, Any]:
        """Name a clock that has been replaced since this file was imported."""
        now = [getattr(owner, name) for owner, name in _CLOCKS]
        pairs = zip(_CLOCKS, now, _GENUINE, strict=True)
        replaced = [f"{owner.__name__}.{name}" for (owner, name), a, b in pairs if a is not b]
        return {"replaced": replaced}

    def time(self, slots: list[int]) -> dict[str, Any]:
        """Call the module once per slot named; returns nanoseconds for all of them together."""
        calls = [self._slots[slot] for slot in slots]
        module, output = self._module, None
        self._synchronize()
        if self._event is None:
            begin = perf_counter_ns()
            for inputs in calls:
                output = module(*inputs)
            elapsed_ns = perf_counter_ns() - begin
        else:
            start, end = self._event(enable_timing=True), self._event(enable_timing=True)
            start.record()
            for inputs in calls:
                output = module(*inputs)
            end.record()
            self._synchronize()
            elapsed_ns = round(start.elapsed_time(end) * 1e6)
        self._outputs = [output, *self._outputs[:1]]
        return {"elapsed_ns": elapsed_ns, "odd": _odd(output)}


def serve(channel: socket.socket, setting: Setting, inbox_fd: int, outbox_fd: int) -> None:
    """Answer requests until the judge closes the channel."""
    worker: Any = None
    operations = {
        "load",
        "construct",
        "fill",
        "call",
        "output",
        "inputs",
        "flush",
        "time",
        "clocks",
    }
    with torch.no_grad():
        while True:
            try:
                request = _channel.receive(channel)
            except _channel.Closed:
                return
            number, operation = request.pop("number"), request.pop("do")
            try:
                if operation == "prepare":
                    inbox = Box(inbox_fd, setting.inbox_bytes)
                    worker = Worker(setting, inbox, Box(outbox_fd, setting.outbox_bytes))
                    _channel.send(channel, {"number": number})
                    continue
                if operation not in operations:
                    raise ValueError(operation)
                reply = getattr(worker, operation)(**request)
            except Exception as error:
                reply = {"error": _described(error)}
            _channel.send(channel, {"number": number, **reply})


def _odd(value: Any) -> dict[str, Any] | None:
    """What in an output is no plain tensor: its type's name, or None when all is well."""
    if type(value) is torch.Tensor or isinstance(value, bool | int | float) or value is None:
        return None
    if isinstance(value, list | tuple):
        return next((odd for odd in map(_odd, value) if odd is not None), None)
    lazy = isinstance(value, torch.Tensor) and not isinstance(value, torch.nn.Parameter)
    return {"type": type(value).__name__[:80], "lazy": lazy}


def _described(error: BaseException) -> dict[str, Any]:
    """Types and text of an error and its causes. An error may fail even at telling what it is."""
    types: list[str] = []
    cause: BaseException | None = error
    while cause is not None and len(types) < 8:
        types.extend(kind.__name__[:80] for kind in itertools.islice(type(cause).__mro__, 4))
        cause = cause.__cause__ or cause.__context__
    try:
        text = str(error)[:_TEXT_LIMIT]
    except Exception:
        text = "(its text cannot be read)"
    try:
        trace = "".join(traceback.format_exception(error))[-_TEXT_LIMIT:]
    except Exception:
        trace = ""
    return {"type": type(error).__name__[:80], "types": types, "text": text, "trace": trace}
