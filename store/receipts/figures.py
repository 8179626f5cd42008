"""Figures of a receipt: answers of the lake's views over its rows alone, and their JSON form."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from typing import Any, cast

import duckdb
import numpy as np
import pyarrow as pa

from store.bounds import QueryLimits
from store.lake.host import choose_scratch
from store.lake.result import interrupt_after, translate_errors
from store.lake.sql_files import list_views, read_view
from store.schema import catalog
from store.writing.bundle import Rows, conform

VIEWS: dict[str, tuple[str, ...]] = {
    "verdicts": ("device",),
    "speedups": ("device", "clock"),
    "pooled_speedups": ("device", "clock"),
    "shape_verdicts": ("device",),
    "fragile": (),
    "nonequivalent": (),
}
"""Views that are computed from the rows of one kernel alone, and which options select rows."""
LIMITS = QueryLimits(timeout=30.0, memory_gb=2.0)
"""A receipt is a foreign file, whose rows could make a join of any size."""
_CLOSE = 1e-9
_COMMENTS = re.compile(r"--.*")
_READ = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")
_NAMED = re.compile(r"\b(\w+) AS (?:MATERIALIZED )?\(")
"""The names of parts of a statement, which may be those of tables."""


def compute_figures(
    rows: Mapping[str, Rows],
    kernel_id: str,
    device: str | None,
    clock: str | None,
) -> dict[str, list[dict[str, Any]]]:
    """Return the figures of a kernel that follow from some rows of a lake, by table.

    Raises RowsRejected if a row is not one of its table, FlywheelError if they cannot be computed.
    """
    tables = catalog.load().tables
    typed = {name: conform(tables[name], rows[name]) for name in rows}
    # One thread: threads double the time of what takes milliseconds.
    connection = duckdb.connect(config={"threads": 1})
    bounds = LIMITS.find_bounds(choose_scratch("spill"))
    try:
        with translate_errors(bounds), interrupt_after(connection.interrupt, LIMITS):
            connection.execute("SET TimeZone = 'UTC'")
            bounds.apply(connection, None)
            connection.execute("SET enable_external_access = false")
            connection.execute("SET python_enable_replacements = false")
            connection.execute("SET lock_configuration = true")
            for name in list_parts():
                if name in tables:
                    part = typed.get(name, tables[name].open_schema.empty_table())
                    connection.register(f"_{name}", part)
                    connection.execute(f"CREATE TEMP TABLE {name} AS FROM _{name}")
                else:
                    # A table, which is computed once for all views that read it.
                    connection.execute(f"CREATE TEMP TABLE {name} AS {read_view(name)}")
            answers: dict[str, list[dict[str, Any]]] = {}
            values = {"kernel_id": kernel_id, "device": device, "clock": clock}
            for view, options in VIEWS.items():
                names = ("kernel_id", *options)
                chosen = {name: value for name in names if (value := values[name]) is not None}
                conditions = " AND ".join(f"{name} = ${name}" for name in chosen)
                query = f"FROM {view} WHERE {conditions} ORDER BY ALL"
                answers[view] = to_json(connection.execute(query, chosen).to_arrow_table())
            return answers
    finally:
        connection.close()


@functools.cache
def list_parts() -> tuple[str, ...]:
    """Return the tables and views that the figures need, each behind those that it reads."""
    tables, parts = catalog.load().tables, dict[str, None]()

    def add(name: str) -> None:
        if name not in tables:
            # DuckDB's parser, which `user_sql.list_names` asks, takes 100 ms for all of them.
            text = _COMMENTS.sub("", read_view(name))
            named = set(_READ.findall(text)) - set(_NAMED.findall(text))
            for part in sorted(named & {*tables, *list_views()}):
                add(part)
        parts.setdefault(name)

    for view in VIEWS:
        add(view)
    return tuple(parts)


def find_difference(stated: Any, computed: Any, place: str = "") -> str | None:
    """Return where two figures differ by more than rounding, and how; None if they do not.

    >>> find_difference({"speedup": [1.0]}, {"speedup": [1.5]})
    'speedup[0] is 1.0, and its rows give 1.5'
    """
    if isinstance(stated, float) and isinstance(computed, float):
        same = math.isclose(stated, computed, rel_tol=_CLOSE)
    elif isinstance(stated, dict) and isinstance(computed, dict):
        mine, theirs = cast("dict[str, Any]", stated), cast("dict[str, Any]", computed)
        for name in sorted({*mine, *theirs}):
            inner = f"{place}.{name}".removeprefix(".")
            found = find_difference(mine.get(name), theirs.get(name), inner)
            if found is not None:
                return found
        return None
    elif isinstance(stated, list) and isinstance(computed, list):
        first, second = cast("list[Any]", stated), cast("list[Any]", computed)
        if len(first) != len(second):
            return f"{place} has {len(first)} entries, and its rows give {len(second)}"
        pairs = enumerate(zip(first, second, strict=True))
        found = (find_difference(*pair, f"{place}[{at}]") for at, pair in pairs)
        return next(filter(None, found), None)
    else:  # 7, 7.0 and True are equal in Python
        same = type(stated) is type(computed) and stated == computed
    return None if same else f"{place} is {stated!a:.60}, and its rows give {computed!a:.60}"


def to_json(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows as a receipt has them: no NULLs, times in ISO format, short numbers."""
    columns = {
        name: _spell(rows.column(name).to_pylist(), rows.schema.field(name).type)
        for name in rows.column_names
    }
    return [
        {name: values[at] for name, values in columns.items() if values[at] is not None}
        for at in range(rows.num_rows)
    ]


def _spell(values: list[Any], kind: pa.DataType) -> list[Any]:
    if pa.types.is_list(kind):
        return [None if one is None else _spell(one, kind.value_type) for one in values]
    if pa.types.is_timestamp(kind):
        return [None if one is None else one.isoformat() for one in values]
    if pa.types.is_float32(kind):
        # The float64 with the shortest text that reads back as the float32.
        return [None if one is None else float(str(np.float32(one))) for one in values]
    return values
