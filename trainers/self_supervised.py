"""Rounds of sampling, judging, and training on successes alone (CUDA-L1, stage 2).

This is REINFORCE with reward 1 for a correct kernel, 0 for any other, and no baseline: failures
give no gradient, so one pass over the successes by their likelihood is the whole update. Speed is
ignored. A round asks the pipeline self-supervised, at the snapshot that the run reads, for prompts;
what is sampled is stored and judged; the pipeline then makes the round's successes a dataset.

A run stops where the policy collapses: no success, a success rate far below the best, or the same
few kernels again and again. An interrupted run goes on with --resume and samples nothing twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from store.errors import FlywheelError
from trainers.datasets import records
from trainers.datasets.records import Dataset
from trainers.models import loading, tiny_answers
from trainers.policies import spread
from trainers.policies.interface import Sampling, Serving
from trainers.rollouts import waves
from trainers.runs import processes, recording
from trainers.runs.job import Job, Training
from trainers.runs.recording import Run, begin_run
from trainers.training import judging, supervised, trl_settings

if TYPE_CHECKING:
    from trainers.rollouts.attempts import ShownPrompt

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
_SQL = Path(__file__).parent / "training" / "sql"


class Collapsed(FlywheelError):
    """The policy no longer gives anything to learn from; what was made so far is stored."""


@dataclass(frozen=True, kw_only=True)
class Config(Training):
    """Options of self-supervised. --dataset is one of prompts, such as self-supervised@v1."""

    rounds: int = 3
    """Rounds of sampling and training. Our choice: CUDA-L1 does not publish it."""
    attempts: int = 8
    """Attempts at each prompt in a round. Our choice: not published."""
    prompts: int | None = None
    """Most prompts of a round (default: one per task of the train split)."""
    max_tokens: int = 2048
    """Most tokens of an attempt."""
    temperature: float = 1.0
    """Temperature of sampling."""
    top_p: float = 1.0
    """Share of the probability that tokens are sampled from."""
    sampling_batch: int = 32
    """Most sequences that a process samples at once."""
    form: Literal["code", "protocol"] = "code"
    """Form of prompts and answers, as of the pipelines sft and self-supervised. With --dataset it
    is to be that of the dataset, since a success is learnt as the answer to what was asked."""
    per_policy: int = 8
    """Most distinct correct kernels of one task that a round trains on."""
    repeats: Literal["once", "keep"] = "once"
    """once: a kernel counts once however often it was written, which slows collapse. keep: as
    often as it was written, as the REINFORCE gradient has it."""
    normalise: Literal["successes", "samples"] = "successes"
    """successes: the gradient is a mean over the successes. samples: over all samples, as REINFORCE
    has it, which is the learning rate times the round's success rate."""
    least_unique: float = 0.1
    """Collapse: fewer distinct kernels than this share of the attempts with code."""
    least_success: float = 0.5
    """Collapse: a success rate below this share of the best round's."""
    device: str = "auto"
    """Where kernels are judged: cpu, cuda:1 …; auto takes the GPUs that no process trains on, and
    where there is none the first, in turns with training."""
    judge: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """KEY=VALUE of the judge's options, such as calls=8; may be repeated."""
    overfit: bool = False
    """Overfit the model on short answers to two starter tasks first, and ask for these alone."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the attempts of one round came to."""

    attempts: int
    with_code: int
    unique_kernels: int
    executable: int
    correct: int
    unique_correct: int

    @property
    def success_rate(self) -> float:
        """Return the share of attempts that are correct."""
        return self.correct / max(self.attempts, 1)

    @property
    def unique_share(self) -> float:
        """Return distinct kernels over attempts with code; 1 where there is no code."""
        return self.unique_kernels / self.with_code if self.with_code else 1.0

    def metrics(self) -> dict[str, float]:
        """Return what is stored of a round."""
        return {
            "attempts": self.attempts,
            "unique_kernels": self.unique_kernels,
            "correct": self.correct,
            "unique_correct": self.unique_correct,
            "success_rate": self.success_rate,
            "executable_rate": self.executable / max(self.attempts, 1),
            "parse_rate": self.with_code / max(self.attempts, 1),
        }


