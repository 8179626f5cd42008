"""Reads a worker's outputs at the places that the worker names."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from evaluators.memory.frozen_memory import (
    Captured,
    Pieces,
    Place,
    TensorEntry,
    Uncaptured,
    Unreadable,
    build_read_value,
    can_read_memory,
    capture,
    list_memory_spans,
    read_entries,
    read_value,
)
from evaluators.memory.tensors import Box, mark_pending, read_pending
from evaluators.memory.values import map_tensors, tensors_of
from evaluators.processes.messages import Malformed
from evaluators.processes.text import make_readable
from evaluators.sandbox.failures import Failed


class OutputReader:
    """Reads the outputs of one frozen worker. Raises Failed for answers of another form.

    An output that is larger than the outbox comes without its data, on the device `meta`.
    """

    def __init__(self, pid: int, device: str, outbox: Box, pieces: Pieces) -> None:
        self._pid = pid
        self._device = device
        self._outbox = outbox
        self._pieces = pieces
        self._limit_bytes = outbox.size_bytes
        self._layouts: list[TensorEntry] = []
        """Tensors of the last described output."""

    @functools.cached_property
    def can_read_memory(self) -> bool:
        """Whether the judge can read the worker's memory itself."""
        return self._device == "cuda" or can_read_memory(self._pid)

    def read(self, answer: Mapping[str, Any]) -> Any:
        """Return an output as it is now."""
        return self.read_all([answer])[0]

    def read_all(self, answers: Sequence[Mapping[str, Any]]) -> list[Any]:
        """Return outputs as they are now."""
        values: list[Any] = []
        for answer in answers:
            self._refuse_misplaced(answer)
            if self._device == "cuda":
                values.append(map_tensors(self._view(answer), _copy_tensor))
            elif "boxed" in answer:
                values.append(self.take(answer["boxed"], self._device))
            else:
                limit_bytes = self._limit_bytes if self.can_read_memory else -1
                spec = answer["output"]
                self._layouts = read_entries(spec)
                read = functools.partial(read_value, self._pid, spec, limit_bytes)
                values.append(_refuse_malformed(read))
        if self._device == "cuda":
            torch.cuda.synchronize()
        return values

    def capture(self, place: Place) -> Captured:
        """Read the memory of an output that a worker on a processor has not described yet."""
        return capture(self._pid, place, self._layouts, self._limit_bytes)

    def read_captured(
        self, answer: Mapping[str, Any], captured: Captured | None
    ) -> tuple[Any, bool]:
        """Return a described output, and whether it consists of what has been captured."""
        self._refuse_misplaced(answer)
        if captured is not None:
            with contextlib.suppress(Uncaptured):
                build = functools.partial(captured.build_value, answer["output"], self._limit_bytes)
                return _refuse_malformed(build), True
        return self.read(answer), False

    def prepare(
        self, answer: Mapping[str, Any]
    ) -> tuple[Any, list[tuple[torch.Tensor, torch.Tensor]]]:
        """Return an output without its data, and what to copy into it once the data is there."""
        self._refuse_misplaced(answer)
        views: list[torch.Tensor] = []

        def allocate(view: torch.Tensor) -> torch.Tensor:
            if view.is_meta:
                return view
            views.append(view)
            return _allocate_like(view)

        value = map_tensors(self._view(answer), allocate)
        ours = [tensor for tensor in tensors_of(value) if not tensor.is_meta]
        return value, list(zip(ours, views, strict=True))

    def take(self, spec: Any, device: str) -> Any:
        """Return a value that the worker has put into its outbox."""
        return _refuse_malformed(lambda: self._outbox.get(spec, device))

    def _view(self, answer: Mapping[str, Any]) -> Any:
        """Return an output in GPU memory, its tensors in the worker's own memory."""

        def build() -> Any:
            if "boxed" in answer:
                return self._outbox.view(answer["boxed"])
            self._pieces.open(answer.get("pieces", []))
            return build_read_value(answer["output"], self._pieces.view, self._limit_bytes)

        return _refuse_malformed(build)

    def _refuse_misplaced(self, answer: Mapping[str, Any]) -> None:
        _refuse_odd(answer)
        wrong = [name for name in answer["devices"] if name != self._device]
        if wrong:
            raise Failed("incorrect", "incorrect_device", f"an output is on {wrong[0][:20]}")


def _refuse_odd(answer: Mapping[str, Any]) -> None:
    """Raise Failed where an output is no plain tensor, container or value."""
    odd = answer.get("odd")
    if odd is None:
        return
    name = make_readable(odd["type"][:80])
    if odd["lazy"]:
        message = f"an output is a {name}, which may compute later"
        raise Failed("rejected", "lazy_output", message)
    raise Failed("incorrect", "incorrect_type", f"an output is a {name}")


def read_outputs(answer: Mapping[str, Any], calls: int) -> list[Any]:
    """Return the descriptions of a sample's outputs, one per call. Raises Failed."""
    outputs = answer["outputs"]
    if len(outputs) != calls:
        message = f"{len(outputs)} outputs of {calls} calls are described"
        raise Failed("rejected", "malformed_output", message)
    for output in outputs:
        _refuse_odd(output)
    return outputs


def read_places(answer: Mapping[str, Any], calls: int) -> list[Place]:
    """Return the places of a sample's outputs, one per call. Raises Failed."""
    if len(answer["places"]) != calls:
        message = f"{len(answer['places'])} outputs of {calls} calls have places"
        raise Failed("rejected", "malformed_output", message)
    return answer["places"]


def share_memory(answers: Sequence[Mapping[str, Any]]) -> bool:
    """Whether outputs of two calls share memory."""
    spans_by_call = [list_memory_spans(answer["output"]) for answer in answers]
    end, owner = 0, -1
    for first, past, call in sorted(
        (*span, call) for call, spans in enumerate(spans_by_call) for span in spans
    ):
        if first < end and call != owner:
            return True
        if past > end:
            end, owner = past, call
    return False


def _refuse_malformed(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Malformed as error:
        raise Failed("rejected", "malformed_output", str(error)) from error
    except Unreadable as error:
        message = f"an output is in memory that cannot be read: {error}"
        raise Failed("rejected", "lazy_output", message) from error


def _copy_tensor(view: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor in GPU memory that shares nothing, whatever its strides are."""
    return view if view.is_meta else _allocate_like(view).copy_(view)


def _allocate_like(view: torch.Tensor) -> torch.Tensor:
    """Return memory for a copy, of the same strides, so that copying takes no longer."""
    memory = torch.empty_like(view)
    return mark_pending(memory, read_pending(view) ^ read_pending(memory))
