"""Every pipeline with each of its strategies and kinds of evidence, and every view, on a big lake.

python benchmarks/bounds.py --lake DIR           (a lake of benchmarks/generate.py --varied)

The program prints the seconds, DuckDB's peak memory and the spilled data of each, under the bounds
of FLYWHEEL_MEMORY_GB and FLYWHEEL_SPILL_GB, and the operators that put out many more rows than they
got. A file of SQL says in its header why one of its operators does that:

-- Grows at HASH_JOIN: each draw weighs all buckets of its task.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import sys
import time
import typing
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import duckdb

import store
from pipelines.contract import Request
from pipelines.datasets.job import Job, make_counter
from pipelines.datasets.materialize import select_rows
from store.commandline.members import find_members
from store.errors import FlywheelError
from store.lake import reader
from store.lake.sql_files import find_file

GROWTH = 10
"""Times the larger of its inputs and the answer that an operator may put out."""
LIMIT = 1000
_REASON = re.compile(r"^-- Grows at ([A-Z_]+): \S.*\.$", re.MULTILINE)
_HEADER = re.compile(r"(?:--.*\n)+")
_WRITES = re.compile(r"(?:BATCH_)?(?:CREATE_TABLE_AS|COPY_TO_FILE|INSERT)")
# These have the rows of their last child.
_WRAPPERS = {"CTE": 1, "LEFT_DELIM_JOIN": 1, "RIGHT_DELIM_JOIN": 1}
_LOOPS = ("BLOCKWISE_NL_JOIN", "NESTED_LOOP_JOIN")
"""Joins that compare all pairs of rows: these count, however few remain."""
_STEADY = {"PROJECTION", "FILTER", "UNION", "RECURSIVE_CTE", *_WRAPPERS}


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement that ran, and what DuckDB says of it."""

    sql: str
    profile: dict[str, Any]

    def find_growth(self) -> Iterator[str]:
        """Yield a line for each operator that puts out too many rows for no stated reason."""
        [root] = self.profile["children"] or [None]
        if root is not None:
            is_write = _WRITES.fullmatch(root["operator_type"])
            answer = max(_count_rows(one, 0) for one in (root["children"] if is_write else [root]))
            reasons = self._list_reasons()
            for node, rows, given in _walk(root, 0):
                kind = node["operator_type"]
                if rows > GROWTH * max(given, answer, 1) and kind not in reasons:
                    yield (
                        f"{kind} puts out {rows:,} rows of {given:,} for an answer of {answer:,} "
                        f"in {self.name}: {json.dumps(node['extra_info'])[:200]}"
                    )

    @property
    def name(self) -> str:
        """The file of the statement, or its start."""
        return str(find_file(self.sql) or " ".join(self.sql.split())[:100])

    def _list_reasons(self) -> set[str]:
        """Return the operators whose growth is explained, by the statement's file or its views."""
        file = find_file(self.sql)
        texts = [] if file is None else [file.read_text("utf-8")]
        waiting, views = [self.sql], set[str]()
        while waiting:
            found = set(re.findall(r"\w+", waiting.pop())) & set(store.list_views()) - views
            views |= found
            waiting += [store.read_view(view) for view in found]
        texts += [store.read_view(view) for view in views]
        headers = [_HEADER.match(text) for text in texts]
        return {kind for header in headers if header for kind in _REASON.findall(header[0])}


def _count_rows(node: dict[str, Any], outer: int) -> int:
    """Return the rows that an operator puts out; `outer` are those of the join around it."""
    kind = node["operator_type"]
    if kind in _WRAPPERS:
        return _count_rows(node["children"][_WRAPPERS[kind]], outer)
    return outer if kind == "DELIM_SCAN" else int(node["operator_cardinality"])


def _walk(node: dict[str, Any], outer: int) -> Iterator[tuple[dict[str, Any], int, int]]:
    """Yield the operators with inputs: what they put out, and their largest input."""
    given = [_count_rows(child, outer) for child in node["children"]]
    if node["operator_type"].endswith("_DELIM_JOIN"):
        outer = max(given)
    if node["operator_type"] in _LOOPS:
        yield node, math.prod(given), max(given)
    elif given and node["operator_type"] not in _STEADY:
        yield node, _count_rows(node, outer), max(given)
    for child in node["children"]:
        yield from _walk(child, outer)


