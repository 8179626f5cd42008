"""What became of a run: its rows tell how it ended, and its lease whether it still runs."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from store.lake.reader import Lake

if TYPE_CHECKING:
    from store.lake.location import Location


def find_state(location: Location, run: Mapping[str, Any]) -> str:
    """Return the state of a run in words; the lease of an open one tells whether it still runs.

    Args:
        run: run_id, and the state and host that the view run_states has at some snapshot.

    Raises:
        LakeUnreachable: the server that keeps the leases does not answer.
    """
    if run["state"] != "open":
        return str(run["state"])
    # Ask before reading again: a run stores its end before it gives up its lease.
    if location.find_held([run["run_id"]]):
        return "running"
    with Lake(location) as newest:
        row = newest.run("SELECT state FROM run_states WHERE run_id = $1", [run["run_id"]]).one()
    if row is not None and row["state"] != "open":
        return f"open at this snapshot, and {row['state']} since"
    if location.sees_every_host:
        return "killed (its process is gone, or has lost its connection to the database)"
    if run["host"] not in (None, platform.node()):
        return f"open on another host, {run['host']}, which alone knows whether it still runs"
    return "killed (its process is gone)"
