"""The grid: every setting of every task is judged once, in pieces that resume.

    python -m lab.scores.grid pending OUT              # names of the kernels to judge, one a line
    python -m lab.scores.grid judge FILE --pending NAMES --budget-s 540 --workers 4
    python -m lab.scores.grid load OUT                 # OUT/results/*.jsonl.gz → OUT/lakes
    python -m lab.scores.grid surface OUT              # OUT/lakes → OUT/surface.parquet

`judge` needs neither a lake nor DuckDB, so it runs on a machine that has only PyTorch and Triton:
tasks and kernels follow from the generator, and every verdict is a line of FILE. `pending` reads
what OUT/results has, so the next `judge` gets the rest.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lab.scores.budget import Budget, say
from lab.scores.tasks import (
    KNOBS,
    OPERATIONS,
    SEED,
    GridTask,
    Setting,
    Split,
    list_settings,
    list_tasks,
)
from store import ids
from store.errors import FlywheelError

if TYPE_CHECKING:
    import pyarrow as pa

    import store
    from evaluators.judging.case import Case

SUITE = "lab-scores"
SPLITS: tuple[Split, ...] = ("train", "test")
_KERNEL_S = 2.5
"""Assumed seconds of a verdict, before the first ones tell."""
_RESERVE_S = 25.0
"""Kernels that judges hold when the budget ends are finished in this time."""
_TRIES = 2
"""Most verdicts on a kernel whose sessions are disturbed."""
_PATH = "kernel.py"


@dataclass(frozen=True, kw_only=True)
class GridKernel:
    """One setting of one task."""

    task: GridTask
    setting: Setting
    code: str
    kernel_id: str
    """Tasks of one operation share their kernels, which do not state sizes."""

    @property
    def place(self) -> str:
        """Name of the kernel at its task."""
        return _name_place({"task_id": self.task.task_id, "kernel_id": self.kernel_id})

    def make_case(self) -> Case:
        """Return what a judge process is sent."""
        from evaluators.judging.case import Case

        return Case(
            kernel_id=self.kernel_id,
            task_id=self.task.task_id,
            workload_id=ids.workload_id(self.task.task_id, self.task.axes),
            code=self.code,
            path=_PATH,
            task_code=self.task.code,
            axes=self.task.axes,
            precision="torch_default",
            protocol="training",
            trusted=True,
        )


def list_kernels(splits: Sequence[Split] = SPLITS) -> Iterator[GridKernel]:
    """Yield the kernels of the grid, task by task."""
    for task in list_tasks():
        if task.split in splits:
            for setting in list_settings(task.family):
                code = task.write_kernel(setting)
                kernel_id = ids.kernel_id({_PATH: code}, _PATH, "ModelNew")
                yield GridKernel(task=task, setting=setting, code=code, kernel_id=kernel_id)


def make_config(kind: Literal["cpu", "cuda"]) -> Any:
    """Return the judge's options: the protocol training, eager alone, no drawn shapes."""
    from evaluators.judge import Config

    options: dict[str, Any] = {"protocol": "training", "baselines": ("eager",), "draw_shapes": 0}
    if kind == "cpu":
        options["timing_s"] = 0.2
    return Config(**options)


