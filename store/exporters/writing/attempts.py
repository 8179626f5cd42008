"""Selects the kernels that exporters write: those of one suite with results on one device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store.errors import ExportRefused, UnknownName
from store.lake.sql_files import read_sql

if TYPE_CHECKING:
    from store.lake.reader import Lake


@dataclass(frozen=True, kw_only=True)
class Which:
    """Options of exporters that write kernels."""

    suite: str = "kernelbench"
    """Suite of the tasks."""
    suite_revision: str | None = None
    """Revision of the suite; required if the lake has several."""
    device: str | None = None
    """Write the verdicts and times of this device (default: the device with most verdicts)."""
    policy: str | None = None
    """Id or name of the policy that wrote the kernels (default: all)."""


def read_attempts(lake: Lake, which: Which) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the device, and one row per task and kernel (sql/attempts.sql).

    Raises:
        UnknownName: unknown suite, revision or device.
        ExportRefused: several revisions, or no kernel.
    """
    revision = find_revision(lake, which)
    device = which.device
    if device is None:
        most = lake.run(
            "SELECT device FROM outcomes GROUP BY device ORDER BY count(*) DESC, device LIMIT 1"
        ).one()
        device = None if most is None else str(most["device"])
    else:
        known = [str(row["name"]) for row in lake.run("SELECT DISTINCT name FROM devices").rows()]
        if device not in known:
            raise UnknownName.among("device", device, known)
    rows = lake.run(
        read_sql(__file__, "attempts"),
        {
            "suite": which.suite,
            "suite_revision": revision,
            "device": device,
            "policy": which.policy,
        },
    ).rows()
    if not rows:
        by = f" by {which.policy}" if which.policy else ""
        raise ExportRefused(
            f"no kernel of one Python file{by} for {which.suite} {revision}",
            "`store export parquet` and `jsonl` write every kernel.",
        )
    return device, rows


def find_revision(lake: Lake, which: Which) -> str:
    """Return the revision of the options, or the only one; raises like `read_attempts`."""
    labels = lake.run("SELECT DISTINCT suite, suite_revision FROM task_labels ORDER BY ALL").rows()
    suites = {str(row["suite"]) for row in labels}
    if which.suite not in suites:
        raise UnknownName.among("suite", which.suite, sorted(suites))
    known = [str(r["suite_revision"]) for r in labels if r["suite"] == which.suite]
    if which.suite_revision is None:
        if len(known) > 1:
            raise ExportRefused(
                f"the lake has several revisions of {which.suite}: {', '.join(known)}",
                "Add --suite-revision; revisions are never comparable.",
            )
        return known[0]
    if which.suite_revision not in known:
        raise UnknownName.among(f"revision of {which.suite}", which.suite_revision, known)
    return which.suite_revision
