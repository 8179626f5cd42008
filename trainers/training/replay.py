"""Steps of GRPO from their stored tokens: what TRL computes again, beside what the run logged.

Recorded.render_prompts: tokens of the step ◀─ lake
Recorded.reward: rewards ◀─ stored verdicts, each at its snapshot
TRL computes advantages, log-probs, loss, gradients and the update
Recorded.keep_tokens: advantages and log-probs beside those of the lake
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerState

import store
from pipelines import Message
from store import read_sql
from store.commandline.echo import Progress
from store.errors import FlywheelError
from trainers.models import loading
from trainers.rewarding import scoring
from trainers.rewarding.scoring import Rule
from trainers.runs import processes
from trainers.runs.recording import RUN_FILE, list_checkpoints, read_versions
from trainers.training.grpo import Rewarded, Sampled, StoreGRPOTrainer, name_groups

_LISTS = ("advantage", "old_logprobs", "ref_logprobs")
_STATE = "trainer_state.json"
_OUTPUT = ("output_dir", "report_to", "save_strategy", "save_steps")
"""Settings that change no figure."""


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """What a lake knows of a run of `contrastive`."""

    run_id: str
    config: dict[str, Any]
    """Content of `runs.config`: config, resolved, versions, processes."""
    start: Path
    """Folder of the model that training began with."""
    sampled: list[int]
    """Steps before which it sampled the attempts whose tokens are stored."""


def read_run(lake: store.Lake, run_id: str) -> RecordedRun:
    """Return what the lake knows of a run; raises FlywheelError if it has no tokens of it."""
    parameters = {
        "run_id": run_id,
        "in_training": store.ids.content_id("policy in training", run_id),
    }
    row = lake.run(read_sql(__file__, "recorded_run"), parameters).one()
    if row is None or not row["sampled"]:
        raise FlywheelError(
            f"the lake has no tokens of run {run_id}",
            "`trainers run contrastive` stores them since version 0.8.0, and `store expire "
            "--tokens` deletes them.",
        )
    if row["start"] is None:
        raise FlywheelError(
            f"run {run_id} is not one of `trainers run contrastive`",
            "The lake has its tokens, and not the options and weights that a replay needs.",
        )
    return RecordedRun(
        run_id=run_id,
        config=json.loads(row["config"]),
        start=Path(row["start"]),
        sampled=row["sampled"],
    )


def find_weights(
    run: RecordedRun, step: int, model: Path | None, scratch: Path, *, needs_start: bool
) -> tuple[Path, Path | None]:
    """Return the folder of the first model, and that of the checkpoint to resume from.

    The checkpoint is of `step` or before; None means the first model itself.

    Args:
        run: The run.
        step: Step whose policy is needed.
        model: Folder of this policy, or of the run if it has moved (default: as recorded).
        scratch: Folder for files that a checkpoint has and a model lacks.
        needs_start: Whether the loss is relative to the first model.

    Raises FlywheelError: a folder is gone, has no weights, or is of another run or a later step.
    """
    recorded = out = Path(run.config["resolved"]["folder"])
    if model is not None and (model / RUN_FILE).exists():
        other = json.loads((model / RUN_FILE).read_text("utf-8"))["run_id"]
        if other != run.run_id:
            raise FlywheelError(f"--model {model} holds run {other}, not {run.run_id}")
        out, model = model, None
    start = run.start
    if not start.is_dir() and start.is_relative_to(recorded):
        start = out / start.relative_to(recorded)

    checkpoint = model
    if model is None:
        there = [
            (at, folder) for at, folder in list_checkpoints(out) if at <= step and at in run.sampled
        ]
        checkpoint = there[-1][1] if there else None
    elif not any(loading.list_weight_files(model)):
        raise FlywheelError(
            f"--model {model} holds no .safetensors file", "Name the folder of a model or a run."
        )
    elif (model / _STATE).exists():
        at = int(json.loads((model / _STATE).read_text("utf-8"))["global_step"])
        if at > step:
            raise FlywheelError(
                f"--model {model} is the policy after {at} updates; step {step} began after {step}",
                "Name an earlier checkpoint.",
            )
    else:
        # Loss and gradients follow from the weights alone, so a model without its optimizer is
        # enough.
        checkpoint = scratch / f"checkpoint-{step}"
        checkpoint.mkdir()
        for file in model.iterdir():
            (checkpoint / file.name).symlink_to(file.resolve())
        trl = run.config["resolved"]["trl"]
        state = TrainerState(
            global_step=step,
            train_batch_size=trl["per_device_train_batch_size"],
            logging_steps=trl["logging_steps"],
            save_steps=trl["save_steps"],
        )
        state.save_to_json(str(checkpoint / _STATE))
    if not start.is_dir():
        if checkpoint is None or (needs_start and step):
            raise FlywheelError(
                f"the model that run {run.run_id} began with is gone: {run.start}",
                "Restore the folder. If it has moved, name the run's folder or the policy of step "
                f"{step} with --model; after step 0, a policy alone needs --beta 0, since the KL "
                "term is relative to the first model.",
            )
        start = checkpoint
    return start, checkpoint


@dataclass(kw_only=True)
class Recorded:
    """Stands for a `Feed`: tokens and rewards of a recorded run instead of new ones."""

    lake: store.Lake
    run: RecordedRun
    rule: Rule
    group_size: int
    tokenizer: str
    """Hash of the tokenizer that is loaded."""
    micro_batch: int | None = None
    """The only micro-batch to compare attempts of."""
    rows: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Attempts of the batch with their tokens, by place."""
    figures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Lists of the attempts, compared (`compare`)."""
    moved: int = 0
    """Attempts that TRL put into another micro-batch than the run did."""

    def render_prompts(self, step: int, batch: int, tasks: Sequence[str]) -> list[list[Message]]:
        """Read the batch. The prompts are placeholders, because their tokens are known."""
        parameters = {"run_id": self.run.run_id, "step": step}
        stored = self.lake.run(read_sql(__file__, "recorded_attempts"), parameters).rows()
        by_place = {(row["group_id"], row["sample_index"]): row for row in stored}
        places = [
            (group, sample)
            for group in name_groups(self.run.run_id, step, batch, len(tasks))
            for sample in range(self.group_size)
        ]
        missing = [place for place in places if place not in by_place]
        if missing:
            raise FlywheelError(
                f"step {step}: the lake has the tokens of {len(places) - len(missing)} of "
                f"{len(places)} attempts",
                f"It has steps {self.run.sampled[0]} to {self.run.sampled[-1]} of this run. A "
                "run of several processes is replayed with as many, or with the default "
                "steps_per_generation.",
            )
        self.rows = [by_place[place] for place in places]
        others = {row["tokenizer"] for row in self.rows} - {self.tokenizer}
        if others:
            raise FlywheelError(
                f"step {step} was recorded with tokenizer {sorted(others)[0][:12]}, and the "
                f"model's is {self.tokenizer[:12]}",
                "Token ids mean something else there. Restore the tokenizer's files of the run.",
            )
        return [[Message(role="user", content="")] for _ in tasks]

    def reward(self, sampled: Sequence[Sampled]) -> Rewarded:
        """Return the rewards of the batch, computed again from verdicts at their snapshots."""
        generation_ids = [row["generation_id"] for row in self.rows]
        parameters: dict[str, Any] = {
            "run_id": self.run.run_id,
            "rule": self.rule.name,
            "rule_version": self.rule.version,
            "step": self.rows[0]["policy_step"],
        }
        sql = read_sql(scoring.__file__, "stored_rewards")
        wanted = set(generation_ids)
        stored = [
            row for row in self.lake.run(sql, parameters).rows() if row["generation_id"] in wanted
        ]
        if not all(scoring.is_own(self.lake, row) for row in stored):
            raise FlywheelError(
                f"rewards of step {parameters['step']} were given in another lake, which has their "
                "verdicts",
                "Replay the run in the lake that it was recorded in.",
            )
        computed = scoring.score_again(self.lake, self.rule, self.run.run_id, stored)
        lost = [row["generation_id"] for row in stored if row["generation_id"] not in computed]
        if lost or not stored:
            raise FlywheelError(
                f"the lake lacks the verdicts of {len(lost) or len(wanted)} of {len(wanted)} "
                f"attempts of step {parameters['step']} under {self.rule.name} "
                f"{self.rule.version}",
                f"`trainers rescore {self.run.run_id} --rule {self.rule.name} --verify` says "
                "which rewards cannot be computed again.",
            )
        by_id = {row["generation_id"]: row["smoothed"] for row in stored}
        again = [
            None if one not in computed else float(computed[one]["smoothed"])
            for one in generation_ids
        ]
        self._compare_list(
            parameters["step"],
            "reward by attempt",
            [by_id.get(one) for one in generation_ids],
            again,
        )
        return Rewarded(rewards=again, generation_ids=generation_ids, figures={})

    def keep_tokens(self, rollouts: Sequence[dict[str, Any]]) -> None:
        """Compare what TRL has computed for each attempt with what it computed for the run."""
        by_id = {row["generation_id"]: row for row in self.rows}
        pairs = [(by_id[rollout["generation_id"]], rollout) for rollout in rollouts]
        self.moved += sum(
            (row["rank"], row["micro_batch"]) != (rollout["rank"], rollout["micro_batch"])
            for row, rollout in pairs
        )
        for name in _LISTS:
            logged: list[float | None] = []
            replayed: list[float | None] = []
            for row, rollout in pairs:
                if self.micro_batch not in (None, rollout["micro_batch"]):
                    continue
                # The trainer's own advantage is a number, and its log-probs are lists.
                was, now = row[name], rollout.get(name)
                logged += was if isinstance(was, list) else [was]
                replayed += now if isinstance(now, list) else [now]
            self._compare_list(self.rows[0]["policy_step"], f"{name} by attempt", logged, replayed)

    def _compare_list(
        self,
        step: int,
        name: str,
        logged: Sequence[float | None],
        replayed: Sequence[float | None],
    ) -> None:
        """Add the means of two lists, and the largest difference of their values."""
        pairs = [
            (was, now)
            for was, now in zip(logged, replayed, strict=False)
            if was is not None and now is not None
        ]
        if len(logged) == len(replayed) and pairs:
            means = [sum(values) / len(pairs) for values in zip(*pairs, strict=True)]
            self.figures.append(
                {
                    "step": step,
                    "figure": name,
                    "logged": means[0],
                    "replayed": means[1],
                    "difference": max(abs(was - now) for was, now in pairs),
                    "scale": max(abs(was) for was, _ in pairs),
                }
            )


class ReplayTrainer(StoreGRPOTrainer):
    """A StoreGRPOTrainer that takes the tokens of a `Recorded` instead of sampling."""

    def __init__(
        self, *, feed: Recorded | None, only: tuple[int, int] | None = None, **given: Any
    ) -> None:
        """Take a step and the only micro-batch of it to train on, besides the trainer's arguments.

        vLLM is not started, although its correction of the loss is applied.
        """
        self._recorded, self._only = feed, only
        self._own: list[dict[str, Any]] = []
        samples_with_vllm = given["args"].use_vllm
        given["args"].use_vllm = False
        super().__init__(feed=feed, **given)
        self.use_vllm = samples_with_vllm

    def _tokenize_prompts(self, prompts: list[Any]) -> tuple[list[list[int]], None, dict[str, Any]]:
        feed = self._recorded
        rows = processes.run_on_main(lambda: feed.rows if feed else [])
        first = self.accelerator.process_index * len(prompts)
        self._own = rows[first : first + len(prompts)]
        return [row["prompt_ids"] for row in self._own], None, {}

    def _generate_single_turn(self, *_: Any, **__: Any) -> tuple[list[list[int]], Any]:
        ids = [row["completion_ids"] for row in self._own]
        sampler = [row["sampler_logprobs"] for row in self._own]
        if all(one is None for one in sampler):
            return ids, None
        # TRL corrects nothing where the sampler's value is missing.
        return ids, [
            [None] * len(tokens) if one is None else one
            for tokens, one in zip(ids, sampler, strict=True)
        ]

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """Leave out all micro-batches of a step but the one that is asked for."""
        passes = self.args.gradient_accumulation_steps
        at = (self.state.global_step, self._step % passes)
        if self._only is not None and self._only[0] == at[0] and self._only != at:
            self._step += 1
            self._buffered_inputs = None  # so that the one asked for is made of this step
            return torch.zeros((), device=self.args.device)
        return super().training_step(model, inputs, num_items_in_batch)


class Watch(TrainerCallback):
    """Takes the metrics of each step, and stops after the last one."""

    def __init__(self, last: int, progress: Progress) -> None:
        self.last = last
        self.logs: dict[int, dict[str, float]] = {}
        """Metrics by number of the step, from 0."""
        self._progress = progress

    def on_log(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any
    ) -> None:
        """Take the metrics of a step; those of the whole training come after and are left out."""
        self.logs.setdefault(int(state.global_step) - 1, dict(logs or {}))

    def on_step_end(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any, state: Any, control: Any, **kwargs: Any
    ) -> None:
        """Stop after the last step."""
        self._progress(int(state.global_step), self.last + 1, "steps")
        control.should_training_stop = int(state.global_step) > self.last


def compare(
    lake: store.Lake, run_id: str, step: int, replayed: dict[str, Any], *, whole: bool
) -> list[dict[str, Any]]:
    """Return the metrics of a step beside those that the run logged.

    Without `whole`, those of one micro-batch, beside which the run logged none.
    """
    sql = "SELECT name, value FROM metrics WHERE run_id = $1 AND step = $2"
    # A metric has the number of updates that were made, a step the number before it.
    logged = {
        row["name"]: row["value"] for row in lake.run(sql, [run_id, step + 1]).rows() if whole
    }
    return [
        {
            "step": step,
            "figure": name,
            "logged": logged.get(name),
            "replayed": float(value),
            "difference": abs(logged[name] - value) if name in logged else None,
            "scale": abs(logged.get(name, 0.0)),
        }
        for name, value in replayed.items()
        if isinstance(value, int | float) and not name.endswith(("step_time", "tokens_s"))
    ]


def describe_differences(recorded: Recorded, settings: dict[str, Any]) -> list[str]:
    """Return a line for each difference between a run and its replay with these TRL settings."""
    lines: list[str] = []
    run = recorded.run
    was, now = run.config["versions"], read_versions()
    lines += [
        f"{name} {was[name]} in the run, {now.get(name, 'none')} here"
        for name in was
        if was[name] != now.get(name)
    ]
    before = run.config["resolved"]["trl"]
    lines += [
        f"{name} {json.dumps(before.get(name))} in the run, {json.dumps(value)} here"
        for name, value in settings.items()
        if name not in _OUTPUT and before.get(name) != json.loads(json.dumps(value))
    ]
    if run.config["processes"] != processes.count_processes():
        lines.append(
            f"{run.config['processes']} processes in the run, {processes.count_processes()} here"
        )
    if recorded.moved:
        lines.append(f"{recorded.moved} attempts are in other micro-batches than in the run")
    return lines
