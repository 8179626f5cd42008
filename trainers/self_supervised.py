"""Rounds of sampling, judging, and training on successes alone (CUDA-L1, stage 2).

This is REINFORCE with reward 1 for a correct kernel, reward 0 for any other, and no baseline.
Failures give no gradient, so an update is one pass of likelihood training over the successes. Speed
is ignored. In each round, the pipeline self-supervised makes prompts at the snapshot that the run
reads, the policy's answers are stored and judged, and the pipeline makes a dataset of the
successes.

A run stops if the policy collapses: no success, a success rate far below the best, or only a few
distinct kernels. --resume resumes an interrupted run without repeating any sampling.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

from evaluators.judge import Config as JudgeConfig
from pipelines import query
from store import read_sql
from store.commandline.members import Count, DeviceOption, Share
from store.errors import EvaluatorError, FlywheelError
from trainers.datasets import records
from trainers.datasets.records import Dataset
from trainers.policies.interface import Sampling, Serving
from trainers.policies.local_model import Spread, serve
from trainers.rollouts import waves
from trainers.rollouts.prompts import load_prompts
from trainers.runs import processes
from trainers.runs.job import Job, Training
from trainers.runs.recording import FINAL, Checkpoints, Run, begin_run
from trainers.training import judging, trl_trainers
from trainers.training.short_answers import (
    list_short_prompts,
    overfit_on_short_answers,
)

PIPELINE = "self-supervised"


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "model": "tiny",
        "starter": True,
        "overfit": True,
        "rounds": 2,
        "attempts": 4,
        "max_tokens": 160,
        "device": "cpu",
        "judge": ("calls=3", "robustness=false", "diagnosis=false", "timing_s=0.1"),
        "trl": (
            "per_device_train_batch_size=2",
            "learning_rate=1e-4",
            "gradient_checkpointing=false",
        ),
    },
}


@dataclass(frozen=True, kw_only=True)
class Config(Training):
    """Options of self-supervised. --dataset is a dataset of prompts, such as self-supervised@v1."""

    rounds: Count = 3
    """Number of rounds of sampling and training. Our choice; CUDA-L1 does not publish it."""
    attempts: Count = 8
    """Number of attempts at each prompt in a round. Our choice; CUDA-L1 does not publish it."""
    prompts: Count | None = None
    """Maximum number of prompts in a round (default: one per task of the train split)."""
    max_tokens: Count = 2048
    """Maximum number of tokens of an attempt."""
    temperature: float = 1.0
    """Temperature of sampling."""
    top_p: float = 1.0
    """Sample from the most likely tokens with this total probability."""
    sampling_batch: Count = 32
    """Maximum number of sequences that a process samples at once."""
    form: Literal["code", "protocol"] = "code"
    """Form of prompts and answers, as in the pipelines sft and self-supervised. With --dataset,
    give the form of the dataset, because each success is learned as the answer to its prompt."""
    per_policy: Count = 8
    """Maximum number of distinct correct kernels per task that a round trains on."""
    improvement_share: Annotated[float, Parameter(validator=Number(gte=0, lt=1))] = 0.0
    """Share of a round's rows that are improvement-pairs whose answers the policy wrote, from 0 to
    below 1. The model has then seen exemplars before stage 3."""
    repeats: Literal["once", "keep"] = "once"
    """once: train on each distinct kernel once, which slows collapse. keep: train on a kernel as
    often as it was written, as in the REINFORCE gradient."""
    normalize: Literal["successes", "samples"] = "successes"
    """successes: average the gradient over the successes. samples: average it over all samples, as
    REINFORCE does, which multiplies the learning rate by the round's success rate."""
    least_unique: Share = 0.1
    """Stop if the number of distinct kernels is below this share of the attempts with code."""
    least_success: Share = 0.5
    """Stop if the success rate is below this share of the best round's success rate."""
    device: DeviceOption = "auto"
    """Devices to judge kernels on: cpu, cuda:1 … auto takes the GPUs that no process trains on. If
    there is none, the first GPU alternates between training and judging."""
    workers: Count = 1
    """Number of judges on the CPU or on each GPU. Those of a GPU take turns at timing."""
    judge: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """Option of the judge, as KEY=VALUE, such as calls=8. Repeat it for more options.
    ray:HOST:PORT names a Ray cluster to judge on instead of this host."""
    overfit: bool = False
    """First overfit the model on short answers to two starter tasks, and use only these tasks."""


