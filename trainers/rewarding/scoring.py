"""Rewards as pure functions of stored rows: a rule's raw reward, its z-score, its advantage.

What a reward is made of stands in the lake: verdicts, timings and quarantine at one snapshot, and
the earlier rewards of the run. So it can be computed again, by the same rule at the same snapshot
(`recomputed`), or over all of a run's history by another rule, without a GPU (`rescored`).
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.commandline import members
from store.errors import FlywheelError, UnknownName
from trainers.rewarding.terms import Terms, read_figures

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    import store

    Floats = npt.NDArray[np.float64]
    Whole = npt.NDArray[np.int64]

_SQL = Path(__file__).parent / "sql"
_FIGURES = ("raw", "smoothed", "advantage")
_FEW = 512
"""Attempts up to which their kernels are named one by one: a step's, not all of a run's."""
_TOLERANCE = 1e-9
"""Relative difference of two rewards that are the same: sums over a lake take any order."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A reward rule: one file of trainers/rewards or ./flywheel/rewards."""

    name: str
    version: int
    config: type[Terms]
    raw: Callable[[pa.Table, Any], Floats]


@dataclass(frozen=True, kw_only=True)
class Scored:
    """Rewards of attempts, in the order in which they were asked for; None is no reward."""

    raw: list[float | None]
    smoothed: list[float | None]
    advantage: list[float | None]
    rows: list[dict[str, Any]]
    """Rows of table `rewards`: one per attempt that has a reward."""
    counts: dict[str, int]
    """attempts, rewarded, correct, failures, quarantined, nonequivalent (another function than the
    task's), discarded (correct, without a figure), unjudged, groups, zero_variance_groups."""


def load_rule(name: str) -> Rule:
    """Return a rule by its name, such as cuda-l1; raises UnknownName with the nearest one."""
    known = members.members("trainers.rewards")
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
    known = {one.name: one for one in fields(wanted.config)}
    for name, value in options.items():
        if name not in known:
            raise UnknownName.among(f"option of {wanted.name}", name, known)
        _check_type(f"{wanted.name}: {name}", str(known[name].type), value)
    return wanted.config(**options)


def score_step(
    lake: store.Lake,
    rule: str,
    config: Terms | None,
    run_id: str,
    step: int,
    generation_ids: Sequence[str],
    groups: Sequence[str],
) -> Scored:
    """Return the rewards of one step's attempts by what the lake holds at its snapshot.

    Mean and standard deviation are those of rewards stored for earlier steps of the run alone, so
    that neither the order of attempts nor a step's division into batches matters, and a run that is
    resumed goes on with the same figures.

    Args:
        lake: Pinned to a snapshot that holds the attempts' verdicts and earlier steps' rewards.
        rule: Name of the rule.
        config: Its options; None takes the defaults.
        run_id: Training run whose rewards these are.
        step: Training step, from 0.
        generation_ids: The attempts.
        groups: Group of each attempt; advantages are relative to it.

    Raises:
        UnknownName: no such rule, or a generation that the lake does not hold.
    """
    import numpy as np

    found = _cached_rule(rule)
    terms = found.config() if config is None else config
    rows = _read_inputs(lake, terms, generation_ids)
    raw = found.raw(rows, terms)
    first, last = _find_window(step, terms)
    asked = {
        "run_id": run_id,
        "rule": found.name,
        "rule_version": found.version,
        "first": first,
        "last": last,
    }
    history = lake.run(_read_sql("earlier_rewards"), asked).arrow()
    mean, std = _combine_moments(
        _gather_moments(_read_steps(history["step"]), read_figures(history, "raw")), terms
    )
    steps = np.full(len(raw), step, dtype=np.int64)
    smoothed = _smooth(raw, np.full(len(raw), mean), np.full(len(raw), std), terms)
    return _assemble(lake, found, terms, run_id, rows, raw, smoothed, steps, groups, generation_ids)


