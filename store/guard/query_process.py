"""Runs user SQL in a separate process, which is killed if it exceeds its limits.

DuckDB ends most queries when it is interrupted, and keeps most of them below its memory limit. Some
functions ignore both (`list_sort` of a long list, `levenshtein` and `repeat` of long texts), and
some inputs crash it. Therefore a child process with a limited address space runs the queries. The
caller kills it when time is up or on Ctrl-C, and survives its crashes. Answers are Arrow streams in
a private folder, which also receives DuckDB's spilled data and is removed at the end.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, cast

from store import errors, faults
from store.bounds import QueryLimits
from store.errors import FlywheelError, UnknownName, UnsafeSQL
from store.lake.host import choose_scratch

if TYPE_CHECKING:
    import pyarrow as pa

GRACE_S = 2.0
"""Time that DuckDB gets to obey an interrupt before its process is killed."""
OPEN_S = 120.0
"""Time to start the process and attach the lake."""
OWN_BYTES = 1_500_000_000
"""Memory of the process that DuckDB does not count: libraries, stacks, batches in transit."""
_ANSWER = "answer.arrow"
_STDERR = "stderr"
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); sys.modules['numpy'] = None; "
    "from store.guard.query_process import main; main()"
)
"""Finds this package where the caller has found it, also in a checkout that is not installed.

It blocks NumPy, which pyarrow imports if it can: the import would take a quarter of the start, and
no query needs it.
"""


@dataclass(frozen=True, kw_only=True)
class QueryAnswer:
    """Rows of an answer; the table is mapped from a file and valid until the next query."""

    rows: pa.Table
    cut: bool
    """Whether rows beyond a limit were left out."""
    left_out: dict[str, int]
    """Number of rows that its views leave out, by the views of `exclusions.LEFT_OUT`."""


class QueryProcess(contextlib.AbstractContextManager["QueryProcess"]):
    """A lake at one snapshot, read by a child process that answers one query at a time.

    A child that was killed, has crashed or could not answer a query is replaced at the next query,
    at the same snapshot.
    """

    def __init__(
        self,
        url: str | None,
        at: str | int | None,
        limits: QueryLimits | None = None,
        *,
        include: Sequence[str] = (),
    ) -> None:
        self.limits = limits or QueryLimits()
        self._url = url
        self._at = at
        self._include = list(include)
        self._folder = choose_scratch("query")
        self._folder.mkdir(mode=0o700)
        self._child: subprocess.Popen[bytes] | None = None
        self._unread = b""
        self._place: tuple[int, str] | None = None
        self._is_open = False
        self._bounds = self.limits.find_bounds(self._folder)
        self._start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the child and remove the folder."""
        self._kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def snapshot(self) -> int:
        """Number of the snapshot that is read. Raises the errors of opening the lake."""
        return self._wait_until_open()[0]

    @property
    def url(self) -> str:
        """Location of the lake. Raises the errors of opening the lake."""
        return self._wait_until_open()[1]

    def ask(self, query: str, parameters: Mapping[str, Any] | None = None) -> QueryAnswer:
        """Answer one SELECT-like statement within the limits.

        Raises:
            UnsafeSQL: not one SELECT, or it names files, functions or catalogs outside.
            FlywheelError: DuckDB cannot answer it, or it exceeds a limit; says which.
        """
        if self._child is None:
            self._start()
        self._wait_until_open()
        try:
            self._send({"query": query, "parameters": parameters})
            import pyarrow as pa  # while the child works

            reply = self._receive(self.limits.timeout + GRACE_S)
        except (UnknownName, UnsafeSQL):
            raise  # refused before it ran: the child is as it was
        except BaseException:
            self._kill()
            raise
        with pa.memory_map(str(self._folder / _ANSWER)) as source:
            rows = pa.ipc.open_stream(source).read_all()
        return QueryAnswer(rows=rows, cut=bool(reply["cut"]), left_out=reply["left_out"])

    def interrupt(self) -> None:
        """End the query that another thread asks here; it raises FlywheelError there."""
        child = self._child
        if child is not None:
            child.kill()

    def _start(self) -> None:
        with open(self._folder / _STDERR, "wb") as stderr:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-c", _START, str(Path(errors.__file__).parents[1])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C is for the caller, who decides
            )
        self._unread = b""
        at = self._at if self._place is None else self._place[0]
        asked = {"url": self._url, "at": at, "folder": str(self._folder)}
        self._send(asked | {"limits": asdict(self.limits), "include": self._include})

    def _wait_until_open(self) -> tuple[int, str]:
        if not self._is_open:
            try:
                reply = self._receive(OPEN_S)
            except BaseException:
                self._kill()
                raise
            self._place = (int(reply["snapshot"]), str(reply["url"]))
            self._is_open = True
        assert self._place is not None
        return self._place

    def _send(self, message: dict[str, Any]) -> None:
        assert self._child is not None
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(message).encode() + b"\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            return  # it has ended, which the next `_receive` explains

    def _receive(self, within_s: float) -> dict[str, Any]:
        assert self._child is not None
        assert self._child.stdout is not None
        stream = self._child.stdout.fileno()
        until = time.monotonic() + within_s
        while b"\n" not in self._unread:
            left = until - time.monotonic()
            if left <= 0 or not select.select([stream], [], [], left)[0]:
                raise self.limits.timeout_error()
            piece = os.read(stream, 65_536)
            if not piece:
                raise self._explain_end()
            self._unread += piece
        line, _, self._unread = self._unread.partition(b"\n")
        reply = cast("dict[str, Any]", json.loads(line))
        if "error" in reply:
            kind = getattr(errors, str(reply["error"]), FlywheelError)
            raise kind(reply["message"], reply["hint"])
        return reply

    def _explain_end(self) -> FlywheelError:
        assert self._child is not None
        code = self._child.wait()
        if code > 0 and not self._is_open:
            lines = (self._folder / _STDERR).read_text("utf-8", "replace").splitlines()
            last = (lines or [f"exit code {code}"])[-1]
            return faults.explain(OSError(last)) or FlywheelError(
                f"the process that answers queries ended at its start ({last})",
                "Check that this package and its dependencies import in a new interpreter.",
            )
        if code == -signal.SIGABRT:  # an allocation failed where DuckDB cannot say so
            return self._bounds.explain_memory("the query")
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return FlywheelError(
            f"DuckDB crashed on this query ({name}); the lake is unharmed",
            "Write it in another way, such as without deeply nested values.",
        )

    def _kill(self) -> None:
        if self._child is None:
            return
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):  # what it had not read
                pipe.close()
        self._child = None
        self._is_open = False


