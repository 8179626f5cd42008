"""A reward function for TRL's GRPOTrainer, which judges all completions of a step at once.

The dataset needs a column `task_id` or `task` with an id or a name of a task of the service.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from evaluators.service.client import Client
from evaluators.service.completions import check_rule, score_completion

Reward: TypeAlias = Callable[..., Awaitable[list[float | None]]]


def make_reward(client: Client, rule: str = "speedup") -> Reward:
    """Return a function for `reward_funcs`; None in its list means that a fault gave no verdict.

    rule: speedup or success (`evaluators.service.completions.score_judgement`).

    Raises UnknownName: no such rule.
    """
    chosen = check_rule(rule)

    async def kernel_reward(
        completions: Sequence[Any],
        task_id: Sequence[str] | None = None,
        task: Sequence[str] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        tasks = task_id if task_id is not None else task
        if tasks is None:
            raise ValueError("the dataset has neither the column task_id nor the column task")
        # A completion is a text or a list of messages; the last message counts.
        texts = [one if isinstance(one, str) else one[-1]["content"] or "" for one in completions]
        try:
            scored = await asyncio.gather(
                *(
                    score_completion(client, name, text, chosen)
                    for name, text in zip(tasks, texts, strict=True)
                )
            )
        finally:
            await client.close()
        for status in ("correct", "no_code", "fault"):
            if log_metric is not None:
                share = sum(one.status == status for one in scored) / len(scored)
                log_metric(f"judge/{status}", share)
        return [one.reward for one in scored]

    return kernel_reward
