"""Judge the pending kernels of a lake and append each result to it at once.

    find_pending ─▶ lease a batch ─▶ what has been judged since? ─▶ cases ─▶ commit ─▶ release

Any number of runs, on any number of hosts, may judge the kernels of one lake at the same time. Each
takes leases on a few kernels at a time and keeps them until its verdicts are committed. Leases of a
run that dies end with it, and the others take over its kernels.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import store
from evaluators.audit import detect
from evaluators.device.placement import compute_class_id, select_alike
from evaluators.judging.case import Case
from evaluators.scheduling import answers
from evaluators.scheduling.cases import read_cases
from evaluators.scheduling.contract import Evaluator, Tables, find_confirm_win, name_of
from evaluators.scheduling.judge_threads import (
    Judge,
    JudgedCase,
    Shortages,
    StartedJudge,
    judge_cases,
)
from evaluators.scheduling.judges.process import JudgeProcess
from evaluators.scheduling.prebuild import Builder
from evaluators.worker.build_cache import Builds, default_root
from store import read_sql
from store.bounds import QueryLimits
from store.commandline import echo, interrupts
from store.commandline.echo import Progress, count_nouns
from store.commandline.escape import quote_name
from store.errors import RowsRejected, UnknownName, name_condition
from store.ids import content_id

if TYPE_CHECKING:
    import pyarrow as pa

    from store.lake.location import Leases

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which of the pending kernels to judge."""

    suite: str | None = None
    """Suite of the tasks; None for every suite."""
    kernel: str | None = None
    """Kernel id or the start of one."""
    where: str | None = None
    """SQL over the columns of pending_kernels.sql."""
    contended: bool = False
    """Also those whose every session shared its host with other work."""
    precisions: Sequence[str | None] = (None,)
    """Precisions by which a verdict is wanted; None for any. They do not differ on a processor:
    only the first one counts."""
    shapes: Sequence[str] = ()
    """Names of other shapes; a correct kernel that was not tried at all of them is judged again."""
    protocol: str | None = None
    """Protocol of the verdicts; a full one serves those who want one by training as well."""
    limit: int | None = None
    """Number of verdicts."""


def find_pending(
    lake: store.Lake,
    evaluator: Evaluator,
    devices: Sequence[dict[str, Any]],
    selection: Selection,
) -> pa.Table:
    """Return the kernels and tasks that this evaluator version has not judged, in judging order.

    There is one row for each precision by which a verdict is missing.

    devices: Rows of devices of one kind; a verdict on any of them, or on one alike, is enough.

    Raises:
        UnknownName: the selected kernel or suite does not exist.
        UnsafeSQL: the selection's SQL is not one plain condition.
    """
    if selection.suite is not None:
        suites = [row["suite"] for row in lake.run("SELECT DISTINCT suite FROM task_labels").rows()]
        if selection.suite not in suites:
            raise UnknownName.among("suite", selection.suite, suites)
    kernel_id = None if selection.kernel is None else store.find_kernel(lake, selection.kernel)
    query = read_sql(__file__, "pending_kernels")
    on_gpu = devices[0]["kind"] == "cuda"
    parameters = {
        "evaluator": name_of(evaluator),
        "version": evaluator.VERSION,
        "device_ids": select_alike(lake.run("FROM devices").rows(), devices),
        "device": devices[0]["name"],
        "device_kind": devices[0]["kind"],
        "suite": selection.suite,
        "kernel": kernel_id,
        "contended": selection.contended,
        "protocol": selection.protocol,
        "shapes": list(selection.shapes),
        "precisions": list(selection.precisions[: None if on_gpu else 1]),
        "limit": selection.limit,
    }
    if selection.where is None:
        return lake.run(f"{query}\nLIMIT $limit", parameters).arrow()
    # What the user writes goes through the guard, together with our own text around it.
    guarded = f"WITH pending AS ({query}) FROM pending WHERE ({selection.where}\n) LIMIT $limit"
    with name_condition(selection.where):
        return lake.sql(guarded, parameters, QueryLimits(max_rows=0)).arrow()


CASES_PER_JUDGE = 16
"""Cases that a run leases at a time, for each of its judges: some minutes of work."""


def name_verdict(evaluator: Evaluator, device: Mapping[str, Any], case: Case) -> str:
    """Return the id of the next verdict on a case: the same for every run that would give it.

    Runs on alike devices would give the same one.
    """
    return content_id(
        "verdict",
        name_of(evaluator),
        str(evaluator.VERSION),
        case.precision or "",
        *([case.protocol] if case.protocol == "training" else []),
        compute_class_id(device),
        *(case.kernel_id, case.task_id, case.workload_id),
        str(case.earlier),
    )


