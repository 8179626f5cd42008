"""Prompts and rewards of single steps, with real judges: hacks, failures, a step done twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import builders
import pytest

import store
from evaluators.judge import Config as Judge
from evaluators.scheduling.pool import Pool
from trainers.policies.interface import Sampling
from trainers.rewarding import scoring
from trainers.rollouts.prompts import Draw
from trainers.runs import recording
from trainers.runs.job import Job, Training

ANSWER = "### Analysis\nFastest: Kernel 1\n\n### Code\n```python\n{}```"
KERNEL = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n{}\n"
RIGHT, CHEAT, WRONG = (
    KERNEL.format(f"        return {value}") for value in ("x.square()", "x**2", "x + x")
)


@pytest.mark.slow
def test_steps_reward_what_is_right_and_leave_each_row_once(
    tmp_path: Path, empty_lake: Path
) -> None:
    from trainers.training.grpo import Feed, Sampled

    url = str(tmp_path / "lake")
    shutil.copytree(empty_lake, url)
    task = builders.task()
    cheat = builders.kernel(code=CHEAT)
    finding = builders.finding(cheat)
    with store.writer(url, author="tests") as writer:
        writer.append(
            {
                "tasks": [task],
                "task_labels": [builders.label(task)],
                "workloads": [builders.workload(task)],
                "kernels": [cheat],
                "kernel_features": [builders.features(cheat)],
                "findings": [finding],
                "standings": [builders.standing(finding)],
                "policies": [builders.policy()],
            },
            "tests",
        )
    job = Job(name="contrastive", lake_url=url, out=tmp_path / "run", quiet=True)
    rule = scoring.load_rule("milestone")
    terms = rule.config()
    quick = Judge(
        calls=2, robustness=False, diagnosis=False, timing_s=0.05, blocks=20, draw_shapes=0
    )
    with recording.begin_run(job, Training()) as run, Pool(url, "cpu", quick) as pool:
        run.start({})
        draw = Draw(
            arm="bucket",
            exemplars=2,
            temperature=1.0,
            bucket_width=0.25,
            islands=1,
            baseline="eager",
            device=pool.device["name"],
        )

        def feed() -> Feed:
            return Feed(
                run=run,
                pool=pool,
                draw=draw,
                rule=rule,
                terms=terms,
                sampling=Sampling(),
                policy_id="policy-model",
                seed=0,
                longest=4000,
                length=lambda messages: len(messages[0]["content"]),
            )

        texts = [*(ANSWER.format(code) for code in (RIGHT, CHEAT, WRONG)), "I cannot."]
        sampled = [
            Sampled(place=place, text=text, tokens=9, truncated=False)
            for place, text in enumerate(texts)
        ]
        first = feed()
        prompts = first.render_prompts(0, 0, [task["task_id"]])
        told = first.reward(sampled[::-1])
        assert told.rewards[0] in (1.0, 2.0)
        assert told.rewards[1:] == [-1.0, -1.0, -1.0]
        assert told.figures["attempts/withheld"] == 1
        with run.reader() as lake:
            counts = {
                table: lake.sql(f"SELECT count(*) AS n FROM {table}").rows()[0]["n"]
                for table in ("generations", "rewards", "analyses", "evaluations", "prompts")
            }
            query = (
                "SELECT DISTINCT generations.step AS own, run_steps.step FROM generations "
                "JOIN run_steps USING (generation_id)"
            )
            assert lake.sql(query).rows() == [{"own": 0, "step": 0}]
        assert counts == {
            "generations": 4, "rewards": 4, "analyses": 3, "evaluations": 3, "prompts": 1,
        }  # fmt: skip
        # The same step again, as after an interruption, though the lake has more to show now.
        run.resumed = True
        second = feed()
        assert second.render_prompts(0, 0, [task["task_id"]]) == prompts
        assert second.reward(sampled).rewards == told.rewards
        # The next step is asked of the newest snapshot, without what cheats or is wrong.
        [[turn]] = second.render_prompts(1, 0, [task["task_id"]])
        assert "x**2" not in turn["content"]
        assert "x + x" not in turn["content"]
        with run.reader() as lake:
            again = {
                table: lake.sql(f"SELECT count(*) AS n FROM {table}").rows()[0]["n"]
                for table in counts
            }
            assert again == counts
