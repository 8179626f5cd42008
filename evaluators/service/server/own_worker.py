"""The worker that a server starts for the devices of its own host, and starts again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys

from evaluators.service.connection import TOKEN
from evaluators.service.queue.claims import Claims
from evaluators.service.server.access import OWN_WORKER, Access

log = logging.getLogger(__name__)

_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_STEADY_S = 120.0
_KILL_S = 20.0


class OwnWorker:
    """The process `evaluators join` of this host. It ends with the server, even a killed one."""

    def __init__(self, url: str, device: str, workers: int, access: Access, claims: Claims) -> None:
        self._words = ["join", url, "--device", device, "--workers", str(workers), "--attached"]
        self._access, self._claims = access, claims
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Keep the process running until cancelled; its cases go back to the queue if it dies."""
        pause_s, loop = _PAUSE_S, asyncio.get_running_loop()
        while True:
            began = loop.time()
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "evaluators", *self._words),
                stdin=asyncio.subprocess.PIPE,
                env={**os.environ, TOKEN: self._access.worker_token},
                start_new_session=True,
            )
            code = await self._process.wait()
            await self._access.run(self._claims.leave_all, OWN_WORKER, True)
            steady = loop.time() - began > _STEADY_S
            pause_s = _PAUSE_S if steady else min(2 * pause_s, _LONGEST_PAUSE_S)
            log.warning("the worker of this host has left with %d; again in %d s", code, pause_s)
            await asyncio.sleep(pause_s)

    async def stop(self) -> None:
        """End the process; kill it where it does not end in time."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGTERM)  # the second does not wait for cases in hand
            try:
                await asyncio.wait_for(process.wait(), _KILL_S)
            except TimeoutError:
                process.kill()
                await process.wait()