class Collapsed(FlywheelError):
    """The policy no longer gives anything to learn from; earlier results are stored."""


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """The outcome of one round."""

    attempts: int
    with_code: int
    unique_kernels: int
    executable: int
    correct: int
    unique_correct: int
    unjudged: int = 0
    """Further attempts, whose kernels have no verdict because the judge failed."""

    @property
    def success_rate(self) -> float:
        """Return the share of attempts that are correct."""
        return self.correct / max(self.attempts, 1)

    @property
    def unique_share(self) -> float:
        """Return distinct kernels over attempts with code; 1 if there is no code."""
        return self.unique_kernels / self.with_code if self.with_code else 1.0

    def metrics(self) -> dict[str, float]:
        """Return the stored figures of a round."""
        return {
            "attempts": self.attempts,
            "unique_kernels": self.unique_kernels,
            "correct": self.correct,
            "unique_correct": self.unique_correct,
            "success_rate": self.success_rate,
            "executable_rate": self.executable / max(self.attempts, 1),
            "parse_rate": self.with_code / max(self.attempts, 1),
        }


def find_collapse(config: Config, outcome: RoundResult, best: float) -> str | None:
    """Return why a round gives nothing to learn from, or None.

    `best` is the highest success rate of earlier rounds; 0 before the first.
    """
    if outcome.correct == 0:
        return f"none of {outcome.attempts} attempts is correct"
    if outcome.success_rate < config.least_success * best:
        return f"the success rate fell to {outcome.success_rate:.3g} from {best:.3g}"
    if outcome.unique_share < config.least_unique:
        return (
            f"{outcome.with_code} attempts gave {outcome.unique_kernels} distinct kernels, a share "
            f"of {outcome.unique_share:.3g}"
        )
    return None


def check_judged(outcome: RoundResult) -> None:
    """Refuse a round that says little about the policy, because the judge failed.

    Raises EvaluatorError: most attempts with code have no verdict.
    """
    if outcome.unjudged > outcome.with_code:
        total = outcome.unjudged + outcome.with_code
        raise EvaluatorError(
            f"{outcome.unjudged} of the round's {total} attempts with code have no verdict",
            "The judge failed. Once it works, run this again with --resume. Nothing is lost.",
        )


def run(job: Job, config: Config) -> str:
    """Run the rounds and return the result in one line.

    Raises:
        Collapsed: there is nothing left to learn from; names the last good model.
        FlywheelError: no model is named, an endpoint is, or the run cannot be begun or resumed.
        EmptyDataset: the snapshot has no task to ask for.
    """
    if config.model is None:
        raise FlywheelError("no model to start from", "Give --model, or --preset tiny.")
    if config.model.startswith(("http://", "https://", "scripted:")):
        raise FlywheelError(
            f"{config.model} cannot be trained", "Give a folder, a Hub name or a .gguf file."
        )
    trl_trainers.silence_libraries()
    if config.starter:
        processes.run_on_main(job.import_starter)
    judge = judging.parse_options(config.judge)
    if judge.protocol != "full":
        raise FlywheelError(
            "the successes that a round learns from are those of the full protocol",
            "Leave out --judge protocol=training.",
        )
    with begin_run(job, config) as run:
        base, identity, prompts = records.choose_inputs(
            run, config, "prompt-only", PIPELINE, select="prompts", form=config.form
        )
        place = judging.choose_places(config.device, config.judge)
        run.start(
            {
                "dataset_id": prompts.dataset_id,
                "dataset": str(prompts.folder),
                "policy_id": identity.policy_id,
                "judge": asdict(judge),
                "judged_on": place,
            }
        )
        model = config.model
        parent = processes.run_on_main(lambda: run.add_base(base, model, identity))
        start, tasks = base, None
        if config.overfit:
            tasks, short_prompts = list_short_prompts(prompts)
            start = processes.run_on_main(
                lambda: overfit_on_short_answers(run, base, config.seed, lambda: short_prompts)
            )
            parent = processes.run_on_main(
                lambda: run.add_policy(start, stage="sft", parent=parent)
            )
        # run.json lists the completed rounds, so that a resumed run goes on after them. Round n
        # samples from the model in folders[n - 1] and writes the one in folders[n].
        done: list[dict[str, Any]] = list(run.state.get("rounds", []))
        folders = [start, *(job.out / f"round-{n}" / FINAL for n in range(1, config.rounds + 1))]
        serving = Serving(batch=config.sampling_batch)
        for number in range(len(done) + 1, config.rounds + 1):
            folder = folders[number - 1]
            policy_id = done[-1]["policy_id"] if done else parent
            sample = functools.partial(
                sample_round,
                run, config, judge, place, prompts, tasks, number, folders, policy_id, serving,
            )  # fmt: skip
            began = processes.run_on_main(
                sample, meanwhile=functools.partial(serve, folder, serving)
            )
            outcome = RoundResult(**began["outcome"])
            dataset = processes.run_on_main(
                functools.partial(
                    records.find_dataset, job.lake_url, began["dataset"], "prompt-completion"
                )
            )
            checkpoints = Checkpoints(
                run=run,
                out=folders[number].parent,
                stage="self-supervised",
                parent=policy_id,
                dataset_id=dataset.dataset_id,
                round=number,
                offset=sum(earlier["steps"] for earlier in done),
            )
            rows, lengths = trl_trainers.measure_rows(config, dataset, folder, checkpoints.out)
            if lengths.over:
                job.say(f"left out   {lengths.over} rows over {config.max_length} tokens")
            settings = trl_trainers.make_sft_settings(
                config,
                checkpoints.out,
                {"num_train_epochs": 1},
                rate=outcome.success_rate if config.normalize == "samples" else 1.0,
            )
            repeated = [index for index in lengths.kept for _ in range(began["times"][index])]
            fitted = trl_trainers.train_supervised(
                checkpoints, config, settings, folder, rows.select(repeated), resume=True
            )
            done.append(
                {
                    "round": number,
                    "policy_id": fitted.policy_id,
                    "steps": fitted.steps,
                    "success_rate": outcome.success_rate,
                    "dataset_id": dataset.dataset_id,
                }
            )
            run.keep({"rounds": done, "began": None})
    rates = ", ".join(f"{earlier['success_rate']:.3g}" for earlier in done)
    steps = sum(earlier["steps"] for earlier in done)
    policy_id = done[-1]["policy_id"] if done else parent
    return (
        f"self-supervised: {len(done)} rounds, {steps} steps, success rate {rates} → "
        f"{folders[len(done)]} (policy {policy_id[:12]}, snapshot {run.snapshot})"
    )


