"""Searches for fast kernels without training: each round shows what earlier rounds have stored.

    round r: newest snapshot ─▶ exemplars ─▶ prompts of all arms ─▶ policy ─▶ judge ─▶ round r + 1

An arm is a way to choose the exemplars (--strategy). Each arm has a namespace, and its prompts show
kernels of this namespace and those without one, so that arms on one lake do not see each other's.
In each round, the prompts of all arms and seeds are sampled together, and their kernels are judged
together. Ids of groups follow from search, arm, seed, policy, task and round, so the same command
resumes an interrupted search: a round that has attempts is rendered again from the snapshot that
these name.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import pipelines
import store
from evaluators.scheduling.pool import Pool
from pipelines import ExemplarOptions
from store import read_sql
from store.commandline.echo import Progress
from store.errors import FlywheelError
from store.ids import content_id
from trainers.policies.interface import BudgetReached, Endpoint, EndpointFailed, Policy, Sampling
from trainers.rollouts.attempts import ShownPrompt
from trainers.rollouts.prompts import (
    Draw,
    check_pipeline,
    derive_step_seed,
    find_group_snapshots,
    render_prompts,
)
from trainers.rollouts.waves import (
    SEEDS,
    Config,
    Group,
    RolloutResult,
    Search,
    Tally,
    Unit,
    Work,
    add_stored_attempts,
    read_groups,
    record_rollout,
)

log = logging.getLogger(__name__)

NAME = "search"
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
    "device": "name of --on",
}


def run_search(
    lake_url: str | None,
    policies: Sequence[Policy],
    prompts: Sequence[ShownPrompt],
    sampling: Sampling,
    config: Config,
    options: Search,
    exemplars: ExemplarOptions,
    judges: Pool,
    progress: Progress,
) -> RolloutResult:
    """Search with each policy in turn, and store and judge all attempts.

    The prompts name the tasks; new ones replace them in every round. The seed of `sampling` is the
    first one; rounds differ, arms do not. All attempts of `config` at a task, over all rounds, are
    made. What earlier commands of the search have spent is added to the endpoint's budget first.

    Raises:
        FlywheelError: the attempts cannot be divided evenly, --seed is missing, the name belongs to
            a search with other options, another command works on an arm of it, the pipeline cannot
            keep arms apart, or a policy cannot be used.
        LeakageFound: the tasks belong to both splits.
    """
    assert options.rounds is not None
    if config.attempts % options.rounds:
        raise FlywheelError(
            f"--attempts {config.attempts} cannot be divided into --rounds {options.rounds}",
            f"Give {config.attempts // options.rounds * options.rounds or options.rounds}.",
        )
    if options.seeds > 1 and sampling.seed is None:
        raise FlywheelError(f"--seeds {options.seeds} needs the first seed", "Give --seed.")
    check_pipeline(options.pipeline)
    each = config.attempts // options.rounds
    tallies = [Tally(name=str(policy.row["name"])) for policy in policies]
    run_id: str | None = None
    with (
        store.writer(lake_url, author=f"trainers {NAME}") as writer,
        store.Location.of(lake_url).open_leases() as leases,
    ):
        snapshot = writer.flush()
        draw = Draw(
            arm="none",
            device=str(judges.device["name"]),
            purpose="eval" if prompts[0].purpose == "eval" else "train",
            pipeline=options.pipeline,
            **pipelines.copy_exemplar_options(exemplars),
        )
        searches: list[_PolicySearch] = []
        counts = Config(attempts=each, wave=each, keep=0)
        for policy, tally in zip(policies, tallies, strict=True):
            work = Work(writer, sampling, counts, lambda: judges, progress)
            searches.append(_PolicySearch(writer, work, policy, tally, prompts, options, draw))
        # With the leases of all namespaces, no other command makes the same attempts.
        leased = {f"search {name}": name for search in searches for name in search.namespaces}
        held = leases.take(list(leased))
        if others := [name for lease, name in leased.items() if lease not in held]:
            raise FlywheelError(
                f"another command works on {', '.join(others[:3])}"
                f"{' and more' if len(others) > 3 else ''}",
                "Wait until it ends, then run this command again: it makes what is missing.",
            )
        with writer.reader() as lake:
            for search in searches:
                search.read_earlier_commands(lake)
        for search in searches:
            try:
                search.run_rounds(options.rounds)
            finally:
                snapshot = writer.flush()
                search.policy.close()
            run_id = search.run_id or run_id
    return RolloutResult(run_id=run_id, tallies=tallies, snapshot=snapshot)


class _Arm(NamedTuple):
    """One strategy with one seed."""

    namespace: str
    """NAME/STRATEGY/SEED/POLICY."""
    draw: Draw
    sampling: Sampling


class _PolicySearch:
    """The rounds of one policy, each with all arms."""

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
        self.work, self.policy = work, policy
        self._writer, self._tally = writer, tally
        self._tasks = list(dict.fromkeys(prompt.task_id for prompt in prompts))
        self._options, self._progress = options, work.progress
        self._arms: list[_Arm] = []
        for place in range(options.seeds):
            sampling = work.sampling
            if sampling.seed is not None:
                sampling = replace(sampling, seed=sampling.seed + place)
            for strategy in dict.fromkeys(options.strategy):
                name = f"{options.search}/{strategy}/{sampling.seed or 0}"
                namespace = f"{name}/{policy.row['policy_id'][:12]}"
                draw_arm = replace(draw, arm=strategy, namespace=namespace)
                self._arms.append(_Arm(namespace, draw_arm, sampling))
        self.namespaces = [arm.namespace for arm in self._arms]
        self._spent_s = 0.0
        self.run_id: str | None = None
        """None until an attempt is missing."""

    def read_earlier_commands(self, lake: store.Lake) -> None:
        """Compare the options with those of earlier commands, and count what these have spent.

        Raises:
            FlywheelError: earlier commands searched under this name with other options.
        """
        name, policy_id = self._options.search, str(self.policy.row["policy_id"])
        given = _flatten(self._describe())
        for row in lake.run(read_sql(__file__, "search_runs"), [self.namespaces]).rows():
            stored = _flatten(json.loads(row["config"]))
            changes: list[str] = []
            # A run of an earlier version lacks entries that this one stores.
            for key in (key for key in given if key in stored and given[key] != stored[key]):
                flag = _FLAGS.get(key, "--" + key.replace("_", "-"))
                if key == "seed":
                    was_given = "--seed was given, and now it is not"
                    changes.append(was_given if stored[key] else "it had no --seed")
                elif key == "tasks_id":
                    changes.append(f"the {flag} differ")
                else:
                    changes.append(f"{flag} was {stored[key]} and is now {given[key]}")
            if changes:
                raise FlywheelError(
                    f'the search "{name}" was begun with other options: {"; ".join(changes)}',
                    "Give the options that it was begun with to continue it, or choose another "
                    "--search. More --rounds with as many attempts each extend a search.",
                )
        # The rounds with any arms. A round that was killed counts until its last stored attempt.
        [rounds] = lake.run(read_sql(__file__, "search_seconds"), [name, policy_id]).rows()
        self._spent_s = float(rounds["seconds"])
        if isinstance(self.policy, Endpoint):
            # The tokens and the USD of all stored attempts of the search, with any arms.
            [cost] = lake.run(read_sql(__file__, "search_cost"), [name, policy_id]).rows()
            self.policy.works = cost["tokens"] > 0
            self.policy.serving.budget.spend(int(cost["tokens"]), float(cost["usd"]))

    def run_rounds(self, rounds: int) -> None:
        """Make the missing attempts round by round, until the budget is spent."""
        budget_s, show, device = self._options.budget_s, self._progress, self._arms[0].draw.device
        missing: list[int] = []
        with self._writer.reader() as lake:
            origin = (lake.lake_id, lake.snapshot)
            for number in range(1, rounds + 1):
                # A round is done if the lake has all of its attempts, and a verdict on each kernel.
                ids = self._list_group_ids(number)
                stored = read_groups(lake, ids, device)
                is_done = all(
                    group in stored
                    and stored[group]["attempts"] >= self.work.config.attempts
                    and not stored[group]["unjudged_ids"]
                    for group in ids
                )
                if not is_done:
                    missing.append(number)
        with ExitStack() as stack:
            record: store.RunRecord | None = None
            for place, number in enumerate(missing):
                if budget_s is not None and self._spent_s >= budget_s:
                    self._tally.stopped = BudgetReached(
                        f"the budget of {budget_s:g} s is spent before round {number}"
                    )
                    return
                if record is None:
                    record = stack.enter_context(
                        record_rollout(
                            self._writer, NAME, self._describe(), origin, [self.policy.row]
                        )
                    )
                self.run_id = self.work.run_id = record.run_id

                # The progress counts the attempts of all missing rounds, not of one.
                def show_all(done: int, of: int, what: str, before: int = place) -> None:
                    show(before * of + done, len(missing) * of, what)

                self.work.progress = show_all
                begun = time.monotonic()
                try:
                    self._run_round(number)
                finally:
                    # What a round took is stored also where it was interrupted.
                    took_s = time.monotonic() - begun
                    self._spent_s += took_s
                    metric = {
                        "run_id": record.run_id,
                        "name": "search/seconds",
                        "step": number,
                        "value": took_s,
                    }
                    message = f"search round {number}"
                    self._writer.append({"metrics": [metric]}, message=message, wait=False)
                if isinstance(self._tally.stopped, EndpointFailed):
                    record.error = self._tally.stopped
                if self._tally.stopped is not None:
                    return

    def _run_round(self, number: int) -> None:
        """Make prompts for all arms, sample them together, and have the kernels judged."""
        self._writer.flush()
        units: list[Unit] = []
        with self._writer.reader() as newest:
            known = find_group_snapshots(newest, self._list_group_ids(number))
            for arm in self._arms:
                ids = {task: self._make_group_id(arm, task, number) for task in self._tasks}
                seed = derive_step_seed(arm.sampling.seed or 0, number)
                # Prompts of stored attempts come from the snapshot that these name.
                at = min((known[group] for group in ids.values() if group in known), default=None)
                with nullcontext(newest) if at is None else self._writer.reader(at) as lake:
                    rendered = render_prompts(lake, arm.draw, seed, self._tasks)
                units += [
                    Unit(
                        groups=[
                            Group(
                                asked=replace(prompt, step=number),
                                group_id=ids[prompt.task_id],
                                seed=None if arm.sampling.seed is None else seed % SEEDS,
                            )
                        ]
                    )
                    for prompt in rendered
                ]
            add_stored_attempts(newest, units, self._arms[0].draw.device)
            if number > 1 and check_pipeline(self._options.pipeline):
                self._warn_without_scores(newest, units, number)
        self.work.judge_stored(units)
        new_kernels = self.work.sample_wave(self.policy, self._tally, units)
        self._writer.flush()
        self.work.request_verdicts(new_kernels, self._tally)

    def _describe(self) -> dict[str, Any]:
        """Return the configuration of the run."""
        described = {
            **asdict(self._options),
            "policy_id": self.policy.row["policy_id"],
            "attempts_per_round": self.work.config.attempts,
            "tasks": len(self._tasks),
            "tasks_id": content_id("tasks", *sorted(self._tasks)),
            "namespaces": self.namespaces,
            "draw": asdict(self._arms[0].draw),
        }
        return {"search": described, "sampling": asdict(self._arms[0].sampling)}

    def _warn_without_scores(self, lake: store.Lake, units: Sequence[Unit], number: int) -> None:
        """Say which strategies show no kernel although earlier rounds wrote some, and why."""
        prompts = [unit.groups[0].asked for unit in units]
        shown = {prompt.namespace for prompt in prompts if prompt.exemplar_kernel_ids}
        for strategy in dict.fromkeys(self._options.strategy):
            arms = [arm for arm in self._arms if arm.draw.arm == strategy]
            if strategy == "none" or any(arm.namespace in shown for arm in arms):
                continue
            draw = arms[0].draw
            parameters = {
                "namespaces": [arm.namespace for arm in arms],
                "device": draw.device,
                "baseline": draw.baseline,
                "clock": draw.clock,
            }
            rows = lake.run(read_sql(__file__, "search_unscored"), parameters).rows()
            total = sum(row["kernels"] for row in rows)
            reasons = ", ".join(f"{row['reason']}: {row['kernels']}" for row in rows)
            log.warning(
                "no prompt of arm %s in round %d shows a kernel with a score: %s",
                strategy,
                number,
                f"the search has {total} of its own without one ({reasons})"
                if total
                else "no earlier attempt has code",
            )

    def _make_group_id(self, arm: _Arm, task: str, number: int) -> str:
        """Return the id of the attempts of one arm at one task in one round."""
        sampling = json.dumps(asdict(arm.sampling), sort_keys=True)
        policy_id = self.policy.row["policy_id"]
        return content_id(NAME, arm.namespace, task, str(number), policy_id, sampling)

    def _list_group_ids(self, number: int) -> list[str]:
        """Return the ids of all groups of a round."""
        return [
            self._make_group_id(arm, task, number) for arm in self._arms for task in self._tasks
        ]


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
