"""Searches for fast kernels without training: each round shows what earlier rounds have stored.

    round r: newest snapshot ─▶ exemplars ─▶ prompts of all arms ─▶ policy ─▶ judge ─▶ round r + 1

An arm is a way to choose the exemplars (--strategy). Each arm has a namespace, and its prompts show
kernels of this namespace and those without one, so that arms on one lake do not see each other's.
The arms of a round are sampled together. Ids of groups follow from search, arm, seed, policy, task
and round, so the same command resumes an interrupted search: a round that has attempts is rendered
again from the snapshot that these name.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Protocol

import pipelines
import store
from pipelines import ExemplarOptions
from store import read_sql
from store.commandline.progress import Progress
from store.errors import FlywheelError
from store.ids import content_id, uuid7
from trainers.policies.interface import Policy, Sampling
from trainers.rollouts.attempts import ShownPrompt
from trainers.rollouts.exemplars import Draw, derive_step_seed, find_group_snapshot, render_prompts
from trainers.rollouts.outcome import Outcome, Tally
from trainers.rollouts.plan import (
    Config,
    Group,
    Search,
    Unit,
    add_stored_attempts,
    read_groups,
)
from trainers.rollouts.waves import Judge, Work, make_run_row

log = logging.getLogger(__name__)

NAME = "search"
_SEEDS = 1 << 31


class SearchJudge(Judge, Protocol):
    """Judges kernels on a device, whose speedups the prompts show."""

    @property
    def device_name(self) -> str:
        """Name of the device, as in table devices."""
        ...


def run_search(
    lake_url: str | None,
    policies: Sequence[Policy],
    prompts: Sequence[ShownPrompt],
    sampling: Sampling,
    config: Config,
    options: Search,
    exemplars: ExemplarOptions,
    judge: SearchJudge,
    progress: Progress,
) -> Outcome:
    """Search with each policy in turn, and store and judge all attempts.

    Args:
        lake_url: Lake to read and write.
        policies: Policies to search with; each has arms of its own.
        prompts: Prompts of the tasks to search; new prompts replace them in every round.
        sampling: How completions are drawn. Its seed differs in every round, and is the same for
            all arms.
        config: Number of attempts at each task over all rounds; all of them are made.
        options: Rounds, arms and budget.
        exemplars: Constants of the draws.
        judge: Judges the kernels.
        progress: Called with the attempts so far and their maximum.

    Raises:
        FlywheelError: the attempts cannot be divided evenly, or a policy cannot be used.
        LeakageFound: the tasks belong to both splits.
    """
    assert options.rounds is not None
    if config.attempts % options.rounds:
        raise FlywheelError(
            f"--attempts {config.attempts} cannot be divided into --rounds {options.rounds}",
            f"Give {config.attempts // options.rounds * options.rounds or options.rounds}.",
        )
    each = config.attempts // options.rounds
    tallies = [Tally(name=str(one.row["name"])) for one in policies]
    run_id: str | None = None
    with store.writer(lake_url, author=f"trainers {NAME}") as writer:
        snapshot = writer.flush()
        work = Work(writer, sampling, Config(attempts=each, wave=each, keep=0), judge, progress)
        for policy, tally in zip(policies, tallies, strict=True):
            draw = Draw(
                arm="none",
                device=judge.device_name,
                purpose="eval" if prompts[0].purpose == "eval" else "train",
                pipeline=options.pipeline,
                **pipelines.copy_exemplar_options(exemplars),
            )
            # The rounds of the policy before have moved the seed.
            work.sampling = sampling
            searched = _PolicySearch(writer, work, policy, tally, prompts, options, draw)
            try:
                searched.run_rounds(options.rounds)
            finally:
                snapshot = writer.flush()
                policy.close()
            run_id = searched.run_id or run_id
    return Outcome(run_id=run_id, tallies=tallies, snapshot=snapshot, kernel_ids=list(work.written))


class _PolicySearch:
    """The rounds of one policy: its arms, which are sampled together."""

    def __init__(
        self,
        writer: store.Writer,
        work: Work,
        policy: Policy,
        tally: Tally,
        prompts: Sequence[ShownPrompt],
        options: Search,
        draw: Draw,
    ) -> None:
        self._writer, self._work, self._policy, self._tally = writer, work, policy, tally
        self._tasks = list(dict.fromkeys(one.task_id for one in prompts))
        self._options, self._sampling = options, work.sampling
        self._arms = [
            replace(draw, arm=strategy, namespace=self._make_namespace(strategy))
            for strategy in dict.fromkeys(options.strategy)
        ]
        self.run_id: str | None = None
        """None until an attempt is missing."""

    def run_rounds(self, rounds: int) -> None:
        """Make the missing attempts round by round, until the budget is spent."""
        budget_s = self._options.budget_s
        with self._writer.reader() as lake:
            spent_s = self._read_seconds(lake)
            missing = [n for n in range(1, rounds + 1) if not self._is_done(lake, n)]
        for number in missing:
            if budget_s is not None and spent_s >= budget_s:
                log.warning("the budget of %g s is spent before round %d", budget_s, number)
                return
            run_id = self.run_id = self.run_id or self._begin()
            begun = time.monotonic()
            self._run_round(number)
            took_s = time.monotonic() - begun
            spent_s += took_s
            metric = {"run_id": run_id, "name": "search/seconds", "step": number, "value": took_s}
            self._writer.append({"metrics": [metric]}, message=f"search round {number}", wait=False)
            if self._tally.stopped is not None:
                return

    def _begin(self) -> str:
        """Store the row of the run and return its id."""
        run_id = self._work.run_id = uuid7()
        with self._writer.reader() as lake:
            origin = (lake.lake_id, lake.snapshot)
        described = {
            **asdict(self._options),
            "policy_id": self._policy.row["policy_id"],
            "attempts_per_round": self._work.config.attempts,
            "tasks": len(self._tasks),
            "namespaces": [arm.namespace for arm in self._arms],
            "draw": asdict(self._arms[0]),
        }
        configuration = {"search": described, "sampling": asdict(self._sampling)}
        run = make_run_row(run_id, NAME, configuration, origin)
        rows = {"runs": [run], "policies": [self._policy.row]}
        self._writer.append(rows, message="search begins")
        return run_id

    def _is_done(self, lake: store.Lake, number: int) -> bool:
        """Whether the lake has all attempts of a round, and a verdict on each of its kernels."""
        ids = [self._make_group_id(arm, task, number) for arm in self._arms for task in self._tasks]
        stored = read_groups(lake, ids)
        return all(
            group in stored
            and stored[group]["attempts"] >= self._work.config.attempts
            and not stored[group]["unjudged_ids"]
            for group in ids
        )

    def _run_round(self, number: int) -> None:
        """Make prompts for all arms, sample them together, and have the kernels judged."""
        self._writer.flush()
        with self._writer.reader() as lake:
            units = [unit for arm in self._arms for unit in self._plan_arm(lake, arm, number)]
            add_stored_attempts(lake, units)
        sampling = self._sampling
        if sampling.seed is not None:
            sampling = replace(sampling, seed=derive_step_seed(sampling.seed, number) % _SEEDS)
        self._work.sampling = sampling
        self._work.judge_stored(units)
        self._work.sample_all(self._policy, self._tally, units)

    def _plan_arm(self, newest: store.Lake, arm: Draw, number: int) -> list[Unit]:
        """Return the prompts of one arm, from the snapshot that stored attempts name, if any."""
        ids = {task: self._make_group_id(arm, task, number) for task in self._tasks}
        seed = derive_step_seed(self._sampling.seed or 0, number)
        at = find_group_snapshot(newest, list(ids.values()))
        if at is None:
            asked = render_prompts(newest, arm, seed, self._tasks)
        else:
            with self._writer.reader(at) as lake:
                asked = render_prompts(lake, arm, seed, self._tasks)
        return [
            Unit(groups=[Group(asked=replace(one, step=number), group_id=ids[one.task_id])])
            for one in asked
        ]

    def _make_namespace(self, strategy: str) -> str:
        """Return NAME/STRATEGY/SEED/POLICY."""
        seed, policy = str(self._sampling.seed or 0), self._policy.row["policy_id"]
        return "/".join((self._options.search, strategy, seed, policy[:12]))

    def _make_group_id(self, arm: Draw, task: str, number: int) -> str:
        """Return the id of the attempts of one arm at one task in one round."""
        return content_id(
            NAME, str(arm.namespace), task, str(number), self._policy.row["policy_id"],
            json.dumps(asdict(self._sampling), sort_keys=True),
        )  # fmt: skip

    def _read_seconds(self, lake: store.Lake) -> float:
        """Return the seconds of the rounds that earlier commands have finished."""
        names = [arm.namespace for arm in self._arms]
        row = lake.run(read_sql(__file__, "search_seconds"), [names]).one()
        return float(row["seconds"]) if row else 0.0