def read_results(files: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Yield the verdicts in files of `judge`. The end of a file that was cut off is left out."""
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            try:
                for line in lines:
                    if line.endswith("\n"):
                        yield json.loads(line)
            except EOFError:
                say(f"{file.name} is cut off; its whole lines count")


def find_pending(
    results: Iterable[Mapping[str, Any]],
    splits: Sequence[Split],
    operations: Sequence[str] = tuple(OPERATIONS),
) -> list[str]:
    """Return the places of kernels without a verdict that counts, in the order of judging.

    A verdict whose session is disturbed counts only if it is the second one.
    """
    settled: set[str] = set()
    judged: Counter[str] = Counter()
    for result in results:
        name = _name_place(result["case"])
        if result["tables"]["evaluations"][0]["status"] == "evaluator_error":
            continue
        judged[name] += 1
        if not is_disturbed(result) or judged[name] == _TRIES:
            settled.add(name)
    wanted = [
        kernel.place for kernel in list_kernels(splits) if kernel.task.operation in operations
    ]
    return [name for name in wanted if name not in settled]


def is_disturbed(result: Mapping[str, Any]) -> bool:
    """Whether other work disturbed the session of a verdict."""
    if "contended" in (result["tables"]["evaluations"][0].get("flags") or ()):
        return True
    return any(row.get("disturbed", row["noisy"]) for row in result["tables"].get("timings", []))


def judge(
    file: Path,
    kernels: Sequence[GridKernel],
    *,
    device: str,
    workers: int,
    budget: Budget,
) -> int:
    """Judge kernels until the budget ends; write a line for each. Return the number of verdicts.

    Raises FlywheelError if the file exists: lines after those of a killed command are unreadable.
    """
    if file.exists():
        raise FlywheelError(f"{file} has verdicts of an earlier command", "Name another file.")
    from evaluators.device import placement
    from evaluators.judge import VERSION
    from evaluators.scheduling import contract
    from evaluators.scheduling.judge_threads import judge_cases
    from evaluators.scheduling.judges.process import start_judges
    from evaluators.scheduling.run import open_judges

    evaluator = contract.load("judge")
    layout = placement.divide_machine(device, workers)
    config = make_config("cpu" if device == "cpu" else "cuda")
    say(f"judge version {VERSION}, {json.dumps(asdict(config))}")
    budget.announce("kernels", len(kernels), _KERNEL_S)
    waiting = take_turns(kernels, len(layout.places))

    def draw_batches() -> Iterator[list[Case]]:
        # One case at a time, so that little is left in progress when the budget ends.
        for kernel in waiting:
            if budget.left < _RESERVE_S:
                return
            yield [kernel.make_case()]

    done = 0
    statuses: Counter[str] = Counter()
    file.parent.mkdir(parents=True, exist_ok=True)
    with (
        gzip.open(file, "wt", encoding="utf-8") as lines,
        open_judges(start_judges("judge", layout.places, config)) as (judges, _),
    ):
        confirm_win = contract.find_confirm_win(evaluator)
        for result in judge_cases(draw_batches(), judges, (), confirm_win):
            if result.tables is None:
                say(f"{result.case.kernel_id[:12]} has no verdict: {result.fault}")
                continue
            line = {"case": _name_case(result.case), "device": result.device}
            lines.write(json.dumps(line | {"tables": result.tables}, default=_write_time) + "\n")
            lines.flush()
            done += 1
            statuses[result.tables["evaluations"][0]["status"]] += 1
            if done in (8, 32) or done % 100 == 0:
                budget.report("kernels", done, len(kernels))
    say(f"{done} verdicts in {budget.spent:.0f} s: {dict(statuses)}, {len(kernels) - done} left")
    return done


def take_turns(kernels: Iterable[GridKernel], judges: int) -> Iterator[GridKernel]:
    """Yield kernels of as many tasks in turn as there are judges.

    A judge prefers kernels of the task whose reference it has computed, if one is waiting.
    """
    tasks: dict[str, list[GridKernel]] = {}
    for kernel in kernels:
        tasks.setdefault(kernel.task.task_id, []).append(kernel)
    later = deque(map(deque, tasks.values()))
    turns = deque(later.popleft() for _ in range(min(judges, len(later))))
    while turns:
        task = turns.popleft()
        yield task.popleft()
        if task:
            turns.append(task)
        elif later:
            turns.append(later.popleft())


def load(out: Path) -> dict[str, int]:
    """Write the verdicts of OUT/results into new lakes, one for each split.

    Raises FlywheelError where they are of several versions of the judge or several kinds of device.
    """
    results = list(read_results(sorted((out / "results").glob("*.jsonl.gz"))))
    versions = {row["tables"]["evaluations"][0]["evaluator_version"] for row in results}
    devices = {row["device"]["name"] for row in results}
    if len(versions) > 1 or len(devices) > 1:
        raise FlywheelError(
            f"the results are of the judge's versions {versions} on {devices}",
            "A grid has one version and one kind of device: judge the others again.",
        )
    split_of = {task.task_id: task.split for task in list_tasks()}
    counts: dict[str, int] = {}
    for split in SPLITS:
        mine = [row for row in results if split_of[row["case"]["task_id"]] == split]
        counts[split] = len(mine)
        fill_lake(out / "lakes" / split, split, mine)
    return counts


def fill_lake(
    folder: Path,
    split: Split,
    results: Sequence[Mapping[str, Any]],
    kernels: Iterable[GridKernel] | None = None,
) -> None:
    """Append the tasks and kernels of a split to a lake, and verdicts on them.

    Args:
        folder: Folder of the lake; it is made if it does not exist.
        split: The split.
        results: The verdicts. Those that the lake has are skipped.
        kernels: Kernels of the split (default: all).
    """
    import store
    from evaluators.judging.case import Case
    from evaluators.scheduling import contract
    from evaluators.scheduling.judge_threads import JudgedCase
    from evaluators.scheduling.run import append_results, record_evaluation

    evaluator = contract.load("judge")
    with store.writer(str(folder), author="lab scores") as writer:
        writer.append_all([make_bundle(split, kernels or list_kernels((split,)))])
        if not results:
            return
        with writer.reader() as lake:
            origin = (lake.lake_id, lake.snapshot)
            stored = Counter(
                _name_place(row)
                for row in lake.run("SELECT task_id, kernel_id FROM evaluations").rows()
            )
        devices = {row["device"]["device_id"]: _read_times(row["device"]) for row in results}
        options = {"evaluator": asdict(make_config("cuda"))}
        judged: list[JudgedCase] = []
        seen: Counter[str] = Counter()
        for row in results:
            name = _name_place(row["case"])
            case = Case.read(row["case"] | {"earlier": seen[name]})
            seen[name] += 1
            if seen[name] <= stored[name]:
                continue  # an earlier call has stored it
            tables = {
                name: [_read_times(one) for one in rows] for name, rows in row["tables"].items()
            }
            judged.append(JudgedCase(case, devices[row["device"]["device_id"]], tables))
        if not judged:
            return
        with record_evaluation(
            writer, evaluator, list(devices.values()), options, origin
        ) as record:
            append_results(writer, evaluator, record.run_id, judged)


def make_bundle(split: Split, kernels: Iterable[GridKernel]) -> store.Bundle:
    """Return tasks and kernels of a split, as an importer writes them."""
    from store.importers.generated import HELD_OUT, LICENSE, SUITE_REVISION, Config
    from store.importers.reading.pieces import BundleRows

    rows = BundleRows(
        source=SUITE,
        source_revision=SUITE_REVISION,
        license=LICENSE,
        importer=SUITE,
        namespace=SUITE,
        run_id=ids.content_id("lab-scores", SUITE_REVISION, split),
    )
    suffix = HELD_OUT if split == "test" else ""
    for kernel in kernels:
        task = kernel.task
        family = task.family + suffix
        task_id = rows.add_task(task.code)
        name = f"{family}/{task_id[:12]}"
        rows.add_label(
            task_id,
            family=family,
            suite=SUITE,
            revision=SUITE_REVISION,
            name=name,
            title=task.task.title,
        )
        workload_id = ids.workload_id(task_id, task.axes)
        rows.add(
            "workloads",
            (workload_id,),
            {
                "workload_id": workload_id,
                "task_id": task_id,
                "name": "cuda",
                "axes": task.axes,
                "generator": "get_inputs",
            },
        )
        decided = {"suite": SUITE, "family": family, "split": split, "rule": "by operation"}
        rows.add("splits", (SUITE, family), decided)
        rows.add_kernel({_PATH: kernel.code})
    config = Config(families=tuple(KNOBS), seed=SEED, steps=1)
    return rows.make_bundle(f"the grid: {split}", config=config, what=SUITE)


def read_surface(out: Path) -> pa.Table:
    """Return the surface of both lakes: one row per kernel of the grid that was judged."""
    import pyarrow as pa

    import store

    query = Path(__file__).parent / "flywheel/pipelines/sql/scored_settings/surface.sql"
    tables: list[pa.Table] = []
    for split in SPLITS:
        with store.open(str(out / "lakes" / split)) as lake:
            statement = store.read_statement(query)
            tables.append(lake.run(statement).arrow())
    return pa.concat_tables(tables)


def _name_case(case: Case) -> dict[str, Any]:
    names = ("kernel_id", "task_id", "workload_id", "precision", "protocol", "earlier")
    return {name: getattr(case, name) for name in names}


def _name_place(row: Mapping[str, Any]) -> str:
    return f"{row['task_id'][:16]}/{row['kernel_id'][:16]}"


def _write_time(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no place in a verdict")


def _read_times(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with its times as times."""
    return {
        name: datetime.fromisoformat(value)
        if name.endswith("_at") and isinstance(value, str)
        else value
        for name, value in row.items()
    }


def main() -> None:
    """Run one step of the grid."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    steps = parser.add_subparsers(dest="step", required=True)
    step = steps.add_parser("pending")
    step.add_argument("out", type=Path)
    step.add_argument("--split", choices=SPLITS)
    step.add_argument("--operations", nargs="+", choices=OPERATIONS, default=tuple(OPERATIONS))
    step = steps.add_parser("load")
    step.add_argument("out", type=Path)
    step = steps.add_parser("surface")
    step.add_argument("out", type=Path)
    step = steps.add_parser("judge")
    step.add_argument("file", type=Path)
    step.add_argument(
        "--pending", type=Path, help="file of `pending`, which names the kernels to judge"
    )
    step.add_argument("--limit", type=int, help="judge at most N kernels")
    step.add_argument("--device", default="cuda:0")
    step.add_argument("--workers", type=int, default=4)
    step.add_argument("--budget-s", type=float, required=True)
    given = parser.parse_args()
    if given.step == "judge":
        budget = Budget(given.budget_s)
        kernels = list(list_kernels())
        if given.pending is not None:
            wanted = set(given.pending.read_text("utf-8").split())
            kernels = [kernel for kernel in kernels if kernel.place in wanted]
        judge(
            given.file,
            kernels[: given.limit],
            device=given.device,
            workers=given.workers,
            budget=budget,
        )
        return
    if given.step == "pending":
        files = sorted((given.out / "results").glob("*.jsonl.gz"))
        splits: tuple[Split, ...] = (given.split,) if given.split else SPLITS
        say("\n".join(find_pending(read_results(files), splits, given.operations)))
    elif given.step == "load":
        say(f"verdicts in the lakes: {load(given.out)}")
    else:
        import pyarrow.parquet as pq

        surface = read_surface(given.out)
        pq.write_table(surface, given.out / "surface.parquet", compression="zstd")
        say(f"{surface.num_rows} kernels → {given.out / 'surface.parquet'}")


if __name__ == "__main__":
    main()
