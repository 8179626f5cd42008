"""Judge the pending kernels of a lake and append each result to it at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import store
from evaluators.device.placement import Place
from evaluators.scheduling import answers
from evaluators.scheduling.contract import Evaluator, Tables, find_confirm_win, name_of
from evaluators.scheduling.judge_threads import Judge, JudgedCase, judge_cases
from evaluators.scheduling.judges.process import JudgeProcess, start_judges
from evaluators.scheduling.pending import (
    CASES_PER_JUDGE,
    LeasedCases,
    Selection,
    find_pending,
    name_verdict,
)
from evaluators.scheduling.prebuild import Builder
from evaluators.worker.build_cache import Builds, default_root
from store.commandline import echo, interrupts
from store.commandline.escape import quote_name
from store.commandline.progress import Progress
from store.errors import RowsRejected
from store.ids import content_id

log = logging.getLogger(__name__)

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
    left_to_others: int = 0
    """Kernels that other runs are judging."""
    unfit: dict[str, int] = field(default_factory=dict[str, int])
    """Kernels that this host cannot judge and that stay pending, by what it lacks."""
    snapshot: int = 0

    def count(self, tables: Tables) -> None:
        """Add the rows of one case."""
        evaluation = tables["evaluations"][0]  # those after it are of other shapes
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
        some = f" ({timeouts} timeout{'s' * (timeouts != 1)})" if timeouts else ""
        shapes = f" and +{self.shapes} at other shapes" if self.shapes else ""
        rows = f"evaluations +{self.evaluations}{some}{shapes} timings +{self.timings}"
        return f"{rows} → snapshot {self.snapshot}"


@contextmanager
def open_judges(
    evaluator: str, places: Sequence[Place], builders: Sequence[tuple[int, ...]], config: Any
) -> Generator[tuple[list[JudgeProcess], list[Builder]]]:
    """Start judges at places of this machine, and builders on other cores; end them together.

    Raises:
        DeviceUnavailable: a device is not there, or cannot be measured on.
    """
    with start_judges(evaluator, places, config) as judges, ExitStack() as stack:
        builds = Builds(default_root(), judges[0].toolchain)
        builds.trim()
        yield (
            judges,
            [stack.enter_context(Builder(builds, judges[0].arch, cores)) for cores in builders],
        )


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

    Args:
        writer: Where to append.
        evaluator: The evaluator.
        devices: Rows of devices.
        config: Options of the run.
        origin: Lake and snapshot that the run reads.
    """
    run = store.make_run(
        kind="evaluation",
        name=name_of(evaluator),
        config=config,
        lake_id=origin[0],
        snapshot_id=origin[1],
    )
    return store.record_run(writer, run, "evaluation begins", {"devices": list(devices)})


def append_result(
    writer: store.Writer,
    evaluator: Evaluator,
    run_id: str,
    result: JudgedCase,
) -> Tables:
    """Spool the rows of one case as a bundle of its own; return them.

    Rows of a table that break a rule of the catalog are left out, and rows of other tables stay.
    Where the evaluation itself breaks a rule, the case gets the status evaluator_error.

    The bundle of a verdict has its id, so that the lake takes one verdict of several runs that
    judged the same case.
    """
    tables = result.tables or _build_fault(evaluator, result, result.fault)
    failed = not result.tables
    while True:
        try:
            writer.append_all([_make_bundle(evaluator, run_id, result, tables)], wait=False)
        except RowsRejected as error:
            kernel = result.case.kernel_id[:12]
            log.warning("%s: rows of %s are left out: %.300a", kernel, error.table, str(error))
            if error.table == "evaluations" and failed:
                raise
            if error.table == "evaluations":
                failed = True
                why = f"the evaluator's answer breaks a rule: {error.rule}"
                tables = _build_fault(evaluator, result, why)
            else:
                tables = {**tables, error.table: []}
        else:
            return tables


def append_results(
    writer: store.Writer,
    evaluator: Evaluator,
    run_id: str,
    results: Sequence[JudgedCase],
) -> list[Tables]:
    """Spool the rows of several cases like `append_result`, but sync them to disk once."""
    every = [result.tables or _build_fault(evaluator, result, result.fault) for result in results]
    bundles = [
        _make_bundle(evaluator, run_id, result, tables)
        for result, tables in zip(results, every, strict=True)
    ]
    try:
        writer.append_all(bundles, wait=False)
    except RowsRejected:
        # Bundles that are spooled already have the same id again, and are stored only once.
        return [append_result(writer, evaluator, run_id, result) for result in results]
    return every


def run(
    lake_url: str | None,
    evaluator: Evaluator,
    judges: Sequence[Judge],
    builders: Sequence[Builder],
    config: Any,
    selection: Selection,
    progress: Progress,
) -> Tally:
    """Judge the pending kernels and append each result as a bundle of its own.

    Results of an interrupted run are stored, and the next run continues with the rest.

    Raises:
        DeviceUnavailable: no device is left to judge on; all finished results are stored.
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
                    tables = append_result(writer, evaluator, record.run_id, result)
                    cases.finish(result.case)
                    if time.monotonic() - committed > COMMIT_EVERY_S:
                        cases.commit()
                        committed = time.monotonic()
                    tally.count(tables)
                    status = tables["evaluations"][0]["status"]
                    if log.isEnabledFor(logging.DEBUG):
                        name = f"{result.case.kernel_id[:8]} {quote_name(result.case.path)}"
                        echo.print_note(f"{status:16} {name}")
                    progress(tally.evaluations, cases.total, f"judged, last {status}")
            finally:
                with interrupts.wait_for("the commit of the verdicts"):
                    cases.commit()
        tally.snapshot, tally.left_to_others = record.snapshot, cases.left_to_others
    return tally


def _make_bundle(
    evaluator: Evaluator, run_id: str, result: JudgedCase, tables: Tables
) -> store.Bundle:
    """Return the bundle of a case, with what the rows do not know themselves."""
    for row in (*tables["evaluations"], *tables.get("findings", [])):
        row["run_id"] = run_id
    # A fault is one of the policy that was asked for; the protocol decides what ranks.
    tables["evaluations"][0].setdefault("policy", result.case.policy)
    if result.case.protocol is not None:
        tables["evaluations"][0]["protocol"] = result.case.protocol
    identity = name_verdict(evaluator, result.device, result.case)
    # A fault in one run must not keep out the verdict of another.
    if tables["evaluations"][0]["status"] == "evaluator_error":
        identity = content_id("fault", run_id, identity)
    return store.Bundle(
        bundle_id=identity,
        message=f"judged {result.case.kernel_id[:12]}",
        tables=tables,
    )


def _build_fault(evaluator: Evaluator, result: JudgedCase, why: str) -> Tables:
    """Return the row of a case that could not be judged on any try, through no fault of its own."""
    device_id = result.device["device_id"]
    subject = answers.Subject(result.case, device_id, name_of(evaluator), evaluator.VERSION)
    return answers.build_fault(subject, why)
