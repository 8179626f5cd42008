"""The rows of this lake whose ids a pulled row could take, because the store cannot compute them.

A detector or an importer that runs here later computes the ids of its rows. If a pulled row had one
of these ids, the store would drop the own row as a duplicate. Pulled rows therefore get the hash of
their content as their id, unless they come from this lake or conflict with a row of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from store import ids
from store.lake.reader import Lake
from store.schema.tables import Table

REKEYED = ("findings", "claims", "analyses", "standings")
_NOT_HASHED = ("origin", "created_at", "license")


@dataclass(frozen=True, kw_only=True)
class OwnRows:
    """The rows of one table that this lake did not pull."""

    ids: frozenset[str]
    by_content: dict[str, str]
    """Hash of the content to id."""


def read_own_rows(lake: Lake, table: Table) -> OwnRows:
    """Return the ids of a lake's own rows, and the hashes of their content."""
    key = table.key[0]
    by_content: dict[str, str] = {}
    found: set[str] = set()
    for batch in lake.run(f"SELECT * FROM {table.name} WHERE origin IS NULL").reader(10_000):
        for row in batch.to_pylist():
            found.add(str(row[key]))
            by_content[hash_content(table, row)] = str(row[key])
    return OwnRows(ids=frozenset(found), by_content=by_content)


def hash_content(table: Table, row: Mapping[str, Any]) -> str:
    """Return the hash of a row's content, which leaves out its id, origin, time and license.

    Pseudonyms are left out, because each lake hashes a name with its own salt. A column that is
    NULL is left out too, so that a column that is added later changes no hash.
    """
    left_out = (*table.key, *_NOT_HASHED)
    content = {
        name: value
        for name, value in row.items()
        if value is not None
        and name not in left_out
        and table.columns[name].sensitivity == "public"
    }
    return ids.content_id("pulled", table.name, json.dumps(content, sort_keys=True, default=str))
