"""Kernels per minute, how long a verdict holds the device alone, and what several judges change.

    python benchmarks/rate.py [FOLDER ...] [--device cpu|cuda:0] [--judges 1 1 4]
        [--protocols full training] [--kernels 24] [--seconds 240] [--starter all|device|none]
        [--shapes 3]

Every protocol and number of judges is a phase: it starts judges and builders as `evaluators run`
does, with an empty build cache and without a lake, and gives them the same kernels, those of a task
in a row. A phase is timed from the moment at which all judges are ready to the last verdict within
--seconds, builds and second sessions included.

The kernels are the honest ones of the starter suite for the kind of device, and those of folders:
every task.py there is a task, and every other .py, .cu or .cpp file beside it a kernel of it.
--starter device leaves out those that run on any device, and none all of the suite.

The first table has the rates. `held` is the time in which a verdict holds the device alone (the
parts timing and eager_alone), without the second session of a surprising win and without that at
another shape. `alone` and `shared`
are the shares of the phase in which the device was held so, by all sessions, as /proc/locks says
every 5 ms.

The second table compares the speedups over eager, by the clock that ranks, with those of the first
phase of the protocol, in percent. With `--judges 1 1 4`, the second phase says by how much two
sessions of one judge differ, and the third what four judges change. `bias` is the median with its
sign. The third table has the median seconds of each part of a correct verdict.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evaluators.device.lock import DeviceLock
from evaluators.device.placement import Place, divide_machine
from evaluators.judge import Config
from evaluators.judging.case import Case
from evaluators.scheduling import contract
from evaluators.scheduling.cases import TaskText, read_kernel, read_task
from evaluators.scheduling.judge_threads import judge_cases
from evaluators.scheduling.judges.process import start_judges
from evaluators.scheduling.run import open_judges
from store.errors import FlywheelError
from store.importers import starter

SHORT_MS = 1.0
LOOK_S = 0.005


@dataclass
class Phase:
    """What one protocol and number of judges gave."""

    protocol: str
    judges: int
    device: str = ""
    seconds: float = 0.0
    """Until the last verdict."""
    evaluations: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    parts: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    """Seconds by part of each correct verdict."""
    held_s: list[float] = field(default_factory=list[float])
    """Of each correct verdict."""
    short_held_s: list[float] = field(default_factory=list[float])
    """The same, of kernels below a millisecond."""
    speedups: dict[str, float] = field(default_factory=dict[str, float])
    """Over eager, by kernel and task, of sessions that are not disturbed."""
    shapes: int = 0
    """Verdicts at other shapes of the tasks."""
    sessions: int = 0
    disturbed: int = 0
    looks: list[str] = field(default_factory=list[str])
    """How each device was held whenever it was looked at: READ for shared, WRITE for alone."""

    def add(self, name: str, tables: contract.Tables) -> None:
        """Add a verdict."""
        evaluation = tables["evaluations"][0]  # without those at other shapes
        self.evaluations.append(evaluation)
        self.shapes += len(tables["evaluations"]) - 1
        if evaluation["status"] != "correct":
            return
        ranking = {
            row["arm"]: row
            for row in reversed(tables["timings"])  # of two sessions the first
            if row["clock"] == tables["timings"][0]["clock"]
        }
        ms = {arm: statistics.median(row["samples_ms"]) for arm, row in ranking.items()}
        parts: dict[str, float] = json.loads(evaluation["parts_s"])
        self.parts.append(parts)
        self.held_s.append(parts["timing"] + parts.get("eager_alone", 0.0))
        if ms["kernel"] < SHORT_MS:
            self.short_held_s.append(self.held_s[-1])
        self.sessions += 1
        if ranking["kernel"]["disturbed"]:
            self.disturbed += 1
        else:
            self.speedups[name] = math.log(ms["eager"] / ms["kernel"])


def list_cases(folders: Iterable[Path], suite: str, kind: str) -> Generator[Case]:
    """Yield the cases of the starter suite and of folders, those of a task in a row."""
    for task in starter.read_suite().tasks if suite != "none" else ():
        axes = {name: json.dumps(values) for name, values in task.workloads.items()}
        text = TaskText(code=task.code, axes=axes)
        for kernel in task.kernels:
            devices = {kind} if suite == "device" else {kind, "any"}
            if kernel.label == "honest" and kernel.device in devices:
                file = starter.FOLDER / "kernels" / task.name / f"{kernel.name}.py"
                yield make_case(f"{task.name}/{kernel.name}", file, text, kind)
    for file in sorted(one for folder in folders for one in folder.rglob("task.py")):
        text = read_task(str(file), None)
        for other in sorted(file.parent.iterdir()):
            if other.suffix in (".py", ".cu", ".cpp") and other != file:
                name = f"{file.parent.name}/{other.stem}"
                yield make_case(name, other, text, kind)


def make_case(name: str, file: Path, text: TaskText, kind: str) -> Case:
    """Return the case of a kernel's file."""
    case = text.make_case(read_kernel(file, None, text), kind, None)
    compiles = any("cpp_extension" in code for code in case.files.values())
    return replace(case, request_id=name, compiles=compiles)


