"""A persistent pool of judges that serves verdict requests.

A pool keeps its judges, one or more per device, and its builders between requests;
`evaluators run` starts them for every run. Both append the same rows; those of a pool belong to one
run. One thread does all work on the lake. It answers requests that arrived in the meantime
together.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import store
from evaluators.device import placement
from evaluators.device.placement import select_alike
from evaluators.judging.case import Case
from evaluators.scheduling import contract, ray_cluster
from evaluators.scheduling.cases import choose_leaders, read_cases
from evaluators.scheduling.judge_threads import Shortages, judge_cases
from evaluators.scheduling.judges.process import start_judges
from evaluators.scheduling.run import append_results, open_judges, record_evaluation
from store import read_sql
from store.errors import EvaluatorError, FlywheelError, UnknownName

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)
_TRIES = 2

Pair: TypeAlias = tuple[str, str]
"""kernel_id, task_id."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The current verdict on a kernel for a task on the pool's devices."""

    kernel_id: str
    task_id: str
    workload_id: str
    evaluation_id: str | None
    """The evaluation that decides; None if the evaluator itself failed on every try."""
    device_id: str | None
    status: str
    """As in table evaluations; evaluator_error if nothing is known about the kernel."""
    reason: str | None
    message: str | None
    flags: tuple[str, ...]
    speedup: float | None
    """Speedup over eager, pooled over the sessions that may rank, or None."""
    speedup_low: float | None
    """Lower end of its interval."""
    findings: tuple[str, ...]
    """Classes of findings on the kernel that are not dismissed."""
    quarantined: bool
    equivalent: bool | None
    """False where a correct kernel computes another function than the task's module (view
    nonequivalent); None where the kernel is not correct."""
    fresh: bool
    """Whether this request judged the kernel; otherwise the verdict is from the lake."""

    @property
    def is_judged(self) -> bool:
        """Whether anything is known about the kernel."""
        return self.evaluation_id is not None


