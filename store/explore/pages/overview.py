"""Overview: what changed since the reader last looked, records, headline speedups, contents."""

from __future__ import annotations

import functools

from store.explore.page.answers import draw_medians, show_times
from store.explore.page.model import SQL, Choice, Fact, Page, Panel, Row, Told, View

PATH = "/"
MENU = (0, "Overview")
_FEWEST_TASKS = 3
_TOLD = {"generations": "attempts", "evaluations": "verdicts", "kernels": "kernels",
         "findings": "findings", "claims": "claims", "tasks": "tasks"}  # fmt: skip
_BETWEEN = SQL / "compare_snapshots"


async def build(view: View) -> Page:
    """Return the page; raises SnapshotNotFound."""
    head = await view.one("overview/head") or {}
    at = head.get("committed_at")
    choice = Choice(name="since", label="Since snapshot", placeholder="tag, number or time")
    named = view.get("since")
    seen = max(view.snapshot - 1, 0) if view.last_seen is None else view.last_seen
    since = min(seen if named is None else await view.resolve(named), view.snapshot)
    visit = ", your last visit" if named is None and view.last_seen is not None else ""
    return Page(
        title="Kernel history",
        facts=[
            Fact(name="Newest commit", text=f"{at:%Y-%m-%d %H:%M} UTC" if at else "none yet"),
            Fact(name="Commits", text=f"{head.get('commits', 0):,}"),
            Fact(name="Snapshot", text=str(view.snapshot)),
        ],
        links=[(f"/compare/snapshots?a={since}", "Compare in full")],
        choices=[choice],
        values={"a": since, "b": view.snapshot},
        panels=[
            Panel(
                name="changes", file=_BETWEEN / "added.sql", table="folded",
                title=f"New since snapshot {since}{visit}",
                tell=functools.partial(tell_changes, since), is_required=True,
            ),
            Panel(name="headline", tell=_tell_headline, table="folded", is_required=True),
            Panel(name="holdings", template="holdings"),
            Panel(name="records", rows=8, tell=_tell_records, compares="kernels"),
            Panel(name="tags", rows=10),
            Panel(name="commits", rows=10),
        ],
    )  # fmt: skip


def tell_changes(since: int, rows: list[Row]) -> Told:
    """Tell how many rows of the main tables commits added after a snapshot."""
    added = {row["table"]: row["rows"] for row in rows}
    told = [f"{added[name]:,} {said}" for name, said in _TOLD.items() if name in added]
    total = sum(added.values())
    of_these = f": {', '.join(told)}" if told else ", none about kernels"
    return f"{total:,} new row{'s' * (total != 1)} since snapshot {since}{of_these}.", ""


def _tell_records(rows: list[Row]) -> Told:
    best = max(rows, key=lambda row: row["speedup_low"])
    return (
        f"The fastest of the newest records is {show_times(best)} over eager on "
        f"{best['device']}, for task {best['task']}.",
        "",
    )


def _tell_headline(rows: list[Row]) -> Told:
    shown = [row for row in rows if row["p50"] is not None and row["n"] >= _FEWEST_TASKS]
    if not shown:
        return f"{sum(row['correct'] for row in rows):,} tasks have a correct kernel.", ""
    first = shown[0]
    medians = {f"{row['suite']} on {row['device']}": row for row in shown}
    return (
        f"The median of {first['n']} tasks of {first['suite']} is {show_times(first, 'p50')} over "
        f"eager on {first['device']}; {first['correct']} of {first['tasks']} are solved.",
        draw_medians("headline", medians, " over eager"),
    )
