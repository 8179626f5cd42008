"""Contrastive reinforcement learning (CUDA-L1, stage 3), by TRL's GRPOTrainer.

The dataset is a list of tasks (rl-prompts). Each step's prompts show exemplars as they are known
just before it is sampled; each answer is stored, judged and rewarded before the step goes on, so
that the next one may show it. --arm replaces the exemplars for an ablation.

CUDA-L1 publishes two exemplars per prompt and k = 1.5. Group size, clipping of the ratio, weight of
the KL term, temperature and bucket width are not published: the defaults here are our choice.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import store
from pipelines import ExemplarOptions
from store.errors import FlywheelError, LakeNotFound, UnknownName
from trainers.datasets import records
from trainers.datasets.records import Dataset
from trainers.models import loading, tiny_answers
from trainers.policies.interface import Sampling
from trainers.rewarding import scoring
from trainers.runs import key_values, recording
from trainers.runs import processes as ranks
from trainers.runs.job import Job, Training
from trainers.runs.recording import Run, begin_run
from trainers.training import judging, trl_settings
from trainers.training.exemplars import (
    Arm,
    Draw,
    copy_exemplar_options,
    render_bare_prompts,
)

if TYPE_CHECKING:
    import datasets
    from transformers import TrainerCallback

    from evaluators.judge import Config as Judge
    from evaluators.scheduling.pool import Pool
    from pipelines import Message
    from trainers.rewarding.scoring import Rule
    from trainers.rewarding.terms import Terms
    from trainers.training.feed import Feed
    from trainers.training.grpo import StoreGRPOTrainer

_OWNED = {
    "num_generations": "--group-size",
    "per_device_train_batch_size": "--batch",
    "gradient_accumulation_steps": "--prompts-per-step",
    "generation_batch_size": "--prompts-per-step",
    "max_completion_length": "--max-completion",
    "max_steps": "--steps",
    "temperature": "--sampling-temperature",
    "top_p": "--top-p",
    "beta": "--beta",
    "epsilon": "--epsilon",
    "mask_truncated_completions": "--mask-truncated",
    "use_vllm": "--vllm",
    "vllm_mode": "--vllm",
    "scale_rewards": None,
    "reward_weights": None,
    "remove_unused_columns": None,
    "shuffle_dataset": None,
}
"""Settings of GRPOConfig that options of ours set; None for those that stored rows rest on."""

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
        # A step for being right, another for being fast: a busy machine may time nothing well.
        "reward_rule": "milestone",
        "sampling_temperature": 0.8,
        "trl": ("learning_rate=1e-4", "gradient_checkpointing=false"),
    },
}


@dataclass(frozen=True, kw_only=True)
class Config(Training, ExemplarOptions):
    """Options of contrastive."""

    tasks: tuple[str, ...] = ()
    """Names or ids of the tasks to train on (default: all of the train split)."""
    arm: Arm = "bucket"
    """Exemplars of the prompts. bucket: CUDA-L1's softmax over score buckets. random, island, none:
    its ablations. shuffled: those of bucket with their scores dealt out anew."""
    steps: int = 100
    """Optimisation steps."""
    prompts_per_step: int = 4
    """Prompts sampled for a step."""
    group_size: int = 8
    """Answers to each prompt. Our choice: not published."""
    batch: int = 4
    """Answers in one forward and backward pass of a process."""
    max_completion: int = 1024
    """Most tokens of an answer; the prompt has --max-length less that. A longer prompt is asked
    without exemplars."""
    mask_truncated: bool = True
    """Leave answers that were cut off out of the loss (their reward is that of what they say)."""
    sampling_temperature: float = 1.0
    """Temperature of sampling."""
    top_p: float = 1.0
    """Share of the probability that tokens are sampled from."""
    beta: float = 0.01
    """Weight of the KL divergence from the model that training starts from. Our choice: not
    published; 0 needs no reference model."""
    epsilon: float = 0.2
    """Clipping of the probability ratio on both sides. Our choice: not published."""
    reward_rule: str = "cuda-l1"
    """Rule of trainers/rewards: smoothing and clipping are its own."""
    reward: tuple[str, ...] = ()
    """KEY=VALUE of the rule's options, such as clip=1.5; may be repeated."""
    device: str = "auto"
    """Where kernels are judged: cpu, cuda:1, cuda:2,cuda:3 … auto takes the GPUs that no process
    trains on, and where there is none the first, in turns with training."""
    judge: tuple[str, ...] = ()
    """KEY=VALUE of the judge's options, such as baselines=eager,compile; may be repeated."""
    vllm: Literal["off", "colocate", "server"] = "off"
    """Sampling by vLLM in the training processes or by a `vllm serve`; the rest is --trl
    vllm_server_base_url=… and the like."""
    starter: bool = False
    """Make the lake, and import the starter suite, where the tasks are not there."""
    overfit: bool = False
    """First overfit the model on a few short answers, so that it emits kernels."""


