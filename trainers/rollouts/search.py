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
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import pipelines
import store
from pipelines import ExemplarOptions
from store import read_sql
from store.commandline.progress import Progress
from store.errors import FlywheelError
from store.ids import content_id
from trainers.policies.endpoint import Endpoint
from trainers.policies.interface import (
    Budget,
    BudgetReached,
    EndpointFailed,
    Policy,
    Sampling,
)
from trainers.rollouts.attempts import ShownPrompt
from trainers.rollouts.exemplars import (
    Draw,
    check_pipeline,
    derive_step_seed,
    find_group_snapshots,
    render_prompts,
    shows_exemplars,
)
from trainers.rollouts.plan import (
    Config,
    Group,
    Search,
    Unit,
    add_stored_attempts,
    read_groups,
)
from trainers.rollouts.waves import RolloutResult, SearchJudge, Tally, Work, record_rollout

if TYPE_CHECKING:
    from store.lake.leases import Leases


log = logging.getLogger(__name__)

NAME = "search"
_SEEDS = 1 << 31
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
    budget: Budget | None = None,
) -> RolloutResult:
    """Search with each policy in turn, and store and judge all attempts.

    Args:
        lake_url: Lake to read and write.
        policies: Policies to search with; each has arms of its own.
        prompts: Prompts of the tasks to search; new prompts replace them in every round.
        sampling: How completions are drawn. Its seed is the first one; rounds differ, arms do not.
        config: Number of attempts at each task over all rounds; all of them are made.
        options: Rounds, arms and budget.
        exemplars: Constants of the draws.
        judge: Judges the kernels.
        progress: Called with the attempts so far and their maximum.
        budget: Budget of endpoints. What earlier commands of the search have spent is added first.

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
    tallies = [Tally(name=str(one.row["name"])) for one in policies]
    run_id: str | None = None
    with (
        store.writer(lake_url, author=f"trainers {NAME}") as writer,
        store.Location.of(lake_url).open_leases() as leases,
    ):
        snapshot = writer.flush()
        written: dict[str, None] = {}
        draw = Draw(
            arm="none",
            device=judge.device_name,
            purpose="eval" if prompts[0].purpose == "eval" else "train",
            pipeline=options.pipeline,
            **pipelines.copy_exemplar_options(exemplars),
        )
        searches: list[_PolicySearch] = []
        for policy, tally in zip(policies, tallies, strict=True):
            work = Work(writer, sampling, Config(attempts=each, wave=each, keep=0), judge, progress)
            searches.append(_PolicySearch(writer, work, policy, tally, prompts, options, draw))
        hold_namespaces(leases, [one for search in searches for one in search.list_namespaces()])
        with writer.reader() as lake:
            for searched in searches:
                searched.read_earlier_commands(lake, budget)
        for searched in searches:
            try:
                searched.run_rounds(options.rounds)
            finally:
                snapshot = writer.flush()
                written |= searched.work.written
                searched.policy.close()
            run_id = searched.run_id or run_id
    return RolloutResult(
        run_id=run_id, tallies=tallies, snapshot=snapshot, kernel_ids=list(written)
    )


@dataclass(frozen=True)
class _Seed:
    """One seed of a search."""

    sampling: Sampling
    arms: list[Draw]


class _PolicySearch:
    """The rounds of one policy: its seeds, each with all arms."""

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
        self.work, self.policy, self._device = work, policy, draw.device
        self._writer, self._tally = writer, tally
        self._tasks = list(dict.fromkeys(one.task_id for one in prompts))
        self._options, self._progress = options, work.progress
        self._seeds = [
            self._make_seed(work.sampling, place, draw) for place in range(options.seeds)
        ]
        self._spent_s = 0.0
        self.run_id: str | None = None
        """None until an attempt is missing."""

    def read_earlier_commands(self, lake: store.Lake, budget: Budget | None) -> None:
        """Compare the options with those of earlier commands, and count what these have spent.

        Raises:
            FlywheelError: earlier commands searched under this name with other options.
        """
        namespaces = self.list_namespaces()
        check_search(lake, self._options.search, namespaces, self._describe())
        name, policy_id = self._options.search, str(self.policy.row["policy_id"])
        self._spent_s = read_seconds(lake, name, policy_id)
        if isinstance(self.policy, Endpoint):
            tokens, usd = read_cost(lake, name, policy_id)
            self.policy.works = tokens > 0
            if budget is not None:
                budget.spend(tokens, usd)

    def run_rounds(self, rounds: int) -> None:
        """Make the missing attempts round by round, until the budget is spent."""
        budget_s, show = self._options.budget_s, self._progress
        with self._writer.reader() as lake:
            missing = [n for n in range(1, rounds + 1) if not self._is_done(lake, n)]
            origin = (lake.lake_id, lake.snapshot)
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

    def _describe(self) -> dict[str, Any]:
        """Return the configuration of the run."""
        described = {
            **asdict(self._options),
            "policy_id": self.policy.row["policy_id"],
            "attempts_per_round": self.work.config.attempts,
            "tasks": len(self._tasks),
            "tasks_id": content_id("tasks", *sorted(self._tasks)),
            "namespaces": self.list_namespaces(),
            "draw": asdict(self._seeds[0].arms[0]),
        }
        return {"search": described, "sampling": asdict(self._seeds[0].sampling)}

    def _is_done(self, lake: store.Lake, number: int) -> bool:
        """Whether the lake has all attempts of a round, and a verdict on each of its kernels."""
        ids = self._list_group_ids(number)
        stored = read_groups(lake, ids, self._device)
        return all(
            group in stored
            and stored[group]["attempts"] >= self.work.config.attempts
            and not stored[group]["unjudged_ids"]
            for group in ids
        )

    def _run_round(self, number: int) -> None:
        """Make prompts for all arms and seeds, sample them, and have the kernels judged."""
        self._writer.flush()
        with self._writer.reader() as lake:
            known = find_group_snapshots(lake, self._list_group_ids(number))
            units = [
                unit
                for seed in self._seeds
                for arm in seed.arms
                for unit in self._plan_arm(lake, seed, arm, number, known)
            ]
            add_stored_attempts(lake, units, self._device)
            self._warn_without_scores(lake, units, number)
        self.work.judge_stored(units)
        fresh = self.work.sample_wave(self.policy, self._tally, units)
        self.work.judge_new_kernels(fresh, self._tally)

    def _plan_arm(
        self, newest: store.Lake, seed: _Seed, arm: Draw, number: int, known: Mapping[str, int]
    ) -> list[Unit]:
        """Return the prompts of one arm, from the snapshot that stored attempts name, if any.

        Args:
            newest: The newest snapshot.
            seed: The seed of the search.
            arm: The arm.
            number: The round.
            known: Snapshots by group.
        """
        ids = {task: self._make_group_id(seed, arm, task, number) for task in self._tasks}
        step_seed = derive_step_seed(seed.sampling.seed or 0, number)
        at = min((known[group] for group in ids.values() if group in known), default=None)
        if at is None:
            rendered = render_prompts(newest, arm, step_seed, self._tasks)
        else:
            with self._writer.reader(at) as lake:
                rendered = render_prompts(lake, arm, step_seed, self._tasks)
        first = seed.sampling.seed
        drawn = None if first is None else derive_step_seed(first, number) % _SEEDS
        return [
            Unit(groups=[Group(asked=asked, group_id=ids[asked.task_id], seed=drawn)])
            for asked in (replace(shown, step=number) for shown in rendered)
        ]

    def _warn_without_scores(self, lake: store.Lake, units: Sequence[Unit], number: int) -> None:
        """Say which arms show no kernel although earlier rounds have written some, and why."""
        shown = {unit.groups[0].asked.namespace for unit in units
                 if unit.groups[0].asked.exemplar_kernel_ids}  # fmt: skip
        for one in self._seeds[0].arms:
            spaces = [str(arm.namespace) for seed in self._seeds for arm in seed.arms
                      if arm.arm == one.arm]  # fmt: skip
            if number > 1 and one.arm != "none" and shows_exemplars(one) and not shown & {*spaces}:
                log.warning(
                    "no prompt of arm %s in round %d shows a kernel with a score: %s",
                    one.arm, number,
                    explain_no_scores(lake, spaces, one.device, one.baseline, one.clock),
                )  # fmt: skip

    def _make_seed(self, sampling: Sampling, place: int, draw: Draw) -> _Seed:
        """Return a seed by its place; the namespaces of its arms are NAME/STRATEGY/SEED/POLICY."""
        if sampling.seed is not None:
            sampling = replace(sampling, seed=sampling.seed + place)
        name, policy = self._options.search, self.policy.row["policy_id"][:12]
        arms = [
            replace(draw, arm=arm, namespace=f"{name}/{arm}/{sampling.seed or 0}/{policy}")
            for arm in dict.fromkeys(self._options.strategy)
        ]
        return _Seed(sampling, arms)

    def _make_group_id(self, seed: _Seed, arm: Draw, task: str, number: int) -> str:
        """Return the id of the attempts of one arm at one task in one round."""
        return content_id(
            NAME, str(arm.namespace), task, str(number), self.policy.row["policy_id"],
            json.dumps(asdict(seed.sampling), sort_keys=True),
        )  # fmt: skip

    def _list_group_ids(self, number: int) -> list[str]:
        """Return the ids of all groups of a round."""
        return [
            self._make_group_id(seed, arm, task, number)
            for seed in self._seeds
            for arm in seed.arms
            for task in self._tasks
        ]

    def list_namespaces(self) -> list[str]:
        """Return the namespaces of all arms and seeds."""
        return [str(arm.namespace) for seed in self._seeds for arm in seed.arms]


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
