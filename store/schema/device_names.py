"""Check the short names of devices, by which views tell devices apart.

The rule is in code and not in catalog.yaml, because a lake could not adopt a new check of a column
that it has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.errors import RowsRejected
from store.schema.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

NAME_RULE = "names are printable ASCII, with single spaces between words alone"
NAME_PATTERN = "[!-~]+( [!-~]+)*"
_EXAMPLES = 3


def check_device_names(table: Table, rows: pa.Table) -> None:
    """Raise RowsRejected if a device has a name that looks like another one's.

    Look-alike letters and spaces that nobody sees would make two devices of one.
    """
    import pyarrow.compute as pc

    if table.name != "devices":
        return
    names = pc.unique(rows.column("name"))
    good = pc.match_substring_regex(names, rf"\A(?:{NAME_PATTERN})\z")
    wrong = names.filter(pc.invert(good)).to_pylist()
    if wrong:
        examples = [f"name={one!a:.90}" for one in wrong[:_EXAMPLES]]
        raise RowsRejected(table.name, NAME_RULE, len(wrong), examples)
