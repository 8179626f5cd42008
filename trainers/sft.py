"""Supervised fine-tuning on correct kernels (CUDA-L1, stage 1), by TRL's SFTTrainer.

The loss covers only the completion. Rows longer than --max-length are refused, or dropped and
counted. Without --dataset, the pipeline sft first makes a dataset at the snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from store.errors import FlywheelError
from trainers.datasets import records
from trainers.models import loading
from trainers.runs import processes
from trainers.runs.job import Job, Training
from trainers.runs.recording import begin_run
from trainers.training import supervised, trl_settings

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "model": "tiny",
        "save_steps": 4,
        "trl": (
            "max_steps=8",
            "per_device_train_batch_size=2",
            "learning_rate=1e-3",
            "gradient_checkpointing=false",
        ),
    },
}


@dataclass(frozen=True, kw_only=True)
class Config(Training):
    """Options of sft."""


def run(job: Job, config: Config) -> str:
    """Train and return the result in one line.

    Raises:
        FlywheelError: no model is named, or the run cannot be begun or resumed.
        DatasetError: the dataset is not what the lake recorded, or rows are over length.
    """
    if config.model is None:
        raise FlywheelError("no model to start from", "Give --model, or --preset tiny.")
    trl_settings.silence_libraries()
    with begin_run(job, config) as run:
        model = config.model
        source = processes.run_on_main(
            lambda: loading.find_model(model, job.out / "model", config.seed),
        )
        identity = processes.run_on_main(lambda: loading.identify_model(source))
        dataset = processes.run_on_main(
            lambda: records.choose_dataset(
                run, config.dataset, "prompt-completion", "sft", seed=config.seed
            )
        )
        fit = supervised.Fit(
            config=config,
            model=source,
            parent=identity.policy_id,
            dataset=dataset,
            out=job.out,
            stage="sft",
            defaults={},
        )
        rows, found = supervised.measure_rows(fit)
        run.start(
            {
                "dataset_id": dataset.dataset_id,
                "dataset": str(dataset.folder),
                "policy_id": fit.parent,
                "rows": found.rows,
                "over_length": found.over,
                "longest_tokens": found.longest,
                "trl": supervised.make_settings(fit),
            }
        )
        processes.run_on_main(lambda: run.add_base(source, model, identity))
        job.say(f"dataset    {dataset.name} of snapshot {dataset.snapshot_id}: {found.rows} rows")
        job.say(f"tokens     {found.tokens}, the longest row {found.longest}")
        if found.over:
            job.say(f"left out   {found.over} rows over {config.max_length} tokens")
        fitted = supervised.train_supervised(run, fit, rows, found.kept, resume=run.resumed)
    loss = "" if fitted.loss is None else f", loss {fitted.loss:.4g}"
    several = f" on {fitted.processes} processes" * (fitted.processes > 1)
    return (
        f"sft: {fitted.steps} steps{several} on {len(found.kept)} rows{loss} → {fit.final} "
        f"(policy {fitted.policy_id[:12]}, snapshot {run.snapshot})"
    )
