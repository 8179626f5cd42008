"""Reward rules, and rewards as pure functions of stored rows: raw reward, z-score, advantage.

The lake has all inputs of a reward: verdicts, timings and quarantine at one snapshot, and the
earlier rewards of the run. A reward can therefore be computed again without a GPU: by the same rule
at the same snapshot (`verify_rewards`), or over a run's whole history by another rule
(`rescore_run`).
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypeAlias, get_type_hints

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import store
from pipelines import query
from store import read_sql
from store.commandline import members
from store.errors import FlywheelError, UnknownName
from store.schema.baselines import Baseline, list_baselines
from store.schema.clocks import Clock
from store.schema.sql_text import quote_values

Floats: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = pa.Table
"""What the lake has about attempts, a row each (`read_inputs`)."""
Whole: TypeAlias = npt.NDArray[np.int64]

_FEW = 512
"""Up to this number of attempts, the query names their kernels: those of a step, not of a run."""
_FIGURES = ("raw", "smoothed", "advantage")
_TOLERANCE = 1e-9
"""Relative difference of two rewards that are the same: sums over a lake take any order."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """Options of every rule. A rule's Config sets its own defaults."""

    device: str | None = None
    """Device whose verdicts and timings count (default: where most of the kernels were judged)."""
    baseline: Baseline = "eager"
    """What speedups are relative to."""
    clock: Clock | None = None
    """Clock of the speedups (default: the clock that ranks: gpu on a GPU, throughput on a
    processor). The judge's protocol training times by that one alone; protocol=full times by all.
    """
    failure: float = 0.0
    """Raw reward of no kernel, a failing verdict, a quarantined kernel, or another function."""
    discarded: Literal["skip", "failure"] = "skip"
    """A correct kernel without a figure: no reward at all, or that of a failure."""
    doubt: float | None = None
    """Confidence from which an undecided finding, such as one of `evaluators audit --llm`, holds a
    surprising win back: a speedup over eager above 3, or above twice the best other kernel of the
    task, gets no reward until somebody decides (default: only withheld kernels count as failures).
    """
    include_nonequivalent: bool = False
    """Reward correct kernels, too, that are another function than their task's module."""
    clip: float | None = None
    """Bound of the smoothed reward on both sides (default: none)."""
    refresh_every: int | None = None
    """Steps between refreshes of mean and standard deviation (default: no z-score)."""
    window: int = 100
    """Steps before a refresh whose raw rewards give mean and standard deviation."""
    initial_mean: float = 1.0
    """Mean of the first step of a run, which has no rewards before it."""
    initial_std: float = 1.0
    """Standard deviation of the first step of a run."""
    least_std: float = 1e-6
    """Smallest standard deviation that a z-score divides by."""
    group_epsilon: float = 1e-4
    """Added to a group's standard deviation before dividing (TRL adds 1e-4)."""


def read_figures(rows: Rows, name: str) -> Floats:
    """Return a column as doubles, NULL as NaN."""
    return np.asarray(rows[name].cast(pa.float64()).to_numpy())