def rescore_run(
    lake: store.Lake,
    run_id: str,
    rule: str,
    config: Terms | None = None,
    *,
    name: str | None = None,
) -> Scored:
    """Return rewards of all attempts of a run by a rule that it need not have been trained with.

    Each step is held against the steps before it, as if the run had used the rule from its start;
    verdicts and timings are those of the lake's snapshot.

    Args:
        lake: Pinned to the snapshot whose verdicts and timings count.
        run_id: The run.
        rule: Name of the rule.
        config: Its options; None takes the defaults.
        name: Name under which the rows are to be stored (default: the rule's).

    Raises:
        UnknownName: no such rule, or no attempt of such a run.
    """
    import numpy as np

    found = _cached_rule(rule)
    terms = found.config() if config is None else config
    attempts = lake.run(_read_sql("run_attempts"), {"run_id": run_id}).arrow()
    if not attempts.num_rows:
        raise UnknownName(
            f"no attempt of a run {run_id!a}",
            'store query "SELECT run_id, count(*) FROM generations GROUP BY run_id" lists runs.',
        )
    wanted = [str(one) for one in attempts["generation_id"].to_pylist()]
    rows = _read_inputs(lake, terms, wanted)
    raw = found.raw(rows, terms)
    steps = np.nan_to_num(read_figures(attempts, "step")).astype(np.int64)
    order = np.lexsort((raw, steps))
    known = order[~np.isnan(raw[order])]
    moments = _gather_moments(steps[known], raw[known])
    mean, std = np.empty_like(raw), np.empty_like(raw)
    for step in np.unique(steps).tolist():
        first, last = _find_window(step, terms)
        at = steps == step
        mean[at], std[at] = _combine_moments(moments.between(first, last), terms)
    smoothed = _smooth(raw, mean, std, terms)
    groups = [str(one) for one in attempts["group_id"].to_pylist()]
    scored = _assemble(lake, found, terms, run_id, rows, raw, smoothed, steps, groups, wanted)
    return scored if name is None else _rename_rule(scored, name)


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

    found = _cached_rule(rule)
    given = {"run_id": run_id, "rule": name or found.name, "rule_version": found.version}
    stored = lake.run(_read_sql("stored_rewards"), given).rows()
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


def normalize_rewards(
    smoothed: Floats, groups: Sequence[str], epsilon: float
) -> tuple[Floats, int]:
    """Return (r - mean) / (std + epsilon) inside each group, and how many groups are flat.

    std is over n - 1, as in TRL. NaN is no reward: it is in no mean and stays NaN. A group whose
    rewards are all equal says nothing about its attempts: their advantage is 0.
    """
    import numpy as np

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


@dataclass(frozen=True)
class _Moments:
    """Number, mean and sum of squared deviations of the raw rewards of each step, ascending."""

    steps: Whole
    count: Floats
    mean: Floats
    squares: Floats

    def between(self, first: int, last: int) -> _Moments:
        """Return the steps from `first` up to and without `last`."""
        import numpy as np

        a, b = np.searchsorted(self.steps, [first, last]).tolist()
        return _Moments(self.steps[a:b], self.count[a:b], self.mean[a:b], self.squares[a:b])


def _gather_moments(steps: Whole, raw: Floats) -> _Moments:
    """Gather raw rewards, sorted by step and value, by step."""
    import numpy as np

    known, codes = np.unique(steps, return_inverse=True)
    count = np.bincount(codes, minlength=len(known)).astype(np.float64)
    mean = np.bincount(codes, raw, minlength=len(known)) / np.maximum(count, 1)
    squares = np.bincount(codes, (raw - mean[codes]) ** 2, minlength=len(known)).astype(np.float64)
    return _Moments(known, count, mean, squares)


