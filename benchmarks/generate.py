"""Make a lake of realistic size: real kernel texts varied, with all the rows that hang on them.

python benchmarks/generate.py --lake DIR --kernels 1000000 --evaluations 1000000
python benchmarks/generate.py --lake DIR --kernels 1000000 --evaluations 50000000 --part 5000000

Texts are those of the starter suite, or of a folder of CUDA-L1 result files (--texts). Every draw
is a hash of the seed and the row's number, so the same arguments make the same rows. With `--part`,
evaluations and their timings are loaded that many at a time; the same command continues after an
interruption, and with a larger number of evaluations it adds to the lake.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import pyarrow as pa

import store
from store import ids

BATCH = 50_000
CUT = ("evaluations", "timings")
"""Tables that can be loaded in parts."""
SQL = Path(__file__).parent / "generate.sql"
STARTER = Path(store.__file__).parent / "starter" / "kernels"


@dataclass(frozen=True, kw_only=True)
class Size:
    """How many rows there are of each kind."""

    kernels: int
    evaluations: int
    tasks: int = 250
    seed: int = 0
    timed: int = 100
    """Percentage of evaluations that have a timing session where their kernel is correct."""
    varied: int = 0
    """1 for a lake that also has rows of kinds that most views need: a second device, larger
    sizes, two clocks, claims, a training run, a namespace, and attempts with words."""


class Source:
    """Streams of generated rows, one per table, in the order in which they must be stored."""

    def __init__(self, size: Size, texts: Path | None = None) -> None:
        self._database = duckdb.connect()
        # With two threads, the one that waits for rows takes time from the one that makes them.
        self._database.execute("SET threads = 1")
        # DuckDB underestimates these joins by far. It would hash all evaluations in memory, and
        # their rows would come in the order of the kernels instead of that of their ids.
        self._database.execute("SET disabled_optimizers = 'join_order,build_side_probe_side'")
        rows = pa.table({"code": starter_texts() if texts is None else cuda_l1_texts(texts)})
        self._database.register("given", rows)
        self._database.execute(
            "CREATE TABLE texts AS SELECT row_number() OVER (ORDER BY code) - 1 AS n, code "
            "FROM given"
        )
        for name, value in (vars(size) | {"given_texts": rows.num_rows}).items():
            self._database.execute(f"CREATE MACRO {name}() AS {value}::BIGINT")
        for made in (ids.normalize, ids.task_id, workload_id, large_workload_id, kernel_id):
            self._database.create_function(made.__name__, made, ["VARCHAR"], "VARCHAR")
        self._cut(0, size.evaluations)
        self._queries: dict[str, str] = {}
        statements = [part.strip() for part in SQL.read_text("utf-8").split(";\n")]
        for statement in filter(None, statements):
            if statement.startswith("-- table "):
                name, _, query = statement.removeprefix("-- table ").partition("\n")
                self._queries[name] = query
            else:
                self._database.execute(statement)

    @property
    def tables(self) -> list[str]:
        """Names of the generated tables; those that others point at come first."""
        return list(self._queries)

    def _cut(self, begin: int, end: int) -> None:
        for name, value in (("part_begin", begin), ("part_end", end)):
            self._database.execute(f"CREATE OR REPLACE MACRO {name}() AS {value}::BIGINT")

    def reader(self, table: str, part: tuple[int, int] | None = None) -> pa.RecordBatchReader:
        """Return a fresh stream of a table's rows; of some evaluations, or of all."""
        if part is not None:
            self._cut(*part)
        return self._database.cursor().execute(self._queries[table]).to_arrow_reader(BATCH)


def kernel_id(code: str) -> str:
    """Return the id of a kernel of one file."""
    return ids.kernel_id({"kernel.py": code}, "kernel.py")


def workload_id(task: str) -> str:
    """Return the id of a task's default workload."""
    return ids.workload_id(task)


def large_workload_id(task: str) -> str:
    """Return the id of a task's larger workload."""
    return ids.workload_id(task, '{"rows": 4096}')


def starter_texts() -> list[str]:
    """Return the texts of the starter suite's kernels."""
    return [file.read_text("utf-8") for file in sorted(STARTER.rglob("*.py"))]


def cuda_l1_texts(folder: Path) -> list[str]:
    """Return the distinct kernel texts of a folder of CUDA-L1 result files."""
    rows = [
        json.loads(line)
        for file in sorted(folder.glob("*.json"))
        for line in file.read_text("utf-8").splitlines()
    ]
    codes = {row["custom_code"] for row in rows} - {None, "None"}
    return sorted(codes)


def make(
    lake: str,
    size: Size,
    texts: Path | None = None,
    say: Callable[[str], None] = print,
    part: int | None = None,
) -> float:
    """Load a generated lake through the store; return the seconds of loading."""
    source = Source(size, texts)
    whole = [name for name in source.tables if part is None or name not in CUT]
    begun = time.perf_counter()
    with store.writer(lake, author="benchmarks") as writer:

        def load(name: str, bundle_id: str, cut: tuple[int, int] | None = None) -> None:
            start = time.perf_counter()
            writer.load({name: source.reader(name, cut)}, f"generated {name}", bundle_id=bundle_id)
            say(f"{name}{cut or ''}: {time.perf_counter() - start:.1f} s")

        for name in whole:
            load(name, f"{size if part is None else replace(size, evaluations=0)}{name}")
        for first in range(0, size.evaluations, part) if part is not None else ():
            cut = first, min(first + part, size.evaluations)
            for name in CUT:
                load(name, f"{replace(size, evaluations=0)}{name}{cut}", cut)
    return time.perf_counter() - begun


def main() -> None:
    """Read the arguments and make the lake."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", required=True)
    parser.add_argument("--kernels", type=int, default=10_000)
    parser.add_argument("--evaluations", type=int, default=10_000)
    parser.add_argument("--tasks", type=int, default=250)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--varied", action="store_true", help="rows of more kinds")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--part", type=int, help="number of evaluations in a load (default: all)")
    given = parser.parse_args()
    size = Size(
        kernels=given.kernels,
        evaluations=given.evaluations,
        tasks=given.tasks,
        seed=given.seed,
        varied=int(given.varied),
    )
    seconds = make(
        given.lake,
        size,
        given.texts,
        say=lambda line: print(line, file=sys.stderr, flush=True),
        part=given.part,
    )
    print(f"{given.kernels} kernels, {given.evaluations} evaluations in {seconds:.1f} s")


if __name__ == "__main__":
    main()
