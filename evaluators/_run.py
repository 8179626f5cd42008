"""From a lake to rows in it: pick what lacks a verdict, judge it, append each result at once."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import store
from evaluators._host import Host
from store.errors import EvaluatorError, SandboxFailed, UnknownName
from store.ids import uuid7

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

JUDGED_SUITE = "starter"
_SQL = Path(__file__).parent / "sql"
_LINE_EVERY_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which of the pending kernels to judge."""

    suite: str = JUDGED_SUITE
    kernel: str | None = None
    """Kernel id or the start of one."""
    where: str | None = None
    """SQL over the columns of pending.sql."""
    limit: int | None = None


@dataclass
class Tally:
    """What a run has appended."""

    evaluations: int = 0
    timings: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    snapshot: int = 0

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
        }


class Progress(Protocol):
    """Told of every verdict as it comes."""

    def __call__(self, done: int, of: int, name: str, status: str) -> None:
        """Take note of one verdict."""


def pending(
    lake: store.Lake, member: ModuleType, device: dict[str, Any], wanted: Wanted
) -> pa.Table:
    """Kernels and tasks without evidence of this evaluator version on this device, in order.

    Raises EvaluatorError for a suite or kernel that this version must not run.
    """
    if wanted.suite != JUDGED_SUITE:
        raise _refusal(f"suite {wanted.suite}")
    if wanted.kernel is not None:
        known = _known_kernel(lake, wanted.kernel)
        if not known["judged"]:
            raise _refusal(f"kernel {known['kernel_id'][:12]}")
    query = (_SQL / "pending.sql").read_text("utf-8")
    given = {
        "evaluator": _name(member),
        "version": member.VERSION,
        "device_id": device["device_id"],
        "device_kind": device["kind"],
        "suite": wanted.suite,
    }
    if wanted.where is None:
        found = lake.run(query, given).arrow()
    else:
        # What the user writes goes through the guard, together with our own text around it.
        found = lake.sql(f"WITH pending AS ({query}) FROM pending WHERE ({wanted.where}\n)", given)
        found = found.arrow()
    if wanted.kernel is not None:
        keep = [str(k).startswith(wanted.kernel) for k in found["kernel_id"].to_pylist()]
        found = found.filter(keep)
    return found if wanted.limit is None else found.slice(0, wanted.limit)


def run(
    lake_url: str | None,
    member: ModuleType,
    host: Host,
    config: Any,
    wanted: Wanted,
    progress: Progress,
) -> Tally:
    """Judge what is pending and append each result as a bundle of its own.

    What was judged before an interruption stays; running again goes on with the rest.
    """
    tally = Tally()
    with store.writer(lake_url, author="evaluators run") as writer:
        with writer.reader() as lake:
            cases = list(_cases(lake, pending(lake, member, host.row, wanted)))
            tally.snapshot = lake.snapshot
            origin = (lake.lake_id, lake.snapshot)
        if not cases:
            return tally
        run_id = uuid7()
        started = {
            "run_id": run_id,
            "kind": "evaluation",
            "name": _name(member),
            "config": json.dumps({"evaluator": asdict(config), "wanted": asdict(wanted)}),
            "version": store.__version__,
            "lake_id": origin[0],
            "snapshot_id": origin[1],
            "host": host.row["host"],
            "started_at": datetime.now(UTC),
        }
        writer.append({"runs": [started], "devices": [host.row]}, message="evaluation begins")
        try:
            for done, case in enumerate(cases, start=1):
                tables = _judged(case, member, host)
                [evaluation] = tables["evaluations"]
                evaluation["run_id"] = run_id
                name = f"{case['path']} {case['kernel_id'][:8]}"
                writer.append(tables, message=f"judged {case['kernel_id'][:12]}", wait=False)
                tally.evaluations += 1
                tally.timings += len(tables["timings"])
                status = evaluation["status"]
                tally.statuses[status] = tally.statuses.get(status, 0) + 1
                progress(done, len(cases), name, status)
        finally:
            tally.snapshot = writer.flush()
    return tally


