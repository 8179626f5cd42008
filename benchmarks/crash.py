"""Kill writers of a lake at random points; count bundles that are lost, stored twice or in part.

    python benchmarks/crash.py --writers 8 --bundles 200 --kills 50 --readers 3

Every writer appends numbered bundles and records each on disk when `append` has returned (acked).
Half of the kills (kill -9) hit the process with the lake's lock, in the middle of a commit or of
the lake's creation; the others hit any writer. A killed writer starts again and retries the first
bundle that it did not record, and the last one that it did. Readers pin a snapshot, check that
its counts never change and that every bundle in it is complete, and pin the next one. Another
process compacts and expires the lake. Exits with 1 unless every acked bundle is stored once and
completely, and `store check` finds no problem. `crash_servers.py` does the same on servers.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import store
from store.lake.location import FolderLocation, Location
from store.upkeep import integrity, maintenance

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import builders

# Every so many bundles is too large to be inlined, so that data files are written and left behind.
LARGE_EVERY, LARGE = 5, 25
POLL_S = 0.02
EXPIRED_AGE = timedelta(seconds=60)
"""Longer than a reader reads one snapshot."""


@dataclass(kw_only=True)
class Outcome:
    """What became of all bundles; the first four must be zero, and so must `problems`."""

    lost: int = 0
    doubled: int = 0
    torn: int = 0
    changed_snapshots: int = 0
    problems: list[str] = field(default_factory=list[str])
    acked: int = 0
    committed_unacked: int = 0
    kills: int = 0
    kills_of_lock_holders: int = 0
    leftover_files: int = 0
    snapshots_read: int = 0
    rounds_of_upkeep: int = 0
    expired: int = 0
    seconds: float = 0.0
    bundles_per_s: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether nothing went wrong."""
        wrong = self.lost + self.doubled + self.torn + self.changed_snapshots
        return wrong == 0 and not self.problems


def bundle_id(writer: int, number: int) -> str:
    """Return the name of a bundle, under which all its rows can be found again."""
    return f"bundle-{writer}-{number}"


def evaluations_in(number: int) -> int:
    """Return how many evaluations a bundle brings; each has two timings."""
    return LARGE if number % LARGE_EVERY == LARGE_EVERY - 1 else 1


def rows(writer: int, number: int) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a bundle: the same whenever it is made, some shared between writers."""
    name = bundle_id(writer, number)
    task, device = builders.task(), builders.device()
    workload = builders.workload(task)
    texts = f"# {name}\n" + "x = 1\n" * 300, f"# shared {number}\n"
    kernels = [builders.kernel(code=text) for text in texts]
    evaluations = [
        builders.evaluation(
            kernels[0], task, workload, device, evaluation_id=f"{name}/{index}", message=name
        )
        for index in range(evaluations_in(number))
    ]
    samples = [1.0] * 20
    timings = [builders.session(row, samples, eager=samples) for row in evaluations]
    return {
        "tasks": [task],
        "devices": [device],
        "workloads": [workload],
        "kernels": kernels,
        "evaluations": evaluations,
        "timings": [row for session in timings for row in session],
    }


def write(url: str, notes: Path, writer: int, bundles: int) -> None:
    """Append one writer's bundles; on a server, as often as it fails, as its messages say."""
    while True:
        try:
            return append_rest(url, notes, writer, bundles)
        except store.errors.FlywheelError:
            if isinstance(Location.of(url), FolderLocation):
                raise
            time.sleep(0.2)


def append_rest(url: str, notes: Path, writer: int, bundles: int) -> None:
    """Append one writer's bundles, going on after the last that was noted."""
    with store.writer(url, author=f"writer {writer}") as opened, open(notes, "ab", 0) as noted:
        done = len(notes.read_bytes().splitlines())
        for number in range(max(done - 1, 0), bundles):
            name = bundle_id(writer, number)
            # Only what is retried can have been committed without a note.
            retried = number <= done and opened.has_bundle(name)
            opened.append(rows(writer, number), name, bundle_id=name)
            if number >= done:
                noted.write(f"{name} {'unacked' if retried else 'new'}\n".encode())


