"""Stored rewards of a run beside the same ones computed again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from store import read_sql
from store.errors import UnknownName
from trainers.rewarding.rules import Rule, configure_rule, load_rule
from trainers.rewarding.scoring import rescore_run, score_step
from trainers.rewarding.terms import Terms

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    import store

    Floats = npt.NDArray[np.float64]
    Whole = npt.NDArray[np.int64]


_FIGURES = ("raw", "smoothed", "advantage")


_TOLERANCE = 1e-9
"""Relative difference of two rewards that are the same: sums over a lake take any order."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Stored rewards of a run beside the same ones computed again."""

    rewards: int
    different: list[dict[str, Any]]
    """Those that differ: generation_id, step, and both readings of each figure."""
    elsewhere: int
    """Those of another lake's snapshot, or of none, which cannot be computed again here."""


def verify_rewards(
    lake: store.Lake, run_id: str, rule: str, *, name: str | None = None
) -> Compared:
    """Compute the stored rewards of a run again, each at the snapshot that it was given at.

    Args:
        lake: The lake that holds them.
        run_id: The run.
        rule: Name of the rule.
        name: Name under which they are stored (default: the rule's).

    Raises:
        UnknownName: no such rule, or no reward of the run under its version.
    """
    import store

    found = load_rule(rule)
    given = {"run_id": run_id, "rule": name or found.name, "rule_version": found.version}
    stored = lake.run(read_sql(__file__, "stored_rewards"), given).rows()
    if not stored:
        raise UnknownName(
            f"no reward of run {run_id!a} under {name or found.name} {found.version}",
            'store query "SELECT DISTINCT run_id, rule, rule_version FROM rewards" lists them.',
        )
    batches: dict[tuple[int, str], list[dict[str, Any]]] = {}
    elsewhere = 0
    for row in stored:
        if row["lake_id"] != lake.lake_id or row["snapshot_id"] is None:
            elsewhere += 1
            continue
        batches.setdefault((row["snapshot_id"], row["config"]), []).append(row)
    different: list[dict[str, Any]] = []
    for (snapshot, config), rows in batches.items():
        terms = configure_rule(found, json.loads(config))
        with store.open(lake.url, at=snapshot) as then:
            again = _score_again(then, found, terms, run_id, rows)
        for row in rows:
            now = again.get(row["generation_id"], {})
            if not all(_is_same(row[figure], now.get(figure)) for figure in _FIGURES):
                was = {f"stored_{figure}": row[figure] for figure in _FIGURES}
                now = {figure: now.get(figure) for figure in _FIGURES}
                which = {"generation_id": row["generation_id"], "step": row["step"]}
                different.append(which | was | now)
    return Compared(rewards=len(stored), different=different, elsewhere=elsewhere)


def _score_again(
    then: store.Lake, found: Rule, terms: Terms, run_id: str, rows: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return the rewards of these attempts by generation, as the snapshot gives them."""
    steps = {row["step"] for row in rows}
    if len(steps) > 1:
        # A step that is trained on adds a snapshot, so these were given together, afterwards.
        scored = rescore_run(then, run_id, found.name, terms)
    else:
        scored = score_step(
            then,
            found.name,
            terms,
            run_id,
            steps.pop(),
            [row["generation_id"] for row in rows],
            [row["group_id"] for row in rows],
        )
    return {row["generation_id"]: row for row in scored.rows}


def _is_same(stored: float | None, now: float | None) -> bool:
    import math

    if stored is None or now is None:
        return stored is now
    return math.isclose(stored, now, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
