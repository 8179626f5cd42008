"""A worker's process, and the memory that it shares with the judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from evaluators.sandbox.launcher import ForkServer, Limits
from evaluators.sandbox.worker_process import Ended, WorkerProcess
from evaluators.worker.builds.cache import Build
from evaluators.worker.handle.shared_boxes import SharedBoxes
from evaluators.worker.handle.sizes import Sizes
from store.errors import SandboxFailed


@dataclass(frozen=True)
class StartedWorker:
    """A worker's process that waits for its first request."""

    process: WorkerProcess
    boxes: SharedBoxes
    device: str
    threads: int
    """Number of threads of its loops."""
    build: Build | None

    def end(self, *, keeps_build: bool = False) -> Ended:
        """End the process and return how it ended. Raises SandboxFailed.

        keeps_build: keep what it has compiled, for later workers with the same files.
        """
        self.boxes.close()
        try:
            ended = self.process.end()
            # Nothing of the candidate runs any more.
            if self.build is not None and keeps_build:
                self.build.keep()
        finally:
            if self.build is not None:
                self.build.release()
        return ended


def start_worker(
    fork_server: ForkServer,
    files: Mapping[str, str],
    *,
    setting: Mapping[str, Any],
    limits: Limits,
    sizes: Sizes | None,
    build: Build | None = None,
) -> StartedWorker:
    """Start a worker's process with some files in its folder.

    Args:
        fork_server: What forks it.
        files: Path to text.
        setting: Fields of `evaluators.worker.setting.Setting`.
        limits: Limits; the memory that it shares with the judge is added to them.
        sizes: Sizes of that memory. On a GPU they may be unknown so far (None), since the worker
            allocates the memory when it is prepared.
        build: Folder for what it compiles.

    Raises:
        SandboxFailed: the process cannot be started.
    """
    device = str(setting["device"])
    box_bytes = sizes.boxes if sizes is not None else (0, 0)
    if limits.memory_bytes is not None:
        limits = replace(limits, memory_bytes=limits.memory_bytes + sum(box_bytes))
    boxes = SharedBoxes(device, box_bytes)
    try:
        process = fork_server.start(
            files,
            setting=setting,
            limits=limits,
            inbox=boxes.fds[0],
            outbox=boxes.fds[1],
            build=build.folder if build is not None else None,
        )
    except SandboxFailed:
        boxes.close()
        if build is not None:
            build.release()
        raise
    finally:
        boxes.close_fds()
    return StartedWorker(process, boxes, device, int(setting["threads"]), build)
