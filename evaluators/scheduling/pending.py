"""From a lake to rows in it: pick what lacks a verdict, judge it, append each result at once."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import store
from evaluators.device.placement import Place
from evaluators.scheduling import answers
from evaluators.scheduling.judge_process import Host
from evaluators.scheduling.prebuild import Builder
from evaluators.scheduling.queue import Compiler, Judge, Judged, judged
from evaluators.worker.build_cache import Builds, default_root
from store.commandline import echo
from store.commandline.escape import quote_name
from store.commandline.progress import Progress
from store.errors import RowsRejected, UnknownName
from store.ids import uuid7
from store.lake.limits import QueryLimits

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

_SQL = Path(__file__).parent / "sql"
_SHORTEST_ID = 6
_COMMIT_EVERY_S = 60.0
"""How long rows of a run may lie in the spool before other readers see them."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which of the pending kernels to judge."""

    suite: str | None = None
    """Suite of the tasks; None for every suite."""
    kernel: str | None = None
    """Kernel id or the start of one."""
    where: str | None = None
    """SQL over the columns of pending.sql."""
    contended: bool = False
    """Also those whose every session shared its host with other work."""
    limit: int | None = None


@dataclass
class Tally:
    """What a run has appended."""

    evaluations: int = 0
    timings: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    contended: int = 0
    """Sessions that shared their host with other work."""
    snapshot: int = 0

    def count(self, tables: dict[str, list[dict[str, Any]]]) -> None:
        """Add the rows of one case."""
        self.evaluations += 1
        self.timings += len(tables["timings"])
        [evaluation] = tables["evaluations"]
        status = evaluation["status"]
        self.statuses[status] = self.statuses.get(status, 0) + 1
        # A case whose judge is lost has no flags.
        self.contended += "contended" in evaluation.get("flags", ())

    def __str__(self) -> str:
        timeouts = self.statuses.get("timeout", 0)
        some = f" ({timeouts} timeout{'s' * (timeouts != 1)})" if timeouts else ""
        rows = f"evaluations +{self.evaluations}{some} timings +{self.timings}"
        return f"{rows} → snapshot {self.snapshot}"


@dataclass(frozen=True)
class Problem:
    """A task to check a file of the user's own against."""

    code: str
    axes: dict[str, str]
    """Axes by the kind of device; the default ones stand under `default`."""

    def case(self, file: Path, device_kind: str) -> dict[str, Any]:
        """The case of one file, not bound to any lake."""
        code = file.read_text("utf-8", errors="surrogateescape")
        axes = self.axes.get(device_kind, self.axes.get("default", "{}"))
        task_id = store.ids.task_id(self.code)
        return {
            "kernel_id": store.ids.content_id("file", code.encode("utf-8", "replace").decode()),
            "task_id": task_id,
            "workload_id": store.ids.workload_id(task_id, axes),
            "code": code,
            "path": file.name,
            "task_code": self.code,
            "axes": axes,
            "other_files": [],
            "trusted": True,
        }


def pending(
    lake: store.Lake, member: ModuleType, devices: Sequence[dict[str, Any]], wanted: Wanted
) -> pa.Table:
    """Kernels and tasks without evidence of this evaluator version on these devices, in order.

    Args:
        lake: Where to look.
        member: The evaluator.
        devices: Rows of devices of one kind; a verdict on any of them is enough.
        wanted: What to leave out.

    Raises:
        UnknownName: the kernel or suite asked for is not there.
    """
    _check_known(lake, wanted)
    query = (_SQL / "pending.sql").read_text("utf-8")
    given = {
        "evaluator": name_of(member),
        "version": member.VERSION,
        "device_ids": sorted({device["device_id"] for device in devices}),
        "device_kind": devices[0]["kind"],
        "suite": wanted.suite,
        "contended": wanted.contended,
    }
    if wanted.where is None:
        found = lake.run(query, given).arrow()
    else:
        # What the user writes goes through the guard, together with our own text around it.
        guarded = f"WITH pending AS ({query}) FROM pending WHERE ({wanted.where}\n)"
        found = lake.sql(guarded, given, QueryLimits(max_rows=0)).arrow()
    if wanted.kernel is not None:
        keep = [str(k).startswith(wanted.kernel) for k in found["kernel_id"].to_pylist()]
        found = found.filter(keep)
    return found if wanted.limit is None else found.slice(0, wanted.limit)


