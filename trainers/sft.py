"""Supervised fine-tuning on correct kernels (CUDA-L1, stage 1), by TRL's SFTTrainer.

The loss covers only the completion. Rows longer than --max-length are refused, or dropped and
counted. Without --dataset, the pipeline sft first makes a dataset at the snapshot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from store.errors import FlywheelError
from trainers.datasets import records
from trainers.runs import processes
from trainers.runs.job import Job, Training
from trainers.runs.recording import Checkpoints, begin_run
from trainers.training import trl_trainers

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "model": "tiny",
        "starter": True,
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
    trl_trainers.silence_libraries()
    if config.starter:
        processes.run_on_main(job.import_starter)
    with begin_run(job, config) as run:
        base, identity, dataset = records.choose_inputs(run, config, "prompt-completion", "sft")
        rows, lengths = trl_trainers.measure_rows(config, dataset, base, job.out)
        settings = trl_trainers.make_sft_settings(config, job.out)
        run.start(
            {
                "dataset_id": dataset.dataset_id,
                "dataset": str(dataset.folder),
                "policy_id": identity.policy_id,
                "rows": lengths.rows,
                "over_length": lengths.over,
                "longest_tokens": lengths.longest,
                "trl": settings,
            }
        )
        model = config.model
        processes.run_on_main(lambda: run.add_base(base, model, identity))
        job.say(f"dataset    {dataset.name} of snapshot {dataset.snapshot_id}: {lengths.rows} rows")
        job.say(f"tokens     {lengths.tokens}, the longest row {lengths.longest}")
        if lengths.over:
            job.say(f"left out   {lengths.over} rows over {config.max_length} tokens")
        checkpoints = Checkpoints(
            run=run,
            out=job.out,
            stage="sft",
            parent=identity.policy_id,
            dataset_id=dataset.dataset_id,
        )
        fitted = trl_trainers.train_supervised(
            checkpoints, config, settings, base, rows.select(lengths.kept), resume=run.resumed
        )
    loss = "" if fitted.loss is None else f", loss {fitted.loss:.4g}"
    several = f" on {fitted.processes} processes" * (fitted.processes > 1)
    return (
        f"sft: {fitted.steps} steps{several} on {len(lengths.kept)} rows{loss} → "
        f"{checkpoints.final} (policy {fitted.policy_id[:12]}, snapshot {run.snapshot})"
    )
