"""Sampling from policies until enough is right: waves of attempts, stored as they come and judged.

    prompts, policies ─▶ groups ─▶ what the lake has of each ─▶ wave ─▶ rows ─▶ judge ─▶ next wave

A group is the attempts of one policy at one prompt under one sampling setting; its id follows from
these, so that a rollout that was interrupted finds what it has and asks for the rest alone.
"""

from __future__ import annotations

import json
import logging
import platform
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import store
from store.commandline.progress import Progress
from store.errors import FlywheelError
from store.ids import content_id, uuid7
from trainers.policies.interface import FAILED, BudgetReached, EndpointFailed, Policy, Sampling
from trainers.rollouts.attempts import ShownPrompt, make_attempt_rows

log = logging.getLogger(__name__)

NAME = "rollout"
_SQL = Path(__file__).parent / "sql"
_SEEDS = 1 << 31

Pair: TypeAlias = tuple[str, str]


class Verdict(Protocol):
    """What a judge says of a kernel."""

    @property
    def status(self) -> str:
        """As in table evaluations."""
        ...

    @property
    def quarantined(self) -> bool:
        """Whether no dataset may hold the kernel."""
        ...

    @property
    def equivalent(self) -> bool:
        """Whether it is the same function as the task's module, as far as is known."""
        ...


class Judge(Protocol):
    """What gives verdicts: evaluators.scheduling.pool.Pool."""

    def judge(self, wanted: Sequence[Pair]) -> Mapping[Pair, Verdict]:
        """Return the verdict of each (kernel_id, task_id), and store what is new."""
        ...


@dataclass(frozen=True, kw_only=True)
class Config:
    """How much is sampled. CUDA-L1: 20 attempts of each model at each task, 2 correct ones kept."""

    make_attempt_rows: int = 20
    """Most attempts of a policy at a task."""
    keep: int = 2
    """Distinct correct kernels of a policy and task after which it is asked no more; 0 for all
    attempts whatever they give."""
    wave: int = 4
    """Attempts at a task before the judge is asked; fewer stop sooner, more go faster."""

    def __post_init__(self) -> None:
        """Refuse numbers that ask for nothing."""
        if self.attempts < 1 or self.wave < 1 or self.keep < 0:
            given = f"--attempts {self.attempts} --keep {self.keep} --wave {self.wave}"
            raise FlywheelError(
                f"{given} asks for nothing",
                "Attempts and wave are 1 or more, keep is 0 or more.",
            )


@dataclass(kw_only=True)
class Tally:
    """What came of one policy."""

    name: str
    make_attempt_rows: int = 0
    failed: int = 0
    """Attempts that the endpoint or the machine failed."""
    reasons: Counter[str] = field(default_factory=Counter[str])
    """Why they failed; may quote a server."""
    no_kernel: int = 0
    """Completions without code."""
    kernels: int = 0
    """Kernels in these completions that differ."""
    correct: int = 0
    """Of these judged correct."""
    tokens: int = 0
    cost_usd: float | None = None
    stopped: FlywheelError | None = None
    """Why it ended before the rest."""


@dataclass(kw_only=True)
class Outcome:
    """What a rollout has appended."""

    run_id: str | None
    """None where nothing was left to ask."""
    tallies: list[Tally]
    snapshot: int
    kernel_ids: list[str] = field(default_factory=list[str])
    """Kernels written in this run, without repeats."""

    def __str__(self) -> str:
        sums = {
            name: sum(getattr(one, name) for one in self.tallies)
            for name in ("attempts", "failed", "kernels", "correct")
        }
        failed = f" ({sums['failed']} failed)" if sums["failed"] else ""
        return (
            f"generations +{sums['attempts']}{failed} kernels {sums['kernels']} "
            f"correct {sums['correct']} → snapshot {self.snapshot}"
        )


@dataclass(kw_only=True)
class _Group:
    """Attempts of one policy at one prompt."""

    asked: ShownPrompt
    make_group_id: str
    make_attempt_rows: int = 0
    next_index: int = 0


@dataclass(kw_only=True)
class _Unit:
    """One policy and one task: what attempts and successes are counted over."""

    groups: list[_Group]
    kernels: set[str] = field(default_factory=set[str])
    correct: set[str] = field(default_factory=set[str])
    unjudged: set[str] = field(default_factory=set[str])
    """Kernels of earlier runs that nobody has judged."""

    @property
    def attempts(self) -> int:
        return sum(group.attempts for group in self.groups)

    def next(self, config: Config) -> tuple[_Group, int] | None:
        """Return the prompt to ask next and how often, or None where enough was done."""
        left = config.attempts - self.attempts
        if left < 1 or (config.keep and len(self.correct) >= config.keep):
            return None
        return min(self.groups, key=lambda group: group.attempts), min(left, config.wave)


