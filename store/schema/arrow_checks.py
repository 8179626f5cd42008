"""Evaluates checks of the catalog in Arrow, which saves a query per small batch.

DuckDB parses a check, and Arrow evaluates the parsed form if both agree on its meaning. All other
checks are left to DuckDB.
"""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

from store.bounds import read_bounds

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_COMPARED = {
    "COMPARE_EQUAL": "equal",
    "COMPARE_NOTEQUAL": "not_equal",
    "COMPARE_LESSTHAN": "less",
    "COMPARE_LESSTHANOREQUALTO": "less_equal",
    "COMPARE_GREATERTHAN": "greater",
    "COMPARE_GREATERTHANOREQUALTO": "greater_equal",
}
_JOINED = {"CONJUNCTION_AND": "and_kleene", "CONJUNCTION_OR": "or_kleene"}
# Beyond this, the two may compare a whole number with a FLOAT differently.
_EXACT = 2**24


class _Unsure(Exception):
    """Arrow has no answer, or one that might differ from DuckDB's."""


def is_surely_passed(check: str, rows: pa.Table) -> bool:
    """Return whether every row certainly passes a check; False means that DuckDB must decide.

    The rows must contain finite numbers only.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        passed = _evaluate(_parse(check), rows)
        return pc.all(passed, skip_nulls=False).as_py() is True
    except (_Unsure, pa.ArrowException, KeyError):
        return False


@functools.lru_cache(maxsize=1024)
def _parse(check: str) -> dict[str, Any]:
    query = [f"SELECT ({check})"]
    row = _connect().cursor().execute("SELECT json_serialize_sql(?::VARCHAR)", query).fetchone()
    assert row is not None
    return json.loads(row[0])["statements"][0]["node"]["select_list"][0]


@functools.lru_cache(maxsize=1)
def _connect() -> duckdb.DuckDBPyConnection:
    import duckdb

    connection = duckdb.connect()
    read_bounds(None).apply(connection, None)
    return connection


def _evaluate(node: dict[str, Any], rows: pa.Table) -> Any:
    """Compute a parsed expression: a column, or a scalar for a constant."""
    import pyarrow.compute as pc

    kind = node["type"]
    if kind == "COLUMN_REF":
        return rows.column(node["column_names"][-1])
    if kind == "VALUE_CONSTANT":
        return _read_constant(node["value"])
    if kind in _COMPARED:
        sides = [_evaluate(node[side], rows) for side in ("left", "right")]
        return pc.call_function(_COMPARED[kind], sides)
    if kind == "COMPARE_BETWEEN":
        value, lower, upper = (_evaluate(node[part], rows) for part in ("input", "lower", "upper"))
        return pc.and_kleene(pc.greater_equal(value, lower), pc.less_equal(value, upper))
    if kind == "FUNCTION":
        return _call_function(node, rows)
    parts = [_evaluate(part, rows) for part in node["children"]]
    if kind in _JOINED:
        return functools.reduce(lambda a, b: pc.call_function(_JOINED[kind], [a, b]), parts)
    if kind == "COMPARE_IN":
        return functools.reduce(pc.or_kleene, (pc.equal(parts[0], one) for one in parts[1:]))
    if kind == "OPERATOR_NOT":
        return pc.invert(parts[0])
    if kind == "OPERATOR_IS_NULL":
        return pc.is_null(parts[0])
    if kind == "OPERATOR_IS_NOT_NULL":
        return pc.is_valid(parts[0])
    raise _Unsure


def _read_constant(value: dict[str, Any]) -> pa.Scalar:
    import pyarrow as pa

    kind = value["type"]["id"]
    if not value["is_null"] and (
        kind == "VARCHAR" or (kind == "INTEGER" and abs(value["value"]) <= _EXACT)
    ):
        return pa.scalar(value["value"])
    raise _Unsure


def _call_function(node: dict[str, Any], rows: pa.Table) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    name = node["function_name"]
    given = [_evaluate(part, rows) for part in node["children"]]
    if name == "regexp_full_match" and len(given) == 2:
        pattern = str(given[1].as_py())
        # The meaning of a dot is a setting, which differs.
        if "." not in pattern and "(?" not in pattern:
            return pc.match_substring_regex(given[0], rf"\A(?:{pattern})\z")
    if name in ("length", "len") and pa.types.is_list(given[0].type):
        return pc.list_value_length(given[0])
    if name in ("length", "len") and pa.types.is_string(given[0].type):
        return pc.utf8_length(given[0])
    if name == "isfinite":
        return pc.is_finite(given[0])
    if name in ("list_min", "list_max"):
        return _find_extremes(given[0], name.removeprefix("list_"))
    raise _Unsure


def _find_extremes(lists: Any, which: str) -> pa.ChunkedArray:
    """Return the least or greatest element of each list."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    reduce = np.minimum if which == "min" else np.maximum
    found: list[pa.Array] = []
    for chunk in lists.chunks:
        values, places = pc.list_flatten(chunk), np.asarray(chunk.offsets)
        if chunk.null_count or values.null_count or not np.diff(places).all():
            raise _Unsure
        starts = places[:-1] - places[0]
        least = reduce.reduceat(np.asarray(values), starts) if len(chunk) else np.asarray(values)
        found.append(pa.array(least))
    return pa.chunked_array(found, lists.type.value_type)