class LeasedCases:
    """The pending kernels of one run."""

    def __init__(
        self,
        writer: store.Writer,
        leases: Leases,
        evaluator: Evaluator,
        devices: Sequence[dict[str, Any]],
        selection: Selection,
        batch: int,
    ) -> None:
        """Find what is pending.

        Args:
            selection: Which kernels; its limit bounds what this run takes.
            batch: Cases to lease at a time.
        """
        self._writer, self._leases, self._batch = writer, leases, batch
        self._evaluator, self._devices, self._device = evaluator, devices, devices[0]
        self._selection = replace(selection, limit=None)
        self._finished: list[str] = []
        """Leases on cases whose verdicts are spooled."""
        writer.flush()
        self.origin = self._read_pending()
        """Lake and snapshot of what is pending at first."""
        most = self._pending.num_rows
        self._left = most if selection.limit is None else min(selection.limit, most)
        self.total = self._left
        """Cases that this run would judge if no other run takes any."""
        self.held_by_others = 0
        """Cases that other runs are judging; known once every batch is read."""

    def _read_pending(self) -> tuple[str, int]:
        with self._writer.reader() as lake:
            self._pending = find_pending(lake, self._evaluator, self._devices, self._selection)
            return lake.lake_id, lake.snapshot

    def read_batches(self) -> Iterator[list[Case]]:
        """Yield cases until none is left that this run may judge."""
        import pyarrow as pa

        positions = list(range(self._pending.num_rows))
        # What another run holds at first may be free at the end, if that run is interrupted.
        for _ in range(2):
            skipped: list[int] = []
            while positions and self._left:
                chosen, positions = positions[: self._batch], positions[self._batch :]
                cases = self._lease(chosen, skipped)
                self._left -= len(cases)
                if cases:
                    yield cases
            positions = []
            if skipped and self._left:  # those of them that are still pending now
                names = ("kernel_id", "task_id", "workload_id", "precision")
                before = self._pending.select(names).take(pa.array(skipped, pa.int64()))
                waiting = {tuple(row.values()) for row in before.to_pylist()}
                self.commit()
                self._read_pending()
                rows = self._pending.select(names).to_pylist()
                positions = [at for at, row in enumerate(rows) if tuple(row.values()) in waiting]
        self.held_by_others = len(positions)

    def finish(self, case: Case) -> None:
        """Note that the verdict on a case is spooled."""
        self._finished.append(self._name(case))

    def release(self, case: Case) -> None:
        """Leave a case to other runs without a verdict."""
        self._leases.release([self._name(case)])

    def commit(self) -> int:
        """Commit the spooled verdicts and release their cases; return the newest snapshot."""
        snapshot = self._writer.flush()
        self._leases.release(self._finished)
        self._finished.clear()
        return snapshot

    def _lease(self, chosen: Sequence[int], skipped: list[int]) -> list[Case]:
        """Return the cases of these positions that no other run holds or has judged."""
        import pyarrow as pa

        rows = self._pending.take(pa.array(chosen, pa.int64()))
        names = [self._name(Case.read(row)) for row in rows.to_pylist()]
        taken = self._leases.take(names)
        skipped += [at for at, name in zip(chosen, names, strict=True) if name not in taken]
        mine = rows.filter(pa.array([name in taken for name in names], pa.bool_()))
        # A run commits its verdicts before it releases their cases, so they are all visible now.
        self.commit()
        with self._writer.reader() as lake:
            read = list(read_cases(lake, mine, self._device["name"]))
        # An evaluation that was added since gives a case another number of earlier ones, and so
        # another name. It may be one that counts for nothing here.
        cases = [case for case in read if self._name(case) in taken][: self._left]
        kept = {self._name(case) for case in cases}
        changed = taken - kept if len(cases) < self._left else set[str]()
        skipped += [at for at, name in zip(chosen, names, strict=True) if name in changed]
        self._leases.release(taken - kept)
        return cases

    def _name(self, case: Case) -> str:
        return name_verdict(self._evaluator, self._device, case)


COMMIT_EVERY_S = 60.0
"""Most seconds that rows of a run wait in the spool before other readers see them."""


