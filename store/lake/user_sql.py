"""Checks user SQL: one SELECT over the tables and views of the lake, and nothing else."""

from __future__ import annotations

import json
import re
import secrets
import string
from collections.abc import Collection, Iterator
from typing import Any, cast

import duckdb

from store.errors import UnknownName, UnsafeSQL
from store.schema.sql_text import fetch_row

# Table functions that compute from their arguments only. Others may read a file, the lake's catalog
# or the network, so this is a list of allowed functions.
TABLE_FUNCTIONS = frozenset(
    {"generate_series", "json_each", "json_tree", "range", "repeat", "repeat_row", "unnest"}
)
# Scalar functions compute from their arguments only, except these: they run SQL given as text, read
# the environment or settings, which name folders of the host, or write to a log.
_REFUSED_FUNCTIONS = frozenset({"current_setting", "getenv", "json_serialize_plan", "write_log"})
# These follow nested JSON by calling themselves: duckdb 1.5.5 overflows its stack on deep values.
# The macro json_group_structure calls json_structure.
_CRASHING_FUNCTIONS = frozenset(
    {"json_contains", "json_group_structure", "json_merge_patch", "json_structure"}
)
# A cast of nested JSON to this type also does so; functions named variant_… cast implicitly.
_CRASHING_TYPE = "VARIANT"
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
# Names by SQL text: every reader needs those of the views, and parsing a view takes milliseconds.
_NAMES: dict[str, frozenset[str]] = {}
_MOST_NAMES = 500
_CHECKED = (
    "TABLE_FUNCTION", "BASE_TABLE", "SHOW_REF", "FUNCTION", "UNBOUND_TYPE_INFO", "PIVOT",
)  # fmt: skip
_FILES = "`store import rows FILE` brings the rows of a file into the lake."
_HINT = (
    "Write one SELECT (or FROM, WITH, VALUES, PIVOT, UNPIVOT, DESCRIBE, SUMMARIZE, EXPLAIN) over "
    "tables and views."
)
_EXPLAIN = re.compile(r"\s*EXPLAIN\b", re.IGNORECASE)
# A plan that ANALYZE measures names files of the lake.
_EXPLAIN_OPTION = re.compile(
    r"\s*EXPLAIN\s*(ANALY[SZ]E\b|VERBOSE\b|\(\s*(ANALY|FORMAT|VERBOSE))", re.IGNORECASE
)
_TOKEN = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | --[^\n]* | /\*.*?\*/ | \w+ | \s+ | .""",
    re.DOTALL | re.VERBOSE,
)
_AFTER_PIVOTS = frozenset(
    {",", ";", "USING", "GROUP", "ORDER", "LIMIT", "OFFSET", "UNION", "EXCEPT", "INTERSECT"}
)


def check(connection: duckdb.DuckDBPyConnection, query: str, known: Collection[str]) -> None:
    """Raise UnsafeSQL unless the text is one SELECT-like statement over known names.

    The statement's parsed form decides: its type, then every table, table function and scalar
    function in it. `known` are the names of tables and views; names of the statement's own WITH
    parts are allowed in their scope. UnknownName suggests a known one.

    The settings of the connection (no external access, locked) are a second defense.
    """
    # DuckDB reads a text up to its first NUL.
    if "\0" in query:
        raise UnsafeSQL("a query cannot contain a NUL character", _HINT)
    try:
        query.encode()
    except UnicodeEncodeError:
        raise UnsafeSQL("a query must be valid UTF-8", _HINT) from None
    for node, own in _walk_nodes(_parse(connection, query)):
        if _CRASHING_TYPE in (node.get("id"), str(node.get("name")).upper()):
            raise UnsafeSQL(
                f"a cast to {_CRASHING_TYPE} can crash DuckDB",
                "Keep the value as JSON, or cast its parts.",
            )
        if node.get("type") == "BASE_TABLE":
            _check_table(node, own, known)
        elif node["type"] == "SHOW_REF":
            # DESCRIBE and SUMMARIZE, whose query is checked separately, and SHOW TABLES only.
            if not node.get("query") and str(node.get("table_name")) != '"tables"':
                raise UnsafeSQL(
                    f"SHOW {node.get('table_name')} looks outside the lake's tables", _HINT
                )
            if node.get("catalog_name") or node.get("schema_name"):
                raise UnsafeSQL("SHOW TABLES FROM looks outside the lake's tables", _HINT)
        elif node["type"] in ("TABLE_FUNCTION", "FUNCTION"):
            is_table = node["type"] == "TABLE_FUNCTION"
            function = node["function"] if is_table else node
            name = str(function["function_name"]).lower()
            qualified = bool(function.get("schema") or function.get("catalog"))
            if is_table and (name not in TABLE_FUNCTIONS or qualified):
                raise UnsafeSQL(
                    f"{name}() reads from outside the lake's tables",
                    f"Allowed table functions: {', '.join(sorted(TABLE_FUNCTIONS))}.",
                )
            if name in _REFUSED_FUNCTIONS:
                raise UnsafeSQL(f"{name}() reaches outside the query", _HINT)
            if name in _CRASHING_FUNCTIONS or name.startswith("variant_"):
                raise UnsafeSQL(
                    f"{name}() can crash DuckDB",
                    "Read JSON with json_extract, json_keys, json_each or json_transform instead.",
                )


def list_names(connection: duckdb.DuckDBPyConnection, query: str) -> frozenset[str]:
    """Return every table or view name that a query mentions; `*` when it may see all of them."""
    found = _NAMES.get(query)
    if found is None:
        nodes = [node for node, _ in _walk_nodes(_parse(connection, query))]
        tables = {_fold(node["table_name"]) for node in nodes if node.get("type") == "BASE_TABLE"}
        shown = any(node.get("type") == "SHOW_REF" and not node.get("query") for node in nodes)
        found = frozenset(tables | {"*"} if shown else tables)
        if len(_NAMES) >= _MOST_NAMES:
            _NAMES.clear()
        _NAMES[query] = found
    return found


def _check_table(node: dict[str, Any], own: frozenset[str], known: Collection[str]) -> None:
    parts = [node.get(part) for part in ("catalog_name", "schema_name", "table_name")]
    name = ".".join(str(part) for part in parts if part)
    if node.get("catalog_name") or node.get("schema_name"):
        raise UnsafeSQL(f"{name} is not a table or view of the lake", _HINT)
    if _fold(name) in own or _fold(name) in known:
        return
    if not name.isidentifier():
        raise UnsafeSQL(f"'{name}' is a file or no name at all", f"{_HINT} {_FILES}")
    raise UnknownName.among("table or view", name, known)


def _fold(name: object) -> str:
    """Fold ASCII letters only, as DuckDB does; k and the Kelvin sign stay different."""
    return str(name).translate(_LOWER)


def _parse(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    """Return the parsed form of a statement; of EXPLAIN, that of what it explains."""
    kinds = [statement.type for statement in connection.extract_statements(query)]
    if kinds == [duckdb.StatementType.EXPLAIN]:
        if _EXPLAIN_OPTION.match(query):
            raise UnsafeSQL("EXPLAIN takes no options here", "Write EXPLAIN and one query.")
        word = _EXPLAIN.match(query)
        query = query[word.end() :] if word else query
        kinds = [statement.type for statement in connection.extract_statements(query)]
    if kinds[:-1] and {*kinds[:-1]} == {duckdb.StatementType.CREATE}:
        count = len(kinds) - 1
        value = secrets.token_hex(16)
        places = _find_open_pivots(query)
        text = query
        for place in reversed(places):
            text = f"{text[:place]} IN ('{value}'){text[place:]}"
        if len(places) != count or len(connection.extract_statements(text)) != 1:
            raise UnsafeSQL(
                f"{count + 1} statements, but a query is one statement",
                "A PIVOT of a JOIN lists its values: PIVOT … ON kind IN ('a', 'b') USING count(*).",
            )
        tree = _serialize(connection, text)
        filled = [
            pivot
            for node, _ in _walk_nodes(tree)
            if node.get("type") == "PIVOT"
            for pivot in node.get("pivots", [])
            if [one["value"] for entry in pivot["entries"] for one in entry["values"]] == [value]
        ]
        if len(filled) != count:
            raise UnsafeSQL(f"{count + 1} statements, but a query is one statement", _HINT)
        return tree
    if len(kinds) != 1:
        raise UnsafeSQL(f"{len(kinds)} statements, but a query is one statement", _HINT)
    if kinds[0] != duckdb.StatementType.SELECT:
        kind = str(kinds[0]).rpartition(".")[2]
        raise UnsafeSQL(f"{kind} statements cannot be run here", _HINT)
    return _serialize(connection, query)


def _find_open_pivots(query: str) -> list[int]:
    """Return where each expression of a PIVOT ends that lists no values.

    >>> query = "PIVOT a ON b, c IN (1) USING sum(d)"
    >>> [query[:place] for place in _find_open_pivots(query)]
    ['PIVOT a ON b']
    """
    places: list[int] = []
    # For each open parenthesis: outside of a PIVOT, before its ON, after it, or after IN as well.
    states, end = [""], 0
    for token in _TOKEN.finditer(query):
        word, state = token[0].upper(), states[-1]
        if word.isspace() or word.startswith(("--", "/*")):
            continue
        if state == "ON" and (word == ")" or word in _AFTER_PIVOTS):
            places.append(end)
        if word == "(":
            states.append("")
        elif word == ")":
            states = states[:-1] or [""]
        elif word in ("PIVOT", "PIVOT_WIDER"):
            states[-1] = "PIVOT"
        elif (state == "PIVOT" and word == "ON") or (state in ("ON", "IN") and word == ","):
            states[-1] = "ON"
        elif state == "ON" and word == "IN":
            states[-1] = "IN"
        elif word in _AFTER_PIVOTS:
            states[-1] = ""
        end = token.end()
    return [*places, end] if states[-1] == "ON" else places


def _serialize(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, Any]:
    # A literal, because DuckDB would import pandas for a parameter, which takes half a second.
    literal = query.replace("'", "''")
    (text,) = fetch_row(connection, f"SELECT json_serialize_sql('{literal}'::VARCHAR)")
    try:
        parsed = cast("dict[str, Any]", json.loads(text))
    except RecursionError:
        raise UnsafeSQL("the query is nested too deeply", "Name parts of it with WITH.") from None
    if parsed["error"]:
        message = str(parsed["error_message"])
        if message.startswith("Only SELECT"):  # a PRAGMA, whose statement DuckDB calls a SELECT
            message = f"{query.split(maxsplit=1)[0].upper()} statements cannot be run here"
        raise UnsafeSQL(message, _HINT)
    return parsed


def _walk_nodes(tree: object) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Yield tables, SHOWs, functions, PIVOTs and named types, with the WITH names that they see.

    A WITH part sees those before it, and itself only if it is recursive. A name that is not visible
    would fall through to DuckDB's own tables, or to a file of that name.
    """
    waiting: list[tuple[object, frozenset[str]]] = [(tree, frozenset())]
    while waiting:
        value, own = waiting.pop()
        if isinstance(value, list):
            waiting += [(part, own) for part in cast("list[object]", value)]
        if not isinstance(value, dict):
            continue
        node = cast("dict[str, Any]", value)
        for entry in node.get("cte_map", {}).get("map", []):
            waiting.append((entry["value"], own))
            own |= {_fold(entry["key"])}
        if node.get("type") == "RECURSIVE_CTE_NODE":
            own |= {_fold(node["cte_name"])}
        if node.get("type") in _CHECKED or node.get("id") == _CRASHING_TYPE:
            yield node, own
        waiting += [(part, own) for key, part in node.items() if key != "cte_map"]
