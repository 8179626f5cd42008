"""Licenses: find the license of each text, and refuse texts that may not be redistributed."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa

from store.errors import RowsRejected
from store.lake.reader import Lake
from store.lake.sql_files import read_sql

REDISTRIBUTABLE = frozenset(
    {
        *("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "ISC", "MIT", "MIT-0"),
        *("Unlicense", "Zlib", "Artistic-2.0", "MPL-2.0", "EPL-2.0", "EUPL-1.2", "CC0-1.0"),
        *("CC-BY-3.0", "CC-BY-4.0", "CC-BY-SA-3.0", "CC-BY-SA-4.0", "ODC-By-1.0", "ODbL-1.0"),
        *("CDLA-Permissive-1.0", "CDLA-Permissive-2.0", "CDLA-Sharing-1.0", "PDDL-1.0"),
        *("GPL-2.0", "GPL-2.0-only", "GPL-2.0-or-later", "GPL-3.0", "GPL-3.0-only"),
        *("GPL-3.0-or-later", "LGPL-2.1", "LGPL-2.1-only", "LGPL-2.1-or-later", "LGPL-3.0"),
        *("LGPL-3.0-only", "LGPL-3.0-or-later", "AGPL-3.0", "AGPL-3.0-only", "AGPL-3.0-or-later"),
        *("Apache-2.0 WITH LLVM-exception", "CC-BY-NC-4.0", "CC-BY-NC-SA-4.0"),
    }
)
"""SPDX identifiers of licenses that permit redistribution under conditions."""
SHOWN = 20
_KNOWN = {name.lower(): name for name in REDISTRIBUTABLE}
_NOT_HUB = frozenset({"0bsd", "mit-0", "apache-2.0 with llvm-exception"})
"""Those that the Hub has no word for."""
_HUB_OTHER = {"odc-by-1.0": "odc-by", "odbl-1.0": "odbl", "pddl-1.0": "pddl"}


@dataclass(frozen=True, kw_only=True)
class Licenses:
    """Licenses of the rows of a lake."""

    counts: list[tuple[str, str, int]]
    """Table, license and number of rows, for all rows that state a license or must state one."""
    filled: pa.Table
    """table, id, license of texts that state none themselves but whose origin does."""
    wrong: pa.Table
    """table, id, license, source of rows that must not be published."""


def is_redistributable(license: str) -> bool:
    """Return whether an SPDX expression permits redistribution.

    All parts of an AND must permit it, or one part of an OR.

    >>> is_redistributable("apache-2.0"), is_redistributable("MIT AND Proprietary")
    (True, False)
    >>> is_redistributable("MIT OR Proprietary"), is_redistributable("see the website")
    (True, False)
    """
    parts = re.split(r"\s+AND\s+", license.replace("(", " ").replace(")", " ").strip())
    return all(
        any(one.strip().lower() in _KNOWN for one in re.split(r"\s+OR\s+", part)) for part in parts
    )


def survey(lake: Lake, own: str | None) -> Licenses:
    """Return the licenses of a lake's rows at its snapshot.

    Args:
        own: License that the publisher grants for texts that the lake's own runs wrote.
    """
    lake.keep("_licenses", read_sql(__file__, "licenses"), {"own": own})
    grouped = lake.run(
        'SELECT "table", license, needed, count(*) AS n FROM _licenses GROUP BY ALL ORDER BY ALL'
    ).rows()
    bad = [
        row["license"]
        for row in grouped
        if row["license"] is not None and not is_redistributable(row["license"])
    ]
    lake.register("_refused", pa.table({"license": pa.array(sorted(set(bad)), pa.string())}))
    wrong = lake.run(
        'SELECT "table", id, license, source FROM _licenses WHERE (license IS NULL AND needed) '
        "OR license IN (SELECT license FROM _refused) ORDER BY ALL"
    ).arrow()
    filled = lake.run(
        'SELECT "table", id, license FROM _licenses '
        "WHERE stated IS NULL AND license IS NOT NULL ORDER BY ALL"
    ).arrow()
    counts = Counter[tuple[str, str]]()
    for row in grouped:
        if row["license"] is not None and row["license"] not in bad:
            stated = str(row["license"])
            license = _KNOWN.get(stated.lower(), stated)
            counts[row["table"], license] += row["n"]
    listed = [(table, license, count) for (table, license), count in counts.items()]
    return Licenses(counts=listed, filled=filled, wrong=wrong)


def refuse(wrong: pa.Table) -> None:
    """Raise RowsRejected, with the rows, if any must not be published."""
    if not wrong.num_rows:
        return
    listed = [
        f"{row['table']} {row['id']!a:.70}: "
        + (f"license {row['license']!a:.60}" if row["license"] else "no license")
        + f", from {row['source']!a:.40}"
        for row in wrong.slice(0, SHOWN).to_pylist()
    ]
    if wrong.num_rows > SHOWN:
        listed.append(f"and {wrong.num_rows - SHOWN} more")
    listed.append(
        "State it where they are imported (store import … --license); for what your own runs "
        "wrote grant one (store publish --license); or --unlicensed leave-out."
    )
    tables = ", ".join(dict.fromkeys(str(row["table"]) for row in wrong.to_pylist()))
    rule = "a license that allows redistribution is stated"
    raise RowsRejected(tables, rule, wrong.num_rows, listed)


def build_hub_field(names: list[str]) -> dict[str, str]:
    """Return the license fields of a card: the one license, or `other` with a name.

    >>> build_hub_field(["Apache-2.0"])
    {'license': 'apache-2.0'}
    >>> build_hub_field(["Apache-2.0", "MIT"])
    {'license': 'other', 'license_name': 'several-see-below', 'license_link': 'README.md'}
    """
    if len(names) == 1:
        lower = names[0].lower()
        if lower in _KNOWN and lower not in _NOT_HUB:
            short = lower.removesuffix("-only").removesuffix("-or-later")
            return {"license": _HUB_OTHER.get(lower, short)}
    name = "several-see-below" if len(names) != 1 else "see-below"
    return {"license": "other", "license_name": name, "license_link": "README.md"}