@dataclass
class Recorder:
    """A connection that keeps the profile of each statement."""

    connection: duckdb.DuckDBPyConnection
    statements: list[Statement]
    _sql: str | None = None
    _prepared: str = ""

    def execute(self, query: str, *parameters: Any) -> duckdb.DuckDBPyConnection:
        """Execute a statement, after the profile of the one before it is complete."""
        self.finish()
        answer = self.connection.execute(query, *parameters)
        if query.startswith("PREPARE "):
            self._prepared = query
        self._sql = self._prepared if query.startswith("EXECUTE ") else query
        return answer

    def finish(self) -> None:
        """Keep the profile of the last statement."""
        text = self._sql and self.connection.get_profiling_information("json")
        profile = json.loads(text) if text else {}
        if "rows_returned" in profile:
            self.statements.append(Statement(sql=str(self._sql), profile=profile))
        self._sql = None

    def close(self) -> None:
        """Keep the profile of the last statement, and close the connection."""
        self.finish()
        self.connection.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


@dataclass
class Measurement:
    """What a case took."""

    name: str
    rows: int | None = None
    """None where the lake has no row for it."""
    seconds: float = 0.0
    statements: list[Statement] = field(default_factory=list[Statement])

    def find_peak(self, figure: str) -> int:
        """Return the largest value of a figure over all statements."""
        return max((int(one.profile[figure]) for one in self.statements), default=0)


@contextmanager
def _open(url: str, statements: list[Statement]) -> Generator[store.Lake]:
    """Open a lake whose statements are recorded."""
    connect = reader.connect

    def connect_recorded(**options: Any) -> Any:
        connection = connect(**options)
        connection.execute("PRAGMA enable_profiling = 'no_output'")
        return Recorder(connection, statements)

    reader.connect = connect_recorded
    try:
        with store.open(url) as lake:
            yield lake
    finally:
        reader.connect = connect


def list_cases() -> dict[str, Callable[[store.Lake], int]]:
    """Return what to run, by name: each returns its number of rows.

    Of each pipeline, these are all combinations of the options that take one of a few words, except
    the baseline, which is only compared with a column.
    """
    cases: dict[str, Callable[[store.Lake], int]] = {}
    for pipeline, member in find_members("pipelines").items():
        kinds = typing.get_type_hints(member.load().Config)
        words = {
            name: typing.get_args(kind)
            for name, kind in kinds.items()
            if typing.get_origin(kind) is Literal and name != "baseline"
        }
        if "improvement_share" in kinds:
            words["improvement_share"] = (0.0, 0.3)
        for values in itertools.product(*words.values()):
            options = dict(zip(words, values, strict=True))
            shown = (f"--{name.replace('_', '-')} {value}" for name, value in options.items())
            cases[" ".join(["pipelines run", pipeline, *shown])] = _make_case(pipeline, options)
    for view in store.list_views():
        cases[f"view {view}"] = _read_all(view)
    return cases


def _make_case(pipeline: str, options: dict[str, Any]) -> Callable[[store.Lake], int]:
    def run(lake: store.Lake) -> int:
        module = find_members("pipelines")[pipeline].load()
        job = Job(
            lake=lake, pipeline=pipeline, module=module, config=module.Config(**options),
            request=Request(limit=LIMIT), name=pipeline, counter=make_counter(None),
        )  # fmt: skip
        return select_rows(job).rows.num_rows

    return run


def _read_all(view: str) -> Callable[[store.Lake], int]:
    return lambda lake: sum(batch.num_rows for batch in lake.run(f"FROM {view}").reader())


def measure(url: str, name: str, case: Callable[[store.Lake], int]) -> Measurement:
    """Run a case on a lake. Raises FlywheelError if it exceeds a bound."""
    done = Measurement(name)
    begun = time.perf_counter()
    with _open(url, done.statements) as lake:
        try:
            done.rows = case(lake)
        except store.errors.EmptyDataset:
            done.rows = None
    done.seconds = time.perf_counter() - begun
    return done


def main() -> None:
    """Measure all cases, or those whose names contain a text; fail if one exceeds a bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lake", required=True)
    parser.add_argument("--only", default="", help="only cases whose names contain this")
    given = parser.parse_args()
    faults = list[str]()
    print(
        "| | rows | seconds | peak memory of DuckDB, MB | spilled, MB |\n|---|---:|---:|---:|---:|"
    )
    for name, case in list_cases().items():
        if given.only not in name:
            continue
        try:
            done = measure(given.lake, name, case)
        except FlywheelError as error:
            faults.append(f"{name}: {error}")
            continue
        memory = done.find_peak("system_peak_buffer_memory") / 1e6
        spill = done.find_peak("system_peak_temp_dir_size") / 1e6
        rows = "none" if done.rows is None else f"{done.rows:,}"
        print(
            f"| `{name}` | {rows} | {done.seconds:.1f} | {memory:,.0f} | {spill:,.0f} |", flush=True
        )
        faults += [f"{name}: {line}" for one in done.statements for line in one.find_growth()]
    print(*faults, sep="\n", file=sys.stderr)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
