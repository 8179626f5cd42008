"""Gives a GRPO trainer its prompts from the lake before it samples, and its rewards after that.

Only rank 0 has a feed. Every row of a step has an id that follows from run, step and position, so a
step that is repeated after an interruption adds no row twice.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaluators.scheduling.pool import Requests, Verdict
from pipelines import Message
from store import read_sql
from store.ids import content_id
from trainers.policies.interface import Completion, Sampling
from trainers.rewarding import scoring
from trainers.rewarding.rules import Rule
from trainers.rewarding.terms import Terms
from trainers.rollouts import exemplars
from trainers.rollouts.attempts import ShownPrompt, Tables, make_attempt_rows
from trainers.rollouts.exemplars import Draw
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
        pool: Requests,
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
        at = self._snapshot_before(groups) if self._run.resumed else None
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
        size = len(sampled) // len(step.groups)
        tables = self._attempts(step, sampled, size)
        generations = tables["generations"]
        known = self._read_stored(step.groups) if self._run.resumed else {}
        rule = (self._rule.name, self._rule.version)
        fresh = {
            name: [row for row in rows if row.get("generation_id") not in known]
            for name, rows in tables.items()
        }
        self._run.append(fresh, f"{self._run.job.name}: attempts of step {step.number}")
        stored_s = time.perf_counter() - began
        verdicts = asyncio.run(self._verdicts(generations))
        judged_s = time.perf_counter() - began - stored_s
        identities = [row["generation_id"] for row in generations]
        with self._run.reader() as lake:
            scored = scoring.score_step(
                lake,
                self._rule.name,
                self._terms,
                self._run.run_id,
                step.number,
                identities,
                [row["group_id"] for row in generations],
            )
        rows = [row for row in scored.rows if rule not in known.get(row["generation_id"], set())]
        if rows:
            self._run.append(
                {"rewards": rows}, f"{self._run.job.name}: rewards of step {step.number}"
            )
        step.figures |= _collect_figures(generations, verdicts, scored)
        step.figures |= {
            "store/attempts_s": stored_s,
            "store/judged_s": judged_s,
            "store/rewards_s": time.perf_counter() - began - stored_s - judged_s,
        }
        return Rewarded(
            rewards=scored.smoothed, generation_ids=identities, figures=dict(step.figures)
        )

    def _attempts(self, step: _Step, sampled: Sequence[Sampled], size: int) -> Tables:
        """Return the rows of all completions; generations are in the order of their positions."""
        together: Tables = {}
        ordered = sorted(sampled, key=lambda one: one.place)
        for group, asked in enumerate(step.asked):
            completions = [
                Completion(
                    text=one.text,
                    finish_reason="length" if one.truncated else "stop",
                    prompt_tokens=step.lengths[group],
                    completion_tokens=one.tokens,
                )
                for one in ordered[group * size : (group + 1) * size]
            ]
            tables = make_attempt_rows(
                self._run.run_id,
                self._policy_id,
                step.groups[group],
                asked,
                completions,
                self._sampling,
            )
            _name_by_content(tables)
            for row in tables["generations"]:
                row["step"] = step.number
            for name, rows in tables.items():
                together.setdefault(name, []).extend(rows)
        for name, key in (
            ("prompts", "prompt_id"),
            ("kernels", "kernel_id"),
            ("kernel_features", "kernel_id"),
        ):
            together[name] = list({row[key]: row for row in together[name]}.values())
        return together

    async def _verdicts(self, generations: Sequence[Mapping[str, Any]]) -> list[Verdict]:
        """Return the verdict of every attempt that has a kernel."""
        asked = [
            self._pool.evaluate(row["kernel_id"], row["task_id"])
            for row in generations
            if row["kernel_id"] is not None
        ]
        return await asyncio.gather(*asked)

    def _snapshot_before(self, groups: Sequence[str]) -> int | None:
        """Return the snapshot that attempts of these groups name, if there are any."""
        with self._run.reader() as lake:
            return min(exemplars.find_group_snapshots(lake, groups).values(), default=None)

    def _read_stored(self, groups: Sequence[str]) -> dict[str, set[tuple[str, int]]]:
        """Return the stored attempts of these groups, with the rules that rewarded them."""
        with self._run.reader() as lake:
            rows = lake.run(read_sql(__file__, "group_attempts"), [list(groups)]).rows()
        return {
            row["generation_id"]: {(one["rule"], one["rule_version"]) for one in row["rules"]}
            for row in rows
        }


def _name_by_content(tables: Tables) -> None:
    """Give attempts and their analyses ids that follow from run, group, position and text.

    A step that is sampled again with the same outcome adds nothing; another outcome is another
    attempt.
    """
    renamed: dict[str, str] = {}
    for row in tables["generations"]:
        place = str(row["sample_index"])
        identity = content_id(
            "generation", row["group_id"], place, row["prompt_id"], row["completion"]
        )
        renamed[row["generation_id"]] = identity
        row["generation_id"] = row["trajectory_id"] = identity
    for row in tables["analyses"]:
        row["generation_id"] = renamed[row["generation_id"]]
        row["analysis_id"] = content_id("analysis", row["generation_id"])


def _collect_figures(
    generations: Sequence[Mapping[str, Any]],
    verdicts: Sequence[Verdict],
    scored: scoring.Scored,
) -> dict[str, float]:
    """Return the figures of a step; speedups are those of correct kernels only."""
    attempts = len(generations)
    fast = [verdict.speedup for verdict in verdicts if verdict.speedup is not None]
    figures = {f"attempts/{name}": float(count) for name, count in scored.counts.items()}
    figures |= {
        "attempts/parsed": sum(row["kernel_id"] is not None for row in generations) / attempts,
        "attempts/distinct_kernels": float(len({verdict.kernel_id for verdict in verdicts})),
        "attempts/judged_now": float(len({v.kernel_id for v in verdicts if v.fresh})),
        "attempts/suspects": float(sum(bool(verdict.findings) for verdict in verdicts)),
    }
    if fast:
        figures |= {"speedup/median": statistics.median(fast), "speedup/best": max(fast)}
    return figures