@dataclass
class Tally:
    """What a run has appended."""

    evaluations: int = 0
    shapes: int = 0
    """Evaluations at other shapes."""
    timings: int = 0
    statuses: dict[str, int] = field(default_factory=dict[str, int])
    contended: int = 0
    """Kernels whose session shared its host with other work."""
    unranked: int = 0
    """Other kernels without a session that ranks by any clock."""
    shortages: Shortages = field(default_factory=Shortages)
    held_by_others: int = 0
    """Kernels that other runs are judging."""
    unfit: dict[str, int] = field(default_factory=dict[str, int])
    """Kernels that this host cannot judge and that stay pending, by what it lacks."""
    snapshot: int = 0

    def count(self, tables: Tables) -> None:
        """Add the rows of one case."""
        evaluation = tables["evaluations"][0]  # those after it are of other shapes
        self.shortages.count(tables)
        self.evaluations += 1
        self.shapes += len(tables["evaluations"]) - 1
        self.timings += len(tables["timings"])
        timings = [
            row
            for row in tables["timings"]
            if row.get("evaluation_id") == evaluation.get("evaluation_id")
        ]
        status = evaluation["status"]
        self.statuses[status] = self.statuses.get(status, 0) + 1
        # A case whose judge process is lost has no flags.
        if "contended" in (evaluation.get("flags") or ()):
            self.contended += 1
        elif timings and all(
            row.get("disturbed", row["noisy"]) or row.get("unresolved")
            for row in timings
            if row["arm"] != "kernel"
        ):
            self.unranked += 1

    def __str__(self) -> str:
        timeouts = self.statuses.get("timeout", 0)
        some = f" ({count_nouns(timeouts, 'timeout')})" if timeouts else ""
        shapes = f", at other shapes +{self.shapes}" if self.shapes else ""
        rows = f"evaluations +{self.evaluations}{some}{shapes}, timings +{self.timings}"
        return f"{rows} → snapshot {self.snapshot}"


@contextmanager
def open_judges(
    starting: AbstractContextManager[Sequence[StartedJudge]], cores: Sequence[Sequence[int]] = ()
) -> Generator[tuple[Sequence[StartedJudge], list[Builder]]]:
    """Wait for judges that are starting, and start builders on other cores; end them together.

    Raises DeviceUnavailable: a device is not there, or cannot be measured on.
    """
    with starting as judges, ExitStack() as stack:
        for judge in judges:
            judge.wait_ready()
        yield judges, open_builders(stack, judges[0], cores)


def open_builders(
    stack: ExitStack, judge: StartedJudge, cores: Sequence[Sequence[int]]
) -> list[Builder]:
    """Start builders for a judge and those alike; there are none for judges on other hosts."""
    if not isinstance(judge, JudgeProcess):
        return []
    builds = Builds(default_root(), judge.toolchain)
    builds.trim()
    return [stack.enter_context(Builder(builds, judge.arch, each)) for each in cores]


def find_idle(
    lake_url: str | None,
    evaluator: Evaluator,
    devices: Sequence[dict[str, Any]],
    selection: Selection,
) -> Tally | None:
    """Return the empty tally of a run if these devices have nothing to judge, without a judge.

    Raises what `find_pending` raises.
    """
    with store.writer(lake_url, author="evaluators run") as writer:
        # Include the rows that an earlier run has only spooled.
        writer.flush()
        with writer.reader() as lake:
            if find_pending(lake, evaluator, devices, replace(selection, limit=1)).num_rows:
                return None
            return Tally(snapshot=lake.snapshot)


def record_evaluation(
    writer: store.Writer,
    evaluator: Evaluator,
    devices: Sequence[dict[str, Any]],
    config: dict[str, Any],
    origin: tuple[str, int],
) -> AbstractContextManager[store.RunRecord]:
    """Return a context that stores a run with its devices, and how it ended.

    origin: Lake and snapshot that the run reads.
    """
    reads_texts = getattr(evaluator, "READS_TEXTS", False)
    run = store.make_run(
        kind="evaluation",
        name=name_of(evaluator),
        config=config | (detect.describe_search() if reads_texts else {}),
        lake_id=origin[0],
        snapshot_id=origin[1],
    )
    return store.record_run(writer, run, "evaluation begins", {"devices": list(devices)})


def append_results(
    writer: store.Writer, evaluator: Evaluator, run_id: str, results: Sequence[JudgedCase]
) -> list[Tables]:
    """Spool the rows of each case as a bundle of its own, sync them once, and return them.

    Rows of a table that break a rule of the catalog are left out, and rows of other tables stay.
    Where the evaluation itself breaks a rule, the case gets the status evaluator_error.

    The bundle of a verdict has its id, so that the lake takes one verdict of several runs that
    judged the same case.
    """
    every: list[Tables] = []
    for one in results:
        subject = answers.Subject(
            one.case, one.device["device_id"], name_of(evaluator), evaluator.VERSION
        )
        every.append(one.tables or answers.build_fault(subject, one.fault))
    bundles = [
        _make_bundle(evaluator, run_id, result, tables)
        for result, tables in zip(results, every, strict=True)
    ]
    try:
        writer.append_all(bundles, wait=False)
    except RowsRejected as error:
        if len(results) > 1:
            # Bundles that are spooled already have the same id again, and are stored only once.
            return [append_results(writer, evaluator, run_id, [one])[0] for one in results]
        [result] = results
        kernel = result.case.kernel_id[:12]
        log.warning("%s: rows of %s are left out: %.300a", kernel, error.table, str(error))
        if error.table != "evaluations":
            result = replace(result, tables={**every[0], error.table: []})
        elif result.tables:
            why = f"the evaluator's answer breaks a rule: {error.rule}"
            result = replace(result, tables=None, fault=why)
        else:
            raise
        return append_results(writer, evaluator, run_id, [result])
    return every


