"""Contrastive reinforcement learning (CUDA-L1, stage 3), by TRL's GRPOTrainer.

The dataset is a list of tasks (rl-prompts). Before each step, the prompts get the newest exemplars.
Each answer is stored, judged and rewarded within the step, so the next step can show it. --arm
replaces the exemplars for an ablation.

CUDA-L1 publishes two exemplars per prompt and k = 1.5. Group size, clipping of the ratio, weight of
the KL term, temperature and bucket width are not published; the defaults are our choice.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pipelines
import store
from store.errors import FlywheelError, UnknownName
from trainers.datasets import records
from trainers.models import loading, tiny_answers
from trainers.policies.interface import Sampling
from trainers.rollouts.exemplars import Draw, render_bare_prompts
from trainers.runs import processes as ranks
from trainers.runs.job import Job
from trainers.runs.recording import Run, begin_run
from trainers.training import judging, trl_settings
from trainers.training.grpo_options import Config
from trainers.training.grpo_run import train_grpo
from trainers.training.grpo_settings import configure_reward, make_settings, require_vllm
from trainers.training.short_tasks import overfit_on_short_answers
from trainers.training.task_lists import choose_tasks, import_starter

if TYPE_CHECKING:
    from evaluators.judge import Config as Judge
    from evaluators.scheduling.pool import Pool
    from evaluators.service.remote_pool import RemotePool
    from pipelines import Message
    from trainers.rewarding.rules import Rule
    from trainers.rewarding.terms import Terms
    from trainers.training.feed import Feed

PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "model": "tiny",
        "overfit": True,
        "tasks": ("diag_matmul", "triangular_matmul"),
        "starter": True,
        "device": "cpu",
        "steps": 2,
        "prompts_per_step": 2,
        "group_size": 4,
        "batch": 4,
        "max_completion": 96,
        "save_steps": 1,
        "judge": (
            "calls=3",
            "robustness=false",
            "diagnosis=false",
            "timing_s=0.1",
            "timing_limit_s=4.0",
            "blocks=20",
        ),
        # One step for a correct kernel and one for a fast one, because a busy machine may time
        # nothing well.
        "reward_rule": "milestone",
        "sampling_temperature": 0.8,
        "trl": ("learning_rate=1e-4", "gradient_checkpointing=false"),
    },
}


def run(job: Job, config: Config) -> str:
    """Train and return the result in one line.

    Raises:
        FlywheelError: no model is named, options do not fit together, or the run cannot be begun
            or resumed.
        DatasetError: the dataset is not what the lake recorded, or no task is left.
        DeviceUnavailable: there is nothing to judge on.
    """
    if config.model is None:
        raise FlywheelError("no model to start from", "Give --model, or --preset tiny.")
    require_vllm(config)
    trl_settings.silence_libraries()
    if config.starter:
        ranks.run_on_main(lambda: import_starter(job, config.tasks))
    with ExitStack() as stack:
        running = stack.enter_context(begin_run(job, config))
        model = config.model
        base = ranks.run_on_main(lambda: loading.find_model(model, job.out / "model", config.seed))
        settings = make_settings(job, config)
        rule, terms = configure_reward(config)
        place = judging.choose_places(config.device, config.judge)
        judge = judging.parse_options(config.judge, "training")
        dataset = ranks.run_on_main(
            lambda: records.choose_dataset(
                running, config.dataset, "prompt-only", "rl-prompts", seed=config.seed
            )
        )
        tasks = ranks.run_on_main(lambda: choose_tasks(running, dataset, config.tasks))
        identity = ranks.run_on_main(lambda: loading.identify_model(base))
        running.start(
            {
                "dataset_id": dataset.dataset_id,
                "dataset": str(dataset.folder),
                "policy_id": identity.policy_id,
                "tasks": len(tasks),
                "judge": asdict(judge),
                "judged_on": place,
                "reward": {"rule": rule.name, **asdict(terms)},
                "trl": settings,
            }
        )
        parent = ranks.run_on_main(lambda: running.add_base(base, model, identity))
        pool = _open_pool(stack, job, place, judge, config.workers)
        draw = _make_draw(config, pool)
        start = base
        if config.overfit:
            start = ranks.run_on_main(
                lambda: overfit_on_short_answers(
                    running, base, config.seed, lambda: _list_short_prompts(running, tasks, draw)
                )
            )
            parent = ranks.run_on_main(
                lambda: running.add_policy(start, stage="sft", parent=parent)
            )
        feed = (
            _make_feed(running, config, pool, draw, (rule, terms), start, parent) if pool else None
        )
        fitted = train_grpo(running, config, settings, feed, start, parent, dataset, tasks)
    return fitted + f", snapshot {running.snapshot})"


def _open_pool(
    stack: ExitStack, job: Job, place: str, judge: Judge, workers: int
) -> Pool | RemotePool | None:
    """Open the judges on rank 0; an error there ends every rank."""

    def open_pool() -> None:
        pool = judging.make_pool(job.lake_url, place, judge, workers)
        made.append(stack.enter_context(pool))

    made: list[Pool | RemotePool] = []
    ranks.run_on_main(open_pool)
    return made[0] if made else None


def _make_draw(config: Config, pool: Pool | RemotePool | None) -> Draw:
    return Draw(
        arm=config.arm,
        namespace=config.namespace,
        **pipelines.copy_exemplar_options(config),
        device=pool.device["name"] if pool is not None else "",
    )


def _make_feed(
    run: Run,
    config: Config,
    pool: Pool | RemotePool,
    draw: Draw,
    reward: tuple[Rule, Terms],
    start: Path,
    parent: str,
) -> Feed:
    """Return the feed of rank 0; the attempts refer to the row of the policy in training."""
    from trainers.training.feed import Feed

    rule, terms = reward
    tokenizer: Any = loading.load_tokenizer(start)

    def length(messages: list[Message]) -> int:
        found = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        return len(found["input_ids"])

    in_training = store.ids.content_id("policy in training", run.run_id)
    run.append(
        {
            "policies": [
                {
                    "policy_id": in_training,
                    "name": f"contrastive {run.run_id[-6:]} in training",
                    "kind": "model",
                    "stage": "contrastive",
                    "parent_policy_id": parent,
                    "run_id": run.run_id,
                    "config": json.dumps(asdict(config), sort_keys=True),
                }
            ]
        },
        "the policy in training",
    )
    return Feed(
        run,
        pool,
        draw,
        rule,
        replace(terms, device=terms.device or pool.device["name"]),
        Sampling(
            temperature=config.sampling_temperature,
            top_p=config.top_p,
            max_tokens=config.max_completion,
        ),
        policy_id=in_training,
        seed=config.seed,
        longest=config.max_length - config.max_completion,
        length=length,
    )


def _list_short_prompts(run: Run, tasks: list[str], draw: Draw) -> dict[str, list[list[Message]]]:
    """Return the prompts of the tasks that have short answers, by the name of the task."""
    with run.reader(run.pinned_snapshot) as lake:
        names = {
            row["task_id"]: row["name"]
            for row in lake.run('SELECT task_id, "name" FROM task_names').rows()
        }
        known = [task for task in tasks if names[task] in tiny_answers.TEMPLATES]
        if not known:
            raise UnknownName.among("task to overfit on", names[tasks[0]], tiny_answers.TEMPLATES)
        return {
            names[one.task_id]: [one.messages] for one in render_bare_prompts(lake, draw, known)
        }