def run(job: Job, config: Config) -> str:
    """Go through the rounds and return what was made in one line.

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
        raise FlywheelError("a run has one round and one attempt at least")
    trl_settings.silence_libraries()
    judge = judging.parse_options(config.judge)
    with begin_run(job, config) as run:
        model = config.model
        base = processes.run_on_main(
            lambda: loading.find_model(model, job.out / "model", config.seed)
        )
        prompts = processes.run_on_main(lambda: _choose_prompts(run, config))
        run.start(
            {
                "dataset_id": prompts.dataset_id,
                "dataset": str(prompts.folder),
                "policy_id": processes.run_on_main(lambda: loading.compute_policy_id(base)),
                "judge": asdict(judge),
                "judged_on": judging.choose_devices(config.device),
            }
        )
        parent = processes.run_on_main(lambda: run.base(base, model))
        start, tasks = base, None
        if config.overfit:
            tasks = _find_short_tasks(prompts)
            start = processes.run_on_main(lambda: _overfit(run, config, base, prompts))
            parent = processes.run_on_main(lambda: run.policy(start, stage="sft", parent=parent))
        rounds = _Rounds(run, config, start, parent, prompts, tasks, judge)
        for number in range(len(rounds.done) + 1, config.rounds + 1):
            rounds.next(number)
        snapshot = run.flush()
    rates = ", ".join(f"{one['success_rate']:.3g}" for one in rounds.done)
    return (
        f"self-supervised: {len(rounds.done)} rounds, {rounds.steps} steps, success rate {rates} → "
        f"{rounds.folder} (policy {rounds.policy_id[:12]}, snapshot {snapshot})"
    )


def find_collapse(config: Config, outcome: Outcome, best: float) -> str | None:
    """Return why a round leaves nothing to learn from, or None.

    Args:
        config: Bounds.
        outcome: What the round's attempts came to.
        best: Highest success rate of the rounds before; 0 before the first.
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


class _Rounds:
    """The rounds of one run; those that are done stand in run.json."""

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
        return self._of(len(self.done))

    @property
    def policy_id(self) -> str:
        """Return the policy of that model."""
        return self.done[-1]["policy_id"] if self.done else self._parent

    @property
    def steps(self) -> int:
        """Return the optimisation steps made so far."""
        return sum(one["steps"] for one in self.done)

    def next(self, number: int) -> None:
        """Sample, judge, and train once.

        Raises:
            Collapsed: there is nothing to learn from.
        """
        run, config = self._run, self._config
        serving = Serving(batch=config.sampling_batch)
        began = processes.run_on_main(
            lambda: self._began(number, serving),
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
            rate=outcome.success_rate if config.normalise == "samples" else 1.0,
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

    def _began(self, number: int, serving: Serving) -> dict[str, Any]:
        """Return the round's outcome and dataset, sampled and judged where that is not done yet."""
        run, config = self._run, self._config
        with spread.Spread(self.folder, serving) as policy:
            began: dict[str, Any] | None = run.state.get("began")
            if began is not None and began["round"] == number:
                return began
            groups = self._sampled(number, policy)
        with run.reader() as lake:
            outcome = _read_outcome(lake, groups)
            snapshot = lake.snapshot
        run.metrics(number, outcome.metrics())
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
        )
        began = {
            "round": number,
            "outcome": asdict(outcome),
            "dataset": str(dataset.folder),
            "times": self._times(dataset, groups),
        }
        run.keep({"began": began})
        return began

    def _sampled(self, number: int, policy: spread.Spread) -> list[str]:
        """Let the policy attempt every prompt, judge what it writes, and return the groups."""
        import store
        from evaluators.scheduling.pool import Pool
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
        with Pool(run.job.lake_url, judging.choose_devices(config.device), self._judge) as pool:
            waves.run_rollout(
                run.job.lake_url,
                [policy],
                asked,
                sampling,
                waves.Config(attempts=config.attempts, keep=0, wave=config.attempts),
                pool,
                run.job.progress,
                told={"training_run": run.run_id, "round": number},
            )
        return _list_groups(asked, self.policy_id, sampling)

    def _times(self, dataset: Dataset, groups: Sequence[str]) -> list[int]:
        """Return how often each row of the successes is trained on."""
        rows = dataset.table(["task_id", "kernel_id"]).to_pylist()
        if self._config.repeats == "once":
            return [1] * len(rows)
        with self._run.reader() as lake:
            _register(lake, groups)
            found = lake.run((_SQL / "repeats.sql").read_text("utf-8")).rows()
        times = {(row["task_id"], row["kernel_id"]): row["times"] for row in found}
        return [times.get((row["task_id"], row["kernel_id"]), 1) for row in rows]

    def _check(self, number: int, outcome: Outcome) -> None:
        """Raise Collapsed where a round gives nothing to learn from."""
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
            hint = (
                f"The last good model is {self._of(rates.index(best))} (success rate {best:.3g})."
            )
        raise Collapsed(f"round {number}: the policy has collapsed: {why}", hint)

    def _of(self, rounds: int) -> Path:
        """Return the folder of the model after so many rounds."""
        return self._run.job.out / f"round-{rounds}" / supervised.FINAL if rounds else self._base