def assign_rewards(rows: Rows, worth: Floats | float, terms: Terms) -> Floats:
    """Return raw rewards: `worth` for correct attempts, and the terms' rewards for all others.

    NaN means no reward: the kernel has not been judged, or it is correct without a worth and the
    terms skip it.
    """
    outcome = read_figures(rows, "correct")
    none = np.nan if terms.discarded == "skip" else terms.failure
    success = np.where(np.isnan(worth), none, worth)
    return np.where(np.isnan(outcome), np.nan, np.where(outcome == 1, success, terms.failure))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A reward rule: one file of trainers/rewards or ./flywheel/rewards."""

    name: str
    version: int
    config: type[Terms]
    raw: Callable[[Rows, Any], Floats]


@functools.cache
def load_rule(name: str) -> Rule:
    """Return a rule by its name, such as cuda-l1; raises UnknownName with the nearest one."""
    known = members.find_members("trainers.rewards")
    wanted = name.replace("_", "-")
    if wanted not in known:
        raise UnknownName.among("reward rule", name, known)
    module = known[wanted].load()
    return Rule(name=wanted, version=module.VERSION, config=module.Config, raw=module.raw)


def configure_rule(wanted: Rule, options: Mapping[str, Any]) -> Terms:
    """Return a rule's Config with some options set.

    Raises:
        UnknownName: the rule has no such option.
        FlywheelError: a value is of another type than the option.
    """
    known = [one.name for one in fields(wanted.config)]
    for name in options:
        if name not in known:
            raise UnknownName.among(f"option of {wanted.name}", name, known)
    try:
        return msgspec.convert(dict(options), wanted.config)
    except msgspec.ValidationError as error:
        # Such as: Expected `bool`, got `str` - at `$.include_nonequivalent`
        what, _, name = str(error).rstrip("`").partition(" - at `$.")
        kind = get_type_hints(wanted.config)[name]
        said = kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
        raise FlywheelError(f"{wanted.name}: {name}: {what}", f"Give {said}.") from error


@dataclass(frozen=True)
class Scored:
    """Rewards of attempts, in the order of the request; None means no reward."""

    raw: list[float | None]
    smoothed: list[float | None]
    advantage: list[float | None]
    rows: list[dict[str, Any]]
    """Rows of table `rewards`: one per attempt that has a reward."""
    counts: dict[str, int]
    """attempts, rewarded, correct, failures, withheld, nonequivalent (another function than the
    task's), discarded (correct, without a figure or held back), unjudged, groups,
    zero_variance_groups."""


# --- the rewards of a step, and of a run ---


def score_step(
    lake: store.Lake,
    rule: Rule,
    terms: Terms,
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
        run_id: Training run whose rewards these are.
        groups: Group of each attempt; advantages are relative to it.

    Raises UnknownName: the lake lacks a generation.
    """
    first, last = find_window(step, terms)
    window = {
        "run_id": run_id,
        "rule": rule.name,
        "rule_version": rule.version,
        "first": first,
        "last": last,
    }
    stored = lake.run(read_sql(__file__, "earlier_rewards"), window).arrow()
    stored_steps = np.asarray(stored["step"].to_numpy(), dtype=np.int64)
    earlier = (stored_steps, read_figures(stored, "raw"))
    steps = np.full(len(generation_ids), step, dtype=np.int64)
    return _score(lake, rule, terms, run_id, generation_ids, groups, steps, earlier)


def rescore_run(lake: store.Lake, run_id: str, rule: Rule, terms: Terms) -> Scored:
    """Return rewards of all attempts of a run by any rule.

    Each step is normalized by the steps before it, as if the run had used the rule from its start;
    verdicts and timings are those of the lake's snapshot.

    The rows have the rule's name. Raises UnknownName: no attempt of such a run.
    """
    attempts = lake.run(read_sql(__file__, "run_attempts"), {"run_id": run_id}).arrow()
    if not attempts.num_rows:
        raise UnknownName(
            f"no attempt of a run {run_id!a}",
            'store query "SELECT run_id, count(*) FROM generations GROUP BY run_id" lists runs.',
        )
    generation_ids = [str(value) for value in attempts["generation_id"].to_pylist()]
    groups = [str(value) for value in attempts["group_id"].to_pylist()]
    steps = np.nan_to_num(read_figures(attempts, "step")).astype(np.int64)
    return _score(lake, rule, terms, run_id, generation_ids, groups, steps)


def _score(
    lake: store.Lake,
    rule: Rule,
    terms: Terms,
    run_id: str,
    generation_ids: Sequence[str],
    groups: Sequence[str],
    steps: Whole,
    earlier: tuple[Whole, Floats] | None = None,
) -> Scored:
    """Compute rewards in their order: raw reward, z-score over earlier steps, advantage.

    `earlier` has steps and raw rewards of earlier steps; without it, they are these rewards
    themselves.
    """
    inputs = read_inputs(lake, terms, generation_ids)
    raw = np.where(read_figures(inputs, "held_back") == 1, np.nan, rule.raw(inputs, terms))
    if earlier is None:
        order = np.lexsort((raw, steps))
        known = order[~np.isnan(raw[order])]
        earlier = (steps[known], raw[known])
    mean, std = np.empty_like(raw), np.empty_like(raw)
    for step in np.unique(steps).tolist():
        at = steps == step
        mean[at], std[at] = compute_moments(*earlier, *find_window(step, terms), terms)
    smoothed = smooth(raw, mean, std, terms)
    advantage, flat = normalize_rewards(smoothed, groups, terms.group_epsilon)

    missing = np.isnan(raw)
    outcome = read_figures(inputs, "correct")
    correct, judged = outcome == 1, ~np.isnan(outcome)
    constant = {
        "run_id": run_id,
        "rule": rule.name,
        "rule_version": rule.version,
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
        "withheld": int(read_figures(inputs, "withheld").sum()),
        "nonequivalent": int(read_figures(inputs, "nonequivalent").sum()),
        "discarded": int((correct & missing).sum()),
        "unjudged": int((~judged).sum()),
        "groups": len(set(groups)),
        "zero_variance_groups": flat,
    }

    def list_figures(values: Floats) -> list[float | None]:
        return [None if math.isnan(value) else value for value in values.tolist()]

    return Scored(list_figures(raw), list_figures(smoothed), list_figures(advantage), rows, counts)


# --- the parts of a reward, in the order in which they are computed ---


def read_inputs(lake: store.Lake, terms: Terms, generation_ids: Sequence[str]) -> pa.Table:
    """Return the facts that the lake has about the attempts, in their order.

    Raises UnknownName if the lake lacks an attempt.
    """
    ids = pa.array(generation_ids, pa.string())
    attempts = pa.table({"generation_id": ids})
    device = terms.device
    if device is None:
        devices = query(lake, read_sql(__file__, "reward_device"), wanted=attempts).to_pylist()
        device = str(devices[0]["device"]) if devices else None
    kernels = None
    if len(ids) <= _FEW:
        [row] = query(lake, read_sql(__file__, "wanted_kernels"), wanted=attempts).to_pylist()
        kernels = row["kernels"]
    parameters = {
        "device": device,
        "clock": terms.clock,
        "kernels": kernels,
        "include_nonequivalent": terms.include_nonequivalent,
        "doubt": terms.doubt,
    }
    baselines = quote_values(list_baselines())
    sql = read_sql(__file__, "reward_inputs").replace("($baselines)", f"({baselines})")
    rows = query(lake, sql, parameters, wanted=attempts).combine_chunks()
    places = pc.index_in(ids, rows["generation_id"].combine_chunks())
    missing = ids.filter(pc.is_null(places))
    if len(missing):
        raise UnknownName(
            f"snapshot {lake.snapshot} holds no generation {missing[0].as_py()!a}",
            f"{len(missing)} of {len(ids)} are not there: append them before they are scored.",
        )
    return rows.take(pa.array(np.asarray(places), pa.int64()))


def find_window(step: int, terms: Terms) -> tuple[int, int]:
    """Return the range of steps (first, end) whose rewards give mean and standard deviation.

    They are the window before the last refresh; until the first refresh, all steps before this one.
    """
    if terms.refresh_every is None:
        return 0, 0
    refreshed = step // terms.refresh_every * terms.refresh_every
    return (max(0, refreshed - terms.window), refreshed) if refreshed else (0, step)


def compute_moments(
    steps: Whole, raw: Floats, first: int, last: int, terms: Terms
) -> tuple[float, float]:
    """Return mean and standard deviation of the raw rewards at steps from `first` up to `last`.

    The rewards are sorted by step and value, so that sums do not depend on how they were stored.
    """
    start, end = np.searchsorted(steps, [first, last]).tolist()
    inside = raw[start:end]
    if not len(inside):
        return terms.initial_mean, terms.initial_std
    return float(inside.mean()), float(inside.std())


def smooth(raw: Floats, mean: Floats, std: Floats, terms: Terms) -> Floats:
    """Return raw rewards as clipped z-scores, if the terms request these."""
    smoothed = raw
    if terms.refresh_every is not None:
        smoothed = (raw - mean) / np.maximum(std, terms.least_std)
    return smoothed if terms.clip is None else np.clip(smoothed, -terms.clip, terms.clip)


def normalize_rewards(
    smoothed: Floats, groups: Sequence[str], epsilon: float
) -> tuple[Floats, int]:
    """Return (r - mean) / (std + epsilon) inside each group, and how many groups are flat.

    std is over n - 1, as in TRL. NaN means no reward: it is excluded from means and stays NaN. If
    all rewards of a group are equal, its advantages are 0.
    """
    known = np.flatnonzero(~np.isnan(smoothed))
    advantage = np.full(len(smoothed), np.nan)
    if not len(known):
        return advantage, 0
    _, codes = np.unique(np.asarray(groups, dtype=object)[known].astype(str), return_inverse=True)
    values = smoothed[known]
    # Sums in the order of the values do not depend on the order of the attempts.
    order = np.lexsort((values, codes))
    counts = np.bincount(codes)
    means = np.bincount(codes[order], values[order]) / counts
    squares = (values - means[codes]) ** 2
    deviations = np.bincount(codes[order], squares[order]) / np.maximum(counts - 1, 1)
    lowest = np.full(len(counts), np.inf)
    highest = np.full(len(counts), -np.inf)
    np.minimum.at(lowest, codes, values)
    np.maximum.at(highest, codes, values)
    flat = lowest == highest
    divisor = np.where(flat, np.inf, np.sqrt(deviations) + epsilon)
    advantage[known] = (values - means[codes]) / divisor[codes]
    return advantage, int(flat.sum())


# --- stored rewards, computed again ---


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Stored rewards of a run beside the same ones computed again."""

    rewards: int
    different: list[dict[str, Any]]
    """Those that differ: generation_id, step, and both readings of each figure."""
    other_lakes: int
    """Those of another lake's snapshot, or of none, which cannot be computed again here."""


def verify_rewards(lake: store.Lake, run_id: str, rule: Rule) -> Compared:
    """Compute the stored rewards of a run again, each at the snapshot that it was given at.

    They are those under the rule's name and version. Raises UnknownName: there are none.
    """
    parameters = {
        "run_id": run_id,
        "rule": rule.name,
        "rule_version": rule.version,
        "step": None,
    }
    stored = lake.run(read_sql(__file__, "stored_rewards"), parameters).rows()
    if not stored:
        raise UnknownName(
            f"no reward of run {run_id!a} under {rule.name} {rule.version}",
            'store query "SELECT DISTINCT run_id, rule, rule_version FROM rewards" lists them.',
        )
    own = [row for row in stored if is_own(lake, row)]
    computed = score_again(lake, rule, run_id, own)
    different: list[dict[str, Any]] = []
    for row in own:
        now = computed.get(row["generation_id"], {})
        pairs = [(row[figure], now.get(figure)) for figure in _FIGURES]
        if not all(
            stored is again
            if stored is None or again is None
            else math.isclose(stored, again, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
            for stored, again in pairs
        ):
            different.append(
                {"generation_id": row["generation_id"], "step": row["step"]}
                | {f"stored_{figure}": row[figure] for figure in _FIGURES}
                | {figure: now.get(figure) for figure in _FIGURES}
            )
    return Compared(rewards=len(stored), different=different, other_lakes=len(stored) - len(own))


def is_own(lake: store.Lake, reward: Mapping[str, Any]) -> bool:
    """Whether a stored reward was given at a snapshot of this lake, so it can be computed again."""
    return reward["lake_id"] == lake.lake_id and reward["snapshot_id"] is not None


def score_again(
    lake: store.Lake, rule: Rule, run_id: str, stored: Sequence[Mapping[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return rows of `rewards` computed again by generation, each at the snapshot it was given at.

    `stored` has rewards of this lake (`is_own`), as stored_rewards.sql returns them.
    """
    batches: dict[tuple[int, str], list[Mapping[str, Any]]] = {}
    for row in stored:
        batches.setdefault((row["snapshot_id"], row["config"]), []).append(row)
    computed: dict[str, dict[str, Any]] = {}
    for (snapshot, config), rows in batches.items():
        terms = configure_rule(rule, json.loads(config))
        steps = {row["step"] for row in rows}
        with store.open(lake.url, at=snapshot) as then:
            if len(steps) > 1:
                # Each step that is trained on adds a snapshot, so these were given afterwards.
                scored = rescore_run(then, run_id, rule, terms)
            else:
                scored = score_step(
                    then,
                    rule,
                    terms,
                    run_id,
                    steps.pop(),
                    [row["generation_id"] for row in rows],
                    [row["group_id"] for row in rows],
                )
        wanted = {row["generation_id"] for row in rows}
        computed |= {
            row["generation_id"]: row for row in scored.rows if row["generation_id"] in wanted
        }
    return computed
