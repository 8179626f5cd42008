"""Whether the baselines are right by the judge's own tolerances, on every task that fits.

python benchmarks/baseline_tolerances.py TASKS --out FILE --baseline cudnn
python benchmarks/baseline_tolerances.py TASKS --out FILE --baseline compile --draw 40

TASKS is a folder of task files, a lake, or a file of the CUDA-L1 release (JSON Lines with the field
ref_code). A baseline is another way of running the task's own module, so that it should pass, and
should have a precision class that ranks. For each task, one process has the reference, its double
precision and the errors of eager's other algorithms; another one runs the baseline on the same
inputs, so that neither knows which plan of cuDNN the other has found. Nothing is timed.

FILE gets one JSON object for each task. The next run with the same FILE goes on with the remaining
tasks; --seconds ends a run in time. The program prints a table of all of FILE: what passed, what is
wrong, and what is left out with its reason (a task that draws, remembers its calls, does not fit
into memory or takes too long).

Tasks run in plain processes without a sandbox. Run this program on a machine without other data.
"""

from __future__ import annotations

import argparse
import json
import random
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import torch
from torch import multiprocessing

import store
from evaluators.judging.case import Precision
from evaluators.judging.comparison import Comparison, compare, is_same_answer, merge_comparisons
from evaluators.judging.tolerance import TOLERANCE, get_tolerance, is_below
from evaluators.memory.cuda_driver import release_unused_memory
from evaluators.memory.values import split_arguments
from evaluators.references.module import TaskFailed, TaskModule
from evaluators.references.operations import EagerError
from evaluators.references.task import Expected, call_seed
from evaluators.worker.baselines import list_baselines, prepare

TASKS = "SELECT task_id[:12] AS name, code FROM tasks ORDER BY task_id"
_ANSWER_LIMIT_S = 120.0


class LeftOut(Exception):
    """The task shows nothing about a baseline; the text says why."""