def read(url: str, notes: Path, stop: Path) -> None:
    """Pin one snapshot after the other until told to stop; note each, and whatever is wrong."""
    location = Location.of(url)
    with open(notes, "ab", 0) as noted:
        while not stop.exists():
            time.sleep(random.uniform(0, 1))
            try:
                with store.open(url) as lake:
                    noted.write(watch_snapshot(lake).encode())
            except (store.errors.FlywheelError, OSError):
                if isinstance(location, FolderLocation) and notes.stat().st_size:
                    raise  # it was there before, and no server is between
                time.sleep(POLL_S)
    assert location.exists


def watch_snapshot(lake: store.Lake) -> str:
    """Return a line for a snapshot, and one more if a bundle is stored in part."""
    first = counts(lake)
    same = True
    for _ in range(5):
        time.sleep(random.uniform(0, 0.2))
        same = same and counts(lake) == first
    line = f"{lake.snapshot} {'same' if same else 'changed'}\n"
    torn = count_torn_bundles(lake)
    return line + (f"{lake.snapshot} torn {torn}\n" if torn else "")


def maintain(url: str, notes: Path, stop: Path) -> None:
    """Compact and expire the lake until told to stop; note each round."""
    location = Location.of(url)
    with open(notes, "ab", 0) as noted:
        while not stop.exists():
            time.sleep(random.uniform(0, 2))
            try:
                maintenance.compact(location)
                expired = maintenance.expire(location, EXPIRED_AGE).expired
            except store.errors.FlywheelError:
                continue  # there is no lake yet, or its server is away
            noted.write(f"round {len(expired)}\n".encode())


def counts(lake: store.Lake) -> list[dict[str, Any]]:
    """Return the number of rows of every table."""
    parts = [f"SELECT '{name}' AS name, count(*) AS n FROM {name}" for name in lake.catalog.tables]
    return lake.run(" UNION ALL ".join(parts) + " ORDER BY ALL").rows()


def count_torn_bundles(lake: store.Lake) -> int:
    """Return the number of bundles of which some rows are there and others are not."""
    found = bundle_rows(lake).items()
    return sum(
        any(n < whole for n, whole in zip(some, _count_rows(name), strict=True))
        for name, some in found
    )


def count_doubled_bundles(lake: store.Lake) -> int:
    """Return the number of bundles of which some rows are there more than once."""
    found = bundle_rows(lake).items()
    return sum(
        any(n > whole for n, whole in zip(some, _count_rows(name), strict=True))
        for name, some in found
    )


def bundle_rows(lake: store.Lake) -> dict[str, tuple[int, int, int, int]]:
    """Return for every bundle the rows logged, and its evaluations, timings and own kernels."""
    answer = lake.run(
        """
        WITH parts AS (
            SELECT bundle_id AS bundle, 1 AS logged, 0 AS judged, 0 AS timed, 0 AS texts
            FROM ingest_log
            UNION ALL SELECT message, 0, 1, 0, 0 FROM evaluations
            UNION ALL SELECT split_part(evaluation_id, '/', 1), 0, 0, 1, 0 FROM timings
            UNION ALL SELECT regexp_extract(code, 'bundle-\\d+-\\d+'), 0, 0, 0, 1 FROM kernels
            WHERE code LIKE '# bundle-%'
        )
        SELECT
            bundle, sum(logged)::INT AS logged, sum(judged)::INT AS judged,
            sum(timed)::INT AS timed, sum(texts)::INT AS texts
        FROM parts GROUP BY bundle
        """
    ).rows()
    return {
        row["bundle"]: (row["logged"], row["judged"], row["timed"], row["texts"]) for row in answer
    }


def _count_rows(name: str) -> tuple[int, int, int, int]:
    evaluations = evaluations_in(int(name.rpartition("-")[2]))
    return 1, evaluations, 2 * evaluations, 1


