"""Reward rules by name, the options of smoothing and grouping, and the figures of attempts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from store.commandline import members
from store.errors import FlywheelError, UnknownName
from store.schema.baselines import Baseline, list_baselines
from store.schema.clocks import Clock

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

Floats: TypeAlias = "npt.NDArray[np.float64]"
Rows: TypeAlias = "pa.Table"
"""What the lake has about attempts, a row each (`trainers.rewarding.scoring.read_inputs`)."""


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
    import numpy as np
    import pyarrow as pa

    return np.asarray(rows[name].cast(pa.float64()).to_numpy())


def assign_rewards(rows: Rows, worth: Floats | float, terms: Terms) -> Floats:
    """Return raw rewards: `worth` for correct attempts, and the terms' rewards for all others.

    NaN means no reward: the kernel has not been judged, or it is correct without a worth and the
    terms skip it.
    """
    import numpy as np

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
    known = {one.name: one for one in fields(wanted.config)}
    for name, value in options.items():
        if name not in known:
            raise UnknownName.among(f"option of {wanted.name}", name, known)
        kind = str(known[name].type)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        choices = {"Baseline": list_baselines(), "Clock": get_args(Clock)}
        named = [choices[one] for one in choices if one in kind]
        allowed = (
            (value is None and "None" in kind)
            or ("float" in kind and number)
            or (kind == "bool" and isinstance(value, bool))
            or ("int" in kind and number and isinstance(value, int))
            or ("str" in kind and isinstance(value, str))
            or any(value in names for names in named)
            or ("Literal" in kind and repr(value).replace("'", '"') in kind.replace("'", '"'))
        )
        if not allowed:
            hint = f"one of {', '.join(named[0])}" if named else f"a value of type {kind}"
            raise FlywheelError(f"{wanted.name}: {name} is {value!r}", f"Give {hint}.")
    return wanted.config(**options)