def sample_round(
    run: Run,
    config: Config,
    judge: JudgeConfig,
    place: str,
    prompts: Dataset,
    tasks: Container[str] | None,
    number: int,
    folders: Sequence[Path],
    policy_id: str,
    serving: Serving,
) -> dict[str, Any]:
    """Return the round's outcome, the dataset of its successes, and how often each is learned.

    Rank 0 calls this. A round that an earlier command has sampled and judged is not repeated.

    Raises Collapsed: there is nothing to learn from.
    """
    import pyarrow as pa

    job = run.job
    with Spread(folders[number - 1], serving) as policy:
        began: dict[str, Any] | None = run.state.get("began")
        if began is not None and began["round"] == number:
            return began
        with run.reader() as lake:
            shown = load_prompts(lake, str(prompts.folder), config.prompts)
        shown = [prompt for prompt in shown if tasks is None or prompt.task_id in tasks]
        sampling = Sampling(
            temperature=config.temperature,
            top_p=config.top_p,
            max_tokens=config.max_tokens,
            seed=config.seed,
        )
        with judging.make_pool(job.lake_url, place, judge, config.workers) as pool:
            waves.run_rollout(
                job.lake_url,
                [policy],
                shown,
                sampling,
                waves.Config(attempts=config.attempts, keep=0, wave=config.attempts),
                lambda: pool,
                job.progress,
                told={"training_run": run.run_id, "round": number},
                training=run.run_id,
            )
    group_ids = [waves.make_group_id(prompt, policy_id, sampling, run.run_id) for prompt in shown]
    groups = pa.table({"group_id": pa.array(group_ids, pa.string())})
    with run.reader() as lake:
        [counts] = query(lake, read_sql(__file__, "round_outcome"), groups=groups).to_pylist()
        repeats = query(lake, read_sql(__file__, "repeats"), groups=groups).to_pylist()
        snapshot = lake.snapshot
    outcome = RoundResult(**counts)
    check_judged(outcome)
    if outcome.unjudged:
        job.say(f"not judged {outcome.unjudged} attempts, which do not count")
    metrics = outcome.metrics()
    run.add_metrics(number, metrics)
    run.flush()
    job.say(f"round {number}    " + "  ".join(f"{name} {metrics[name]:.4g}" for name in metrics))

    rates = [earlier["success_rate"] for earlier in run.state.get("rounds", [])]
    best = max(rates, default=0.0)
    why = find_collapse(config, outcome, best)
    if why is not None:
        if rates:
            # The rate of a round is that of the model that it samples from.
            good = folders[rates.index(best)]
            hint = f"The last good model is {good} (success rate {best:.3g})."
        else:
            hint = (
                f"The model in {folders[0]} is not ready for this stage: train it with "
                "`trainers run sft` first, or ask for easier tasks."
            )
        raise Collapsed(f"round {number}: the policy has collapsed: {why}", hint)

    dataset = records.make_dataset(
        job.lake_url,
        PIPELINE,
        at=snapshot,
        seed=config.seed,
        name=f"{PIPELINE}-successes",
        select="successes",
        policy=policy_id,
        per_policy=config.per_policy,
        form=config.form,
        improvement_share=config.improvement_share,
    )
    rows = dataset.table(["task_id", "kernel_id"]).to_pylist()
    times = [1] * len(rows)
    if config.repeats == "keep":
        written = {(row["task_id"], row["kernel_id"]): row["times"] for row in repeats}
        times = [written.get((row["task_id"], row["kernel_id"]), 1) for row in rows]
    began = {
        "round": number,
        "outcome": asdict(outcome),
        "dataset": str(dataset.folder),
        "times": times,
    }
    run.keep({"began": began})
    return began
