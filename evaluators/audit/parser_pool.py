"""Processes that parse kernels: a text that hangs or kills one affects no other text."""

from __future__ import annotations

import importlib
import multiprocessing
import os
import resource
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any

from evaluators.audit import detect

KERNEL_S = 15.0
"""Most seconds per kernel; then its process is ended."""
START_S = 120.0
"""Most seconds in which a process imports the detectors."""
MEMORY_BYTES = 4 << 30
"""Most address space of a process, which bounds the tree of a hostile text."""
_SHARE = 64

Kernel = tuple[str, str, list[dict[str, str]] | None]
"""kernel_id, code, other files."""


class Pool:
    """Processes that run detectors; use it as a context manager."""

    def __init__(self, only: Sequence[str] | None, processes: int | None = None) -> None:
        # Threads need these modules, and an interrupt may leave their imports half done.
        for module in ("popen_spawn_posix", "resource_tracker"):
            importlib.import_module(f"multiprocessing.{module}")
        count = processes or max(1, len(os.sched_getaffinity(0)))
        self._free: SimpleQueue[_Searcher] = SimpleQueue()
        self._all = [_Searcher(only) for _ in range(count)]
        for one in self._all:
            self._free.put(one)
        self._threads = ThreadPoolExecutor(count)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._all:
            one.end()
        self._threads.shutdown()

    def search(self, kernels: Sequence[Kernel]) -> list[dict[str, Any]]:
        """Return the findings of many kernels, in their order."""
        shares = [kernels[at : at + _SHARE] for at in range(0, len(kernels), _SHARE)]
        return [row for rows in self._threads.map(self._search_share, shares) for row in rows]

    def _search_share(self, kernels: Sequence[Kernel]) -> list[dict[str, Any]]:
        one = self._free.get()
        try:
            return list(one.search(kernels))
        finally:
            self._free.put(one)


class _Searcher:
    """One process, started when it is first needed and again after each end."""

    def __init__(self, only: Sequence[str] | None) -> None:
        self._only = None if only is None else list(only)
        self._process: BaseProcess | None = None
        self._pipe: Connection[Any, Any] | None = None

    def search(self, kernels: Sequence[Kernel]) -> Iterator[dict[str, Any]]:
        for kernel in kernels:
            try:
                pipe = self._start()
                pipe.send(kernel)
                if not pipe.poll(KERNEL_S):
                    raise TimeoutError(f"no end after {KERNEL_S:g} s")
                yield from pipe.recv()
            except (TimeoutError, EOFError, OSError) as error:
                self.end()
                why = str(error) or "the text ended the process that parsed it"
                yield detect.make_unfinished(kernel[0], why)

    def end(self) -> None:
        """End the process at once."""
        if self._process is not None and self._pipe is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process = self._pipe = None

    def _start(self) -> Connection[Any, Any]:
        if self._pipe is None:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(theirs, self._only), daemon=True)
            process.start()
            self._process = process
            theirs.close()
            if not self._pipe.poll(START_S):
                raise TimeoutError(f"detectors were not loaded after {START_S:g} s")
            self._pipe.recv()
        return self._pipe


def _serve(pipe: Connection[Any, Any], only: list[str] | None) -> None:
    """Search one kernel after another until the other end closes."""
    # Parsing may not take the machine's memory, nor leave a core of a hostile text behind.
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent, which also gets Ctrl-C, ends it
    detect.load_detectors()
    pipe.send("ready")
    while True:
        try:
            kernel_id, code, other_files = pipe.recv()
        except EOFError:
            return
        try:
            rows = detect.search_kernel(code, other_files, kernel_id, only)
        except MemoryError:
            rows = [detect.make_unfinished(kernel_id, "the tree of the text takes too much memory")]
        pipe.send(rows)
