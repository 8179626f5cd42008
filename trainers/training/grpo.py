"""One step of GRPO: prompts from the lake, answers, verdicts, rewards, and the update.

    Feed.render_prompts: newest snapshot ─▶ exemplars ─▶ prompts
    TRL samples the answers
    Feed.reward: answers ─▶ rows ─▶ judges ─▶ verdicts ─▶ rewards ─▶ rows
    TRL computes advantages, gradients and the update

Only rank 0 has a feed. Every row of a step has an id that follows from run, step and position, so a
step that is repeated after an interruption adds no row twice.

Two private methods of TRL's GRPOTrainer are overridden: prompts change in one, and the GPU is taken
for the gradients after the other. tests/trainers/test_trl_contract.py and test_gpu_turns.py test
their behavior, and the version of TRL is pinned. A public method would give prompts that are one
step older.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback
from trl.trainer.grpo_trainer import GRPOTrainer

from evaluators.scheduling.pool import Pool, Verdict
from pipelines import Message
from store import read_sql
from store.errors import FlywheelError
from store.ids import content_id
from trainers.policies.interface import Completion, Sampling
from trainers.rewarding import scoring
from trainers.rewarding.rules import Rule, Terms
from trainers.rollouts import exemplars
from trainers.rollouts.attempts import ShownPrompt, Tables, make_attempt_rows
from trainers.rollouts.exemplars import Draw, derive_step_seed
from trainers.runs import processes
from trainers.runs.gpu_turns import GpuTurns
from trainers.runs.recording import Run


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


@dataclass
class _Step:
    number: int
    asked: list[ShownPrompt]
    groups: list[str]
    lengths: list[int]
    figures: dict[str, float] = field(default_factory=dict[str, float])


class Feed:
    """Prompts and rewards of one run."""

    def __init__(
        self,
        run: Run,
        pool: Pool,
        draw: Draw,
        rule: Rule,
        terms: Terms,
        sampling: Sampling,
        *,
        policy_id: str,
        seed: int,
        longest: int,
        length: Callable[[list[Message]], int],
    ) -> None:
        """Take what every step needs.

        Args:
            run: The run whose rows these are.
            pool: Judges, here or of a service.
            draw: How exemplars are drawn.
            rule: The rule that rewards attempts.
            terms: Its options.
            sampling: How completions are drawn, for their rows.
            policy_id: The policy in training.
            seed: Seed of the run.
            longest: Maximum number of tokens of a prompt; a longer one is sent without exemplars.
            length: Returns the number of tokens of a prompt.
        """
        self._run, self._pool = run, pool
        self._draw, self._rule, self._terms, self._sampling = draw, rule, terms, sampling
        self._policy_id, self._seed = policy_id, seed
        self._longest, self._length = longest, length
        self._step: _Step | None = None

    def render_prompts(self, step: int, batch: int, tasks: Sequence[str]) -> list[list[Message]]:
        """Return the prompt of each group, rendered from the newest snapshot after a flush.

        A step that was sampled before an interruption is rendered from the snapshot that its
        attempts name, so it gets the same prompts.

        Args:
            step: Optimisation steps made so far.
            batch: Number of earlier batches of the step.
            tasks: Task of each group.

        Raises:
            LeakageFound: a task is not one to train on.
        """
        began = time.perf_counter()
        run_id = self._run.run_id
        groups = [
            content_id("group", run_id, str(step), str(batch), str(place))
            for place in range(len(tasks))
        ]
        self._run.flush()
        at = None
        if self._run.resumed:
            with self._run.reader() as lake:
                at = min(exemplars.find_group_snapshots(lake, groups).values(), default=None)
        with self._run.reader(at) as lake:
            snapshot = lake.snapshot
            seed = exemplars.derive_step_seed(self._seed, step, batch)
            asked = exemplars.render_prompts(lake, self._draw, seed, tasks)
            lengths = [self._length(one.messages) for one in asked]
            over = [place for place, tokens in enumerate(lengths) if tokens > self._longest]
            bare = exemplars.render_bare_prompts(lake, self._draw, [tasks[place] for place in over])
        for place, shorter in zip(over, bare, strict=True):
            asked[place] = shorter
            lengths[place] = self._length(shorter.messages)
        self._step = _Step(step, asked, groups, lengths)
        self._step.figures = {
            "prompts/without_exemplars": sum(not one.exemplar_kernel_ids for one in asked),
            "prompts/over_length": len(over),
            "prompts/snapshot": snapshot,
            "prompts/render_s": time.perf_counter() - began,
        }
        return [one.messages for one in asked]

    def reward(self, sampled: Sequence[Sampled]) -> Rewarded:
        """Store completions, have them judged, and return and store their rewards.

        Args:
            sampled: All completions for the last call of `render_prompts`.

        Raises:
            DeviceUnavailable: no device is left to judge on.
        """
        step = self._step
        assert step is not None
        began = time.perf_counter()

        # The attempts, stored before they are judged. A step that is sampled again with the same
        # outcome has the same rows, which are not stored twice.
        tables = self._make_rows(step, sampled)
        generations = tables["generations"]
        rewarded_by: dict[str, set[tuple[str, int]]] = {}
        if self._run.resumed:
            with self._run.reader() as lake:
                stored = lake.run(read_sql(__file__, "group_attempts"), [list(step.groups)]).rows()
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
        self._run.append(new_rows, f"{self._run.job.name}: attempts of step {step.number}")
        stored_s = time.perf_counter() - began

        # Every attempt with a kernel gets a verdict, which the judges append to the lake.
        async def judge_kernels() -> list[Verdict]:
            return await asyncio.gather(
                *(
                    self._pool.evaluate(row["kernel_id"], row["task_id"])
                    for row in generations
                    if row["kernel_id"] is not None
                )
            )

        verdicts = asyncio.run(judge_kernels())
        judged_s = time.perf_counter() - began - stored_s

        # The rewards, from the rows of the lake alone.
        generation_ids = [row["generation_id"] for row in generations]
        with self._run.reader() as lake:
            scored = scoring.score_step(
                lake,
                self._rule.name,
                self._terms,
                self._run.run_id,
                step.number,
                generation_ids,
                [row["group_id"] for row in generations],
            )
        rule = (self._rule.name, self._rule.version)
        rewards = [
            row for row in scored.rows if rule not in rewarded_by.get(row["generation_id"], set())
        ]
        if rewards:
            message = f"{self._run.job.name}: rewards of step {step.number}"
            self._run.append({"rewards": rewards}, message)

        step.figures |= {f"attempts/{name}": float(n) for name, n in scored.counts.items()}
        step.figures |= {
            "attempts/parsed": len(verdicts) / len(generations),
            "attempts/distinct_kernels": float(len({one.kernel_id for one in verdicts})),
            "attempts/judged_now": float(len({one.kernel_id for one in verdicts if one.fresh})),
            "attempts/suspects": float(sum(bool(one.findings) for one in verdicts)),
            "store/attempts_s": stored_s,
            "store/judged_s": judged_s,
            "store/rewards_s": time.perf_counter() - began - stored_s - judged_s,
        }
        # Speedups are those of correct kernels only.
        speedups = [verdict.speedup for verdict in verdicts if verdict.speedup is not None]
        if speedups:
            step.figures |= {
                "speedup/median": statistics.median(speedups),
                "speedup/best": max(speedups),
            }
        return Rewarded(
            rewards=scored.smoothed, generation_ids=generation_ids, figures=dict(step.figures)
        )

    def _make_rows(self, step: _Step, sampled: Sequence[Sampled]) -> Tables:
        """Return the rows of all completions; generations are in the order of their positions."""
        size = len(sampled) // len(step.groups)
        ordered = sorted(sampled, key=lambda completion: completion.place)
        merged: Tables = {}
        for group, asked in enumerate(step.asked):
            completions = [
                Completion(
                    text=completion.text,
                    finish_reason="length" if completion.truncated else "stop",
                    prompt_tokens=step.lengths[group],
                    completion_tokens=completion.tokens,
                )
                for completion in ordered[group * size : (group + 1) * size]
            ]
            tables = make_attempt_rows(
                self._run.run_id,
                self._policy_id,
                step.groups[group],
                asked,
                completions,
                self._sampling,
            )
            # Ids that follow from group, position and text, instead of random ones: the same
            # outcome adds nothing, and another outcome is another attempt.
            ids: dict[str, str] = {}
            for row in tables["generations"]:
                generation_id = content_id(
                    "generation",
                    row["group_id"],
                    str(row["sample_index"]),
                    row["prompt_id"],
                    row["completion"],
                )
                ids[row["generation_id"]] = generation_id
                row["generation_id"] = row["trajectory_id"] = generation_id
                row["step"] = step.number
            for row in tables["analyses"]:
                row["generation_id"] = ids[row["generation_id"]]
                row["analysis_id"] = content_id("analysis", row["generation_id"])
            for name, rows in tables.items():
                merged.setdefault(name, []).extend(rows)
        for name, key in (
            ("prompts", "prompt_id"),
            ("kernels", "kernel_id"),
            ("kernel_features", "kernel_id"),
        ):
            merged[name] = list({row[key]: row for row in merged[name]}.values())
        return merged


class StoreGRPOTrainer(GRPOTrainer):
    """A GRPOTrainer over a list of tasks (column task_id), fed by rank 0's `Feed`."""

    def __init__(self, *, feed: Feed | None, turns: GpuTurns, **given: Any) -> None:
        """Take a feed on rank 0 (None elsewhere); other arguments are those of GRPOTrainer.

        Args:
            feed: Gives prompts and rewards.
            turns: Turns on the GPU that this process trains on. The turn of a step ends when the
                next one begins, after the weights are updated and saved. The caller ends the last.
            given: Arguments of GRPOTrainer, without reward functions.
        """
        self._feed = feed
        self._turns = turns
        self._sampled: Counter[int] = Counter()
        super().__init__(reward_funcs=self.reward, **given)
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
        # A step that is sampled again after an interruption gives the same attempts.
        torch.manual_seed(
            derive_step_seed(self.args.seed, step, batch) + self.accelerator.process_index
        )
        self._turns.share()
        return super()._generate_and_score_completions(shown)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Sample if the step begins, then have the GPU alone for the gradients."""
        made = super()._prepare_inputs(generation_batch)
        trained: Any = self.model
        if trained.training:
            self._turns.take()
        return made

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
        log_extra("generation_id", [rewarded.generation_ids[at] for at in place])
        return [rewarded.rewards[at] for at in place]


class _LeavesBetweenSteps(TrainerCallback):
    def __init__(self, turns: GpuTurns) -> None:
        self._turns = turns

    def on_step_begin(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any, state: Any, control: Any, **kwargs: Any
    ) -> None:
        self._turns.leave()