def _combine_moments(moments: _Moments, terms: Terms) -> tuple[float, float]:
    """Return mean and standard deviation over steps (Chan, Golub and LeVeque's combination)."""
    import numpy as np

    total = float(moments.count.sum())
    if not total:
        return terms.initial_mean, terms.initial_std
    mean = float((moments.count * moments.mean).sum() / total)
    between = moments.count * (moments.mean - mean) ** 2
    std = float(np.sqrt((moments.squares.sum() + between.sum()) / total))
    return mean, std


def _find_window(step: int, terms: Terms) -> tuple[int, int]:
    """Return the steps, first and after the last, whose rewards give mean and standard deviation.

    They are the window before the last refresh; until the first refresh, all steps before this one.
    """
    if terms.refresh_every is None:
        return 0, 0
    refreshed = step // terms.refresh_every * terms.refresh_every
    return (max(0, refreshed - terms.window), refreshed) if refreshed else (0, step)


def _smooth(raw: Floats, mean: Floats, std: Floats, terms: Terms) -> Floats:
    import numpy as np

    smoothed = raw
    if terms.refresh_every is not None:
        smoothed = (raw - mean) / np.maximum(std, terms.least_std)
    return smoothed if terms.clip is None else np.clip(smoothed, -terms.clip, terms.clip)


def _read_inputs(lake: store.Lake, terms: Terms, generation_ids: Sequence[str]) -> pa.Table:
    """Return what the lake knows of the attempts, in their order.

    Raises UnknownName where it holds no such attempt.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(generation_ids, pa.string())
    lake.register("wanted", pa.table({"generation_id": wanted}))
    device = terms.device
    if device is None:
        row = lake.run(_read_sql("reward_device")).one()
        device = None if row is None else str(row["device"])
    kernels = None
    if len(wanted) <= _FEW:
        row = lake.run(_read_sql("wanted_kernels")).one()
        kernels = None if row is None else row["kernels"]
    asked = {
        "device": device,
        "kernels": kernels,
        "include_nonequivalent": terms.include_nonequivalent,
    }
    rows = lake.run(_read_sql("reward_inputs"), asked).arrow().combine_chunks()
    places = pc.index_in(wanted, rows["generation_id"].combine_chunks())
    missing = wanted.filter(pc.is_null(places))
    if len(missing):
        raise UnknownName(
            f"snapshot {lake.snapshot} holds no generation {missing[0].as_py()!a}",
            f"{len(missing)} of {len(wanted)} are not there: append them before they are scored.",
        )
    return rows.take(pa.array(np.asarray(places), pa.int64()))


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
    rows = [
        constant
        | {
            "generation_id": generation_ids[at],
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


def _check_type(what: str, kind: str, value: object) -> None:
    """Raise FlywheelError unless a value is of the type that an annotation names."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    allowed = (
        (value is None and "None" in kind)
        or ("float" in kind and number)
        or (kind == "bool" and isinstance(value, bool))
        or ("int" in kind and number and isinstance(value, int))
        or (("str" in kind or "Baseline" in kind) and isinstance(value, str))
        or ("Literal" in kind and repr(value).replace("'", '"') in kind.replace("'", '"'))
    )
    if not allowed:
        raise FlywheelError(f"{what} is {value!r}", f"Give a value of type {kind}.")


def _is_same(stored: float | None, now: float | None) -> bool:
    import math

    if stored is None or now is None:
        return stored is now
    return math.isclose(stored, now, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _list_figures(values: Floats) -> list[float | None]:
    import math

    return [None if math.isnan(value) else value for value in values.tolist()]


def _read_steps(column: pa.ChunkedArray) -> Whole:
    import numpy as np

    return np.asarray(column.to_numpy(), dtype=np.int64)


@functools.cache
def _cached_rule(name: str) -> Rule:
    return load_rule(name)


@functools.cache
def _read_sql(name: str) -> str:
    """Return the text of an SQL file of this room."""
    return (_SQL / f"{name}.sql").read_text("utf-8")
