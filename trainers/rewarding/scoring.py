"""Rewards as pure functions of stored rows: a rule's raw reward, its z-score, its advantage.

The lake has all inputs of a reward: verdicts, timings and quarantine at one snapshot, and the
earlier rewards of the run. A reward can therefore be computed again without a GPU: by the same rule
at the same snapshot (`verify_rewards`), or over a run's whole history by another rule
(`rescore_run`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from store import read_sql
from store.errors import UnknownName
from trainers.rewarding.inputs import read_inputs
from trainers.rewarding.normalization import (
    combine_moments,
    find_window,
    gather_moments,
    normalize_rewards,
    smooth,
)
from trainers.rewarding.rules import Rule, load_rule
from trainers.rewarding.terms import Terms, read_figures

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    import store

    Floats = npt.NDArray[np.float64]
    Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Rewards of attempts, in the order of the request; None means no reward."""

    raw: list[float | None]
    smoothed: list[float | None]
    advantage: list[float | None]
    rows: list[dict[str, Any]]
    """Rows of table `rewards`: one per attempt that has a reward."""
    counts: dict[str, int]
    """attempts, rewarded, correct, failures, quarantined, nonequivalent (another function than the
    task's), discarded (correct, without a figure), unjudged, groups, zero_variance_groups."""


def score_step(
    lake: store.Lake,
    rule: str,
    config: Terms | None,
    run_id: str,
    step: int,
    generation_ids: Sequence[str],
    groups: Sequence[str],
) -> Scored:
    """Return the rewards of one step's attempts, from the lake at its snapshot.

    Mean and standard deviation are those of rewards stored for earlier steps of the run, so neither
    the order of attempts nor the division of a step into batches matters, and a resumed run
    continues with the same figures.

    Args:
        lake: Pinned to a snapshot that holds the attempts' verdicts and earlier steps' rewards.
        rule: Name of the rule.
        config: Its options; None takes the defaults.
        run_id: Training run whose rewards these are.
        step: Training step, from 0.
        generation_ids: The attempts.
        groups: Group of each attempt; advantages are relative to it.

    Raises:
        UnknownName: no such rule, or the lake lacks a generation.
    """
    import numpy as np

    found = load_rule(rule)
    terms = found.config() if config is None else config
    rows = read_inputs(lake, terms, generation_ids)
    raw = found.raw(rows, terms)
    first, last = find_window(step, terms)
    asked = {
        "run_id": run_id,
        "rule": found.name,
        "rule_version": found.version,
        "first": first,
        "last": last,
    }
    history = lake.run(read_sql(__file__, "earlier_rewards"), asked).arrow()
    mean, std = combine_moments(
        gather_moments(_read_steps(history["step"]), read_figures(history, "raw")), terms
    )
    steps = np.full(len(raw), step, dtype=np.int64)
    smoothed = smooth(raw, np.full(len(raw), mean), np.full(len(raw), std), terms)
    return _assemble(lake, found, terms, run_id, rows, raw, smoothed, steps, groups, generation_ids)


def rescore_run(
    lake: store.Lake,
    run_id: str,
    rule: str,
    config: Terms | None = None,
    *,
    name: str | None = None,
) -> Scored:
    """Return rewards of all attempts of a run by any rule.

    Each step is normalized by the steps before it, as if the run had used the rule from its start;
    verdicts and timings are those of the lake's snapshot.

    Args:
        lake: Pinned to the snapshot whose verdicts and timings count.
        run_id: The run.
        rule: Name of the rule.
        config: Its options; None takes the defaults.
        name: Name to store the rows under (default: the rule's).

    Raises:
        UnknownName: no such rule, or no attempt of such a run.
    """
    import numpy as np

    found = load_rule(rule)
    terms = found.config() if config is None else config
    attempts = lake.run(read_sql(__file__, "run_attempts"), {"run_id": run_id}).arrow()
    if not attempts.num_rows:
        raise UnknownName(
            f"no attempt of a run {run_id!a}",
            'store query "SELECT run_id, count(*) FROM generations GROUP BY run_id" lists runs.',
        )
    wanted = [str(one) for one in attempts["generation_id"].to_pylist()]
    rows = read_inputs(lake, terms, wanted)
    raw = found.raw(rows, terms)
    steps = np.nan_to_num(read_figures(attempts, "step")).astype(np.int64)
    order = np.lexsort((raw, steps))
    known = order[~np.isnan(raw[order])]
    moments = gather_moments(steps[known], raw[known])
    mean, std = np.empty_like(raw), np.empty_like(raw)
    for step in np.unique(steps).tolist():
        first, last = find_window(step, terms)
        at = steps == step
        mean[at], std[at] = combine_moments(moments.select_steps(first, last), terms)
    smoothed = smooth(raw, mean, std, terms)
    groups = [str(one) for one in attempts["group_id"].to_pylist()]
    scored = _assemble(lake, found, terms, run_id, rows, raw, smoothed, steps, groups, wanted)
    return scored if name is None else _rename_rule(scored, name)


def _assemble(
    lake: store.Lake,
    found: Rule,
    terms: Terms,
    run_id: str,
    inputs: pa.Table,
    raw: Floats,
    smoothed: Floats,
    steps: Whole,
    groups: Sequence[str],
    generation_ids: Sequence[str],
) -> Scored:
    """Put rewards together: advantages, rows of the table, and counts."""
    import numpy as np

    advantage, flat = normalize_rewards(smoothed, groups, terms.group_epsilon)
    missing = np.isnan(raw)
    outcome = read_figures(inputs, "correct")
    correct, judged = outcome == 1, ~np.isnan(outcome)
    constant = {
        "run_id": run_id,
        "rule": found.name,
        "rule_version": found.version,
        "config": json.dumps(asdict(terms), sort_keys=True),
        "lake_id": lake.lake_id,
        "snapshot_id": lake.snapshot,
    }
    evaluation_ids = inputs["evaluation_id"].to_pylist()
    rows = [
        constant
        | {
            "generation_id": generation_ids[at],
            "evaluation_id": evaluation_ids[at],
            "step": int(steps[at]),
            "raw": float(raw[at]),
            "smoothed": float(smoothed[at]),
            "advantage": float(advantage[at]),
        }
        for at in np.flatnonzero(~missing).tolist()
    ]
    counts = {
        "attempts": len(raw),
        "rewarded": len(rows),
        "correct": int(correct.sum()),
        "failures": int((judged & ~correct).sum()),
        "quarantined": int(read_figures(inputs, "quarantined").sum()),
        "nonequivalent": int(read_figures(inputs, "nonequivalent").sum()),
        "discarded": int((correct & missing).sum()),
        "unjudged": int((~judged).sum()),
        "groups": len(set(groups)),
        "zero_variance_groups": flat,
    }
    return Scored(
        raw=_list_figures(raw),
        smoothed=_list_figures(smoothed),
        advantage=_list_figures(advantage),
        rows=rows,
        counts=counts,
    )


def _rename_rule(scored: Scored, name: str) -> Scored:
    from dataclasses import replace

    return replace(scored, rows=[row | {"rule": name} for row in scored.rows])


def _list_figures(values: Floats) -> list[float | None]:
    import math

    return [None if math.isnan(value) else value for value in values.tolist()]


def _read_steps(column: pa.ChunkedArray) -> Whole:
    import numpy as np

    return np.asarray(column.to_numpy(), dtype=np.int64)
