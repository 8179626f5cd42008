"""Rollouts: policies attempt tasks in waves, each attempt is stored, and kernels are judged.

A search for fast kernels is a rollout in rounds, each of which shows what earlier ones have stored:

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
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, NamedTuple, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

import pipelines
import store
from evaluators.scheduling.pool import Pool
from pipelines import ExemplarOptions, Strategy, query
from store import read_sql
from store.commandline.echo import Progress
from store.commandline.members import Count
from store.errors import FlywheelError
from store.ids import content_id
from trainers.policies.interface import (
    FAILED,
    Asked,
    BudgetReached,
    Endpoint,
    EndpointFailed,
    Policy,
    Sampling,
)
from trainers.rollouts.attempts import ShownPrompt, make_attempt_rows
from trainers.rollouts.prompts import (
    Draw,
    check_pipeline,
    derive_step_seed,
    find_group_snapshots,
    render_prompts,
)

_ROLLOUT = "rollout"
SEEDS = 1 << 31
"""Seeds of samplers are below this number."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Numbers of attempts. CUDA-L1: 20 attempts of each model at each task, 2 correct ones kept."""

    attempts: Count = 20
    """Maximum number of attempts of a policy at a task."""
    keep: Annotated[int, Parameter(validator=Number(gte=0))] = 2
    """Stop asking a policy about a task after N distinct correct kernels; 0: make all attempts."""
    wave: Count = 4
    """Number of attempts at a task between judgments. A small number
    stops sooner; a large number is faster."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """Options of a search."""

    rounds: Count | None = None
    """Search in N rounds. Each round makes new prompts for the tasks of --dataset, shows kernels
    from earlier rounds as exemplars, and makes --attempts / N attempts at each task."""
    strategy: tuple[Strategy, ...] = ("bucket",)
    """In a search: strategy of contrastive-batch that draws the exemplars. Repeat it for several
    variants, which do not see each other's kernels."""
    seeds: Count = 1
    """In a search: number of seeds, from --seed on. Each has variants of its own. In each round,
    the prompts of all are sampled together, and their kernels are judged together."""
    search: str = "search"
    """In a search: its name, the first part of the namespaces NAME/STRATEGY/SEED/POLICY. A name
    belongs to one search: the same options continue it, and others are refused."""
    pipeline: str = "contrastive-batch"
    """In a search: pipeline that makes the prompts."""
    budget_s: float | None = None
    """In a search: do not start another round once all rounds of the policy, including those of
    earlier commands, have taken this many seconds (default: no limit)."""

    def __post_init__(self) -> None:
        """Refuse options of a search without rounds, and names that no namespace can have."""
        if self.rounds is None:
            given = [one.name for one in fields(self) if getattr(self, one.name) != one.default]
            if given:
                flags = ", ".join("--" + name.replace("_", "-") for name in given)
                raise FlywheelError(
                    f"options of a search need --rounds: {flags}",
                    "Add --rounds N to search, or omit them.",
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
        _ROLLOUT, asked.lake_id, origin, asked.prompt_id, policy_id,
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

    Raises FlywheelError: a policy cannot be used. A spent budget or a lost endpoint is not an
    error: results are stored, and the policy's Tally says why it stopped.
    """
    with store.writer(lake_url, author=f"trainers {_ROLLOUT}") as writer:
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
        with record_rollout(writer, _ROLLOUT, configuration, origin, rows) as record:
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


@dataclass
class Work:
    """One run: its writer and its judges."""

    writer: store.Writer
    sampling: Sampling
    config: Config
    start_judges: Callable[[], Pool] | None
    progress: Progress
    run_id: str = ""

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
                prompts = [group.asked.messages for _, group in part]
                asked = Asked(prompts=prompts, n=count, sampling=self.sampling, seeds=seeds or None)
                for index, completions in policy.sample(asked):
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
                    self.writer.append(tables, message=f"{len(completions)} attempts", wait=False)
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
        if self.start_judges is None or not kernels:
            return
        pairs = [(kernel_id, unit.groups[0].asked.task_id) for unit, kernel_id in kernels]
        verdicts = self.start_judges().judge(pairs)
        for (unit, kernel_id), pair in zip(kernels, pairs, strict=True):
            verdict = verdicts[pair]
            if verdict.status != "correct" or verdict.quarantined or not verdict.equivalent:
                # A pass on another device does not override this judge.
                unit.correct -= {kernel_id} if verdict.status != "evaluator_error" else set()
            elif kernel_id not in unit.correct:
                unit.correct.add(kernel_id)
                if tally is not None:
                    tally.correct += 1


# --- searches ---

log = logging.getLogger(__name__)

_SEARCH = "search"
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
        store.writer(lake_url, author=f"trainers {_SEARCH}") as writer,
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
            searches.append(_PolicySearch(work, policy, tally, prompts, options, draw))
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

    draw: Draw
    """Its namespace is NAME/STRATEGY/SEED/POLICY."""
    sampling: Sampling


class _PolicySearch:
    """The rounds of one policy, each with all arms."""

    def __init__(
        self,
        work: Work,
        policy: Policy,
        tally: Tally,
        prompts: Sequence[ShownPrompt],
        options: Search,
        draw: Draw,
    ) -> None:
        self.work, self.policy = work, policy
        self._tally = tally
        self._tasks = list(dict.fromkeys(prompt.task_id for prompt in prompts))
        self._options = options
        self._arms: list[_Arm] = []
        self.namespaces: list[str] = []
        for place in range(options.seeds):
            sampling = work.sampling
            if sampling.seed is not None:
                sampling = replace(sampling, seed=sampling.seed + place)
            for strategy in dict.fromkeys(options.strategy):
                name = f"{options.search}/{strategy}/{sampling.seed or 0}"
                namespace = f"{name}/{policy.row['policy_id'][:12]}"
                self.namespaces.append(namespace)
                draw_arm = replace(draw, arm=strategy, namespace=namespace)
                self._arms.append(_Arm(draw_arm, sampling))
        self._spent_s = 0.0
        self.run_id: str | None = None
        """None until an attempt is missing."""

    def read_earlier_commands(self, lake: store.Lake) -> None:
        """Compare the options with those of earlier commands, and count what these have spent.

        Raises FlywheelError: earlier commands searched under this name with other options.
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
        budget_s, show = self._options.budget_s, self.work.progress
        device = self._arms[0].draw.device
        missing: list[int] = []
        with self.work.writer.reader() as lake:
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
                            self.work.writer, _SEARCH, self._describe(), origin, [self.policy.row]
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
                    self.work.writer.append({"metrics": [metric]}, message=message, wait=False)
                if isinstance(self._tally.stopped, EndpointFailed):
                    record.error = self._tally.stopped
                if self._tally.stopped is not None:
                    return

    def _run_round(self, number: int) -> None:
        """Make prompts for all arms, sample them together, and have the kernels judged."""
        self.work.writer.flush()
        units: list[Unit] = []
        with self.work.writer.reader() as newest:
            known = find_group_snapshots(newest, self._list_group_ids(number))
            for arm in self._arms:
                ids = {task: self._make_group_id(arm, task, number) for task in self._tasks}
                seed = derive_step_seed(arm.sampling.seed or 0, number)
                # Prompts of stored attempts come from the snapshot that these name.
                at = min((known[group] for group in ids.values() if group in known), default=None)
                with nullcontext(newest) if at is None else self.work.writer.reader(at) as lake:
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
        self.work.writer.flush()
        self.work.request_verdicts(new_kernels, self._tally)

    def _describe(self) -> dict[str, Any]:
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
            if strategy == "none" or any(arm.draw.namespace in shown for arm in arms):
                continue
            draw = arms[0].draw
            parameters = {
                "namespaces": [arm.draw.namespace for arm in arms],
                "device": draw.device,
                "baseline": draw.baseline,
                "clock": draw.clock,
            }
            rows = lake.run(read_sql(__file__, "search_unscored"), parameters).rows()
            total = sum(row["kernels"] for row in rows)
            reasons = ", ".join(f"{row['reason']}: {row['kernels']}" for row in rows)
            log.warning(
                "no prompt of variant %s in round %d shows a kernel with a score: %s",
                strategy,
                number,
                f"the search has {total} of its own without one ({reasons})"
                if total
                else "no earlier attempt has code",
            )

    def _make_group_id(self, arm: _Arm, task: str, number: int) -> str:
        sampling = json.dumps(asdict(arm.sampling), sort_keys=True)
        policy_id = self.policy.row["policy_id"]
        return content_id(_SEARCH, arm.draw.namespace, task, str(number), policy_id, sampling)

    def _list_group_ids(self, number: int) -> list[str]:
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
