"""Rows of table `timings`: one for every clock and arm of a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from evaluators.timing.session import Session
from store.ids import uuid7


def iterate_timing_rows(session: Session, shared: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a session without evaluation_id, those of the clock that ranks first.

    shared: Columns that all rows of a case have.
    """
    session_id = uuid7()
    for measured in (session, *session.further):
        blocks = measured.list_kept_blocks()
        readings = [measured.readings[block] for block in blocks]
        known = [reading for reading in readings if reading is not None]
        clocks = known if len(known) == len(blocks) else []
        for arm in ("kernel", *measured.baselines):
            yield {
                **shared,
                "session_id": session_id,
                "clock": measured.clock,
                "inner_loops": measured.inner_loops[arm],
                "noisy": measured.noisy,
                "confirmed": False,
                "disturbed": measured.disturbed,
                "unresolved": measured.is_unresolved(arm),
                "overhead_ms": measured.compute_overhead(arm),
                "resolution_ms": measured.compute_resolution(arm),
                "timing_id": uuid7(),
                "arm": arm,
                "samples_ms": [measured.samples_ms[arm][block] for block in blocks],
                "blocks": blocks,
                "positions": [measured.positions[arm][block] for block in blocks],
                "cache": "warm" if measured.clock == "throughput" else "cold",
                "sm_clock_mhz": [reading.sm_mhz for reading in clocks] or None,
                "temperature_c": [reading.temperature_c for reading in clocks] or None,
                "control_ratios": measured.compute_control_ratios() if arm == "kernel" else None,
            }


def mark_disturbed(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of sessions that rank nothing."""
    return [{**row, "noisy": True, "disturbed": True} for row in rows]
