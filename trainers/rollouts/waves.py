"""Rollouts: policies attempt tasks in waves, each attempt is stored, and kernels are judged."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeAlias

import store
from evaluators.scheduling.pool import Pool
from pipelines import Strategy, query
from store import read_sql
from store.commandline.echo import Progress
from store.errors import FlywheelError
from store.ids import content_id
from trainers.policies.interface import (
    FAILED,
    BudgetReached,
    Endpoint,
    EndpointFailed,
    Policy,
    Sampling,
)
from trainers.rollouts.attempts import ShownPrompt, make_attempt_rows

NAME = "rollout"
SEEDS = 1 << 31
"""Seeds of samplers are below this number."""


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


def add_stored_attempts(
    lake: store.Lake, units: Sequence[Unit], device: str | None = None
) -> list[dict[str, Any]]:
    """Add the attempts and verdicts that the lake has to units of new groups.

    Returns what the lake has of these groups (`read_groups`).
    """
    groups = [(unit, group) for unit in units for group in unit.groups]
    stored = read_groups(lake, [group.group_id for _, group in groups], device)
    for unit, group in groups:
        row = stored.get(group.group_id)
        if row is not None:
            group.attempts, group.next_index = row["attempts"], row["next_index"]
            unit.kernels |= set(row["kernel_ids"])
            unit.correct |= set(row["correct_ids"])
            unit.unjudged |= set(row["unjudged_ids"])
    return list(stored.values())


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


@dataclass(kw_only=True)
class Tally:
    """The result of one policy."""

    name: str
    attempts: int = 0
    failed: int = 0
    """Attempts that failed because of the endpoint or the machine."""
    reasons: Counter[str] = field(default_factory=Counter[str])
    """Why they failed; may quote a server."""
    no_kernel: int = 0
    """Completions without code."""
    kernels: int = 0
    """Distinct kernels in these completions."""
    correct: int = 0
    """Number of these that were judged correct."""
    tokens: int = 0
    cost_usd: float | None = None
    stopped: FlywheelError | None = None
    """Why it ended early."""

    def add(self, generations: Sequence[Mapping[str, Any]]) -> None:
        """Add rows of table generations."""
        for row in generations:
            failed = row["finish_reason"] == FAILED
            self.attempts += 1
            self.failed += failed
            if failed:
                self.reasons[row["parse_error"] or "no reason"] += 1
            self.no_kernel += not failed and row["kernel_id"] is None
            self.tokens += row["prompt_tokens"] + row["completion_tokens"]
            if row["cost_usd"] is not None:
                self.cost_usd = (self.cost_usd or 0.0) + row["cost_usd"]


@dataclass(kw_only=True)
class RolloutResult:
    """What a rollout has appended."""

    run_id: str | None
    """None if nothing was left to sample."""
    tallies: list[Tally]
    snapshot: int

    def __str__(self) -> str:
        attempts, failed, kernels, correct = (
            sum(getattr(tally, name) for tally in self.tallies)
            for name in ("attempts", "failed", "kernels", "correct")
        )
        failures = f" ({failed} failed)" if failed else ""
        return (
            f"generations +{attempts}{failures} kernels {kernels} correct {correct} "
            f"→ snapshot {self.snapshot}"
        )


NewKernel: TypeAlias = tuple[Unit, str]
"""A kernel that a unit has not had before, by its id."""


def run_rollout(
    lake_url: str | None,
    policies: Sequence[Policy],
    prompts: Sequence[ShownPrompt],
    sampling: Sampling,
    config: Config,
    start_judges: Callable[[], Pool] | None,
    progress: Progress,
    *,
    told: Mapping[str, Any],
    training: str | None = None,
) -> RolloutResult:
    """Sample from each policy in turn until each task has enough, and store all attempts.

    One model is in memory at a time, and several prompts of one task take turns. A seed of
    `sampling` changes with every wave. Judges are started when there is something to judge; without
    any, every attempt is made and stored. What earlier commands have spent on the same attempts is
    added to the endpoint's budget first. `told` has further entries of the run's configuration.
    With the run of a `training`, no other command makes or counts the attempts.

    Raises:
        FlywheelError: a policy cannot be used. A spent budget or a lost endpoint is not an error:
            results are stored, and the policy's Tally says why it stopped.
    """
    with store.writer(lake_url, author=f"trainers {NAME}") as writer:
        # Include the rows that an earlier run has only spooled.
        writer.flush()
        work = Work(writer, sampling, config, start_judges, progress)
        plans: list[tuple[Policy, Tally, list[Unit]]] = []
        with writer.reader() as lake:
            origin = (lake.lake_id, lake.snapshot)
            for policy in policies:
                by_task: dict[str, Unit] = {}
                for prompt in prompts:
                    group_id = make_group_id(prompt, policy.row["policy_id"], sampling, training)
                    group = Group(asked=prompt, group_id=group_id, seed=sampling.seed)
                    by_task.setdefault(prompt.task_id, Unit(groups=[])).groups.append(group)
                units = list(by_task.values())
                stored = add_stored_attempts(lake, units)
                plans.append((policy, Tally(name=str(policy.row["name"])), units))
                if isinstance(policy, Endpoint):
                    policy.works = any(row["tokens"] for row in stored)
                    for row in stored:
                        policy.serving.budget.spend(row["tokens"], row["cost_usd"])
        all_units = [unit for _, _, units in plans for unit in units]
        work.judge_stored(all_units)
        tallies = [tally for _, tally, _ in plans]
        if not any(map(work.choose_next, all_units)):
            return RolloutResult(run_id=None, tallies=tallies, snapshot=writer.flush())
        rows = [policy.row for policy in policies]
        # Policies by their ids: what names them on the command line may be a private URL.
        configuration = {
            "policies": [row["policy_id"] for row in rows],
            "sampling": asdict(sampling),
            "rollout": asdict(config),
            "judged": start_judges is not None,
            "prompts": len(prompts),
            **told,
        }
        with record_rollout(writer, NAME, configuration, origin, rows) as record:
            work.run_id = record.run_id
            for policy, tally, units in plans:
                try:
                    while tally.stopped is None and any(map(work.choose_next, units)):
                        new_kernels = work.sample_wave(policy, tally, units)
                        writer.flush()
                        work.request_verdicts(new_kernels, tally)
                finally:
                    writer.flush()
                    policy.close()
                if isinstance(tally.stopped, EndpointFailed):
                    record.error = tally.stopped
    return RolloutResult(run_id=record.run_id, tallies=tallies, snapshot=record.snapshot)


def record_rollout(
    writer: store.Writer,
    name: str,
    configuration: Mapping[str, Any],
    origin: tuple[str, int],
    policies: Sequence[dict[str, Any]],
) -> AbstractContextManager[store.RunRecord]:
    """Return a context that stores a rollout with its policies, and how it ended.

    The rollout reads this lake (id) and snapshot.
    """
    lake_id, snapshot = origin
    run = store.make_run(
        kind="rollout", name=name, config=configuration, lake_id=lake_id, snapshot_id=snapshot
    )
    return store.record_run(writer, run, f"{name} begins", {"policies": policies})


class Work:
    """One run: its writer and its judges."""

    def __init__(
        self,
        writer: store.Writer,
        sampling: Sampling,
        config: Config,
        start_judges: Callable[[], Pool] | None,
        progress: Progress,
    ) -> None:
        self._writer = writer
        self.sampling, self.config = sampling, config
        self._start_judges, self.progress = start_judges, progress
        self.run_id = ""

    def choose_next(self, unit: Unit) -> tuple[Group, int] | None:
        """Return the next prompt of a unit and the number of attempts, or None if it has enough."""
        left = self.config.attempts - unit.attempts
        if left < 1 or (self.config.keep and len(unit.correct) >= self.config.keep):
            return None
        return min(unit.groups, key=lambda group: group.attempts), min(left, self.config.wave)

    def judge_stored(self, units: Sequence[Unit]) -> None:
        """Request the verdicts that an interrupted run is missing."""
        self.request_verdicts(
            [(unit, kernel) for unit in units for kernel in sorted(unit.unjudged)]
        )

    def sample_wave(self, policy: Policy, tally: Tally, units: Sequence[Unit]) -> list[NewKernel]:
        """Sample the next attempts of all units and store them as they arrive.

        Returns new kernels. The progress counts the attempts of all units.
        """
        wave: dict[int, list[tuple[Unit, Group]]] = {}
        for unit in units:
            chosen = self.choose_next(unit)
            if chosen is not None:
                group, count = chosen
                wave.setdefault(count, []).append((unit, group))
        new_kernels: list[NewKernel] = []
        for count, part in sorted(wave.items()):
            # The seed of the next attempts at a prompt follows from how many it has.
            seeds = [
                int(content_id("seed", str(group.seed), str(group.next_index))[:16], 16) % SEEDS
                for _, group in part
                if group.seed is not None
            ]
            assert len(seeds) in (0, len(part)), "all prompts have a seed, or none"
            missing = dict.fromkeys(range(len(part)), count)
            try:
                for index, completions in policy.sample(
                    [group.asked.messages for _, group in part], count, self.sampling, seeds or None
                ):
                    missing[index] -= len(completions)
                    unit, group = part[index]
                    tables = make_attempt_rows(
                        self.run_id,
                        policy.row["policy_id"],
                        group.group_id,
                        group.asked,
                        completions,
                        replace(self.sampling, seed=seeds[index]) if seeds else self.sampling,
                        first=group.next_index,
                    )
                    self._writer.append(tables, message=f"{len(completions)} attempts", wait=False)
                    group.attempts += len(completions)
                    group.next_index += len(completions)
                    tally.add(tables["generations"])
                    for kernel in tables["kernels"]:
                        kernel_id = kernel["kernel_id"]
                        if kernel_id not in unit.kernels:
                            unit.kernels.add(kernel_id)
                            tally.kernels += 1
                            new_kernels.append((unit, kernel_id))
                    self.progress(
                        sum(unit.attempts for unit in units),
                        len(units) * self.config.attempts,
                        f"attempts of {tally.name}",
                    )
            except (BudgetReached, EndpointFailed) as stopped:
                tally.stopped = stopped
                break
            # A failed attempt does not count in the lake, but this run does not repeat it.
            for index, failed in missing.items():
                part[index][1].attempts += failed
        return new_kernels

    def request_verdicts(self, kernels: Sequence[NewKernel], tally: Tally | None = None) -> None:
        """Have kernels judged, if there is a judge; what is correct counts for unit and tally."""
        if self._start_judges is None or not kernels:
            return
        pairs = [(kernel_id, unit.groups[0].asked.task_id) for unit, kernel_id in kernels]
        verdicts = self._start_judges().judge(pairs)
        for (unit, kernel_id), pair in zip(kernels, pairs, strict=True):
            verdict = verdicts[pair]
            if verdict.status != "correct" or verdict.quarantined or not verdict.equivalent:
                # A pass on another device does not override this judge.
                unit.correct -= {kernel_id} if verdict.status != "evaluator_error" else set()
            elif kernel_id not in unit.correct:
                unit.correct.add(kernel_id)
                if tally is not None:
                    tally.correct += 1
