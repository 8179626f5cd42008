"""One GRPO training: from a model folder to checkpoints, rows and a policy."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.datasets.records import Dataset
from trainers.models import loading
from trainers.runs import processes as ranks
from trainers.runs import recording
from trainers.runs.recording import Run
from trainers.training import trl_settings
from trainers.training.checkpoints import Checkpoints
from trainers.training.grpo_options import Config
from trainers.training.task_lists import list_steps

if TYPE_CHECKING:
    from trainers.training.feed import Feed
    from trainers.training.grpo import StoreGRPOTrainer


def train_grpo(
    run: Run,
    config: Config,
    settings: Mapping[str, Any],
    feed: Feed | None,
    start: Path,
    parent: str,
    dataset: Dataset,
    tasks: list[str],
) -> str:
    """Train from a model folder, or resume from the last checkpoint; return the result."""
    from trl.trainer.grpo_config import GRPOConfig

    from trainers.runs.gpu_turns import GpuTurns, open_lock
    from trainers.training.grpo import StoreGRPOTrainer

    checkpoints = Checkpoints(
        run=run,
        out=run.job.out,
        stage="contrastive",
        parent=parent,
        dataset_id=dataset.dataset_id,
    )
    arguments: Any = trl_settings.make_config(GRPOConfig, settings)
    given: dict[str, Any] = dict(arguments.model_init_kwargs or {})
    arguments.model_init_kwargs = None
    device = str(arguments.device)
    with closing(GpuTurns(device, open_lock(device))) as turns:
        trainer = StoreGRPOTrainer(
            feed=feed,
            turns=turns,
            model=loading.load_model(start, lora=config.lora, **given),
            args=arguments,
            train_dataset=list_steps(tasks, config),
            processing_class=loading.load_tokenizer(start),
            peft_config=loading.make_adapter_config(start, config.lora),
            callbacks=[
                recording.make_metrics_callback(run),
                checkpoints.make_callback(),
            ],
        )
        trl_settings.stop_printing(trainer)
        _, folder = checkpoints.resume() if run.resumed else (0, None)
        trainer.train(resume_from_checkpoint=folder)
        checkpoints.write_final(trainer)
    steps = int(trainer.state.global_step)
    policy = checkpoints.record_final(steps)
    several = f" on {trainer.accelerator.num_processes} processes" * (ranks.count_processes() > 1)
    return (
        f"contrastive: {steps} steps{several} on {len(tasks)} tasks"
        f"{_describe_last_step(trainer)} → {checkpoints.final} (policy {policy[:12]}"
    )


def _describe_last_step(trainer: StoreGRPOTrainer) -> str:
    """Return the figures of the last step."""
    last: Any = next((row for row in reversed(trainer.state.log_history) if "reward" in row), {})
    if last.get("reward") is None:
        return ""
    spread = f"reward spread within groups: {last['reward_std']:.3g}"
    return f", last reward {last['reward']:.3g}, {spread}"