class Pool:
    """Persistent judges on this machine or on a Ray cluster. Use as a context manager.

    One thread answers requests for verdicts, those that arrive at the same time together.
    """

    def __init__(
        self,
        lake_url: str | None,
        device: str = "auto",
        config: Any = None,
        *,
        evaluator: str = contract.DEFAULT,
        workers: int = 1,
        ray: str | None = None,
        remeasure: bool = False,
    ) -> None:
        """Store the settings; entering the context starts the judges.

        Args:
            device: auto, cpu, cuda, or names such as cuda:0,cuda:1.
            ray: Address of a Ray cluster that judges instead of this machine, on its GPUs or, where
                device is cpu, with `workers` judges.
            remeasure: Judge kernels again that this version has judged on these devices.
        """
        self._lake_url = lake_url
        self._ray, self._device, self._workers = ray, device, workers
        if ray is None:
            self._layout = placement.divide_machine(device, workers)
        else:
            ray_cluster.check_device(device)
        self._config = config
        self._name = evaluator
        self._remeasure = remeasure
        self._waiting: dict[Pair, Future[Verdict]] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._shortages = Shortages()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Start the judges and append the run.

        Raises:
            LakeNotFound: no lake there.
            DeviceUnavailable: a device is not there, or cannot be measured on.
        """
        store.open(self._lake_url).close()  # a lake that is not there is refused first
        with ExitStack() as stack:
            self._evaluator = contract.load(self._name)
            config = self._evaluator.Config() if self._config is None else self._config
            self._precision = contract.get_precision(config)
            self._protocol: str | None = getattr(config, "protocol", None)
            if self._ray is None:
                layout = self._layout
                starting = start_judges(self._name, layout.places, config)
                opened = open_judges(starting, layout.builders)
            else:
                opened = open_judges(
                    ray_cluster.start_judges(
                        self._ray, self._name, self._device, config, self._workers
                    )
                )
            self._judges, self._builders = stack.enter_context(opened)
            self._writer = stack.enter_context(store.writer(self._lake_url, author="evaluators"))
            self._devices = {judge.row["device_id"]: judge.row for judge in self._judges}
            with self._writer.reader() as lake:
                origin = (lake.lake_id, lake.snapshot)
            options = {"evaluator": asdict(config), "pool": {"remeasure": self._remeasure}}
            devices = list(self._devices.values())
            run = record_evaluation(self._writer, self._evaluator, devices, options, origin)
            self.run_id = stack.enter_context(run).run_id
            """Run that all of the pool's rows belong to."""
            self._worker = stack.enter_context(ThreadPoolExecutor(1, "evaluators-pool"))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        """Commit all rows and end the judges. A batch being judged ends with the next verdict."""
        self._closing.set()
        self._stack.__exit__(*(error or (None, None, None)))

    @property
    def device(self) -> dict[str, Any]:
        """The `devices` row of the first device; the others are of its kind."""
        return self._judges[0].row

    def judge(self, wanted: Sequence[Pair]) -> dict[Pair, Verdict]:
        """Return the stored verdict of each kernel on each task; judge what has none.

        Rows are committed when this returns. A pair that is requested twice is judged once. A
        fault of the evaluator is tried again; where it persists, the status is evaluator_error,
        which says nothing about the kernel, and the next request tries again.

        wanted: kernel_id and task_id of kernels that are in the lake or its spool.

        Raises:
            UnknownName: a kernel is not in the lake, or a task has no workload for this device.
            DeviceUnavailable: no device is left; what was judged is stored.
        """
        judging = self._worker.submit(self._judge, list(dict.fromkeys(wanted)))
        # Python notices a Ctrl-C that comes just before a wait begins only when this wait ends.
        while wait([judging], timeout=1).not_done:
            pass
        return judging.result()

    async def evaluate(self, kernel_id: str, task_id: str) -> Verdict:
        """Return one verdict; requests that are awaited at the same time are judged together.

        Raises what `judge` raises.
        """
        pair = (kernel_id, task_id)
        with self._lock:
            future = self._waiting.setdefault(pair, Future[Verdict]())
        # Answer after every coroutine that is ready now has added its request.
        asyncio.get_running_loop().call_soon(self._worker.submit, self._answer)
        # Cancelling one waiter cancels no other waiter's answer.
        return await asyncio.shield(asyncio.wrap_future(future))

    def _answer(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        if not waiting:
            return
        try:
            verdicts = self._judge(list(waiting))
        except BaseException as error:
            for future in waiting.values():
                future.set_exception(error)
            return
        for pair, future in waiting.items():
            future.set_result(verdicts[pair])

    def _judge(self, wanted: list[Pair]) -> dict[Pair, Verdict]:
        if not wanted:
            return {}
        self._writer.flush()
        with self._writer.reader() as lake:
            verdicts = self._select_verdicts(lake, wanted)
            rows = verdicts.to_pylist()
            is_wanted = [row["evaluation_id"] is None or self._remeasure for row in rows]
            cases = list(read_cases(lake, verdicts.filter(is_wanted), self.device["name"]))
        fresh = {(case.kernel_id, case.task_id) for case in cases}
        faults: dict[Pair, dict[str, Any]] = {}
        if cases:
            log.debug("%d of %d kernels are judged now", len(cases), len(rows))
            faults = self._judge_all(cases)
            rows = self._read_verdicts(wanted)
            if self._protocol == "training" and (leaders := choose_leaders(cases, rows)):
                self._judge_all(leaders)
                rows = self._read_verdicts(wanted)
        by_pair = {(row["kernel_id"], row["task_id"]): row for row in rows}
        return {
            pair: make_verdict(row, faults.get(pair), fresh=pair in fresh)
            for pair, row in by_pair.items()
        }

    def _read_verdicts(self, wanted: list[Pair]) -> list[dict[str, Any]]:
        self._writer.flush()
        with self._writer.reader() as lake:
            return self._select_verdicts(lake, wanted).to_pylist()

    def _judge_all(self, cases: list[Case]) -> dict[Pair, dict[str, Any]]:
        """Judge cases and spool their rows; return the evaluations that stay faults of ours."""
        faults: dict[Pair, dict[str, Any]] = {}
        for _ in range(_TRIES):
            left: list[Case] = []
            confirm_win = contract.find_confirm_win(self._evaluator)
            with closing(judge_cases([cases], self._judges, self._builders, confirm_win)) as judged:
                for result in judged:
                    pair = result.case.kernel_id, result.case.task_id
                    if result.unfit is not None:  # no row: this says nothing about the kernel
                        faults[pair] = {
                            "status": "evaluator_error",
                            "reason": "host_unfit",
                            "message": result.fault,
                        }
                        continue
                    [tables] = append_results(self._writer, self._evaluator, self.run_id, [result])
                    self._shortages.count(tables)
                    evaluation = tables["evaluations"][0]
                    if evaluation["status"] == "evaluator_error":
                        faults[pair] = evaluation
                        if result.tables is not None:  # else several judges were lost with it
                            left.append(replace(result.case, earlier=result.case.earlier + 1))
                    else:
                        faults.pop(pair, None)
                    if self._closing.is_set():
                        raise EvaluatorError("the pool was closed while it judged")
            cases = left
            if not cases:
                break
        for (kernel_id, _), evaluation in faults.items():
            log.warning(
                "kernel %s could not be judged: %s", kernel_id[:12], evaluation.get("message")
            )
        return faults

    def _select_verdicts(self, lake: store.Lake, wanted: list[Pair]) -> pa.Table:
        verdicts = select_verdicts(
            lake,
            self._evaluator,
            list(self._devices.values()),
            self._precision,
            wanted,
            self._protocol,
        )
        if verdicts.num_rows < len(wanted):
            rows = verdicts.to_pylist()
            missing = sorted(set(wanted) - {(row["kernel_id"], row["task_id"]) for row in rows})
            kernel_id, task_id = missing[0]
            raise UnknownName(
                f"kernel {kernel_id[:12]} cannot be judged on task {task_id[:12]}: the kernel or "
                f"a workload of the task is not in the lake ({len(missing)} such)",
                "Append the kernel before asking for its verdict.",
            )
        return verdicts


def select_verdicts(
    lake: store.Lake,
    evaluator: contract.Evaluator,
    devices: Sequence[Mapping[str, Any]],
    precision: str | None,
    wanted: Sequence[Pair],
    protocol: str | None = None,
) -> pa.Table:
    """Return the rows of standing_verdicts.sql for kernels and tasks, in their order.

    Pairs whose kernel or workload the lake lacks are left out.

    Args:
        devices: Rows of devices of one kind; a verdict on any of them, or on one alike, counts.
        precision: By which verdicts count on a GPU; None for any.
        protocol: With training, verdicts by it count where there is no full one.
    """
    import pyarrow as pa

    columns = {
        "kernel_id": pa.array([kernel_id for kernel_id, _ in wanted], pa.string()),
        "task_id": pa.array([task_id for _, task_id in wanted], pa.string()),
        "position": pa.array(range(len(wanted)), pa.int64()),
    }
    lake.register("requested", pa.table(columns))
    parameters = {
        "evaluator": contract.name_of(evaluator),
        "version": evaluator.VERSION,
        "device_ids": select_alike(lake.run("FROM devices").rows(), devices),
        "device_kind": devices[0]["kind"],
        "precision": precision,
        "protocol": protocol,
    }
    return lake.run(read_sql(__file__, "standing_verdicts"), parameters).arrow()


def make_verdict(
    row: Mapping[str, Any], fault: Mapping[str, Any] | None, *, fresh: bool
) -> Verdict:
    """Return the verdict in a row of `select_verdicts`.

    Args:
        fault: The evaluation that says why the evaluator failed, where it has no verdict.
        fresh: Whether this request judged the kernel.

    Raises FlywheelError where there is neither a verdict nor a fault.
    """
    if row["evaluation_id"] is None:
        if fault is None:
            raise FlywheelError(f"{row['kernel_id'][:12]} has no verdict", "Try `store check`.")
        row = {**row, **{name: fault.get(name) for name in ("status", "reason", "message")}}
    values: dict[str, Any] = {each.name: row.get(each.name) for each in fields(Verdict)}
    own: dict[str, Any] = {
        "flags": tuple(row["flags"]),
        "findings": tuple(row["findings"]),
        "equivalent": row["equivalent"] if row["status"] == "correct" else None,
        "fresh": fresh,
    }
    return Verdict(**values | own)
