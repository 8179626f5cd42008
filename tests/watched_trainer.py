"""A trainer of TRL that notes what its private parts are given."""

from __future__ import annotations

from typing import Any

from trl.trainer.grpo_trainer import GRPOTrainer

REWARDS = [1.0, 0.0, 0.25, 0.25, None, 0.5, 0.5, -1.5]


class Watched(GRPOTrainer):
    """A GRPOTrainer that puts another prompt in place, as ours does, and takes notes."""

    batches: list[list[Any]]
    calls: list[dict[str, Any]]

    def __init__(self, **given: Any) -> None:
        self.batches, self.calls, self.advantages = [], [], []
        super().__init__(reward_funcs=self.reward, **given)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        step = self.state.global_step
        self.batches.append([one["task_id"] for one in inputs])
        shown = [
            {**one, "place": at, "prompt": [{"role": "user", "content": f"{step}"}]}
            for at, one in enumerate(inputs)
        ]
        made = super()._generate_and_score_completions(shown)
        self.advantages.append(made["advantages"].tolist())
        return made

    def reward(self, **given: Any) -> list[float | None]:
        self.calls.append(given)
        given["log_extra"]("generation_id", [str(at) for at in given["place"]])
        given["log_metric"]("attempts", 1.0)
        return REWARDS