def read_tasks(source: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of every task."""
    if source.is_file():
        for line in source.read_text("utf-8").splitlines():
            row = json.loads(line)
            yield f"level{row['level_id']}/{row['task_id']}", row["ref_code"]
        return
    files = sorted(source.glob("**/*.py"))
    if files:
        for file in files:
            yield str(file.relative_to(source)), file.read_text("utf-8")
        return
    with store.open(str(source)) as lake:
        rows = lake.run(TASKS).arrow().to_pylist()
    yield from ((row["name"], row["code"]) for row in rows)


def set_flags(precision: str, *, is_reference: bool) -> None:
    """Set the flags of a precision, as the workers of the judge do."""
    allowing = ("torch_default",) if is_reference else ("torch_default", "allow_tf32")
    torch.backends.cudnn.allow_tf32 = precision in allowing
    torch.backends.cuda.matmul.allow_tf32 = precision == "allow_tf32" and not is_reference


def run_baseline(connection: Any, device: str, precision: str, baseline: str) -> None:
    """Answer the calls of tasks by a baseline, until the parent closes the connection."""
    set_flags(precision, is_reference=False)
    task: TaskModule | None = None
    call: Any = None
    while True:
        try:
            path, seed = connection.recv()
        except EOFError:
            return
        try:
            if path is not None:
                task = call = None
                release_unused_memory()
                task = TaskModule(path, {}, device)
            assert task is not None
            inputs = task.inputs(seed)
            with torch.no_grad():
                args, named = split_arguments(inputs)
                call = call or prepare(task.module(), baseline, args, named)
                output = call(*args, **named)
            if device == "cuda":
                torch.cuda.synchronize()
            connection.send((True, output))
        except Exception as error:
            connection.send((False, f"{type(error).__name__}: {error}"[:500]))


class Baseline:
    """The process of a baseline."""

    def __init__(self, device: str, precision: str, name: str) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(
            target=run_baseline, args=(other, device, precision, name), daemon=True
        )
        self._process.start()
        other.close()

    def answer(self, path: str | None, seed: int) -> Any:
        """Return the answer to the inputs of a seed; of a new task if a path is given."""
        self._connection.send((path, seed))
        if not self._connection.poll(_ANSWER_LIMIT_S):
            raise LeftOut(f"the baseline takes more than {_ANSWER_LIMIT_S:.0f} s")
        is_answer, value = self._connection.recv()
        if not is_answer:
            raise LeftOut(f"the baseline fails: {value}")
        return value

    def end(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.join()


def judge(
    path: str, baseline: Baseline, device: str, precision: Precision, calls: int, task_s: float
) -> dict[str, Any]:
    """Return the figures of a baseline on a task. Raises LeftOut, TaskFailed."""
    begin = time.perf_counter()
    limits = {str(dtype): get_tolerance(dtype, precision) for dtype in TOLERANCE}
    task = TaskModule(path, {}, device)
    errors: list[EagerError | None] = []
    rounds = False
    for _ in range(2):
        seed = secrets.randbits(48)
        inputs = task.inputs(seed)
        largest, rounds, _ = task.measure_algorithms(inputs, call_seed(seed), precision, limits)
        errors = list(map(EagerError.merge, largest, errors or largest))
    total, own = Comparison(), Comparison()
    for number in range(calls):
        if time.perf_counter() - begin > task_s:
            raise LeftOut(f"takes more than {task_s:.0f} s")
        seed = secrets.randbits(48)
        inputs = task.inputs(seed)
        value, exact = task.answer(inputs, call_seed(seed))
        own_only = Expected(value, exact, inputs)
        if task.draws:
            raise LeftOut("draws random numbers")
        if task.changed:
            raise LeftOut("changes its inputs")
        if number == 0 and not is_same_answer(own_only, value, task.value(inputs, call_seed(seed))):
            raise LeftOut("remembers its calls")
        expected = Expected(
            value,
            exact,
            inputs,
            algorithms=errors if len(errors) == len(exact) else (),
            steps=lambda inputs=inputs, seed=seed: task.steps(inputs, seed, limits)[0],
            rounds=rounds,
        )
        asked = time.perf_counter()
        output = baseline.answer(path if number == 0 else None, seed)
        begin += time.perf_counter() - asked  # it may compile

        def read_choices(inputs: list[Any] = inputs, seed: int = seed) -> Any:
            return task.choices(inputs, seed)

        comparison = compare(expected, output, precision, read_choices)
        total = comparison if comparison.reason else merge_comparisons(total, comparison)
        without = compare(own_only, output, precision, read_choices)
        own = own if own.reason else without if without.reason else merge_comparisons(own, without)
        if total.reason:
            break
    return {
        "status": "wrong" if total.reason else "right",
        "message": total.message,
        "error_of_tolerance": total.max_scaled_error,
        "error_of_eagers_tolerance": own.max_scaled_error,
        "by_eager_alone": "wrong" if own.reason else "right",
        "precision": total.precision_class,
        "lowest": total.lowest_class,
        "ranks": not is_below(total.precision_class, total.lowest_class),
        "seconds": round(time.perf_counter() - begin, 2),
    }


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print the figures of all tasks so far."""
    counts = {
        "right": sum(row["status"] == "right" for row in rows),
        "of them, below the precision that ranks": sum(
            row["status"] == "right" and not row["ranks"] for row in rows
        ),
        "of them, wrong by eager's own algorithm alone": sum(
            row["status"] == "right" and row["by_eager_alone"] == "wrong" for row in rows
        ),
        "wrong": sum(row["status"] == "wrong" for row in rows),
        "left out": sum(row["status"] == "left out" for row in rows),
    }
    print("| tasks | number |\n|---|---|")
    for name, count in counts.items():
        print(f"| {name} | {count} |")
    largest = sorted(
        (row for row in rows if row["status"] == "right" and row["error_of_tolerance"] is not None),
        key=lambda row: -row["error_of_tolerance"],
    )[:5]
    print("\n| nearest to its tolerance | error | by eager alone | precision |\n|---|---|---|---|")
    for row in largest:
        print(
            f"| {row['task']} | {row['error_of_tolerance']:.3g}"
            f" | {row['error_of_eagers_tolerance'] or 0:.3g} | {row['precision']} |"
        )
    print("\n| task | status | reason |\n|---|---|---|")
    for row in rows:
        if row["status"] != "right" or not row["ranks"]:
            reason = row["message"] or f"{row['precision']}, {row['lowest']} ranks"
            print(f"| {row['task']} | {row['status']} | {reason} |")


def main() -> None:
    """Judge the tasks that FILE does not have, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--baseline", default="cudnn")
    parser.add_argument("--precision", default="torch_default", choices=get_args(Precision))
    parser.add_argument("--draw", type=int, help="judge as many tasks, drawn at random")
    parser.add_argument("--calls", type=int, default=4)
    parser.add_argument("--task-s", type=float, default=30.0)
    parser.add_argument("--seconds", type=float, default=450.0)
    options = parser.parse_args()
    if options.baseline not in list_baselines(options.device):
        raise SystemExit(f"{options.device} has no baseline {options.baseline}")
    begin = time.perf_counter()
    tasks = list(read_tasks(options.tasks))
    if options.draw is not None:
        tasks = random.Random(0).sample(tasks, min(options.draw, len(tasks)))
    lines = options.out.read_text("utf-8").splitlines() if options.out.exists() else []
    rows = [json.loads(line) for line in lines]
    known = {row["task"] for row in rows}
    set_flags(options.precision, is_reference=True)
    start = (options.device, options.precision, options.baseline)
    baseline = Baseline(*start)
    with TemporaryDirectory() as folder, options.out.open("a", encoding="utf-8") as out:
        path = Path(folder) / "task.py"
        for name, code in tasks:
            if name in known:
                continue
            if time.perf_counter() - begin > options.seconds:
                print(
                    f"{sum(name not in known for name, _ in tasks)} tasks are left; run this again"
                )
                break
            path.write_text(code, "utf-8")
            try:
                figures = judge(
                    str(path), baseline, options.device, options.precision, options.calls,
                    options.task_s,
                )  # fmt: skip
            except (LeftOut, TaskFailed, torch.OutOfMemoryError, EOFError) as error:
                figures = {"status": "left out", "message": str(error)[:300], "ranks": False}
                baseline.end()
                baseline = Baseline(*start)
            rows.append({"task": name, **figures})
            known.add(name)
            out.write(json.dumps(rows[-1]) + "\n")
            out.flush()
            release_unused_memory()
            print(name, rows[-1]["status"], figures.get("seconds", ""), flush=True)
    baseline.end()
    print_table(rows)


if __name__ == "__main__":
    main()