@contextmanager
def watch_locks(places: Sequence[Place], looks: list[str]) -> Generator[None]:
    """Look at how the devices of places are held until the block ends."""
    locks = {place: DeviceLock.of_device(place.device, place.cores) for place in places}
    inodes = {str(os.fstat(lock.fds[0][1]).st_ino) for lock in locks.values() if lock.fds}
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(LOOK_S):
            held = dict.fromkeys(inodes, "")
            for line in Path("/proc/locks").read_text().splitlines():
                # 12: FLOCK ADVISORY WRITE 4242 fe:01:1234 0 EOF; one that waits has an arrow.
                words = line.split()
                if words[1] == "FLOCK" and (inode := words[5].rpartition(":")[2]) in held:
                    held[inode] = words[3]
            looks.extend(held.values())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        for lock in locks.values():
            lock.close()


def run_phase(
    cases: Sequence[Case],
    device: str,
    judges: int,
    protocol: Any,
    shapes: int,
    limit_s: float,
) -> Phase:
    """Judge cases with a number of judges until the time is up."""
    phase, layout = Phase(protocol, judges), divide_machine(device, judges)
    evaluator = contract.load_default()
    with tempfile.TemporaryDirectory() as cache:
        os.environ["FLYWHEEL_CACHE"] = cache
        config = Config(protocol=protocol, draw_shapes=shapes)
        opened = open_judges(start_judges("judge", layout.places, config), layout.builders)
        with opened as (processes, builders), watch_locks(layout.places, phase.looks):
            phase.device = processes[0].row["name"]
            begin = time.monotonic()

            confirm_win = contract.find_confirm_win(evaluator)
            batches = ([case] for case in cases)
            with closing(judge_cases(batches, processes, builders, confirm_win)) as results:
                for result in results:
                    if time.monotonic() - begin > limit_s:
                        break
                    phase.seconds = time.monotonic() - begin
                    if result.tables is not None:
                        phase.add(result.case.request_id, result.tables)
                    else:
                        print(f"no verdict on {result.case.request_id}: {result.fault}")
    return phase


def find_percentile(values: Sequence[float], share: float = 0.95) -> float:
    """Return the least value that such a share of values does not exceed.

    >>> find_percentile([3.0, 1.0, 2.0])
    3.0
    """
    return sorted(values)[math.ceil(share * len(values)) - 1] if values else math.nan


