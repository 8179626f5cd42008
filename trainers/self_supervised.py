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

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from store.errors import FlywheelError
from trainers.datasets import records
from trainers.datasets.records import Dataset
from trainers.models import loading
from trainers.policies import spread
from trainers.policies.interface import Sampling, Serving
from trainers.rollouts import plan, waves
from trainers.runs import processes, recording
from trainers.runs.job import Job
from trainers.runs.recording import Run, begin_run
from trainers.training import judging, supervised, trl_settings
from trainers.training.round_options import Config
from trainers.training.round_outcome import (
    Collapsed,
    Outcome,
    check_judged,
    count_repeats,
    find_collapse,
    read_outcome,
)
from trainers.training.short_tasks import (
    find_short_tasks,
    list_short_prompts,
    overfit_on_short_answers,
)

PIPELINE = "self-supervised"


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "model": "tiny",
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
    if config.rounds < 1 or config.attempts < 1:
        raise FlywheelError(
            f"--rounds {config.rounds} and --attempts {config.attempts} make no attempt",
            "Give 1 or more for each.",
        )
    trl_settings.silence_libraries()
    judge = judging.parse_options(config.judge)
    if judge.protocol != "full":
        raise FlywheelError(
            "the successes that a round learns from are those of the full protocol",
            "Leave out --judge protocol=training.",
        )
    with begin_run(job, config) as run:
        model = config.model
        base = processes.run_on_main(
            lambda: loading.find_model(model, job.out / "model", config.seed)
        )
        prompts = processes.run_on_main(
            lambda: records.choose_dataset(
                run,
                config.dataset,
                "prompt-only",
                PIPELINE,
                seed=config.seed,
                select="prompts",
                form=config.form,
            )
        )
        identity = processes.run_on_main(lambda: loading.identify_model(base))
        run.start(
            {
                "dataset_id": prompts.dataset_id,
                "dataset": str(prompts.folder),
                "policy_id": identity.policy_id,
                "judge": asdict(judge),
                "judged_on": judging.choose_places(config.device, config.judge),
            }
        )
        parent = processes.run_on_main(lambda: run.add_base(base, model, identity))
        start, tasks = base, None
        if config.overfit:
            tasks = find_short_tasks(prompts)
            start = processes.run_on_main(
                lambda: overfit_on_short_answers(
                    run, base, config.seed, lambda: list_short_prompts(prompts)
                )
            )
            parent = processes.run_on_main(
                lambda: run.add_policy(start, stage="sft", parent=parent)
            )
        rounds = _Rounds(run, config, start, parent, prompts, tasks, judge)
        for number in range(len(rounds.done) + 1, config.rounds + 1):
            rounds.run_round(number)
    rates = ", ".join(f"{one['success_rate']:.3g}" for one in rounds.done)
    return (
        f"self-supervised: {len(rounds.done)} rounds, {rounds.steps} steps, success rate {rates} → "
        f"{rounds.folder} (policy {rounds.policy_id[:12]}, snapshot {run.snapshot})"
    )