def judge(url: str, acked: set[str], wanted: set[str]) -> Outcome:
    """Compare what the lake holds with what was acked and what had to be there in the end."""
    outcome = Outcome(acked=len(acked))
    with store.open(url) as lake:
        outcome.lost = len((acked | wanted) - bundle_rows(lake).keys())
        outcome.torn = count_torn_bundles(lake)
        outcome.doubled = count_doubled_bundles(lake)
    outcome.problems = [f"{p.table}: {p.rule} ({p.count})" for p in integrity.check(lake.location)]
    outcome.leftover_files = len(maintenance.list_leftovers(lake.location))
    return outcome


def lock_holder(location: Location) -> int | None:
    """Return the process that holds the lake's lock, as the kernel lists it."""
    try:
        inode = (location.root / "lock").stat().st_ino
        listed = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    for line in listed:
        parts = line.split()
        if "->" not in parts and "FLOCK" in parts and line.split()[5].endswith(f":{inode}"):
            return int(parts[4])
    return None


class Harness:
    """The processes of one run, killed and started again until all bundles are in."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.url = str(folder / "lake")
        self.random = random.Random(options.seed)
        self.deadline = time.monotonic() + options.limit_s
        self.writers: dict[int, subprocess.Popen[bytes]] = {}
        self.kills = self.kills_of_lock_holders = 0

    def run(self) -> Outcome:
        """Run everything and judge what is there in the end."""
        started = time.monotonic()
        stop = self.folder / "stop"
        readers = [
            self._start("read", self.url, self.folder / f"reader-{number}", stop)
            for number in range(self.options.readers)
        ]
        readers.append(self._start("maintain", self.url, self.folder / "upkeep-0", stop))
        for number in range(self.options.writers):
            self._start_writer(number)
        try:
            for acked_before in self._strike_points():
                self._wait_for(acked_before)
                self.strike()
            self._wait_for(self.options.writers * self.options.bundles)
            seconds = time.monotonic() - started
            for number, process in self.writers.items():
                if process.wait(60):
                    raise RuntimeError(f"writer {number} failed with {process.returncode}")
            stop.touch()
            for process in readers:
                if process.wait(120):
                    raise RuntimeError(f"a reader failed with {process.returncode}")
        finally:
            for process in [*self.writers.values(), *readers]:
                process.kill()
                process.wait()
        return self._judge(seconds)

    def _judge(self, seconds: float) -> Outcome:
        notes = [line.split() for line in self._notes("writer")]
        read = [line.split() for line in self._notes("reader")]
        wanted = {
            bundle_id(writer, number)
            for writer in range(self.options.writers)
            for number in range(self.options.bundles)
        }
        outcome = judge(self.url, {note[0] for note in notes}, wanted)
        outcome.committed_unacked = sum(note[1] == "unacked" for note in notes)
        seen = Counter(note[1] for note in read)
        outcome.torn += seen["torn"]
        outcome.changed_snapshots = seen["changed"]
        outcome.snapshots_read = seen["same"] + seen["changed"]
        rounds = [int(line.split()[1]) for line in self._notes("upkeep")]
        outcome.rounds_of_upkeep, outcome.expired = len(rounds), sum(rounds)
        outcome.kills, outcome.kills_of_lock_holders = self.kills, self.kills_of_lock_holders
        outcome.seconds = seconds
        outcome.bundles_per_s = len(wanted) / seconds
        return outcome

    def count_strikes(self) -> int:
        """Return how often to call `strike`."""
        return int(self.options.kills)

    def find_holder(self) -> int | None:
        """Return the process that holds the lake's lock."""
        return lock_holder(Location.of(self.url))

    def environment(self, writer: int | None) -> dict[str, str]:
        """Return the variables of a writer's process, or of another one."""
        # Each connection would otherwise start a thread for every core.
        return {**os.environ, "OMP_NUM_THREADS": "1"}

    def _strike_points(self) -> Iterator[int]:
        """Yield how many bundles are acked before each kill; the first hits the lake's creation."""
        total, strikes = self.options.writers * self.options.bundles, self.count_strikes()
        for number in range(strikes):
            yield int(total * 0.95 * number / strikes)

    def strike(self) -> None:
        """Kill a writer, every other time the one with the lock, and start it again."""
        time.sleep(self.random.uniform(0, 0.1))
        alive = [number for number, process in self.writers.items() if process.poll() is None]
        victim = self.catch_holder() if self.kills % 2 == 0 else None
        if victim is None:
            victim = self.random.choice(alive)
        process = self.writers[victim]
        process.send_signal(signal.SIGSTOP)  # it keeps the lock while we look
        if self.find_holder() == process.pid:
            self.kills_of_lock_holders += 1
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.kills += 1
        self._start_writer(victim)

    def catch_holder(self) -> int | None:
        """Stop a writer anywhere in a commit, with the lock; None where all have ended."""
        while alive := {p.pid: number for number, p in self.writers.items() if p.poll() is None}:
            if self.find_holder() in alive:
                time.sleep(self.random.uniform(0, 0.15))
            if (holder := self.find_holder()) in alive:
                os.kill(holder, signal.SIGSTOP)
                if self.find_holder() == holder:
                    return alive[holder]
                os.kill(holder, signal.SIGCONT)
            time.sleep(0.001)
        return None

    def _wait_for(self, acked: int) -> None:
        while len(self._notes("writer")) < acked:
            if time.monotonic() > self.deadline:
                raise TimeoutError(f"not done after {self.options.limit_s} s")
            for number, process in self.writers.items():
                if process.poll() not in (None, 0):
                    raise RuntimeError(f"writer {number} failed with {process.returncode}")
            time.sleep(POLL_S)

    def _notes(self, role: str) -> list[str]:
        files = sorted(self.folder.glob(f"{role}-*"))
        return [line for file in files for line in file.read_text().splitlines()]

    def _start_writer(self, number: int) -> None:
        notes = self.folder / f"writer-{number}"
        given = (self.url, notes, number, self.options.bundles)
        self.writers[number] = self._start("write", *given, writer=number)

    def _start(
        self, role: str, *arguments: object, writer: int | None = None
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, __file__, role, *map(str, arguments)]
        return subprocess.Popen(command, env=self.environment(writer))


