"""An OpenEnv environment: an agent submits kernels for a task, and a judge service judges them.

Serve it with `uvicorn openenv_kernels:app`. The variable FLYWHEEL_JUDGE_URL names the service.
"""

import os
import uuid
from typing import Any

from openenv.core.env_server import Environment, create_app
from openenv.core.env_server.types import Action, ConcurrencyConfig, Observation, State

from evaluators.service.client import Client
from evaluators.service.completions import score_completion

TURNS = 4
"""Kernels that an agent may submit in an episode."""


class KernelAction(Action):
    code: str
    """A file that defines ModelNew, or an answer with such a code block."""


class KernelObservation(Observation):
    task: str
    reference: str
    """Text of the task."""
    status: str | None = None
    """Of the last kernel, as in table evaluations; no_code, or fault."""
    message: str | None = None
    speedup: float | None = None
    turns_left: int = TURNS


class KernelState(State):
    task_id: str | None = None


class KernelEnvironment(Environment[KernelAction, KernelObservation, KernelState]):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._client = Client(os.environ.get("FLYWHEEL_JUDGE_URL", "http://127.0.0.1:8770"))
        self._state = KernelState()
        self._task: dict[str, Any] = {}

    def reset(self, seed=None, episode_id=None, **kwargs):
        raise NotImplementedError("this environment is asynchronous")

    def step(self, action, timeout_s=None, **kwargs):
        raise NotImplementedError("this environment is asynchronous")

    async def reset_async(self, seed=None, episode_id=None, task: str = "", **_):
        """Begin an episode with a task, by id or name."""
        try:
            self._task = await self._client.get(f"/v1/tasks/{task}")
        finally:
            await self._client.close()
        self._state = KernelState(
            episode_id=episode_id or str(uuid.uuid4()), task_id=self._task["task_id"]
        )
        return self._observe(reward=None)

    async def step_async(self, action, timeout_s=None, **_):
        """Judge a kernel. A kernel that could not be judged has no reward and costs no turn."""
        text = action.code
        fenced = text if "```" in text else f"```python\n{text}\n```"
        try:
            scored = await score_completion(
                self._client, self._task["task_id"], fenced, rule="speedup"
            )
        finally:
            await self._client.close()
        if scored.reward is not None:
            self._state.step_count += 1
        verdict = scored.judgement.verdict if scored.judgement else None
        return self._observe(
            reward=scored.reward,
            status=scored.status,
            message=verdict.message if verdict else None,
            speedup=verdict.speedup if verdict else None,
        )

    @property
    def state(self) -> KernelState:
        return self._state

    def _observe(self, **facts: Any) -> KernelObservation:
        left = TURNS - self._state.step_count
        return KernelObservation(
            task=self._task["name"] or self._task["task_id"],
            reference=self._task["code"],
            turns_left=left,
            done=left <= 0,
            **facts,
        )


app = create_app(
    KernelEnvironment,
    KernelAction,
    KernelObservation,
    env_name="flywheel_kernels",
    # A session that nobody uses ends, so that lost connections do not fill the server.
    concurrency_config=ConcurrencyConfig(max_concurrent_envs=64, session_timeout=3600),
    state_cls=KernelState,
)
