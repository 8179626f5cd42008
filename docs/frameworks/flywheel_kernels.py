"""A verifiers taskset (v1 API): kernels for the tasks of a judge service, judged there.

Put this file on the Python path of verifiers or prime-rl, and name it as the taskset:
`--env.taskset.id flywheel_kernels`. A kernel that could not be judged raises, so verifiers leaves
the rollout without a reward.
"""

from collections.abc import Iterable

import httpx2
import verifiers.v1 as vf

from evaluators.service.client import Client, build_headers, read_token
from evaluators.service.completions import check_rule, score_completion

__all__ = ["KernelTaskset"]

PROMPT = (
    "Write a faster drop-in replacement for this PyTorch module. Define a class ModelNew with the "
    "same constructor and forward arguments, in one Python code block.\n\n```python\n{code}```\n"
)


class KernelData(vf.TaskData):
    task_id: str


class KernelConfig(vf.TaskConfig):
    url: str = "http://127.0.0.1:8770"
    rule: str = "speedup"
    device_class: str | None = None
    deadline_s: float = 7200.0


class KernelTask(vf.Task[KernelData, vf.State, KernelConfig]):
    @vf.reward
    async def kernel(self, trace: vf.Trace) -> float:
        config = self.config
        client = Client(config.url, device_class=config.device_class, deadline_s=config.deadline_s)
        try:
            scored = await score_completion(
                client, self.data.task_id, trace.last_reply or "", check_rule(config.rule)
            )
        finally:
            await client.close()
        if scored.judgement is not None:
            trace.info["judgement"] = dict(scored.judgement.source)
        if scored.reward is None:
            raise RuntimeError(f"not judged: {scored.judgement.reason}")
        trace.record_metric("correct", scored.facts["correct"])
        return scored.reward


class KernelTasksetConfig(vf.TasksetConfig):
    task: KernelConfig = KernelConfig()
    suite: str | None = None
    split: str | None = "train"


class KernelTaskset(vf.Taskset[KernelTask, KernelTasksetConfig]):
    def load(self) -> Iterable[KernelTask]:
        config = self.config
        headers = build_headers(config.task.url, read_token())
        with httpx2.Client(base_url=config.task.url, headers=headers, timeout=60) as http:
            after = 0
            while after is not None:
                query = {"after": after, "limit": 1000} | (
                    {"suite": config.suite} if config.suite else {}
                )
                page = http.get("/v1/tasks", params=query).raise_for_status().json()
                for row in page["tasks"]:
                    if config.split not in (None, row["split"]):
                        continue
                    task = http.get(f"/v1/tasks/{row['task_id']}").raise_for_status().json()
                    yield KernelTask(
                        KernelData(
                            name=row["name"],
                            id=row["task_id"],
                            prompt=PROMPT.format(code=task["code"]),
                            task_id=row["task_id"],
                        ),
                        config.task,
                    )
                after = page["next"]
