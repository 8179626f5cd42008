"""The history of a lake: its snapshots, their tags, and the difference between two of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from store.commandline.escape import quote_name
from store.errors import FlywheelError, UnknownName
from store.ids import uuid7
from store.lake.host import name_user
from store.lake.reader import Lake
from store.lake.sql_files import read_sql
from store.writing.writer import Writer

if TYPE_CHECKING:
    import pyarrow as pa

_TAG = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,99}")


def list_snapshots(lake: Lake) -> pa.Table:
    """Return one row per snapshot, newest first: time, author, message, tags."""
    return lake.run(read_sql(__file__, "log")).arrow()


def list_tags(lake: Lake) -> pa.Table:
    """Return the tags in use and their snapshots."""
    return lake.run(read_sql(__file__, "tags")).arrow()


def require_tag_name(name: str) -> None:
    """Raise FlywheelError unless a text is plain enough for a tag, and no number or time."""
    if not _TAG.fullmatch(name):
        raise FlywheelError(
            f"{quote_name(name)} cannot be a tag",
            "Begin with a letter, such as v1 or before-h200. Letters are a to z and A to Z; "
            "digits, '.', '_' and '-' may follow, up to 100 characters.",
        )


def add_tag(writer: Writer, name: str, at: str | int | None, note: str | None) -> int:
    """Tag a snapshot (default: the newest); return it. A tag in use moves to the new snapshot.

    Raises FlywheelError if the name cannot be a tag.
    """
    require_tag_name(name)
    with writer.reader(at) as lake:
        snapshot = lake.snapshot
    _append(writer, name, snapshot, note, f"tag {name} at snapshot {snapshot}")
    return snapshot


def remove_tag(writer: Writer, name: str, note: str | None) -> None:
    """Remove a tag; its history stays. Raises UnknownName if there is no such tag."""
    with writer.reader() as lake:
        known = [row["name"] for row in list_tags(lake).to_pylist()]
    if name not in known:
        raise UnknownName.among("tag", name, known)
    _append(writer, name, None, note, f"remove tag {name}")


def _append(
    writer: Writer, name: str, snapshot: int | None, note: str | None, message: str
) -> None:
    row = {
        "tag_id": uuid7(),
        "name": name,
        "snapshot_id": snapshot,
        "note": note,
        "author": name_user(),
        "created_at": writer.choose_time("tags"),
    }
    writer.append({"tags": [row]}, message)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference between a snapshot and an earlier one."""

    before: int
    after: int
    rows_added: dict[str, int]
    """Table to number of rows added; unchanged tables are left out."""
    new_verdicts: pa.Table
    """Verdicts on what the earlier snapshot has none for."""
    verdicts: pa.Table
    best_kernels: pa.Table
    """Best kernels that are new, changed, or measured again."""


def compare(before: Lake, after: Lake) -> Difference:
    """Compare two pinned readers of one lake. Rows are never changed, so counts suffice."""
    if before.snapshot > after.snapshot:
        raise FlywheelError(
            f"snapshot {before.snapshot} is newer than {after.snapshot}",
            "Name the older one first.",
        )
    old, new = _count_rows(before), _count_rows(after)
    after.register("_verdicts_before", before.run("FROM verdicts").arrow())
    after.register("_best_before", before.run("FROM best_kernels").arrow())
    return Difference(
        before=before.snapshot,
        after=after.snapshot,
        rows_added={name: new[name] - old[name] for name in old if new[name] != old[name]},
        new_verdicts=after.run(read_sql(__file__, "diff_verdicts"), {"new": True}).arrow(),
        verdicts=after.run(read_sql(__file__, "diff_verdicts"), {"new": False}).arrow(),
        best_kernels=after.run(read_sql(__file__, "diff_best")).arrow(),
    )


def list_added_rows(before: Lake, after: Lake, table: str) -> pa.Table:
    """Return the rows of a table that the later snapshot added, without long texts."""
    spec = after.catalog.table(table)
    key = ", ".join(f'"{name}"' for name in spec.key)
    after.register("_keys_before", before.run(f"SELECT {key} FROM {table}").arrow())
    shown = ", ".join(f'"{c.name}"' for c in spec.columns.values() if c.name not in _LONG)
    return after.run(
        f"SELECT {shown} FROM {table} ANTI JOIN _keys_before USING ({key}) ORDER BY {key}"
    ).arrow()


_LONG = frozenset({"code", "other_files", "messages", "completion", "log", "body", "samples_ms"})


def _count_rows(lake: Lake) -> dict[str, int]:
    counts = (f"SELECT '{name}' AS name, count(*) AS n FROM {name}" for name in lake.catalog.tables)
    found = {row["name"]: row["n"] for row in lake.run(" UNION ALL ".join(counts)).rows()}
    return {name: found[name] for name in lake.catalog.tables}
