"""Run static detectors on the texts of kernels, and select findings for which one is not run."""

from __future__ import annotations

import functools
import importlib
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from types import ModuleType
from typing import Any

from evaluators.audit.source import MAIN, Hit, parse_source
from store import ids
from store.commandline import members
from store.errors import UnknownName

ROOM = "evaluators.detectors"
UNREADABLE = "parser"
"""Name of the detector of files that cannot be parsed, which no other detector searches."""
UNREADABLE_CLASS = "unreadable_source"
UNREADABLE_VERSION = 1
MOST = 8
"""Most findings of one detector on one kernel."""
LIMIT_S = 10.0
"""Processor time in seconds; then the remaining detectors are skipped, and a finding says so."""
_HOSTILE = "hostile"


@dataclass(frozen=True)
class Detector:
    """One file of evaluators/detectors, or of ./flywheel/detectors."""

    name: str
    module: ModuleType

    @property
    def version(self) -> int:
        """Version of its rules. It rises when the same text may give other hits."""
        return self.module.VERSION

    @property
    def kind(self) -> str:
        """Class of its findings: that of its name, unless the file has a CLASS."""
        return getattr(self.module, "CLASS", self.name.replace("-", "_"))

    @property
    def key(self) -> str:
        """Name and version, as runs record it."""
        return f"{self.name}@{self.version}"


@functools.cache
def load_detectors() -> dict[str, Detector]:
    """Import every detector; return them by name."""
    return {
        name: Detector(name, member.load()) for name, member in members.find_members(ROOM).items()
    }


def choose_detectors(name: str | None) -> list[Detector]:
    """Return all detectors, or the one of this name; raises UnknownName with the nearest one."""
    known = load_detectors()
    if name is None:
        return list(known.values())
    wanted = name.replace("_", "-")
    if wanted not in known:
        raise UnknownName.among("detector", name, known)
    return [known[wanted]]


def describe_search() -> dict[str, Any]:
    """Return what the configuration of a run says whose kernels all detectors have read."""
    keys = sorted(one.key for one in load_detectors().values())
    return {"detectors": keys, "every_detector": True}


def search_kernel(
    code: str,
    other_files: Sequence[Mapping[str, str]] | None,
    kernel_id: str,
    only: Iterable[str] | None = None,
) -> list[dict[str, Any]]:
    """Return rows of table `findings`, without run_id, for one kernel; do not raise for any text.

    Args:
        other_files: Mappings of path and code. A finding in one of them has the line in that file,
            and its quote names the file.
        only: Names of detectors; None means all.
    """
    until = time.thread_time() + LIMIT_S
    source = parse_source(code, other_files)
    rows = [
        _make_row(kernel_id, UNREADABLE, UNREADABLE_VERSION, UNREADABLE_CLASS, hit)
        for hit in source.unreadable
    ]
    wanted = None if only is None else set(only)
    for detector in load_detectors().values():
        if wanted is not None and detector.name not in wanted:
            continue
        if time.thread_time() > until:
            rows.append(make_unfinished(kernel_id, f"stopped before {detector.name}"))
            break
        try:
            rows += _make_rows(kernel_id, detector, detector.module.find(source))
        except Exception as error:
            # A text on which a detector fails is a finding, and the other detectors still run.
            rows.append(make_unfinished(kernel_id, f"{detector.name}: {type(error).__name__}"))
    return list({row["finding_id"]: row for row in rows}.values())


def select_refused(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the findings for which a kernel must not be run; none for nearly every kernel."""
    return [row for row in rows if row["detector"] == _HOSTILE and row["confidence"] == 1.0]


def make_unfinished(kernel_id: str, why: str) -> dict[str, Any]:
    """Return the finding on a kernel whose search did not finish."""
    hit = Hit(MAIN, 1, why, 0.9)
    return _make_row(kernel_id, UNREADABLE, UNREADABLE_VERSION, UNREADABLE_CLASS, hit)


def _make_rows(kernel_id: str, detector: Detector, hits: Iterable[Hit]) -> list[dict[str, Any]]:
    best: dict[tuple[str, int], Hit] = {}
    for hit in hits:
        place = (hit.path, hit.line)
        if place not in best or hit.confidence > best[place].confidence:
            best[place] = hit
    shown = sorted(best.values(), key=lambda hit: (-hit.confidence, hit.path, hit.line))[:MOST]
    name, version, kind = detector.name, detector.version, detector.kind
    return [_make_row(kernel_id, name, version, kind, hit) for hit in shown]


def _make_row(kernel_id: str, detector: str, version: int, kind: str, hit: Hit) -> dict[str, Any]:
    where = [] if hit.path == MAIN else [hit.path]
    return {
        "finding_id": ids.content_id(
            "finding", kernel_id, detector, str(version), kind, str(hit.line), *where
        ),
        "kernel_id": kernel_id,
        "detector": detector,
        "detector_version": version,
        "class": kind,
        "line": hit.line,
        "quote": ": ".join([*where, hit.quote]),
        "confidence": hit.confidence,
    }


# Processes that parse kernels: a text that hangs or kills one affects no other text.

KERNEL_S = 60.0
"""Most seconds per kernel, also on a busy host; then its process is ended."""
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
                yield make_unfinished(kernel[0], why)

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
    load_detectors()
    pipe.send("ready")
    while True:
        try:
            kernel_id, code, other_files = pipe.recv()
        except EOFError:
            return
        try:
            rows = search_kernel(code, other_files, kernel_id, only)
        except MemoryError:
            rows = [make_unfinished(kernel_id, "the tree of the text takes too much memory")]
        pipe.send(rows)