def run_rollout(
    lake_url: str | None,
    policies: Sequence[Policy],
    prompts: Sequence[ShownPrompt],
    sampling: Sampling,
    config: Config,
    judge: Judge | None,
    progress: Progress,
    *,
    told: Mapping[str, Any] | None = None,
) -> Outcome:
    """Sample from each policy in turn until each task has enough, and append all that comes.

    Args:
        lake_url: Lake that is written to; it holds tasks and exemplars of the prompts.
        policies: Who is asked; one after the other, so that one model is in memory at a time.
        prompts: What they are asked. Several of one task take turns.
        sampling: How completions are drawn. A seed is moved on for every wave.
        config: How much.
        judge: Who says what is correct; None stores only, and every attempt is made.
        progress: Told of every prompt that is done: attempts, and the most there may be.
        told: What stands in the run's configuration besides: dataset, options.

    Raises:
        FlywheelError: a policy cannot be used. A spent budget or a lost endpoint is no error: what
            came is stored, and the policy's Tally says why it stopped.
    """
    with store.writer(lake_url, author=f"trainers {NAME}") as writer:
        # What an earlier run had only spooled belongs to what is there.
        snapshot = writer.flush()
        work = _Work(writer, sampling, config, judge, progress)
        plans: list[tuple[Policy, Tally, list[_Unit]]] = []
        with writer.reader() as lake:
            origin = (lake.lake_id, lake.snapshot)
            for one in policies:
                units = _plan_units(lake, one.row["policy_id"], prompts, sampling)
                plans.append((one, Tally(name=str(one.row["name"])), units))
        work.judge_stored([unit for _, _, units in plans for unit in units])
        if not any(unit.next(config) for _, _, units in plans for unit in units):
            return Outcome(
                run_id=None, tallies=[tally for _, tally, _ in plans], snapshot=writer.flush()
            )
        work.run_id = uuid7()
        rows = [one.row for one in policies]
        started = {
            "run_id": work.run_id,
            "kind": "rollout",
            "name": NAME,
            # Policies by their ids: what names them on the command line may be a private URL.
            "config": json.dumps(
                {
                    "policies": [row["policy_id"] for row in rows],
                    "sampling": asdict(sampling),
                    "rollout": asdict(config),
                    "judged": judge is not None,
                    "prompts": len(prompts),
                    **(told or {}),
                }
            ),
            "version": store.__version__,
            "lake_id": origin[0],
            "snapshot_id": origin[1],
            "host": platform.node(),
            "started_at": datetime.now(UTC),
        }
        writer.append({"runs": [started], "policies": rows}, message="rollout begins")
        for one, tally, units in plans:
            try:
                work.all(one, tally, units)
            finally:
                snapshot = writer.flush()
                one.close()
    return Outcome(
        run_id=work.run_id,
        tallies=[tally for _, tally, _ in plans],
        snapshot=snapshot,
        kernel_ids=list(work.written),
    )


def make_group_id(asked: ShownPrompt, policy_id: str, sampling: Sampling) -> str:
    """Return the id of the attempts of a policy at a prompt under one sampling setting."""
    return content_id(
        NAME, asked.lake_id, str(asked.snapshot_id), asked.prompt_id, policy_id,
        json.dumps(asdict(sampling), sort_keys=True),
    )  # fmt: skip


