"""One GRPO training: from a model folder to checkpoints, rows and a policy."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainers.datasets.records import Dataset
from trainers.models import loading
from trainers.runs import processes as ranks
from trainers.runs import recording, run_folder
from trainers.runs.recording import Run
from trainers.training import trl_settings
from trainers.training.grpo_options import Config
from trainers.training.task_lists import list_steps

if TYPE_CHECKING:
    from transformers import TrainerCallback

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

    out = run.job.out
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
                _make_checkpoint_callback(run, parent, dataset),
            ],
        )
        trl_settings.stop_printing(trainer)
        done = run_folder.list_checkpoints(out) if run.resumed else []
        for step, folder in done if ranks.is_main() else []:
            _record_checkpoint(run, folder, step, parent, dataset)
        trainer.train(resume_from_checkpoint=str(done[-1][1]) if done else None)
        final = out / "final"
        trainer.save_model(str(final))
    steps = int(trainer.state.global_step)
    policy = ranks.run_on_main(lambda: _record_checkpoint(run, final, steps, parent, dataset))
    several = f" on {trainer.accelerator.num_processes} processes" * (ranks.count_processes() > 1)
    return (
        f"contrastive: {steps} steps{several} on {len(tasks)} tasks"
        f"{_describe_last_step(trainer)} → {final} (policy {policy[:12]}"
    )


def _describe_last_step(trainer: StoreGRPOTrainer) -> str:
    """Return the figures of the last step."""
    last: Any = next((row for row in reversed(trainer.state.log_history) if "reward" in row), {})
    if last.get("reward") is None:
        return ""
    spread = f"reward spread within groups: {last['reward_std']:.3g}"
    return f", last reward {last['reward']:.3g}, {spread}"


def _make_checkpoint_callback(run: Run, parent: str, dataset: Dataset) -> TrainerCallback:
    """Return a callback that appends every checkpoint as a policy, and reports progress."""
    from transformers import TrainerCallback

    class Checkpoints(TrainerCallback):
        def on_save(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, args: Any, state: Any, control: Any, **kwargs: Any
        ) -> None:
            if ranks.is_main():
                step = int(state.global_step)
                _record_checkpoint(run, run.job.out / f"checkpoint-{step}", step, parent, dataset)

        def on_step_end(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, args: Any, state: Any, control: Any, **kwargs: Any
        ) -> None:
            run.job.progress(int(state.global_step), int(state.max_steps), "steps")

    return Checkpoints()


def _record_checkpoint(run: Run, folder: Path, step: int, parent: str, dataset: Dataset) -> str:
    """Append the policy of a folder with weights; sharded weights become one only at the end."""
    if not any(loading.list_weight_files(folder)):
        return ""
    return run.policy(
        folder,
        stage="contrastive",
        parent=parent,
        round=step,
        step=step,
        dataset_id=dataset.dataset_id,
    )