def run(job: Job, config: Config) -> str:
    """Train and return what was made in one line.

    Raises:
        FlywheelError: no model is named, options do not fit together, or the run cannot be begun
            or resumed.
        DatasetError: the dataset is not what the lake recorded, or no task is left.
        DeviceUnavailable: there is nothing to judge on.
    """
    if config.model is None:
        raise FlywheelError("no model to start from", "Give --model, or --preset tiny.")
    _require_vllm(config)
    trl_settings.silence_libraries()
    if config.starter:
        ranks.run_on_main(lambda: _import_starter(job, config.tasks))
    with ExitStack() as stack:
        running = stack.enter_context(begin_run(job, config))
        model = config.model
        base = ranks.run_on_main(lambda: loading.find_model(model, job.out / "model", config.seed))
        settings = _make_settings(job, config)
        rule = scoring.load_rule(config.reward_rule)
        terms = scoring.configure_rule(rule, key_values.parse_values("reward", config.reward))
        place = judging.choose_devices(config.device)
        judge = judging.parse_options(config.judge)
        dataset = ranks.run_on_main(lambda: _choose_dataset(running, config))
        tasks = ranks.run_on_main(lambda: _choose_tasks(running, dataset, config.tasks))
        running.start(
            {
                "dataset_id": dataset.dataset_id,
                "dataset": str(dataset.folder),
                "policy_id": ranks.run_on_main(lambda: loading.compute_policy_id(base)),
                "tasks": len(tasks),
                "judge": asdict(judge),
                "judged_on": place,
                "reward": {"rule": rule.name, **asdict(terms)},
                "trl": settings,
            }
        )
        parent = ranks.run_on_main(lambda: running.base(base, model))
        pool = _open_pool(stack, job, place, judge)
        draw = _make_draw(config, pool)
        start = base
        if config.overfit:
            start = ranks.run_on_main(lambda: _overfit(running, config, base, tasks, draw))
            parent = ranks.run_on_main(lambda: running.policy(start, stage="sft", parent=parent))
        feed = _make_feed(running, config, pool, draw, (rule, terms), start, parent) if pool else None
        fitted = _train(running, config, settings, feed, start, parent, dataset, tasks)
        snapshot = running.flush()
    return fitted + f", snapshot {snapshot})"


def _require_vllm(config: Config) -> None:
    """Raise FlywheelError if vLLM is asked for and not installed."""
    if config.vllm != "off" and importlib.util.find_spec("vllm") is None:
        raise FlywheelError(
            f"--vllm {config.vllm} needs the package vllm, which is not installed",
            "Install it (`pip install vllm`), or leave out --vllm to sample with Transformers.",
        )


