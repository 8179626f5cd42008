"""Reward rules by name, and their options."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_args

from store.commandline import members
from store.errors import FlywheelError, UnknownName
from store.schema.baselines import list_baselines
from store.schema.clocks import Clock
from trainers.rewarding.terms import Terms

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Floats = npt.NDArray[np.float64]
    Whole = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A reward rule: one file of trainers/rewards or ./flywheel/rewards."""

    name: str
    version: int
    config: type[Terms]
    raw: Callable[[pa.Table, Any], Floats]


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
        _check_type(f"{wanted.name}: {name}", str(known[name].type), value)
    return wanted.config(**options)


def _check_type(what: str, kind: str, value: object) -> None:
    """Raise FlywheelError unless a value is of the type that an annotation names."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    choices = {"Baseline": list_baselines(), "Clock": get_args(Clock)}
    named = [choices[name] for name in choices if name in kind]
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
        raise FlywheelError(f"{what} is {value!r}", f"Give {hint}.")
