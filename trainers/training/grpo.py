"""One step of GRPO: prompts from the lake, answers, verdicts, rewards, and the update.

    Feed.render_prompts: newest snapshot ─▶ exemplars ─▶ prompts
    TRL samples the answers
    Feed.reward: answers ─▶ rows ─▶ judges ─▶ verdicts ─▶ rewards ─▶ rows
    TRL computes advantages and log-probs, and divides the answers into micro-batches
    Feed.keep_tokens: tokens, log-probs and advantages ─▶ rows
    TRL computes gradients and the update

Only rank 0 has a feed. Every row of a step has an id that follows from run, step and position, so a
step that is repeated after an interruption adds no row twice.

Two private methods of TRL's GRPOTrainer are overridden: prompts change in one, and the GPU is taken
for the gradients after the other. `store.rollouts.trl.capture` wraps both. In tests/trainers,
test_trl_contract.py, test_gpu_turns.py and test_attach.py test their behavior, and the version of
TRL is pinned. A public method would give prompts that are one step older.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback
from trl.trainer.grpo_trainer import GRPOTrainer

from evaluators.scheduling.pool import Pool, Verdict
from pipelines import Message
from store import read_sql
from store.errors import FlywheelError
from store.ids import content_id
from store.rollouts.trl import capture
from store.schema import catalog
from trainers.policies.interface import Completion, Sampling
from trainers.rewarding import scoring
from trainers.rewarding.scoring import Rule, Terms
from trainers.rollouts.attempts import ShownPrompt, Tables, make_attempt_rows
from trainers.rollouts.prompts import (
    Draw,
    derive_step_seed,
    find_group_snapshots,
    render_bare_prompts,
    render_prompts,
)
from trainers.runs import processes
from trainers.runs.gpu_turns import GpuTurns
from trainers.runs.recording import Run

if TYPE_CHECKING:
    from trainers.training.replay import Recorded


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """One completion as a rank sends it."""

    place: int
    """Position among all completions of the step: group times group size, plus sample."""
    text: str
    tokens: int
    truncated: bool
    """Whether sampling ended at the maximum length."""


@dataclass(frozen=True, kw_only=True)
class Rewarded:
    """The result of the completions of a step."""

    rewards: list[float | None]
    """Smoothed reward of each position; None if our own machinery failed."""
    generation_ids: list[str]
    figures: dict[str, float]
    """Figures of the step, for its metrics."""


@dataclass(kw_only=True)
class Feed:
    """Prompts and rewards of one run."""

    run: Run
    pool: Pool
    """Judges of this host or of a Ray cluster."""
    draw: Draw
    """How exemplars are drawn."""
    rule: Rule
    """The rule that rewards attempts."""
    terms: Terms
    """Its options."""
    sampling: Sampling
    """How completions are drawn, for their rows."""
    policy_id: str
    """The policy in training."""
    seed: int
    longest: int
    """Maximum number of tokens of a prompt; a longer one is sent without exemplars."""
    length: Callable[[list[Message]], int]
    """Returns the number of tokens of a prompt."""

    # What `render_prompts` leaves for `reward`.
    _step: int = 0
    _prompts: list[ShownPrompt] = field(default_factory=list[ShownPrompt])
    _groups: list[str] = field(default_factory=list[str])
    _lengths: list[int] = field(default_factory=list[int])
    _figures: dict[str, float] = field(default_factory=dict[str, float])

    def render_prompts(self, step: int, batch: int, tasks: Sequence[str]) -> list[list[Message]]:
        """Return the prompt of each group, rendered from the newest snapshot after a flush.

        A step that was sampled before an interruption is rendered from the snapshot that its
        attempts name, so it gets the same prompts.

        `batch` is the number of earlier batches of the step; `tasks` are those of the groups.
        Raises LeakageFound: a task is not one to train on.
        """
        began = time.perf_counter()
        self._step = step
        self._groups = name_groups(self.run.run_id, step, batch, len(tasks))
        self.run.flush()
        at = None
        if self.run.resumed:
            with self.run.reader() as lake:
                snapshots = find_group_snapshots(lake, self._groups)
                at = min(snapshots.values(), default=None)
        with self.run.reader(at) as lake:
            snapshot = lake.snapshot
            seed = derive_step_seed(self.seed, step, batch)
            prompts = render_prompts(lake, self.draw, seed, tasks)
            lengths = [self.length(prompt.messages) for prompt in prompts]
            over = [place for place, tokens in enumerate(lengths) if tokens > self.longest]
            bare = render_bare_prompts(lake, self.draw, [tasks[place] for place in over])
        for place, shorter in zip(over, bare, strict=True):
            prompts[place], lengths[place] = shorter, self.length(shorter.messages)
        self._prompts, self._lengths = [replace(prompt, step=step) for prompt in prompts], lengths
        self._figures = {
            "prompts/without_exemplars": sum(not prompt.exemplar_kernel_ids for prompt in prompts),
            "prompts/over_length": len(over),
            "prompts/snapshot": snapshot,
            "prompts/render_s": time.perf_counter() - began,
        }
        return [prompt.messages for prompt in prompts]

    def keep_tokens(self, rollouts: Sequence[dict[str, Any]]) -> None:
        """Spool the tokens of stored completions; the next append commits them."""
        now, columns = datetime.now(UTC), catalog.load().table("rollout_tokens").columns
        rows = [
            {name: value for name, value in rollout.items() if name in columns}
            | {"run_id": self.run.run_id, "created_at": now}
            for rollout in rollouts
        ]
        message = f"{self.run.job.name}: tokens of step {self._step}"
        self.run.append({"rollout_tokens": rows}, message, wait=False)

    def reward(self, sampled: Sequence[Sampled]) -> Rewarded:
        """Store completions, have them judged, and return and store their rewards.

        They are all completions for the last call of `render_prompts`. Raises DeviceUnavailable: no
        device is left to judge on.
        """
        began = time.perf_counter()
        run, step = self.run, self._step

        # The attempts as rows, in the order of their places.
        ordered = sorted(sampled, key=lambda completion: completion.place)
        size = len(ordered) // len(self._groups)
        tables: Tables = {}
        for group, prompt in enumerate(self._prompts):
            completions = [
                Completion(
                    text=completion.text,
                    finish_reason="length" if completion.truncated else "stop",
                    prompt_tokens=self._lengths[group],
                    completion_tokens=completion.tokens,
                )
                for completion in ordered[group * size : (group + 1) * size]
            ]
            of_group = make_attempt_rows(
                run.run_id,
                self.policy_id,
                self._groups[group],
                prompt,
                completions,
                self.sampling,
                repeatable=True,
            )
            for name, rows in of_group.items():
                tables.setdefault(name, []).extend(rows)
        for name, key in (
            ("prompts", "prompt_id"),
            ("kernels", "kernel_id"),
            ("kernel_features", "kernel_id"),
        ):
            tables[name] = list({row[key]: row for row in tables[name]}.values())
        generations = tables["generations"]

        # They are stored before they are judged. A step that is sampled again with the same outcome
        # has the same rows, which are not stored twice.
        rewarded_by: dict[str, set[tuple[str, int]]] = {}
        if run.resumed:
            with run.reader() as lake:
                stored = lake.run(read_sql(__file__, "group_attempts"), [self._groups]).rows()
            rewarded_by = {
                row["generation_id"]: {
                    (used["rule"], used["rule_version"]) for used in row["rules"]
                }
                for row in stored
            }
        new_rows = {
            name: [row for row in rows if row.get("generation_id") not in rewarded_by]
            for name, rows in tables.items()
        }
        run.append(new_rows, f"{run.job.name}: attempts of step {step}")
        stored_s = time.perf_counter() - began

        # Every attempt with a kernel gets a verdict, which the judges append to the lake.
        async def judge_kernels() -> list[Verdict]:
            return await asyncio.gather(
                *(
                    self.pool.evaluate(row["kernel_id"], row["task_id"])
                    for row in generations
                    if row["kernel_id"] is not None
                )
            )

        verdicts = asyncio.run(judge_kernels())
        judged_s = time.perf_counter() - began - stored_s

        # The rewards, from the rows of the lake alone.
        generation_ids = [row["generation_id"] for row in generations]
        group_ids = [row["group_id"] for row in generations]
        with run.reader() as lake:
            scored = scoring.score_step(
                lake, self.rule, self.terms, run.run_id, step, generation_ids, group_ids
            )
        rule = (self.rule.name, self.rule.version)
        rewards = [
            row for row in scored.rows if rule not in rewarded_by.get(row["generation_id"], set())
        ]
        if rewards:
            run.append({"rewards": rewards}, f"{run.job.name}: rewards of step {step}")

        # The metrics of the step. Speedups are those of correct kernels only.
        speedups = [verdict.speedup for verdict in verdicts if verdict.speedup is not None]
        figures = self._figures | {
            **{f"attempts/{name}": float(n) for name, n in scored.counts.items()},
            "attempts/parsed": len(verdicts) / len(generations),
            "attempts/distinct_kernels": float(len({one.kernel_id for one in verdicts})),
            "attempts/judged_now": float(len({one.kernel_id for one in verdicts if one.fresh})),
            "attempts/suspects": float(sum(bool(one.findings) for one in verdicts)),
            "store/attempts_s": stored_s,
            "store/judged_s": judged_s,
            "store/rewards_s": time.perf_counter() - began - stored_s - judged_s,
        }
        if speedups:
            figures["speedup/median"] = statistics.median(speedups)
            figures["speedup/best"] = max(speedups)
        return Rewarded(rewards=scored.smoothed, generation_ids=generation_ids, figures=figures)


def name_groups(run_id: str, step: int, batch: int, groups: int) -> list[str]:
    """Return the ids of the groups of one batch of a step, in their order."""
    return [
        content_id("group", run_id, str(step), str(batch), str(place)) for place in range(groups)
    ]


class StoreGRPOTrainer(GRPOTrainer):
    """A GRPOTrainer over a list of tasks (column task_id), fed by rank 0's `Feed`."""

    def __init__(self, *, feed: Feed | Recorded | None, turns: GpuTurns, **given: Any) -> None:
        """Take a feed on rank 0 (None elsewhere); other arguments are those of GRPOTrainer.

        A replay has the steps of a recorded run instead of a feed.

        Args:
            turns: Turns on the GPU that this process trains on. The turn of a step ends when the
                next one begins, after the weights are updated and saved. The caller ends the last.
            given: Arguments of GRPOTrainer, without reward functions.
        """
        self._feed = feed
        self._turns = turns
        self._sampled: Counter[int] = Counter()
        self._generation_ids: list[str] = []
        """Ids of this rank's attempts of the batch, as `reward` got them."""
        super().__init__(reward_funcs=self.reward, **given)
        capture(self, self._keep_tokens)
        turns.watch(self.model)
        self.add_callback(_LeavesBetweenSteps(turns))

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Replace the dataset's prompts by this step's, then continue as TRL does."""
        trained: Any = self.model
        if not trained.training:
            return super()._generate_and_score_completions(inputs)
        # Every rank has gathered the same list, in which groups are contiguous, in the order of the
        # ranks.
        tasks = gather_object([one["task_id"] for one in inputs])
        size: int = self.num_generations or 1
        groups = [tasks[start : start + size] for start in range(0, len(tasks), size)]
        if any(len(set(group)) > 1 or len(group) < size for group in groups):
            raise FlywheelError(
                "TRL has not put the attempts of one prompt beside each other",
                "This version of TRL is not one that the trainer was tested with.",
            )
        step = int(self.state.global_step)
        batch = self._sampled[step]
        self._sampled[step] += 1
        feed = self._feed
        prompts = processes.run_on_main(
            lambda: feed.render_prompts(step, batch, [group[0] for group in groups]) if feed else []
        )
        first = self.accelerator.process_index * len(inputs)
        shown = [
            {**one, "prompt": prompts[place // size], "place": place}
            for place, one in enumerate(inputs, start=first)
        ]
        # A step that is sampled again after an interruption gives the same attempts. A replay
        # samples nothing, so what follows the sampling starts from the same seed again: the
        # division into micro-batches, and dropout.
        seed = derive_step_seed(self.args.seed, step, batch) + self.accelerator.process_index
        torch.manual_seed(seed)
        self._turns.share()
        output = super()._generate_and_score_completions(shown)
        torch.manual_seed(seed)
        return output

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Sample if the step begins, then have the GPU alone for the gradients."""
        inputs = super()._prepare_inputs(generation_batch)
        trained: Any = self.model
        if trained.training:
            self._turns.take()
        return inputs

    def reward(
        self,
        completions: Sequence[Sequence[dict[str, str]]],
        completion_ids: Sequence[Sequence[int]],
        place: Sequence[int],
        log_extra: Any,
        log_metric: Any,
        **columns: Any,
    ) -> list[float | None]:
        """Return the rewards of this rank's completions; rank 0 stores and judges all completions.

        This is a plain function although it calls the judges asynchronously, because ranks must
        exchange data from the training thread.
        """
        tokenizer: Any = self.processing_class
        ends: list[Any] = [*self.eos_token_ids, tokenizer.pad_token_id]
        local = [
            Sampled(
                place=at,
                text=turns[-1]["content"] or "",
                tokens=len(ids),
                truncated=ids[-1] not in ends,
            )
            for at, turns, ids in zip(place, completions, completion_ids, strict=True)
        ]
        every = gather_object(local)
        self._turns.leave()
        feed = self._feed
        rewarded = processes.run_on_main(lambda: feed.reward(every) if feed else None)
        assert rewarded is not None
        if feed is not None:
            for name, value in rewarded.figures.items():
                log_metric(name, value)
        self._generation_ids = [rewarded.generation_ids[at] for at in place]
        log_extra("generation_id", self._generation_ids)
        return [rewarded.rewards[at] for at in place]

    def _keep_tokens(self, rollouts: list[dict[str, Any]], spent: float) -> None:
        """Hand the rollouts of all ranks to the feed; reading them has taken `spent` seconds."""
        began = time.perf_counter()
        every = gather_object(
            [
                {"generation_id": generation_id, **rollout}
                for generation_id, rollout in zip(self._generation_ids, rollouts, strict=True)
            ]
        )
        if self._feed is not None:
            self._feed.keep_tokens(every)
            self._metrics["train"]["store/tokens_s"].append(spent + time.perf_counter() - began)


class _LeavesBetweenSteps(TrainerCallback):
    def __init__(self, turns: GpuTurns) -> None:
        self._turns = turns

    def on_step_begin(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any, state: Any, control: Any, **kwargs: Any
    ) -> None:
        self._turns.leave()