def _train(
    run: Run,
    config: Config,
    settings: Mapping[str, Any],
    feed: Feed | None,
    start: Path,
    parent: str,
    dataset: Dataset,
    tasks: list[str],
) -> str:
    """Train from a model folder, or go on from the last checkpoint; return what was made."""
    from trl.trainer.grpo_config import GRPOConfig

    from trainers.training.grpo import StoreGRPOTrainer

    out = run.job.out
    arguments: Any = trl_settings.make_config(GRPOConfig, settings)
    given: dict[str, Any] = dict(arguments.model_init_kwargs or {})
    arguments.model_init_kwargs = None
    trainer = StoreGRPOTrainer(
        feed=feed,
        shares_device=not judging.has_own_devices(judging.choose_devices(config.device)),
        model=loading.load_model(start, lora=config.lora, **given),
        args=arguments,
        train_dataset=_list_steps(tasks, config),
        processing_class=loading.load_tokenizer(start),
        peft_config=loading.make_adapter_config(start, config.lora),
        callbacks=[
            recording.make_metrics_callback(run),
            _make_checkpoint_callback(run, parent, dataset),
        ],
    )
    trl_settings.stop_printing(trainer)
    done = recording.list_checkpoints(out) if run.resumed else []
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
    """Return what the last step came to."""
    last: Any = next((row for row in reversed(trainer.state.log_history) if "reward" in row), {})
    if last.get("reward") is None:
        return ""
    return f", last reward {last['reward']:.3g} in groups that spread {last['reward_std']:.3g}"


def _make_settings(job: Job, config: Config) -> dict[str, Any]:
    """Return the arguments of GRPOConfig.

    Raises:
        FlywheelError: --trl sets what an option sets, or the answers of a step cannot be divided.
    """
    from trl.trainer.grpo_config import GRPOConfig

    passed = trl_settings.parse_words(GRPOConfig, config.trl)
    for name in passed:
        if name in _OWNED:
            option = _OWNED[name]
            hint = f"Give {option} instead." if option else "What is stored of a run rests on it."
            raise FlywheelError(f"--trl {name} is not passed on", hint)
    processes = ranks.count_processes()
    answers = config.prompts_per_step * config.group_size
    if config.group_size < 2:
        raise FlywheelError(f"--group-size {config.group_size} compares nothing", "Give 2 or more.")
    if answers % (processes * config.batch):
        raise FlywheelError(
            f"{config.prompts_per_step} prompts with {config.group_size} answers each cannot be "
            f"divided into passes of {config.batch} on {processes} process(es)",
            "Make --prompts-per-step times --group-size a multiple of --batch times processes.",
        )
    if config.max_completion >= config.max_length:
        raise FlywheelError(
            f"--max-completion {config.max_completion} leaves no room for a prompt",
            f"--max-length {config.max_length} is for both.",
        )
    ours = {
        "loss_type": "grpo",
        "scale_rewards": "group",
        "num_generations": config.group_size,
        "per_device_train_batch_size": config.batch,
        "gradient_accumulation_steps": answers // (processes * config.batch),
        "max_completion_length": config.max_completion,
        "mask_truncated_completions": config.mask_truncated,
        "max_steps": config.steps,
        "temperature": config.sampling_temperature,
        "top_p": config.top_p,
        "top_k": 0,
        "beta": config.beta,
        "epsilon": config.epsilon,
        "use_vllm": config.vllm != "off",
        "remove_unused_columns": False,
        "shuffle_dataset": False,
        "ddp_timeout": int(ranks.WAIT.total_seconds()),
    }
    if config.vllm != "off":
        ours["vllm_mode"] = config.vllm
    return trl_settings.make_settings(GRPOConfig, config, job.out, ours)


def _open_pool(stack: ExitStack, job: Job, place: str, judge: Judge) -> Pool | None:
    """Open the judges on rank 0; a refusal there ends every rank."""

    def opened() -> None:
        from evaluators.scheduling.pool import Pool

        made.append(stack.enter_context(Pool(job.lake_url, place, judge)))

    made: list[Pool] = []
    ranks.run_on_main(opened)
    return made[0] if made else None


def _make_draw(config: Config, pool: Pool | None) -> Draw:
    return Draw(
        arm=config.arm,
        **copy_exemplar_options(config),
        device=pool.device["name"] if pool is not None else "",
    )


