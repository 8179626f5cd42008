"""Judges that stay: whoever writes kernels asks them for verdicts, again and again.

A pool keeps one judge per GPU (or some on the processor) and its builders between requests, where
`evaluators run` starts them anew. What it appends is the same, bound to one run of its own. All
work on the lake happens in one thread, in which requests that came in the meantime are taken
together.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import store
from evaluators.device import placement
from evaluators.judge import Config
from evaluators.scheduling import pending
from evaluators.scheduling.queue import Case, judged
from store.commandline import members
from store.errors import FlywheelError, UnknownName

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_ASKED = Path(__file__).parent / "sql" / "asked.sql"
_TRIES = 2
_DEFAULT = Config()

Pair: TypeAlias = tuple[str, str]
"""kernel_id, task_id."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What stands in the lake about a kernel and a task on the pool's devices."""

    kernel_id: str
    task_id: str
    workload_id: str
    evaluation_id: str | None
    """The evaluation that decides; None where our own machinery failed on every try."""
    device_id: str | None
    status: str
    """As in table evaluations; evaluator_error where nothing was found out about the kernel."""
    reason: str | None
    message: str | None
    flags: tuple[str, ...]
    speedup: float | None
    """Over eager, of the newest session that may be ranked; None where there is none."""
    speedup_low: float | None
    """Lower end of its interval."""
    findings: tuple[str, ...]
    """Classes of hacks that somebody has found and nobody dismissed."""
    quarantined: bool
    equivalent: bool
    """False where a correct kernel is another function than the task's module (view
    nonequivalent)."""
    fresh: bool
    """Judged by this request, not read from the lake."""

    @property
    def judged(self) -> bool:
        """Whether anything is known about the kernel."""
        return self.evaluation_id is not None