@contextmanager
def local(
    evaluator: str, places: Sequence[Place], builders: Sequence[tuple[int, ...]], config: Any
) -> Generator[tuple[list[Host], list[Builder]]]:
    """Yield judges at places of this machine, and builders on those cores; they end together.

    Raises:
        DeviceUnavailable: a device is not there, or cannot be measured on.
    """
    with ExitStack() as stack:
        hosts = [
            stack.enter_context(Host(evaluator, place.device, config, place.cores))
            for place in places
        ]
        tools = Builds(default_root(), hosts[0].toolchain)
        tools.trim()
        yield (
            hosts,
            [stack.enter_context(Builder(tools, hosts[0].arch, cores)) for cores in builders],
        )


def begin(
    writer: store.Writer,
    member: ModuleType,
    devices: Sequence[dict[str, Any]],
    config: dict[str, Any],
    origin: tuple[str, int],
) -> str:
    """Append the row of a run that begins, and its devices; return its id.

    Args:
        writer: Where to append.
        member: The evaluator.
        devices: Rows of devices.
        config: What was asked for.
        origin: Lake and snapshot that were read.
    """
    run_id = uuid7()
    started = {
        "run_id": run_id,
        "kind": "evaluation",
        "name": name_of(member),
        "config": json.dumps(config),
        "version": store.__version__,
        "lake_id": origin[0],
        "snapshot_id": origin[1],
        "host": devices[0]["host"],
        "started_at": datetime.now(UTC),
    }
    writer.append({"runs": [started], "devices": list(devices)}, message="evaluation begins")
    return run_id


def keep(
    writer: store.Writer, member: ModuleType, run_id: str, result: Judged
) -> dict[str, list[dict[str, Any]]]:
    """Spool what came of one case as a bundle of its own; return its rows.

    Rows of a table that break a rule of the catalog are left out, and nothing else is lost by them:
    where it is the evaluation that breaks one, the case is a fault of ours.
    """
    tables = result.tables or _fault(result.case, member, result, result.fault)
    message = f"judged {result.case['kernel_id'][:12]}"
    failed = not result.tables
    while True:
        for row in (*tables["evaluations"], *tables.get("findings", [])):
            row["run_id"] = run_id
        try:
            writer.append(tables, message=message, wait=False)
        except RowsRejected as error:
            log.warning("%s: rows of %s are left out: %.300a", message, error.table, str(error))
            if error.table == "evaluations" and failed:
                raise
            if error.table == "evaluations":
                failed = True
                why = f"the evaluator's answer breaks a rule: {error.rule}"
                tables = _fault(result.case, member, result, why)
            else:
                tables = {**tables, error.table: []}
        else:
            return tables


def run(
    lake_url: str | None,
    member: ModuleType,
    judges: Sequence[Judge],
    builders: Sequence[Compiler],
    config: Any,
    wanted: Wanted,
    progress: Progress,
) -> Tally:
    """Judge what is pending and append each result as a bundle of its own.

    What was judged before an interruption stays; running again goes on with the rest.

    Raises:
        DeviceUnavailable: no device is left to judge on; what was judged is stored.
    """
    tally = Tally()
    devices = {judge.row["device_id"]: judge.row for judge in judges}
    with store.writer(lake_url, author="evaluators run") as writer:
        with writer.reader() as lake:
            found = pending(lake, member, list(devices.values()), wanted)
            cases = list(texts(lake, found, judges[0].row["name"]))
            tally.snapshot = lake.snapshot
            origin = (lake.lake_id, lake.snapshot)
        if not cases:
            return tally
        asked = {"evaluator": asdict(config), "wanted": asdict(wanted)}
        run_id = begin(writer, member, list(devices.values()), asked, origin)
        committed = time.monotonic()
        try:
            for result in judged(cases, judges, builders):
                tables = keep(writer, member, run_id, result)
                if time.monotonic() - committed > _COMMIT_EVERY_S:
                    writer.flush()
                    committed = time.monotonic()
                tally.count(tables)
                status = tables["evaluations"][0]["status"]
                if log.isEnabledFor(logging.DEBUG):
                    name = f"{result.case['kernel_id'][:8]} {quote_name(result.case['path'])}"
                    echo.print_note(f"{status:16} {name}")
                progress(tally.evaluations, len(cases), f"judged, last {status}")
        finally:
            tally.snapshot = writer.flush()
    return tally