class _Work:
    """One run: who writes, who judges, and what was written."""

    def __init__(
        self,
        writer: store.Writer,
        sampling: Sampling,
        config: Config,
        judge: Judge | None,
        progress: Progress,
    ) -> None:
        self._writer = writer
        self._sampling, self._config = sampling, config
        self._judge, self._progress = judge, progress
        self.run_id = ""
        self.written: dict[str, None] = {}

    def judge_stored(self, units: Sequence[_Unit]) -> None:
        """Ask for the verdicts that an interruption has left out."""
        self._verdicts([(unit, kernel) for unit in units for kernel in sorted(unit.unjudged)])

    def all(self, policy: Policy, tally: Tally, units: Sequence[_Unit]) -> None:
        """Ask one policy in waves until every task has enough, or it can be asked no more."""
        most = len(units) * self._config.attempts
        while tally.stopped is None:
            wave = [
                (unit, *chosen) for unit in units if (chosen := unit.next(self._config)) is not None
            ]
            if not wave:
                return
            fresh: list[tuple[_Unit, str]] = []
            # Prompts that have come equally far are asked together: they share a seed.
            for far, n in sorted({(group.next_index, n) for _, group, n in wave}):
                part = [
                    (unit, group)
                    for unit, group, times in wave
                    if (group.next_index, times) == (far, n)
                ]
                fresh += self._part(
                    policy, tally, part, far, n, lambda: _count_attempts(units), most
                )
                if tally.stopped is not None:
                    break
            self._writer.flush()
            self._verdicts(fresh, tally)

    def _part(
        self,
        policy: Policy,
        tally: Tally,
        part: Sequence[tuple[_Unit, _Group]],
        far: int,
        n: int,
        made: Callable[[], int],
        most: int,
    ) -> list[tuple[_Unit, str]]:
        """Ask for n attempts of each prompt and store them as they come; return new kernels."""
        sampling = self._sampling
        if sampling.seed is not None:
            moved = int(content_id("seed", str(sampling.seed), str(far))[:16], 16) % _SEEDS
            sampling = replace(sampling, seed=moved)
        fresh: list[tuple[_Unit, str]] = []
        answered: set[int] = set()
        try:
            for index, completions in policy.sample(
                [group.asked.messages for _, group in part], n, sampling
            ):
                answered.add(index)
                unit, group = part[index]
                tables = make_attempt_rows(
                    self.run_id,
                    policy.row["policy_id"],
                    group.group_id,
                    group.asked,
                    completions,
                    sampling,
                    first=group.next_index,
                )
                self._writer.append(tables, message=f"{len(completions)} attempts", wait=False)
                # A failed attempt is none for the lake, but this run does not ask for it again.
                group.attempts += n
                group.next_index += len(completions)
                _tally_rows(tally, tables["generations"])
                for kernel in tables["kernels"]:
                    kernel_id = kernel["kernel_id"]
                    if kernel_id not in unit.kernels:
                        unit.kernels.add(kernel_id)
                        tally.kernels += 1
                        self.written[kernel_id] = None
                        fresh.append((unit, kernel_id))
                self._progress(made(), most, f"attempts of {tally.name}")
        except (BudgetReached, EndpointFailed) as stopped:
            tally.stopped = stopped
            return fresh
        for index in set(range(len(part))) - answered:
            part[index][1].attempts += n
        return fresh

    def _verdicts(self, fresh: Sequence[tuple[_Unit, str]], tally: Tally | None = None) -> None:
        if self._judge is None or not fresh:
            return
        pairs = [(kernel_id, unit.groups[0].asked.task_id) for unit, kernel_id in fresh]
        verdicts = self._judge.judge(pairs)
        for (unit, kernel_id), pair in zip(fresh, pairs, strict=True):
            verdict = verdicts[pair]
            if verdict.status != "correct" or verdict.quarantined or not verdict.equivalent:
                # Another device's pass does not outweigh this judge.
                unit.correct -= {kernel_id} if verdict.status != "evaluator_error" else set()
            elif kernel_id not in unit.correct:
                unit.correct.add(kernel_id)
                if tally is not None:
                    tally.correct += 1


def _plan_units(
    lake: store.Lake, policy_id: str, prompts: Sequence[ShownPrompt], sampling: Sampling
) -> list[_Unit]:
    """Return the work of one policy, with what the lake has of it."""
    import pyarrow as pa

    groups = [
        _Group(asked=asked, group_id=make_group_id(asked, policy_id, sampling)) for asked in prompts
    ]
    lake.register("groups", pa.table({"group_id": pa.array([one.group_id for one in groups])}))
    query = (_SQL / "rollout_groups.sql").read_text("utf-8")
    stored = {row["group_id"]: row for row in lake.run(query).rows()}
    units: dict[str, _Unit] = {}
    for group in groups:
        unit = units.setdefault(group.asked.task_id, _Unit(groups=[]))
        unit.groups.append(group)
        row = stored.get(group.group_id)
        if row is not None:
            group.attempts, group.next_index = row["attempts"], row["next_index"]
            unit.kernels |= set(row["kernel_ids"])
            unit.correct |= set(row["correct_ids"])
            unit.unjudged |= set(row["unjudged_ids"])
    return list(units.values())


def _count_attempts(units: Sequence[_Unit]) -> int:
    return sum(unit.attempts for unit in units)


def _tally_rows(tally: Tally, generations: Sequence[Mapping[str, Any]]) -> None:
    for row in generations:
        failed = row["finish_reason"] == FAILED
        tally.attempts += 1
        tally.failed += failed
        if failed:
            tally.reasons[row["parse_error"] or "no reason"] += 1
        tally.no_kernel += not failed and row["kernel_id"] is None
        tally.tokens += row["prompt_tokens"] + row["completion_tokens"]
        if row["cost_usd"] is not None:
            tally.cost_usd = (tally.cost_usd or 0.0) + row["cost_usd"]
