"""Detects whether a candidate has replaced functions of its worker for time or answers.

A candidate that replaces one of them intends to be measured wrongly. It may replace this check as
well: no verdict rests on it, it only lets a row state the reason in plain words.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from evaluators.clock.gate import Gate
from evaluators.memory.tensors import Box
from evaluators.processes import messages
from evaluators.worker.cuda_streams import Streams


class ClockGuard:
    """The functions behind guarded names, as they were before any code of a candidate ran."""

    def __init__(self, loop: ModuleType, worker: type, operations: Iterable[str]) -> None:
        self._names: list[tuple[Any, str]] = [
            *((time, name) for name in ("time", "perf_counter", "perf_counter_ns")),
            *((time, name) for name in ("monotonic", "monotonic_ns")),
            (loop, "perf_counter_ns"),
            (torch.cuda, "synchronize"),
            *(
                (torch.cuda.Event, name)
                for name in ("record", "wait", "synchronize", "elapsed_time")
            ),
            *((Streams, name) for name in ("hold", "join")),
            *((Gate, name) for name in ("wait_for_opening", "report")),
            *((Gate, name) for name in ("wait_in_person", "report_joined")),
            *((messages, name) for name in ("send", "receive")),
            *((json, name) for name in ("dumps", "loads")),
            (socket.socket, "send"),
            *((Box, name) for name in ("get", "put", "views")),
            *((Tensor, name) for name in ("shape", "dtype", "device", "numel", "element_size")),
            *((worker, name) for name in operations),
        ]
        self._genuine = [_identify(owner, name) for owner, name in self._names]

    def find_replaced(self) -> list[str]:
        """Return the names whose function, or its code, has been replaced."""
        return [
            f"{owner.__name__}.{name}"
            for (owner, name), genuine in zip(self._names, self._genuine, strict=True)
            if any(a is not b for a, b in zip(genuine, _identify(owner, name), strict=True))
        ]


def _identify(owner: Any, name: str) -> tuple[Any, Any]:
    """Return a function and its code, which can be replaced within the same function."""
    function = getattr(owner, name)
    return function, getattr(function, "__code__", None)