def main() -> None:
    """Answer the queries of a `QueryProcess`; runs in the child."""
    asked = json.loads(sys.stdin.readline())
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is no reply
    limits = QueryLimits(**asked["limits"])
    folder = Path(asked["folder"])
    questions: SimpleQueue[str] = SimpleQueue()

    def listen() -> None:
        """Pass on queries, and end this process when the caller ends, even during a query."""
        for line in sys.stdin:
            questions.put(line)
        os._exit(0)

    def reply(message: dict[str, Any]) -> None:
        replies.write(json.dumps(message) + "\n")
        replies.flush()

    Thread(target=listen, daemon=True).start()
    try:
        from store.lake.location import Location
        from store.lake.reader import Lake

        place = Location.of(asked["url"])
        with Lake(place, asked["at"], limits, spill=folder, include=asked["include"]) as lake:
            # Set after the extensions are loaded, because their memory does not count.
            _limit(resource.RLIMIT_DATA, lake.bounds.memory_bytes + OWN_BYTES)
            _limit(resource.RLIMIT_CORE, 0)
            reply({"snapshot": lake.snapshot, "url": lake.url})
            while True:
                asked = json.loads(questions.get())
                query = str(asked["query"])
                try:
                    cut = lake.sql(query, asked["parameters"]).write(folder / _ANSWER)
                    reply({"cut": cut, "left_out": lake.count_left_out(query)})
                except FlywheelError as error:
                    reply(_describe_error(error))
                except MemoryError:
                    reply(_describe_error(lake.bounds.explain_memory("the query")))
                except Exception as error:
                    # A bug in this program or a library; the caller reports it.
                    bug = FlywheelError(f"the query failed: {error!r:.300}")
                    reply(_describe_error(faults.explain(error, folder) or bug))
    except Exception as error:
        fault = faults.explain(error, asked["url"])
        if fault is None:
            raise
        reply(_describe_error(fault))


def _describe_error(error: FlywheelError) -> dict[str, Any]:
    return {"error": type(error).__name__, "message": error.message, "hint": error.hint}


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