def parse_options(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Add the options of every harness to a parser, and read them."""
    parser.add_argument("--writers", type=int, default=8, help="number of writer processes")
    parser.add_argument("--bundles", type=int, default=200, help="number of bundles per writer")
    parser.add_argument("--kills", type=int, default=50, help="number of kills in the whole run")
    parser.add_argument("--readers", type=int, default=3, help="number of reader processes")
    parser.add_argument("--seed", type=int, default=0, help="random seed")
    parser.add_argument(
        "--limit-s", type=float, default=3600, help="give up after this many seconds"
    )
    return parser.parse_args()


def report(outcome: Any) -> None:
    """Print what became of the bundles, and exit with 1 unless all is well."""
    for name, value in asdict(outcome).items():
        print(f"{name:22} {value:.1f}" if isinstance(value, float) else f"{name:22} {value}")
    sys.exit(0 if outcome.clean else 1)


def main() -> None:
    """Run the harness, or one of its processes."""
    match sys.argv[1:]:
        case ["write", url, notes, writer, bundles]:
            return write(url, Path(notes), int(writer), int(bundles))
        case ["read", url, notes, stop]:
            return read(url, Path(notes), Path(stop))
        case ["maintain", url, notes, stop]:
            return maintain(url, Path(notes), Path(stop))
        case _:
            pass
    options = parse_options(argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0]))
    with tempfile.TemporaryDirectory(prefix="crash-") as folder:
        outcome = Harness(options, Path(folder)).run()
    report(outcome)


if __name__ == "__main__":
    main()