class Pool:
    """Persistent judges over the devices of this machine. Use as a context manager."""

    def __init__(
        self,
        lake_url: str | None,
        device: str = "auto",
        config: Any = _DEFAULT,
        *,
        evaluator: str = "judge",
        workers: int = 1,
        remeasure: bool = False,
    ) -> None:
        """Take note of what to open.

        Args:
            lake_url: Lake that holds the kernels and gets the rows.
            device: auto, cpu, cuda, or names such as cuda:0,cuda:1.
            config: Config of the evaluator.
            evaluator: Name of the evaluator.
            workers: Judges on the processor.
            remeasure: Judge again what this version has judged on these devices.
        """
        self._lake_url = lake_url
        self._layout = placement.divide_machine(device, workers)
        self._config = config
        self._evaluator = evaluator
        self._remeasure = remeasure
        self._waiting: dict[Pair, Future[Verdict]] = {}
        self._lock = threading.Lock()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Start the judges and append the run.

        Raises:
            LakeNotFound: no lake there.
            DeviceUnavailable: a device is not there, or cannot be measured on.
        """
        store.open(self._lake_url).close()  # a lake that is not there is refused first
        with ExitStack() as stack:
            self._member = members.find_member("evaluators", self._evaluator).load()
            self._hosts, self._builders = stack.enter_context(
                pending.local(
                    self._evaluator, self._layout.places, self._layout.builders, self._config
                )
            )
            self._writer = stack.enter_context(store.writer(self._lake_url, author="evaluators"))
            self._devices = {host.row["device_id"]: host.row for host in self._hosts}
            with self._writer.reader() as lake:
                origin = (lake.lake_id, lake.snapshot)
            asked = {"evaluator": asdict(self._config), "pool": {"remeasure": self._remeasure}}
            devices = list(self._devices.values())
            self.run_id = pending.begin(self._writer, self._member, devices, asked, origin)
            """Run that all of the pool's rows belong to."""
            self._worker = stack.enter_context(ThreadPoolExecutor(1, "evaluators-pool"))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    @property
    def device(self) -> dict[str, Any]:
        """The `devices` row of the first device; the others are of its kind."""
        return self._hosts[0].row

    def judge(self, wanted: Sequence[Pair]) -> dict[Pair, Verdict]:
        """Return the stored verdict of each kernel on each task; judge what has none.

        Rows are committed when this returns. What was asked twice is judged once. A fault of our
        own is tried again; where it stays one, the verdict is evaluator_error and not of the
        kernel, and the next request takes it up again.

        Args:
            wanted: kernel_id and task_id of kernels that are in the lake or its spool.

        Raises:
            UnknownName: a kernel is not in the lake, or a task has no workload for this device.
            DeviceUnavailable: no device is left; what was judged is stored.
        """
        return self._worker.submit(self._judge, list(dict.fromkeys(wanted))).result()

    async def evaluate(self, kernel_id: str, task_id: str) -> Verdict:
        """Return one verdict; many that are awaited at once are judged together.

        Raises what `judge` raises.
        """
        pair = (kernel_id, task_id)
        with self._lock:
            asked = self._waiting.setdefault(pair, Future[Verdict]())
        # After all that the loop has ready now has asked.
        asyncio.get_running_loop().call_soon(self._worker.submit, self._answer)
        # Who stops waiting takes the answer from nobody else.
        return await asyncio.shield(asyncio.wrap_future(asked))

    def _answer(self) -> None:
        with self._lock:
            asked, self._waiting = self._waiting, {}
        if not asked:
            return
        try:
            verdicts = self._judge(list(asked))
        except BaseException as error:
            for future in asked.values():
                future.set_exception(error)
            return
        for pair, future in asked.items():
            future.set_result(verdicts[pair])

    def _judge(self, wanted: list[Pair]) -> dict[Pair, Verdict]:
        if not wanted:
            return {}
        self._writer.flush()
        with self._writer.reader() as lake:
            found = self._found(lake, wanted)
            rows = found.to_pylist()
            known = [row["evaluation_id"] is not None and not self._remeasure for row in rows]
            cases = list(pending.texts(lake, found.filter([not one for one in known]), self._name))
        fresh = {_pair(case) for case in cases}
        if cases:
            log.debug("%d of %d kernels are judged now", len(cases), len(rows))
            faults = self._all_judged(cases)
            self._writer.flush()
            with self._writer.reader() as lake:
                rows = self._found(lake, wanted).to_pylist()
            return {_pair(row): _verdict(row, _pair(row) in fresh, faults) for row in rows}
        return {_pair(row): _verdict(row, False, {}) for row in rows}

    def _all_judged(self, cases: list[Case]) -> dict[Pair, dict[str, Any]]:
        """Judge cases and spool their rows; return the evaluation of each that stays our fault."""
        faults: dict[Pair, dict[str, Any]] = {}
        for _ in range(_TRIES):
            left: list[Case] = []
            for result in judged(cases, self._hosts, self._builders):
                tables = pending.keep(self._writer, self._member, self.run_id, result)
                evaluation = tables["evaluations"][0]
                if evaluation["status"] == "evaluator_error":
                    faults[_pair(result.case)] = evaluation
                    left.append(result.case)
                else:
                    faults.pop(_pair(result.case), None)
            cases = left
            if not cases:
                break
        for (kernel_id, _), evaluation in faults.items():
            log.warning(
                "kernel %s could not be judged: %s", kernel_id[:12], evaluation.get("message")
            )
        return faults

    def _found(self, lake: store.Lake, wanted: list[Pair]) -> pa.Table:
        import pyarrow as pa

        columns = {
            "kernel_id": pa.array([kernel_id for kernel_id, _ in wanted], pa.string()),
            "task_id": pa.array([task_id for _, task_id in wanted], pa.string()),
            "position": pa.array(range(len(wanted)), pa.int64()),
        }
        lake.register("asked", pa.table(columns))
        given = {
            "evaluator": pending.name_of(self._member),
            "version": self._member.VERSION,
            "device_ids": sorted(self._devices),
            "device_kind": self.device["kind"],
        }
        found = lake.run(_ASKED.read_text("utf-8"), given).arrow()
        if found.num_rows < len(wanted):
            missing = sorted(set(wanted) - {_pair(row) for row in found.to_pylist()})
            kernel_id, task_id = missing[0]
            raise UnknownName(
                f"kernel {kernel_id[:12]} cannot be judged on task {task_id[:12]}: the kernel or "
                f"a workload of the task is not in the lake ({len(missing)} such)",
                "Append the kernel before asking for its verdict.",
            )
        return found

    @property
    def _name(self) -> str:
        return self.device["name"]


def _pair(row: Mapping[str, Any]) -> Pair:
    return row["kernel_id"], row["task_id"]


def _verdict(row: dict[str, Any], fresh: bool, faults: Mapping[Pair, Mapping[str, Any]]) -> Verdict:
    told = {name: row[name] for name in ("kernel_id", "task_id", "workload_id")}
    if row["evaluation_id"] is None:
        fault = faults.get(_pair(row))
        if fault is None:
            raise FlywheelError(f"no verdict on kernel {row['kernel_id'][:12]} was stored")
        row = row | {name: fault.get(name) for name in ("status", "reason", "message")}
    return Verdict(
        **told,
        evaluation_id=row["evaluation_id"],
        device_id=row["device_id"],
        status=row["status"],
        reason=row["reason"],
        message=row["message"],
        flags=tuple(row["flags"]),
        speedup=row["speedup"],
        speedup_low=row["speedup_low"],
        findings=tuple(row["findings"]),
        quarantined=row["quarantined"],
        equivalent=row["equivalent"],
        fresh=fresh,
    )