def problem(task: str, lake_url: str | None) -> Problem:
    """The task of a file, or of the lake by name or by the start of its id.

    A name may be given with its suite before it, as in kernelbench/level1/12.

    Raises:
        UnknownName: no such task, or several.
    """
    if task.endswith(".py") and Path(task).is_file():
        return Problem(store.ids.normalize(Path(task).read_text("utf-8")), {})
    with store.open(lake_url) as lake:
        names = lake.run((_SQL / "tasks.sql").read_text("utf-8")).rows()
        asked = {
            row["task_id"]: row
            for row in names
            if task in (row["name"], f"{row['suite']}/{row['name']}")
            or (len(task) >= _SHORTEST_ID and row["task_id"].startswith(task))
        }
        if not asked:
            raise UnknownName.among("task", task, sorted({row["name"] for row in names}))
        if len(asked) > 1:
            listed = ", ".join(
                f"{one} ({row['suite']} {row['suite_revision']})"[:60]
                for one, row in list(asked.items())[:4]
            )
            raise UnknownName(f'"{task}" names {len(asked)} tasks: {listed}', "Give an id.")
        chosen = {"task_id": next(iter(asked))}
        code = lake.run("SELECT code FROM tasks WHERE task_id = $task_id", chosen).rows()[0]["code"]
        settings = 'SELECT "name", axes FROM workloads WHERE task_id = $task_id'
        axes = {row["name"]: row["axes"] for row in lake.run(settings, chosen).rows()}
    return Problem(code, axes)


def texts(lake: store.Lake, wanted: pa.Table, device: str) -> Iterator[dict[str, Any]]:
    """The cases of a table of kernel_id, task_id, workload_id, axes and compiles, in its order."""
    import pyarrow as pa

    order = pa.array(range(wanted.num_rows), pa.int64())
    lake.register("wanted", wanted.append_column("position", order))
    for row in lake.run((_SQL / "cases.sql").read_text("utf-8"), {"device": device}).rows():
        files = row["other_files"] or []
        yield {**row, "other_files": [(file["path"], file["code"]) for file in files]}


def _fault(
    case: dict[str, Any], member: ModuleType, result: Judged, why: str
) -> dict[str, list[dict[str, Any]]]:
    """The row of a case that could not be judged on any try: no fault of the kernel."""
    asked = answers.Asked(
        kernel_id=case["kernel_id"],
        task_id=case["task_id"],
        workload_id=case["workload_id"],
        device_id=result.device["device_id"],
        evaluator=name_of(member),
        version=member.VERSION,
    )
    return answers.fault(asked, why)


def name_of(member: ModuleType) -> str:
    """Return the name under which an evaluator's rows are stored."""
    return member.__name__.rpartition(".")[2].replace("_", "-")


def _check_known(lake: store.Lake, wanted: Wanted) -> None:
    """Raise UnknownName where the suite or kernel asked for is not in the lake, or not one."""
    if wanted.suite is not None:
        suites = [row["suite"] for row in lake.run("SELECT DISTINCT suite FROM task_labels").rows()]
        if wanted.suite not in suites:
            raise UnknownName.among("suite", wanted.suite, suites)
    if wanted.kernel is not None:
        found = lake.run(
            "SELECT kernel_id FROM kernels WHERE starts_with(kernel_id, $1) LIMIT 2",
            [wanted.kernel],
        ).rows()
        if len(found) != 1:
            which = "no kernel has" if not found else "several kernels have"
            raise UnknownName(
                f"{which} an id that starts with {wanted.kernel}",
                'List them with: store query "SELECT kernel_id, path FROM kernels"',
            )