def _make_feed(
    run: Run,
    config: Config,
    pool: Pool,
    draw: Draw,
    rule: tuple[Rule, Terms],
    start: Path,
    parent: str,
) -> Feed:
    """Return the feed of rank 0; the policy in training is a row that its attempts name."""
    from trainers.training.feed import Feed

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
        *rule,
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


def _choose_dataset(run: Run, config: Config) -> Dataset:
    """Return the list of tasks: that of the run's beginning, the one named, or one made now."""
    url = run.job.lake_url
    if "dataset_id" in run.resolved:
        return records.find_dataset(url, run.resolved["dataset"], "prompt-only")
    if config.dataset is not None:
        return records.find_dataset(url, config.dataset, "prompt-only")
    return records.make_dataset(url, "rl-prompts", at=run.reads, seed=config.seed)


def _choose_tasks(run: Run, dataset: Dataset, wanted: tuple[str, ...]) -> list[str]:
    """Return the ids of the tasks to train on, in the order of the dataset.

    Raises:
        UnknownName: a task is not in the dataset.
    """
    rows = dataset.columns(["task_id", "task"], run.job.out / "cache").to_list()
    names = {row["task_id"]: row["task"] for row in rows}
    for name in wanted:
        if name not in names and name not in names.values():
            raise UnknownName.among("task of the dataset", name, set(names.values()))
    return [one for one, name in names.items() if not wanted or {one, name} & set(wanted)]


def _list_steps(tasks: list[str], config: Config) -> datasets.Dataset:
    """Return the rows of GRPOTrainer: the tasks of all steps, shuffled anew each time round.

    TRL's own shuffling begins again where a run is resumed, and it drops what does not fill a step.
    """
    import datasets

    wanted = config.steps * config.prompts_per_step
    ids: list[str] = []
    for time_round in range(-(-wanted // len(tasks))):
        parts = ("order", str(config.seed), str(time_round))
        keyed = sorted((store.ids.content_id(*parts, task), task) for task in tasks)
        ids += [task for _, task in keyed]
    # Put in the place of the prompt that the step will have, so that TRL knows its shape.
    prompt = [{"role": "user", "content": ""}]
    return datasets.Dataset.from_dict({"task_id": ids[:wanted], "prompt": [prompt] * wanted})


def _import_starter(job: Job, tasks: tuple[str, ...]) -> None:
    """Import the starter suite where the lake, or one of the tasks, is not there."""
    from store.importers import starter
    from store.importers.reading.run import line, run_import

    try:
        with store.open(job.lake_url) as lake:
            rows = lake.run('SELECT DISTINCT "name" FROM task_names').rows()
        if not set(tasks) - {row["name"] for row in rows}:
            return
    except LakeNotFound:
        job.say("no lake yet: it is made")
    with store.writer(job.lake_url, author="store import starter") as writer:
        summary = run_import(writer, starter, None, starter.Config(measured=False))
    job.say(f"starter    {line(summary)}")


def _overfit(run: Run, config: Config, base: Path, tasks: list[str], draw: Draw) -> Path:
    """Return the folder of the model overfitted on short answers; made once."""
    out = run.job.out / "model" / "overfitted"
    if (out / "config.json").exists():
        return out
    with run.reader(run.reads) as lake:
        names = {
            row["task_id"]: row["name"]
            for row in lake.run('SELECT task_id, "name" FROM task_names').rows()
        }
        known = [task for task in tasks if names[task] in tiny_answers.TEMPLATES]
        if not known:
            raise UnknownName.among("task to overfit on", names[tasks[0]], tiny_answers.TEMPLATES)
        prompts = {
            names[one.task_id]: [one.messages] for one in render_bare_prompts(lake, draw, known)
        }
    return tiny_answers.overfit(base, prompts, out, config.seed, run.job.say)


def _make_checkpoint_callback(run: Run, parent: str, dataset: Dataset) -> TrainerCallback:
    """Return a callback that appends every checkpoint as a policy, and tells of progress."""
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
    """Append the policy that a folder of weights is; sharded weights are none before the end."""
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