class _Rounds:
    """The rounds of one run; run.json lists the completed ones."""

    def __init__(
        self,
        run: Run,
        config: Config,
        base: Path,
        parent: str,
        prompts: Dataset,
        tasks: dict[str, str] | None,
        judge: Any,
    ) -> None:
        self._run, self._config, self._judge = run, config, judge
        self._base, self._parent = base, parent
        self._prompts, self._tasks = prompts, tasks
        self.done: list[dict[str, Any]] = list(run.state.get("rounds", []))

    @property
    def folder(self) -> Path:
        """Return the folder of the model that the next round samples from."""
        return self._find_folder(len(self.done))

    @property
    def policy_id(self) -> str:
        """Return the policy of that model."""
        return self.done[-1]["policy_id"] if self.done else self._parent

    @property
    def steps(self) -> int:
        """Return the optimisation steps made so far."""
        return sum(one["steps"] for one in self.done)

    def run_round(self, number: int) -> None:
        """Sample, judge, and train once.

        Raises:
            Collapsed: there is nothing to learn from.
        """
        run, config = self._run, self._config
        serving = Serving(batch=config.sampling_batch)
        began = processes.run_on_main(
            lambda: self._begin_round(number, serving),
            meanwhile=lambda: spread.serve(self.folder, serving),
        )
        outcome = Outcome(**began["outcome"])
        self._check(number, outcome)
        dataset = processes.run_on_main(
            lambda: records.find_dataset(run.job.lake_url, began["dataset"], "prompt-completion")
        )
        fit = supervised.Fit(
            config=config,
            model=self.folder,
            parent=self.policy_id,
            dataset=dataset,
            out=run.job.out / f"round-{number}",
            stage="self-supervised",
            round=number,
            offset=self.steps,
            defaults={"num_train_epochs": 1},
            rate=outcome.success_rate if config.normalize == "samples" else 1.0,
        )
        rows, found = supervised.measure_rows(fit)
        if found.over:
            run.job.say(f"left out   {found.over} rows over {config.max_length} tokens")
        kept = [index for index in found.kept for _ in range(began["times"][index])]
        fitted = supervised.train_supervised(run, fit, rows, kept, resume=True)
        self.done.append(
            {
                "round": number,
                "policy_id": fitted.policy_id,
                "steps": fitted.steps,
                "success_rate": outcome.success_rate,
                "dataset_id": dataset.dataset_id,
            }
        )
        run.keep({"rounds": self.done, "began": None})

    def _begin_round(self, number: int, serving: Serving) -> dict[str, Any]:
        """Return the round's outcome and dataset; sample and judge first if needed."""
        run, config = self._run, self._config
        with spread.Spread(self.folder, serving) as policy:
            began: dict[str, Any] | None = run.state.get("began")
            if began is not None and began["round"] == number:
                return began
            groups = self._sample_round(number, policy)
        with run.reader() as lake:
            outcome = read_outcome(lake, groups)
            snapshot = lake.snapshot
        check_judged(outcome)
        if outcome.unjudged:
            run.job.say(f"not judged {outcome.unjudged} attempts, which do not count")
        run.add_metrics(number, outcome.metrics())
        run.flush()
        run.job.say(f"round {number}    {recording.format_metrics(outcome.metrics())}")
        self._check(number, outcome)
        dataset = records.make_dataset(
            run.job.lake_url,
            PIPELINE,
            at=snapshot,
            seed=config.seed,
            name=f"{PIPELINE}-successes",
            select="successes",
            policy=self.policy_id,
            per_policy=config.per_policy,
            form=config.form,
            improvement_share=config.improvement_share,
        )
        began = {
            "round": number,
            "outcome": asdict(outcome),
            "dataset": str(dataset.folder),
            "times": self._times(dataset, groups),
        }
        run.keep({"began": began})
        return began

    def _sample_round(self, number: int, policy: spread.Spread) -> list[str]:
        """Let the policy attempt every prompt, judge what it writes, and return the groups."""
        import store
        from trainers.rollouts import dataset_prompts as prompts

        run, config = self._run, self._config
        with store.open(run.job.lake_url) as lake:
            asked = prompts.load_prompts(lake, str(self._prompts.folder), config.prompts)
        if self._tasks is not None:
            asked = [one for one in asked if one.task_id in self._tasks]
        sampling = Sampling(
            temperature=config.temperature,
            top_p=config.top_p,
            max_tokens=config.max_tokens,
            seed=config.seed,
        )
        place = judging.choose_places(config.device, config.judge)
        with judging.make_pool(run.job.lake_url, place, self._judge, config.workers) as pool:
            waves.run_rollout(
                run.job.lake_url,
                [policy],
                asked,
                sampling,
                plan.Config(attempts=config.attempts, keep=0, wave=config.attempts),
                pool,
                run.job.progress,
                told={"training_run": run.run_id, "round": number},
                training=run.run_id,
            )
        return [plan.make_group_id(one, self.policy_id, sampling, run.run_id) for one in asked]

    def _times(self, dataset: Dataset, groups: Sequence[str]) -> list[int]:
        """Return how often each row of the successes is trained on."""
        rows = dataset.table(["task_id", "kernel_id"]).to_pylist()
        if self._config.repeats == "once":
            return [1] * len(rows)
        with self._run.reader() as lake:
            times = count_repeats(lake, groups)
        return [times.get((row["task_id"], row["kernel_id"]), 1) for row in rows]

    def _check(self, number: int, outcome: Outcome) -> None:
        """Raise Collapsed if a round gives nothing to learn from."""
        rates = [one["success_rate"] for one in self.done]
        best = max(rates, default=0.0)
        why = find_collapse(self._config, outcome, best)
        if why is None:
            return
        if not rates:
            hint = (
                f"The model in {self.folder} is not ready for this stage: train it with "
                "`trainers run sft` first, or ask for easier tasks."
            )
        else:
            # The rate of a round is that of the model that it samples from.
            folder = self._find_folder(rates.index(best))
            hint = f"The last good model is {folder} (success rate {best:.3g})."
        raise Collapsed(f"round {number}: the policy has collapsed: {why}", hint)

    def _find_folder(self, rounds: int) -> Path:
        """Return the folder of the model after so many rounds."""
        return self._run.job.out / f"round-{rounds}" / supervised.FINAL if rounds else self._base
