"""Plans a rollout: groups of attempts, and the attempts that the lake already has."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import store
from pipelines import Strategy, query
from store import read_sql
from store.errors import FlywheelError
from store.ids import content_id
from trainers.policies.interface import Sampling
from trainers.rollouts.attempts import ShownPrompt

NAME = "rollout"


@dataclass(frozen=True, kw_only=True)
class Config:
    """Numbers of attempts. CUDA-L1: 20 attempts of each model at each task, 2 correct ones kept."""

    attempts: int = 20
    """Maximum number of attempts of a policy at a task."""
    keep: int = 2
    """Stop asking a policy about a task after N distinct correct kernels; 0: make all attempts."""
    wave: int = 4
    """Number of attempts at a task between judgments. A small number
    stops sooner; a large number is faster."""

    def __post_init__(self) -> None:
        """Refuse numbers that request nothing."""
        if self.attempts < 1 or self.wave < 1 or self.keep < 0:
            given = f"--attempts {self.attempts} --keep {self.keep} --wave {self.wave}"
            raise FlywheelError(
                f"{given}: a number is too small",
                "Give --attempts and --wave 1 or more, and --keep 0 or more.",
            )


@dataclass(frozen=True, kw_only=True)
class Search:
    """Options of a search."""

    rounds: int | None = None
    """Search in N rounds. Each round makes new prompts for the tasks of --dataset, shows kernels
    from earlier rounds as exemplars, and makes --attempts / N attempts at each task."""
    strategy: tuple[Strategy, ...] = ("bucket",)
    """In a search: strategy of contrastive-batch that draws the exemplars. Repeat it for several
    arms, which do not see each other's kernels."""
    seeds: int = 1
    """In a search: number of seeds, from --seed on. Each has arms of its own. In each round, the
    prompts of all are sampled together, and their kernels are judged together."""
    search: str = "search"
    """In a search: its name, the first part of the namespaces NAME/STRATEGY/SEED/POLICY. A name
    belongs to one search: the same options continue it, and others are refused."""
    pipeline: str = "contrastive-batch"
    """In a search: pipeline that makes the prompts."""
    budget_s: float | None = None
    """In a search: do not start another round once all rounds of the policy, including those of
    earlier commands, have taken this many seconds (default: no limit)."""

    def __post_init__(self) -> None:
        """Refuse a search without rounds, arms or seeds, and names that no namespace can have."""
        if self.rounds is None:
            given = [one.name for one in fields(self) if getattr(self, one.name) != one.default]
            if given:
                flags = ", ".join("--" + name.replace("_", "-") for name in given)
                raise FlywheelError(
                    f"options of a search need --rounds: {flags}",
                    "Add --rounds N to search, or omit them.",
                )
        elif self.rounds < 1 or not self.strategy or self.seeds < 1:
            raise FlywheelError(
                "a search needs a round, a strategy and a seed",
                "Give --rounds and --seeds 1 or more, and --strategy at least once.",
            )
        if self.budget_s is not None and not 0 < self.budget_s < math.inf:
            raise FlywheelError(f"--budget-s {self.budget_s:g} is no limit", "Give more than 0.")
        # Queries of namespaces split them at slashes, and earlier/ is for verdicts of earlier runs.
        if not re.fullmatch(r"[A-Za-z0-9_-]+", self.search) or self.search == "earlier":
            raise FlywheelError(
                f'"{self.search}" cannot name a search',
                'Use letters, digits, _ and -, and not the name "earlier".',
            )


@dataclass(kw_only=True)
class Group:
    """Attempts of one policy at one prompt."""

    asked: ShownPrompt
    group_id: str
    seed: int | None
    """From it follows the seed of each wave of its attempts; None: no seed."""
    attempts: int = 0
    next_index: int = 0
    tokens: int = 0
    """Tokens of the attempts of earlier commands, including prompts."""
    cost_usd: float = 0.0
    """Their price."""


@dataclass(kw_only=True)
class Unit:
    """One policy and one task, for which attempts and successes are counted."""

    groups: list[Group]
    kernels: set[str] = field(default_factory=set[str])
    correct: set[str] = field(default_factory=set[str])
    unjudged: set[str] = field(default_factory=set[str])
    """Kernels of earlier runs that lack a verdict."""

    @property
    def attempts(self) -> int:
        """Attempts made so far."""
        return sum(group.attempts for group in self.groups)

    def choose_next(self, config: Config) -> tuple[Group, int] | None:
        """Return the next prompt and the number of attempts, or None if there are enough."""
        left = config.attempts - self.attempts
        if left < 1 or (config.keep and len(self.correct) >= config.keep):
            return None
        return min(self.groups, key=lambda group: group.attempts), min(left, config.wave)


def make_group_id(
    asked: ShownPrompt, policy_id: str, sampling: Sampling, training: str | None = None
) -> str:
    """Return the id of the group of a policy, a prompt and a sampling setting.

    A prompt that names no snapshot is identified by its task and its text, so that its group is the
    same whatever the lake has stored since. With the run of a training, the group is its own.
    """
    origin = asked.task_id if asked.snapshot_id is None else str(asked.snapshot_id)
    return content_id(
        NAME, asked.lake_id, origin, asked.prompt_id, policy_id,
        json.dumps(asdict(sampling), sort_keys=True), *([training] if training else []),
    )  # fmt: skip


def plan_units(
    lake: store.Lake,
    policy_id: str,
    prompts: Sequence[ShownPrompt],
    sampling: Sampling,
    training: str | None = None,
) -> list[Unit]:
    """Return the work of one policy, with the attempts that the lake has."""
    units: dict[str, Unit] = {}
    for asked in prompts:
        group_id = make_group_id(asked, policy_id, sampling, training)
        group = Group(asked=asked, group_id=group_id, seed=sampling.seed)
        units.setdefault(asked.task_id, Unit(groups=[])).groups.append(group)
    add_stored_attempts(lake, list(units.values()))
    return list(units.values())


def add_stored_attempts(lake: store.Lake, units: Sequence[Unit], device: str | None = None) -> None:
    """Add the attempts and verdicts that the lake has to units of new groups (`read_groups`)."""
    ids = [group.group_id for unit in units for group in unit.groups]
    stored = read_groups(lake, ids, device)
    for unit in units:
        for group in unit.groups:
            row = stored.get(group.group_id)
            if row is not None:
                group.attempts, group.next_index = row["attempts"], row["next_index"]
                group.tokens, group.cost_usd = row["tokens"], row["cost_usd"]
                unit.kernels |= set(row["kernel_ids"])
                unit.correct |= set(row["correct_ids"])
                unit.unjudged |= set(row["unjudged_ids"])


def read_groups(
    lake: store.Lake, group_ids: Sequence[str], device: str | None = None
) -> dict[str, dict[str, Any]]:
    """Return what the lake has of each group: attempts, costs, and kernels by verdict.

    Kernels without a verdict on this device are unjudged; None means on any device.
    """
    import pyarrow as pa

    ids = pa.table({"group_id": pa.array(group_ids, pa.string())})
    sql = read_sql(__file__, "rollout_groups")
    return {
        row["group_id"]: row for row in query(lake, sql, {"device": device}, groups=ids).to_pylist()
    }


def count_attempts(units: Sequence[Unit]) -> int:
    """Return the attempts made so far."""
    return sum(unit.attempts for unit in units)
