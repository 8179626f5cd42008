"""Deadlines of a worker, and requests to it that end at them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evaluators.processes.messages import Malformed
from evaluators.processes.text import make_readable
from evaluators.references.connection import ReferenceFailed
from evaluators.sandbox.failures import Failed, Stage, explain_error, explain_timeout
from evaluators.sandbox.worker_process import Late, Meanwhile, Share, TimedOut, WorkerProcess


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """How long a worker may take, in seconds."""

    import_s: float
    """To import the file, and to construct the module."""
    build_s: float
    """For any request, while a compiler runs below the worker."""
    first_call_s: float
    call_s: float
    total_s: float
    """For the worker's whole life."""

    def limit_s(self, stage: Stage) -> float:
        """Return the limit of a request without a compiler at work."""
        return {
            "load": self.import_s,
            "construct": self.import_s,
            "first_call": self.first_call_s,
            "call": self.call_s,
        }[stage]


class TimedRequests:
    """Requests to one worker under its deadlines, from the moment at which this is made."""

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._started = time.monotonic()

    def excuse(self, seconds: float) -> None:
        """Do not count time in which the worker waited for the judge."""
        self._started += seconds

    def ask(
        self,
        process: WorkerProcess,
        do: str,
        stage: Stage,
        late: Late | None,
        meanwhile: Meanwhile | None,
        share: Share | None,
        fields: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Send one request and return its answer. Raises Failed, ReferenceFailed, Died."""
        deadlines = self._deadlines
        left_s = deadlines.total_s - (time.monotonic() - self._started)
        if left_s <= 0:
            message = f"not done after {deadlines.total_s:g} s in all"
            raise Failed("timeout", "total_timeout", message)
        limit_s = deadlines.limit_s(stage)
        paused_s = process.paused_s
        try:
            answer = process.ask(
                do,
                min(limit_s, left_s),
                min(deadlines.build_s, left_s),
                late=late,
                meanwhile=meanwhile,
                share=share,
                **fields,
            )
        except TimedOut as error:
            raise explain_timeout(stage, limit_s, deadlines.build_s, error.compiling) from error
        except Malformed as error:
            raise Failed("rejected", "malformed_output", make_readable(str(error))) from error
        except ValueError as error:  # it describes inputs or names of the task
            raise ReferenceFailed(f"the task has too many inputs or names: {error}") from error
        finally:
            self.excuse(process.paused_s - paused_s)
        if "error" in answer:
            raise explain_error(stage, answer["error"])
        return answer