def problem(task: str, lake_url: str | None) -> Problem:
    """The task of a file, or of the lake by name or by the start of its id. Raises UnknownName."""
    if task.endswith(".py") and Path(task).is_file():
        return Problem(store.ids.normalise(Path(task).read_text("utf-8")), {})
    with store.open(lake_url) as lake:
        names = lake.run((_SQL / "tasks.sql").read_text("utf-8"), {"suite": JUDGED_SUITE}).rows()
        asked = [row for row in names if row["name"] == task or row["task_id"].startswith(task)]
        if not asked:
            known = [row["name"] for row in names if row["judged"]]
            raise UnknownName.among("task", task, known)
        if not asked[0]["judged"]:
            raise _refusal(f"task {asked[0]['name']}")
        chosen = {"task_id": asked[0]["task_id"]}
        code = lake.run("SELECT code FROM tasks WHERE task_id = $task_id", chosen).rows()[0]["code"]
        settings = 'SELECT "name", axes FROM workloads WHERE task_id = $task_id'
        axes = {row["name"]: row["axes"] for row in lake.run(settings, chosen).rows()}
    return Problem(code, axes)


@contextmanager
def shown_progress() -> Generator[Progress]:
    """A bar on a terminal; in a log one line every 30 seconds."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import Progress as Bars
        from rich.text import Text

        console = Console(stderr=True)
        with Bars(console=console, transient=True) as bars:
            bar = bars.add_task("judging", total=None)

            def show(done: int, of: int, name: str, status: str) -> None:
                line = Text(f"{status:16} {name}")
                if log.isEnabledFor(logging.DEBUG):
                    bars.console.print(line)
                bars.update(bar, completed=done, total=of, description=status)

            yield show
    else:
        last = time.monotonic()

        def say(done: int, of: int, name: str, status: str) -> None:
            nonlocal last
            log.debug("%s %s", status, name)
            if time.monotonic() - last > _LINE_EVERY_S:
                last = time.monotonic()
                log.info("%d of %d judged", done, of)

        yield say


def _cases(lake: store.Lake, wanted: pa.Table) -> Iterator[dict[str, Any]]:
    import pyarrow as pa

    order = pa.array(range(wanted.num_rows), pa.int64())
    lake.register("wanted", wanted.append_column("position", order))
    for row in lake.run((_SQL / "cases.sql").read_text("utf-8")).rows():
        files = row["other_files"] or []
        yield {**row, "other_files": [(file["path"], file["code"]) for file in files]}


def _judged(case: dict[str, Any], member: ModuleType, host: Host) -> dict[str, Any]:
    """Rows of one case; where the judging process is lost, a row that says so and a new process."""
    try:
        return host.judge(case)
    except SandboxFailed as failed:
        log.warning("%s %s: %s", case["path"], case["kernel_id"][:12], failed.message)
        host.restart()
        row = {key: case[key] for key in ("kernel_id", "task_id", "workload_id")} | {
            "evaluation_id": uuid7(),
            "device_id": host.row["device_id"],
            "evaluator": _name(member),
            "evaluator_version": member.VERSION,
            "status": "evaluator_error",
            "reason": "internal",
            "message": failed.message,
        }
        return {"evaluations": [row], "timings": []}


def _name(member: ModuleType) -> str:
    return member.__name__.rpartition(".")[2].replace("_", "-")


def _known_kernel(lake: store.Lake, start: str) -> dict[str, Any]:
    """The one kernel whose id starts so, and whether it is of the suite that is judged."""
    found = lake.run(
        "SELECT kernels.kernel_id, coalesce(bool_or(task_labels.suite = $suite), false) AS judged "
        "FROM kernels LEFT JOIN generations ON generations.kernel_id = kernels.kernel_id "
        "LEFT JOIN task_labels ON task_labels.task_id = generations.task_id "
        "WHERE starts_with(kernels.kernel_id, $start) GROUP BY kernels.kernel_id LIMIT 2",
        {"suite": JUDGED_SUITE, "start": start},
    ).rows()
    if len(found) != 1:
        which = "no kernel has" if not found else "several kernels have"
        raise UnknownName(
            f"{which} an id that starts with {start}",
            'List them with: store query "SELECT kernel_id, path FROM kernels"',
        )
    return found[0]


def _refusal(what: str) -> EvaluatorError:
    return EvaluatorError(
        f"{what} is not judged: this version runs the kernels of the {JUDGED_SUITE} suite only, "
        "since imported code is hostile and its sandbox is not yet closed enough for it",
        f"Leave the option out to judge the {JUDGED_SUITE} suite. A file of your own on one of its "
        "tasks: evaluators check FILE --task TASK",
    )
