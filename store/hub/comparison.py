"""Compare rows of another lake with this lake's: new, already here, joining, or in conflict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import ImportFailed
from store.hub.incoming import IncomingTable, replace_column
from store.hub.redact import PSEUDONYM, VERBATIM, Redactor, is_scrubbed
from store.lake.reader import Lake
from store.lake.sql_files import read_sql
from store.schema import row_checks
from store.schema.row_checks import EXAMPLES, describe_rows
from store.schema.sql_text import quote_names

if TYPE_CHECKING:
    import pyarrow as pa

_OWN_IDS = {
    name: f'SELECT "{column}" FROM {table} WHERE origin IS NULL'
    for name, table, column in (
        ("run", "runs", "run_id"),
        ("dataset", "datasets", "dataset_id"),
        ("evaluation", "evaluations", "evaluation_id"),
        ("timing session", "timings", "session_id"),
    )
} | {
    "session": "SELECT session_id FROM sessions WHERE run_id IS NULL "
    "OR run_id IN (SELECT run_id FROM runs WHERE origin IS NULL)",
    "device": "SELECT device_id FROM evaluations WHERE origin IS NULL "
    "UNION SELECT device_id FROM task_audits WHERE origin IS NULL",
}
"""Records that rows belong to, with the query for the ids of those that this lake made."""
_ATTACHED = {
    "policies": {"run_id": "run"},
    "generations": {"run_id": "run"},
    "evaluations": {"run_id": "run"},
    "timings": {"evaluation_id": "evaluation", "session_id": "timing session"},
    "rewards": {"run_id": "run"},
    "run_ends": {"run_id": "run"},
    "metrics": {"run_id": "run"},
    "findings": {"run_id": "run"},
    "scans": {"run_id": "run"},
    "claims": {"run_id": "run"},
    "datasets": {"run_id": "run"},
    "dataset_rows": {"dataset_id": "dataset"},
    "sessions": {"run_id": "run"},
    "session_steps": {"session_id": "session"},
    "tool_calls": {"session_id": "session"},
    # An own audit on the device has the key of such a row, and would be dropped as its duplicate.
    "task_audits": {"device_id": "device"},
}
"""Tables whose rows add to such a record, by these columns."""


def compare(lake: Lake, redactor: Redactor, part: IncomingTable, *, are_own: bool = False) -> None:
    """Find the rows that are new, the rows that are here, and the rows in conflict.

    With `are_own`, this lake's owner measured the rows elsewhere, so they may join its records.

    Raises:
        ImportFailed: an id is not the hash of its text, or a device passes for one of this lake.
    """
    import numpy as np
    import pyarrow as pa

    table = part.table
    for rows in part.batches():
        wrong_ids = row_checks.find_wrong_ids(table, rows)
        if wrong_ids:
            raise ImportFailed(
                f"{table.name}: {len(wrong_ids)} ids are not the hash of their text, such as "
                f"{wrong_ids[0]!a:.70}",
                "Nothing was merged: these rows are not what they claim to be.",
            )
        places = pa.array(range(rows.num_rows), pa.int64())
        incoming = rows.append_column("_place", places)
        lake.register("_incoming", incoming)
        if table.name == "devices":
            for conflict in lake.run(read_sql(__file__, "device_conflicts")).rows():
                raise ImportFailed(
                    f"devices: {conflict['name']!a:.70} of kind {conflict['kind']} would rank with "
                    f"or beside {conflict['known_name']!a:.70} of kind {conflict['known_kind']}",
                    "Nothing was merged: one name has one spelling and one kind of device.",
                )
        # The columns in which a row must equal the row with the same key: not provenance
        # (catalog.yaml), hashed names, private columns, which are missing, and texts, which are
        # checked against their id.
        compared = [
            column.name
            for column in table.columns.values()
            if column.name in rows.column_names
            and column.sensitivity == "public"
            and column.name not in table.key
            and not column.provenance
            and (
                (table.name, column.name) not in VERBATIM
                or table.name in ("generations", "findings")
            )
        ]
        listed = "".join(f', o."{name}"' for name in compared)
        own = lake.run(
            f"SELECT i._place, {quote_names(table.key)}{listed} FROM {table.name} AS o "
            f"JOIN _incoming AS i USING ({quote_names(table.key)}) ORDER BY i._place"
        ).arrow()
        fresh = np.ones(rows.num_rows, dtype=bool)
        held = own.column("_place").to_numpy()
        fresh[held] = False
        if not are_own:
            fresh[_find_joining(lake, part, incoming.filter(pa.array(fresh)))] = False
        part.fresh.append(fresh)
        part.there += len(set(held.tolist()))
        if own.num_rows and compared:
            _find_conflicts(lake, redactor, part, incoming, own, compared)


def describe_joining(part: IncomingTable) -> list[str]:
    """Describe the rows that stay out because they would join records of this lake."""
    return [
        f"kept out of {part.table.name}: {count} that would join this lake's {record}s"
        for record, count in sorted(part.joining.items())
    ]


def _find_joining(lake: Lake, part: IncomingTable, fresh: pa.Table) -> list[int]:
    """Return the positions of new rows that would join records of this lake, and count them.

    A pulled row that names a run, an evaluation, a session or a dataset that this lake recorded
    would change that record.
    """
    table = part.table
    attached = _ATTACHED.get(table.name, {})
    named = {column: record for column, record in attached.items() if column in fresh.column_names}
    if not named or not fresh.num_rows:
        return []
    lake.register("_fresh", fresh)
    tests = ", ".join(
        f"CASE WHEN \"{column}\" IN ({_OWN_IDS[record]}) THEN '{record}' END"
        for column, record in named.items()
    )
    found = lake.run(
        "SELECT _place, joins FROM (SELECT _place, "
        f"list_filter([{tests}], x -> x IS NOT NULL) AS joins FROM _fresh) "
        "WHERE len(joins) > 0 ORDER BY _place"
    ).rows()
    part.joining.update(str(name) for row in found for name in row["joins"])
    return [int(row["_place"]) for row in found]


def _find_conflicts(
    lake: Lake,
    redactor: Redactor,
    part: IncomingTable,
    incoming: pa.Table,
    own: pa.Table,
    compared: list[str],
) -> None:
    """Compare rows in the form in which they leave this lake; redacted parts do not differ.

    Pseudonyms inside texts do not count either: each lake hashes the same name with its own salt.
    """
    table = part.table
    scrubbed = [name for name in compared if is_scrubbed(table, table.columns[name])]
    for name in scrubbed:
        column = table.columns[name]
        own = replace_column(own, name, redactor.redact_column(table, column, own.column(name)))
        clean = redactor.redact_column(table, column, incoming.column(name))
        incoming = replace_column(incoming, name, clean)
    lake.register("_incoming", incoming)
    lake.register("_own", own)

    def value(side: str, name: str) -> str:
        plain = f'{side}."{name}"'
        if name not in scrubbed:
            return plain
        return f"regexp_replace({plain}::VARCHAR, '{PSEUDONYM.pattern}', 'anon', 'g')"

    differs = ", ".join(
        f"CASE WHEN {value('o', name)} IS DISTINCT FROM {value('i', name)} THEN '{name}' END"
        for name in compared
    )
    key = ", ".join(f'i."{name}"' for name in table.key)
    found = lake.run(
        f"SELECT {key}, differs FROM (SELECT i.*, list_filter([{differs}], x -> x IS NOT NULL) "
        "AS differs FROM _incoming AS i JOIN _own AS o USING (_place)) AS i "
        "WHERE len(differs) > 0 ORDER BY ALL"
    ).arrow()
    part.conflicting += found.num_rows
    part.differing |= {str(name) for row in found.to_pylist() for name in row["differs"]}
    room = EXAMPLES - len(part.conflicts)
    shown = found.slice(0, max(0, room)).select(list(table.key)).to_pylist()
    part.conflicts += describe_rows(table.key, [tuple(row.values()) for row in shown])