def run(
    lake_url: str | None,
    evaluator: Evaluator,
    judges: Sequence[Judge],
    builders: Sequence[Builder],
    config: Any,
    selection: Selection,
    progress: Progress,
    report: Callable[[Tables], object] = bool,
) -> Tally:
    """Judge the pending kernels and append each result as a bundle of its own.

    Results of an interrupted run are stored, and the next run continues with the rest. `report` is
    called with the rows of each case.

    Raises DeviceUnavailable: no device is left to judge on; all finished results are stored.
    """
    tally = Tally()
    devices = list({judge.row["device_id"]: judge.row for judge in judges}.values())
    with (
        store.writer(lake_url, author="evaluators run") as writer,
        store.Location.of(lake_url).open_leases() as leases,
    ):
        batch = CASES_PER_JUDGE * len(judges)
        cases = LeasedCases(writer, leases, evaluator, devices, selection, batch)
        tally.snapshot = cases.origin[1]
        if not cases.total:
            return tally
        with writer.reader() as lake:
            asked = {"kind": devices[0]["kind"]}
            [speed] = lake.run(read_sql(__file__, "seconds_of_verdicts"), asked).rows()
        minutes = math.ceil(cases.total * speed["seconds"] / len(judges) / 60)
        kernels, time_left = count_nouns(cases.total, "kernel"), count_nouns(minutes, "minute")
        log.info("judging %s, about %s", kernels, time_left)
        options = {"evaluator": asdict(config), "wanted": asdict(selection)}
        committed = time.monotonic()
        confirm_win = find_confirm_win(evaluator)
        with record_evaluation(writer, evaluator, devices, options, cases.origin) as record:
            try:
                for result in judge_cases(cases.read_batches(), judges, builders, confirm_win):
                    if result.device not in devices:  # a judge has restarted elsewhere
                        devices.append(result.device)
                        writer.append({"devices": [result.device]}, message="a device joins")
                    if result.unfit is not None:
                        if result.fault not in tally.unfit:
                            log.warning("%s", result.unfit)
                        tally.unfit[result.fault] = tally.unfit.get(result.fault, 0) + 1
                        cases.release(result.case)
                        continue
                    [tables] = append_results(writer, evaluator, record.run_id, [result])
                    cases.finish(result.case)
                    if time.monotonic() - committed > COMMIT_EVERY_S:
                        cases.commit()
                        committed = time.monotonic()
                    tally.count(tables)
                    report(tables)
                    status = tables["evaluations"][0]["status"]
                    if log.isEnabledFor(logging.DEBUG):
                        name = f"{result.case.kernel_id[:8]} {quote_name(result.case.path)}"
                        echo.print_note(f"{status:16} {name}")
                    progress(tally.evaluations, cases.total, f"judged (last: {status})")
            finally:
                with interrupts.wait_for("the commit of the verdicts"):
                    cases.commit()
        tally.snapshot, tally.held_by_others = record.snapshot, cases.held_by_others
    return tally


def _make_bundle(
    evaluator: Evaluator, run_id: str, result: JudgedCase, tables: Tables
) -> store.Bundle:
    """Return the bundle of a case, with what the rows do not know themselves."""
    for row in (*tables["evaluations"], *tables.get("findings", [])):
        row["run_id"] = run_id
    is_fault = tables["evaluations"][0]["status"] == "evaluator_error"
    if getattr(evaluator, "READS_TEXTS", False) and not is_fault:
        tables = {**tables, "scans": [{"kernel_id": result.case.kernel_id, "run_id": run_id}]}
    # A fault is one of the precision that was asked for; the protocol decides what ranks.
    # Evaluators for versions before 0.6.0, and answers in their queues, call it `policy`.
    evaluation = tables["evaluations"][0]
    evaluation.setdefault("precision", evaluation.pop("policy", result.case.precision))
    if result.case.protocol is not None:
        evaluation["protocol"] = result.case.protocol
    identity = name_verdict(evaluator, result.device, result.case)
    # A fault in one run must not keep out the verdict of another.
    if is_fault:
        identity = content_id("fault", run_id, identity)
    return store.Bundle(
        bundle_id=identity,
        message=f"judged {result.case.kernel_id[:12]}",
        tables=tables,
    )
