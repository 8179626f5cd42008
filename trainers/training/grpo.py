"""TRL's GRPOTrainer with prompts that are rendered from the lake just before each step is sampled.

Two private methods of TRL are overridden: prompts change in one, and the GPU is taken for the
gradients after the other. tests/trainers/test_trl_contract.py and test_gpu_turns.py test their
behavior, and the version of TRL is pinned. A public method would give prompts that are one step
older.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import TrainerCallback
from trl.trainer.grpo_trainer import GRPOTrainer

from store.errors import FlywheelError
from trainers.rollouts.exemplars import derive_step_seed
from trainers.runs import processes
from trainers.runs.gpu_turns import GpuTurns
from trainers.training.feed import Feed, Sampled


class StoreGRPOTrainer(GRPOTrainer):
    """A GRPOTrainer over a list of tasks (column task_id), fed by rank 0's `Feed`."""

    def __init__(self, *, feed: Feed | None, turns: GpuTurns, **given: Any) -> None:
        """Take a feed on rank 0 (None elsewhere); other arguments are those of GRPOTrainer.

        Args:
            feed: Gives prompts and rewards.
            turns: Turns on the GPU that this process trains on. The turn of a step ends when the
                next one begins, after the weights are updated and saved. The caller ends the last.
            given: Arguments of GRPOTrainer, without reward functions.
        """
        self._feed = feed
        self._turns = turns
        self._sampled: Counter[int] = Counter()
        super().__init__(reward_funcs=self.reward, **given)
        turns.watch(self.model)
        self.add_callback(_LeavesBetweenSteps(turns))

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Replace the dataset's prompts by this step's, then continue as TRL does."""
        trained: Any = self.model
        if not trained.training:
            return super()._generate_and_score_completions(inputs)
        # Every rank has gathered the same list, in which groups are contiguous, in the order of the
        # ranks.
        tasks = gather_object([one["task_id"] for one in inputs])
        size: int = self.num_generations or 1
        groups = [tasks[start : start + size] for start in range(0, len(tasks), size)]
        if any(len(set(group)) > 1 or len(group) < size for group in groups):
            raise FlywheelError(
                "TRL has not put the attempts of one prompt beside each other",
                "This version of TRL is not one that the trainer was tested with.",
            )
        step = int(self.state.global_step)
        batch = self._sampled[step]
        self._sampled[step] += 1
        feed = self._feed
        prompts = processes.run_on_main(
            lambda: feed.render_prompts(step, batch, [group[0] for group in groups]) if feed else []
        )
        first = self.accelerator.process_index * len(inputs)
        shown = [
            {**one, "prompt": prompts[place // size], "place": place}
            for place, one in enumerate(inputs, start=first)
        ]
        # A step that is sampled again after an interruption gives the same attempts.
        torch.manual_seed(
            derive_step_seed(self.args.seed, step, batch) + self.accelerator.process_index
        )
        self._turns.share()
        return super()._generate_and_score_completions(shown)

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """Sample if the step begins, then have the GPU alone for the gradients."""
        made = super()._prepare_inputs(generation_batch)
        trained: Any = self.model
        if trained.training:
            self._turns.take()
        return made

    def reward(
        self,
        completions: Sequence[Sequence[dict[str, str]]],
        completion_ids: Sequence[Sequence[int]],
        place: Sequence[int],
        log_extra: Any,
        log_metric: Any,
        **columns: Any,
    ) -> list[float | None]:
        """Return the rewards of this rank's completions; rank 0 stores and judges all completions.

        This is a plain function although it calls the judges asynchronously, because ranks must
        exchange data from the training thread.
        """
        tokenizer: Any = self.processing_class
        ends: list[Any] = [*self.eos_token_ids, tokenizer.pad_token_id]
        local = [
            Sampled(
                place=at,
                text=turns[-1]["content"] or "",
                tokens=len(ids),
                truncated=ids[-1] not in ends,
            )
            for at, turns, ids in zip(place, completions, completion_ids, strict=True)
        ]
        every = gather_object(local)
        self._turns.leave()
        feed = self._feed
        told = processes.run_on_main(lambda: feed.reward(every) if feed else None)
        assert told is not None
        if feed is not None:
            for name, value in told.figures.items():
                log_metric(name, value)
        log_extra("generation_id", [told.generation_ids[at] for at in place])
        return [told.rewards[at] for at in place]


class _LeavesBetweenSteps(TrainerCallback):
    def __init__(self, turns: GpuTurns) -> None:
        self._turns = turns

    def on_step_begin(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, args: Any, state: Any, control: Any, **kwargs: Any
    ) -> None:
        self._turns.leave()