def _choose_prompts(run: Run, config: Config) -> Dataset:
    """Return the dataset of prompts: that of the run's beginning, the one named, or one made."""
    url = run.job.lake_url
    wanted = run.resolved.get("dataset") or config.dataset
    if wanted is not None:
        return records.find_dataset(url, wanted, "prompt-only")
    return records.make_dataset(
        url, PIPELINE, at=run.reads, seed=config.seed, select="prompts", form=config.form
    )


def _find_short_tasks(prompts: Dataset) -> dict[str, str]:
    """Return the tasks that `_tiny` has short answers to: id to name.

    Raises:
        FlywheelError: the dataset asks for none of them.
    """
    rows = prompts.table(["task_id", "task"]).to_pylist()
    tasks = {row["task_id"]: row["task"] for row in rows if row["task"] in tiny_answers.TEMPLATES}
    if not tasks:
        raise FlywheelError(
            f"dataset {prompts.name} asks for none of {', '.join(tiny_answers.TEMPLATES)}",
            "These are tasks of `store import starter`; or give a --model and no --overfit.",
        )
    return tasks


def _overfit(run: Run, config: Config, base: Path, prompts: Dataset) -> Path:
    """Return the folder of the model overfitted on short answers; made once."""
    out = run.job.out / "model" / "overfitted"
    if (out / "tokenizer_config.json").exists():
        return out
    tasks = _find_short_tasks(prompts)
    rows = prompts.table(["task_id", "prompt"]).to_pylist()
    asked: dict[str, list[Any]] = {}
    for row in rows:
        if row["task_id"] in tasks:
            asked.setdefault(tasks[row["task_id"]], []).append(row["prompt"])
    return tiny_answers.overfit(base, asked, out, config.seed, run.job.say)


def _read_outcome(lake: Any, groups: Sequence[str]) -> Outcome:
    _register(lake, groups)
    row = lake.run((_SQL / "round_outcome.sql").read_text("utf-8")).one()
    return Outcome(**row)


def _list_groups(asked: Sequence[ShownPrompt], policy_id: str, sampling: Sampling) -> list[str]:
    return [waves.make_group_id(one, policy_id, sampling) for one in asked]


def _register(lake: Any, groups: Sequence[str]) -> None:
    import pyarrow as pa

    lake.register("groups", pa.table({"group_id": pa.array(groups, pa.string())}))
