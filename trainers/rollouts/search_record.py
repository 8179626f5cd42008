"""Reads what a lake has of a search: its options, what it cost, and why nothing is shown.

The options are in the configurations of its runs. Options that only extend a search may differ from
them: more rounds with the same attempts each, further arms and seeds, and budgets.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import store
from store import read_sql
from store.errors import FlywheelError
from store.ids import content_id

if TYPE_CHECKING:
    from store.lake.leases import Leases

_OF_ARM = ("arm", "namespace")
"""Entries of a draw that each arm has for itself, and that its namespace names."""
_FLAGS = {
    "attempts_per_round": "--attempts / --rounds",
    "tasks": "number of tasks of --dataset and --limit",
    "tasks_id": "tasks of --dataset and --limit",
    "max_tokens": "--max-tokens",
    "top_p": "--top-p",
    "seed": "--seed",
    "pipeline": "--pipeline",
    "purpose": "purpose of --dataset",
    "device": "name of --device",
}


def hash_tasks(tasks: Sequence[str]) -> str:
    """Return the id of a set of tasks."""
    return content_id("tasks", *sorted(tasks))


def hold_namespaces(leases: Leases, namespaces: Sequence[str]) -> None:
    """Take the leases of the namespaces of a search, so that no attempt is made twice.

    Raises:
        FlywheelError: another command works on one of them; names these.
        LakeUnreachable: see `Leases`.
    """
    names = {f"search {one}": one for one in namespaces}
    held = leases.take(list(names))
    if elsewhere := [one for name, one in names.items() if name not in held]:
        raise FlywheelError(
            f"another command works on {', '.join(elsewhere[:3])}"
            f"{' and more' if len(elsewhere) > 3 else ''}",
            "Wait until it ends, then run this command again: it makes what is missing.",
        )


def check_search(
    lake: store.Lake, name: str, namespaces: Sequence[str], configuration: Mapping[str, Any]
) -> None:
    """Refuse a configuration that differs from that of a stored run of the same search.

    Args:
        lake: Lake with the stored runs.
        name: Name of the search.
        namespaces: Namespaces of its arms.
        configuration: What a run of it would store: search and sampling.

    Raises:
        FlywheelError: an option differs; names all that do.
    """
    rows = lake.run(read_sql(__file__, "search_runs"), [list(namespaces)]).rows()
    given = _flatten(configuration)
    for row in rows:
        stored = _flatten(json.loads(row["config"]))
        # A run of an earlier version lacks entries that this one stores.
        differing = [key for key in given if key in stored and given[key] != stored[key]]
        if differing:
            what = "; ".join(_describe(key, stored[key], given[key]) for key in differing)
            raise FlywheelError(
                f'the search "{name}" was begun with other options: {what}',
                "Give the options that it was begun with to continue it, or choose another "
                "--search. More --rounds with as many attempts each extend a search.",
            )


def read_seconds(lake: store.Lake, name: str, policy_id: str) -> float:
    """Return the seconds of the rounds that earlier commands of a search took, with any arms.

    A round that was killed counts until its last stored attempt.
    """
    row = lake.run(read_sql(__file__, "search_seconds"), [name, policy_id]).one()
    return float(row["seconds"]) if row else 0.0


def read_cost(lake: store.Lake, name: str, policy_id: str) -> tuple[int, float]:
    """Return the tokens and the USD of all stored attempts of a search, with any arms."""
    row = lake.run(read_sql(__file__, "search_cost"), [name, policy_id]).one()
    return (int(row["tokens"]), float(row["usd"])) if row else (0, 0.0)


def explain_no_scores(
    lake: store.Lake, namespaces: Sequence[str], device: str, baseline: str, clock: str | None
) -> str:
    """Say in words why kernels that were attempted in these namespaces have no score."""
    parameters = {
        "namespaces": list(namespaces), "device": device, "baseline": baseline, "clock": clock
    }  # fmt: skip
    rows = lake.run(read_sql(__file__, "search_unscored"), parameters).rows()
    total = sum(row["kernels"] for row in rows)
    if not total:
        return "no earlier attempt has code"
    reasons = ", ".join(f"{row['reason']}: {row['kernels']}" for row in rows)
    return f"the search has {total} of its own without one ({reasons})"


def _flatten(configuration: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that have to be the same, by name."""
    search, sampling = configuration["search"], configuration["sampling"]
    # The seed itself is part of the namespaces, where no seed and seed 0 look the same.
    entries = {key: sampling[key] for key in sampling if key != "seed"}
    entries["seed"] = sampling["seed"] is not None
    entries |= {key: search[key] for key in ("attempts_per_round", "tasks", "tasks_id")
                if key in search}  # fmt: skip
    draw = {key: value for key, value in search["draw"].items() if key not in _OF_ARM}
    shared = {key: draw.pop(key) for key in ("pipeline", "purpose", "device") if key in draw}
    return entries | shared | {f"draw.{key}": value for key, value in draw.items()}


def _describe(key: str, stored: Any, given: Any) -> str:
    flag = _FLAGS.get(key, "--" + key.replace("_", "-"))
    if key == "seed":
        return "--seed was given, and now it is not" if stored else "it had no --seed"
    if key == "tasks_id":
        return f"the {_FLAGS[key]} differ"
    return f"{flag} was {stored} and is now {given}"
