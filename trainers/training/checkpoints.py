"""Checkpoints of one training: policies in the lake, and the folder of the trained model."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store.commandline.outputs import rename_over
from trainers.models import loading
from trainers.runs import processes as ranks
from trainers.runs import recording
from trainers.runs.recording import Run, Stage

if TYPE_CHECKING:
    from transformers import TrainerCallback

FINAL = "final"


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """The checkpoints of one training."""

    run: Run
    out: Path
    """Their folder; the trained model is in `final` there."""
    stage: Stage
    parent: str
    """Policy that the training starts from."""
    dataset_id: str
    round: int | None = None
    """Round number of the policies; None numbers them by step."""
    offset: int = 0
    """Optimisation steps that the run has made before."""

    @property
    def final(self) -> Path:
        """Return the folder of the trained model."""
        return self.out / FINAL

    def resume(self) -> tuple[int, str | None]:
        """Return the step and folder of the last complete checkpoint, and append all as policies.

        Without a checkpoint, these are 0 and None.
        """
        done = recording.list_checkpoints(self.out)
        for step, folder in done if ranks.is_main() else []:
            self._record(folder, step)
        return (done[-1][0], str(done[-1][1])) if done else (0, None)

    def write_final(self, trainer: Any) -> None:
        """Write the trained model, whose folder appears when it is complete.

        Every rank calls this.
        """
        partial = self.final.with_suffix(".partial")
        ranks.run_on_main(lambda: shutil.rmtree(partial, ignore_errors=True))
        trainer.save_model(str(partial))
        trainer.accelerator.wait_for_everyone()
        ranks.run_on_main(lambda: rename_over(partial, self.final))
        ranks.run_on_main(lambda: shutil.rmtree(partial, ignore_errors=True))  # what was there

    def record_final(self, steps: int) -> str:
        """Append the trained model as a policy and return its policy_id. Every rank calls this."""
        return ranks.run_on_main(lambda: self._record(self.final, steps))

    def make_callback(self) -> TrainerCallback:
        """Return a callback that appends every checkpoint as a policy, and reports progress."""
        from transformers import TrainerCallback

        record, run, out = self._record, self.run, self.out

        class Saved(TrainerCallback):
            def on_save(  # pyright: ignore[reportIncompatibleMethodOverride]
                self, args: Any, state: Any, control: Any, **kwargs: Any
            ) -> None:
                if ranks.is_main():
                    step = int(state.global_step)
                    record(out / f"checkpoint-{step}", step)

            def on_step_end(  # pyright: ignore[reportIncompatibleMethodOverride]
                self, args: Any, state: Any, control: Any, **kwargs: Any
            ) -> None:
                run.job.progress(int(state.global_step), int(state.max_steps), "steps")

        return Saved()

    def _record(self, folder: Path, step: int) -> str:
        """Append the policy of a folder with weights; sharded ones become whole only at the end."""
        if not any(loading.list_weight_files(folder)):
            return ""
        return self.run.add_policy(
            folder,
            stage=self.stage,
            parent=self.parent,
            round=self.round if self.round is not None else self.offset + step,
            step=self.offset + step,
            dataset_id=self.dataset_id,
        )