def find_median(values: Sequence[float]) -> float:
    """Return the median; NaN of nothing."""
    return statistics.median(values) if values else math.nan


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table in Markdown."""
    for cells in (head, ["---"] * len(head), *rows):
        texts = (f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells)
        print(f"| {' | '.join(texts)} |", flush=True)
    print()


def describe_rate(phase: Phase) -> list[object]:
    """Return a row of the table of rates."""
    flags = [flag for row in phase.evaluations for flag in row["flags"] or ()]
    looks = max(1, len(phase.looks))
    waited_s = [parts.get("waiting", 0.0) for parts in phase.parts]
    return [
        *(phase.device, phase.protocol, phase.judges, len(phase.evaluations), len(phase.held_s)),
        phase.shapes,
        60 * len(phase.evaluations) / max(phase.seconds, 1e-9),
        *(find_median(phase.held_s), find_percentile(phase.held_s)),
        f"{find_median(phase.short_held_s):.2f} ({len(phase.short_held_s)})",
        *(f"{phase.looks.count(how) / looks:.0%}" for how in ("WRITE", "READ")),
        find_median(waited_s),
        sum(flags.count(flag) for flag in ("confirmed_win", "unconfirmed_win")),
    ]


def compare_speedups(phase: Phase, first: Phase) -> list[object]:
    """Return a row of the table of differences."""
    shared = sorted(phase.speedups.keys() & first.speedups.keys())
    percents = [100 * (phase.speedups[name] - first.speedups[name]) for name in shared]
    sizes = [abs(percent) for percent in percents]
    return [
        *(phase.protocol, f"{phase.judges} over {first.judges}", len(shared)),
        *(find_median(sizes), find_percentile(sizes), find_median(percents)),
        f"{first.disturbed} of {first.sessions}, {phase.disturbed} of {phase.sessions}",
    ]


def main() -> None:
    """Run every phase, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    parser.add_argument("--device", default="cpu", help="cpu, or a GPU such as cuda:0")
    parser.add_argument("--judges", nargs="+", type=int, default=[1, 1, 2])
    parser.add_argument("--protocols", nargs="+", default=["full", "training"])
    parser.add_argument("--kernels", type=int, help="the first N kernels (default: all)")
    parser.add_argument("--shapes", type=int, default=3, help="other shapes of each task, at most")
    parser.add_argument("--seconds", type=float, default=240.0, help="of each phase")
    parser.add_argument("--starter", choices=("all", "device", "none"), default="all")
    options = parser.parse_args()
    kind = "cpu" if options.device == "cpu" else "cuda"
    cases = list(list_cases(options.folders, options.starter, kind))[: options.kernels]
    if not cases:
        raise SystemExit("there are no kernels: name a folder with a task.py and kernels")
    phases: list[Phase] = []
    for protocol in options.protocols:
        for judges in options.judges:
            try:
                phase = run_phase(
                    cases, options.device, judges, protocol, options.shapes, options.seconds
                )
            except FlywheelError as error:
                raise SystemExit(f"{protocol}, {judges} judges: {error}") from error
            print(f"{protocol}, judges {judges}: {len(phase.evaluations)} verdicts", flush=True)
            phases.append(phase)
    head = ("device", "protocol", "judges", "verdicts", "correct", "shapes", "kernels/min")
    times = ("held s", "p95", f"under {SHORT_MS:g} ms (n)", "alone", "shared")
    print_table((*head, *times, "waiting s", "second sessions"), map(describe_rate, phases))
    first = {phase.protocol: phase for phase in reversed(phases)}
    head = ("protocol", "judges", "kernels", "median difference %", "p95 %", "bias %", "disturbed")
    others = [phase for phase in phases if phase is not first[phase.protocol]]
    print_table(head, (compare_speedups(phase, first[phase.protocol]) for phase in others))
    print_table(
        ("part, s", *(f"{phase.protocol} {phase.judges}" for phase in phases)),
        (
            [name, *(find_median([one.get(name, 0.0) for one in phase.parts]) for phase in phases)]
            for name in sorted({name for phase in phases for one in phase.parts for name in one})
        ),
    )


if __name__ == "__main__":
    main()
