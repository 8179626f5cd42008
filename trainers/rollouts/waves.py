"""The result of a rollout: attempts, kernels and costs by policy."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import store
from store.commandline.progress import Progress
from store.errors import FlywheelError
from store.ids import content_id
from trainers.policies.endpoint import Endpoint
from trainers.policies.interface import (
    FAILED,
    Budget,
    BudgetReached,
    EndpointFailed,
    Policy,
    Sampling,
)
from trainers.rollouts.attempts import ShownPrompt, make_attempt_rows
from trainers.rollouts.plan import NAME, Config, Group, Unit, count_attempts, plan_units


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


@dataclass(kw_only=True)
class RolloutResult:
    """What a rollout has appended."""

    run_id: str | None
    """None if nothing was left to sample."""
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


def tally_rows(tally: Tally, generations: Sequence[Mapping[str, Any]]) -> None:
    """Add rows of table generations to a tally."""
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


log = logging.getLogger(__name__)


_SEEDS = 1 << 31


Pair: TypeAlias = tuple[str, str]
NewKernel: TypeAlias = tuple[Unit, str]
"""A kernel that a unit has not had before, by its id."""


class Verdict(Protocol):
    """The verdict of a judge on a kernel."""

    @property
    def status(self) -> str:
        """As in table evaluations."""
        ...

    @property
    def quarantined(self) -> bool:
        """Whether no dataset may hold the kernel."""
        ...

    @property
    def equivalent(self) -> bool | None:
        """Whether it is the same function as the task's module, as far as is known; None where the
        kernel is not correct."""
        ...


class Judge(Protocol):
    """Gives verdicts, like evaluators.scheduling.pool.Pool."""

    def judge(self, wanted: Sequence[Pair]) -> Mapping[Pair, Verdict]:
        """Return the verdict of each (kernel_id, task_id), and store new ones."""
        ...


class SearchJudge(Judge, Protocol):
    """Judges kernels on a device, whose speedups the prompts show."""

    @property
    def device_name(self) -> str:
        """Name of the device, as in table devices."""
        ...


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
    budget: Budget | None = None,
    training: str | None = None,
) -> RolloutResult:
    """Sample from each policy in turn until each task has enough, and store all attempts.

    Args:
        lake_url: Lake to write to; it has the tasks and exemplars of the prompts.
        policies: Policies to sample, one after the other, so that one model is in memory at a time.
        prompts: Prompts to sample. Several prompts of one task take turns.
        sampling: How completions are drawn. A seed changes with every wave.
        config: Numbers of attempts.
        judge: Judges the kernels; None makes and stores every attempt without judging.
        progress: Called after every prompt with the attempts so far and their maximum.
        told: Further entries of the run's configuration: dataset, options.
        budget: Budget of the policies that are endpoints. What earlier commands have spent on the
            same attempts is added to it first.
        training: Run of the training that the attempts are for; no other command makes or counts
            them.

    Raises:
        FlywheelError: a policy cannot be used. A spent budget or a lost endpoint is not an error:
            results are stored, and the policy's Tally says why it stopped.
    """
    with store.writer(lake_url, author=f"trainers {NAME}") as writer:
        # Include the rows that an earlier run has only spooled.
        writer.flush()
        work = Work(writer, sampling, config, judge, progress)
        plans: list[tuple[Policy, Tally, list[Unit]]] = []
        with writer.reader() as lake:
            origin = (lake.lake_id, lake.snapshot)
            for one in policies:
                units = plan_units(lake, one.row["policy_id"], prompts, sampling, training)
                plans.append((one, Tally(name=str(one.row["name"])), units))
                if isinstance(one, Endpoint):
                    groups = [group for unit in units for group in unit.groups]
                    one.works = any(group.tokens for group in groups)
                    if budget is not None:
                        for group in groups:
                            budget.spend(group.tokens, group.cost_usd)
        work.judge_stored([unit for _, _, units in plans for unit in units])
        if not any(unit.choose_next(config) for _, _, units in plans for unit in units):
            return RolloutResult(
                run_id=None, tallies=[tally for _, tally, _ in plans], snapshot=writer.flush()
            )
        rows = [one.row for one in policies]
        # Policies by their ids: what names them on the command line may be a private URL.
        configuration = {
            "policies": [row["policy_id"] for row in rows],
            "sampling": asdict(sampling),
            "rollout": asdict(config),
            "judged": judge is not None,
            "prompts": len(prompts),
            **(told or {}),
        }
        with record_rollout(writer, NAME, configuration, origin, rows) as record:
            work.run_id = record.run_id
            for one, tally, units in plans:
                try:
                    work.sample_all(one, tally, units)
                finally:
                    writer.flush()
                    one.close()
                if isinstance(tally.stopped, EndpointFailed):
                    record.error = tally.stopped
    return RolloutResult(
        run_id=record.run_id,
        tallies=[tally for _, tally, _ in plans],
        snapshot=record.snapshot,
        kernel_ids=list(work.written),
    )


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
    run = store.make_run(
        kind="rollout",
        name=name,
        config=configuration,
        lake_id=origin[0],
        snapshot_id=origin[1],
    )
    return store.record_run(writer, run, f"{name} begins", {"policies": policies})


class Work:
    """One run: its writer, its judge, and its kernels."""

    def __init__(
        self,
        writer: store.Writer,
        sampling: Sampling,
        config: Config,
        judge: Judge | None,
        progress: Progress,
    ) -> None:
        self._writer = writer
        self.sampling, self.config = sampling, config
        self._judge, self.progress = judge, progress
        self.run_id = ""
        self.written: dict[str, None] = {}

    def judge_stored(self, units: Sequence[Unit]) -> None:
        """Request the verdicts that an interrupted run is missing."""
        self._verdicts([(unit, kernel) for unit in units for kernel in sorted(unit.unjudged)])

    def sample_all(self, policy: Policy, tally: Tally, units: Sequence[Unit]) -> None:
        """Sample one policy in waves until every task has enough, or the policy stops."""
        while tally.stopped is None and any(unit.choose_next(self.config) for unit in units):
            self.judge_new_kernels(self.sample_wave(policy, tally, units), tally)

    def sample_wave(self, policy: Policy, tally: Tally, units: Sequence[Unit]) -> list[NewKernel]:
        """Sample the next attempts of all units and store them; return the new kernels."""
        wave = [
            (unit, *chosen)
            for unit in units
            if (chosen := unit.choose_next(self.config)) is not None
        ]
        fresh: list[NewKernel] = []
        for n in sorted({n for _, _, n in wave}):
            part = [(unit, group) for unit, group, times in wave if times == n]
            fresh += self._part(policy, tally, part, n, units)
            if tally.stopped is not None:
                break
        return fresh

    def judge_new_kernels(self, fresh: Sequence[NewKernel], tally: Tally) -> None:
        """Commit what is stored, and request the verdicts of new kernels."""
        self._writer.flush()
        self._verdicts(fresh, tally)

    def _part(
        self,
        policy: Policy,
        tally: Tally,
        part: Sequence[tuple[Unit, Group]],
        n: int,
        units: Sequence[Unit],
    ) -> list[NewKernel]:
        """Request n attempts of each prompt and store them as they arrive; return new kernels.

        The progress counts the attempts of all units.
        """
        most = len(units) * self.config.attempts
        seeds = [
            _move_seed(group.seed, group.next_index) for _, group in part if group.seed is not None
        ]
        assert len(seeds) in (0, len(part)), "all prompts have a seed, or none"
        fresh: list[NewKernel] = []
        missing = dict.fromkeys(range(len(part)), n)
        try:
            for index, completions in policy.sample(
                [group.asked.messages for _, group in part], n, self.sampling, seeds or None
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
                tally_rows(tally, tables["generations"])
                for kernel in tables["kernels"]:
                    kernel_id = kernel["kernel_id"]
                    if kernel_id not in unit.kernels:
                        unit.kernels.add(kernel_id)
                        tally.kernels += 1
                        self.written[kernel_id] = None
                        fresh.append((unit, kernel_id))
                self.progress(count_attempts(units), most, f"attempts of {tally.name}")
        except (BudgetReached, EndpointFailed) as stopped:
            tally.stopped = stopped
            return fresh
        # A failed attempt does not count in the lake, but this run does not repeat it.
        for index, count in missing.items():
            part[index][1].attempts += count
        return fresh

    def _verdicts(self, fresh: Sequence[NewKernel], tally: Tally | None = None) -> None:
        if self._judge is None or not fresh:
            return
        pairs = [(kernel_id, unit.groups[0].asked.task_id) for unit, kernel_id in fresh]
        verdicts = self._judge.judge(pairs)
        for (unit, kernel_id), pair in zip(fresh, pairs, strict=True):
            verdict = verdicts[pair]
            if verdict.status != "correct" or verdict.quarantined or not verdict.equivalent:
                # A pass on another device does not override this judge.
                unit.correct -= {kernel_id} if verdict.status != "evaluator_error" else set()
            elif kernel_id not in unit.correct:
                unit.correct.add(kernel_id)
                if tally is not None:
                    tally.correct += 1


def _move_seed(seed: int, attempts: int) -> int:
    """Return the seed of the next attempts at a prompt that has this many."""
    return int(content_id("seed", str(seed), str(attempts))[:16], 16) % _SEEDS
