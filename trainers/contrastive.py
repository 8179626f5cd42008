"""Contrastive reinforcement learning (CUDA-L1, stage 3), by TRL's GRPOTrainer.

The dataset is a list of tasks (rl-prompts). Before each step, the prompts get the newest exemplars.
Each answer is stored, judged and rewarded within the step, so the next step can show it. --strategy
replaces the exemplars for an ablation.

CUDA-L1 publishes two exemplars per prompt and rewards clipped at k = 1.5. It does not publish group
size, clipping of the ratio, weight of the KL term, temperature and bucket width; the defaults are
our choice.
"""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.validators import Number

import pipelines
import store
from pipelines import ExemplarOptions, Strategy
from store import read_sql
from store.commandline.members import Count, DeviceOption, Positive, Share
from store.dossier.pages import read_task_names
from store.errors import FlywheelError, UnknownName
from trainers.datasets import records
from trainers.datasets.records import Dataset
from trainers.models import loading
from trainers.policies.interface import Sampling
from trainers.rollouts.prompts import Draw
from trainers.runs import processes as ranks
from trainers.runs.job import Job, Training, parse_values
from trainers.runs.recording import FINAL, Checkpoints, Run, begin_run
from trainers.training import judging, trl_trainers
from trainers.training.short_answers import overfit_on_short_answers, render_short_prompts

if TYPE_CHECKING:
    import datasets

    from evaluators.scheduling.pool import Pool
    from pipelines import Message
    from trainers.rewarding.scoring import Rule, Terms


PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {
        "model": "tiny",
        "overfit": True,
        "tasks": ("diag_matmul", "triangular_matmul"),
        "starter": True,
        "exemplar_device": "H200",
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


@dataclass(frozen=True, kw_only=True)
class Config(Training, ExemplarOptions):
    """Options of contrastive."""

    tasks: tuple[str, ...] = ()
    """Names or ids of the tasks to train on (default: all of the train split)."""
    arm: Annotated[Strategy, Parameter(name="--strategy")] = "bucket"
    """How to draw exemplars. bucket: CUDA-L1's softmax over score buckets. random, island, none:
    its ablations. top: the fastest. shuffled: like bucket, but with their scores shuffled."""
    namespace: str | None = None
    """Namespace of the attempts. Prompts show its kernels and those without one, so variants on
    one lake do not see each other's (default: none, and prompts show all kernels)."""
    exemplar_device: str | None = None
    """Device whose measured speedups a prompt shows where the judges' device has none for its task,
    such as H200; the prompt names it (default: such a prompt shows no kernels)."""
    steps: Count = 100
    """Number of optimization steps."""
    prompts_per_step: Count = 4
    """Number of prompts per step."""
    group_size: Count = 8
    """Number of answers to each prompt. Our choice; CUDA-L1 does not publish it."""
    batch: Count = 4
    """Number of answers in one forward and backward pass of a process."""
    max_completion: Count = 1024
    """Maximum number of tokens of an answer; the prompt gets the rest of --max-length. A prompt
    that is too long is sent without exemplars."""
    mask_truncated: bool = True
    """Exclude truncated answers from the loss. They still get a reward."""
    sampling_temperature: Positive = 1.0
    """Temperature of sampling."""
    top_p: Share = 1.0
    """Sample from the most likely tokens with this total probability."""
    beta: Annotated[float, Parameter(validator=Number(gte=0))] = 0.01
    """Weight of the KL divergence from the initial model; 0 needs no reference model. Our choice;
    CUDA-L1 does not publish it."""
    epsilon: Positive = 0.2
    """Clip the probability ratio to 1 ± this. Our choice; CUDA-L1 does not publish it."""
    reward_rule: str = "cuda-l1"
    """Reward rule (a file of trainers/rewards), which defines smoothing and clipping."""
    reward: tuple[str, ...] = ()
    """Option of the rule, as KEY=VALUE, such as clip=1.5. Repeat it for more options."""
    device: DeviceOption = "auto"
    """Devices to judge kernels on: cpu, cuda:1, cuda:2,cuda:3 … auto takes the GPUs that no process
    trains on. If there is none, the first GPU alternates between training and judging."""
    workers: Count = 1
    """Number of judges on the CPU or on each GPU. Those of a GPU take turns at timing."""
    judge: tuple[str, ...] = ()
    """Option of the judge, as KEY=VALUE, such as baselines=eager,compile. Repeat it for more
    options. Verdicts of the default protocol=training are rewards only and never rank; a kernel
    that beats every ranked kernel of its task is also judged in full at once. ray:HOST:PORT
    names a Ray cluster to judge on instead of this host."""
    vllm: Literal["off", "colocate", "server"] = "off"
    """Sample with vLLM: in the training processes (colocate) or through `vllm serve` (server). Give
    further settings with --trl, such as vllm_server_base_url=…"""
    overfit: bool = False
    """First overfit the model on a few short answers, so that it writes kernels."""


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
    if config.vllm != "off" and importlib.util.find_spec("vllm") is None:
        raise FlywheelError(
            f"--vllm {config.vllm} needs the package vllm, which is not installed",
            "Install it (`pip install vllm`), or leave out --vllm to sample with Transformers.",
        )
    trl_trainers.silence_libraries()
    if config.starter:
        ranks.run_on_main(lambda: job.import_starter(config.tasks))
    with ExitStack() as stack:
        run = stack.enter_context(begin_run(job, config))

        from trainers.training.grpo import Feed, StoreGRPOTrainer

        # What the run is made of. Rank 0 finds it, and every rank gets the same.
        settings = make_settings(job, config)
        rule, terms = configure_reward(config)
        place = judging.choose_places(config.device, config.judge)
        judge = judging.parse_options(config.judge, "training")
        base, identity, dataset = records.choose_inputs(run, config, "prompt-only", "rl-prompts")
        tasks = ranks.run_on_main(lambda: choose_tasks(run, dataset, config.tasks))
        run.start(
            {
                "dataset_id": dataset.dataset_id,
                "dataset": str(dataset.folder),
                "folder": str(job.out.resolve()),
                "policy_id": identity.policy_id,
                "tasks": len(tasks),
                "judge": asdict(judge),
                "judged_on": place,
                "reward": {"rule": rule.name, **asdict(terms)},
                "trl": settings,
            }
        )
        parent = ranks.run_on_main(lambda: run.add_base(base, str(config.model), identity))

        # Rank 0 alone judges and reads the lake; an error there ends every rank.
        pools: list[Pool] = []
        ranks.run_on_main(
            lambda: pools.append(
                stack.enter_context(judging.make_pool(job.lake_url, place, judge, config.workers))
            )
        )
        draw = Draw(
            arm=config.arm,
            namespace=config.namespace,
            **pipelines.copy_exemplar_options(config),
            device=pools[0].device["name"] if pools else "",
            other_device=config.exemplar_device,
        )
        start = base
        if config.overfit:
            start = ranks.run_on_main(
                lambda: overfit_on_short_answers(
                    run, base, config.seed, lambda: render_short_prompts(run, tasks, draw)
                )
            )
            parent = ranks.run_on_main(lambda: run.add_policy(start, stage="sft", parent=parent))
        feed = None
        tokenizer: Any = loading.load_tokenizer(start)
        if pools:

            def count_tokens(messages: list[Message]) -> int:
                return len(
                    tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
                )

            # The attempts refer to a row of the policy in training, since it changes in every step.
            in_training = store.ids.content_id("policy in training", run.run_id)
            policy_row = {
                "policy_id": in_training,
                "name": f"contrastive {run.run_id[-6:]} in training",
                "kind": "model",
                "stage": "contrastive",
                "parent_policy_id": parent,
                "run_id": run.run_id,
                "config": json.dumps(
                    {"start": str(start.resolve()), **asdict(config)}, sort_keys=True
                ),
            }
            run.append({"policies": [policy_row]}, "the policy in training")
            feed = Feed(
                run=run,
                pool=pools[0],
                draw=draw,
                rule=rule,
                terms=replace(terms, device=terms.device or draw.device),
                sampling=Sampling(
                    temperature=config.sampling_temperature,
                    top_p=config.top_p,
                    max_tokens=config.max_completion,
                ),
                policy_id=in_training,
                seed=config.seed,
                longest=config.max_length - config.max_completion,
                length=count_tokens,
            )

        # The loop is TRL's. In each step, StoreGRPOTrainer takes the prompts from the feed, samples
        # answers, hands them to the feed for their rewards, and makes the update.
        checkpoints = Checkpoints(
            run=run,
            out=job.out,
            stage="contrastive",
            parent=parent,
            dataset_id=dataset.dataset_id,
        )
        with open_trainer(
            StoreGRPOTrainer,
            settings,
            start,
            config,
            feed=feed,
            train_dataset=list_steps(tasks, config),
            processing_class=tokenizer,
            callbacks=[checkpoints.make_callback()],
        ) as trainer:
            _, checkpoint = checkpoints.resume() if run.resumed else (0, None)
            trainer.train(resume_from_checkpoint=checkpoint)
            checkpoints.write_final(trainer)
        steps = int(trainer.state.global_step)

        def count_answers() -> dict[str, int]:
            with run.reader() as lake:
                sql = read_sql(__file__, "answers_with_exemplars")
                return lake.run(sql, [run.run_id]).rows()[0]

        counts = ranks.run_on_main(count_answers)
        policy = checkpoints.record_final(steps)

    processes = trainer.accelerator.num_processes
    several = f" on {processes} processes" * (ranks.count_processes() > 1)
    last: Any = next((row for row in reversed(trainer.state.log_history) if "reward" in row), {})
    reward = ""
    if last.get("reward") is not None:
        spread = f"reward spread within groups: {last['reward_std']:.3g}"
        reward = f", last reward {last['reward']:.3g}, {spread}"
    return (
        f"contrastive: {steps} steps{several} on {len(tasks)} tasks, {counts['shown']} of "
        f"{counts['answers']} answers had exemplars{reward} → "
        f"{checkpoints.final} (policy {policy[:12]}, snapshot {run.snapshot})"
    )


@contextmanager
def open_trainer(
    kind: Any, settings: dict[str, Any], start: Path, config: Config, **given: Any
) -> Generator[Any]:
    """Yield a trainer over the model in a folder, which takes turns on its GPU until the end."""
    from trl.trainer.grpo_config import GRPOConfig

    from trainers.runs.gpu_turns import GpuTurns, open_lock

    arguments, model_options = trl_trainers.make_config(GRPOConfig, settings)
    device = str(arguments.device)
    with closing(GpuTurns(device, open_lock(device))) as turns:
        trainer = kind(
            turns=turns,
            model=loading.load_model(start, lora=config.lora, **model_options),
            args=arguments,
            peft_config=loading.make_adapter_config(start, config.lora),
            **given,
        )
        trl_trainers.stop_printing(trainer)
        yield trainer


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """The result of a replay."""

    figures: list[dict[str, Any]]
    """step, figure, logged, replayed, difference, and the scale that a tolerance is relative to."""
    notes: list[str]
    """The weights that it began with, and what differs from the run."""
    settings: dict[str, Any]
    """Its arguments of GRPOConfig."""


def replay(
    job: Job,
    run_id: str,
    step: int,
    changes: dict[str, Any],
    *,
    micro_batch: int | None = None,
    model: Path | None = None,
    train: bool = False,
) -> Replayed:
    """Compute a step of a run again from its stored tokens and verdicts.

    Args:
        job: Its lake, and the folder for checkpoints with `train`.
        run_id: A run of contrastive.
        step: Number of the step, from 0.
        changes: Options that replace those of the run; those of `trl` are added.
        micro_batch: The only micro-batch of the step to compute.
        model: Folder of the policy that the step began with (default: as recorded).
        train: Train through all steps that follow, too, and write checkpoints.

    Raises FlywheelError: the lake lacks the run, the step, its tokens or its verdicts; weights are
    gone or are others; or the tokenizer is another one.
    """
    trl_trainers.silence_libraries()
    from datasets import Dataset as Rows

    from store.rollouts.trl import hash_tokenizer
    from trainers.training import replay as replaying

    with ExitStack() as stack:
        lake = stack.enter_context(store.open(job.lake_url, job.at))
        recorded = replaying.read_run(lake, run_id)
        options: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in recorded.config["config"].items()
        }
        unknown = sorted(set(options) - {one.name for one in fields(Config)})
        if unknown:
            raise FlywheelError(
                f"run {run_id} has options that this version lacks: {', '.join(unknown)}",
                f"Replay it with version {recorded.config['versions']['kernel-flywheel']}.",
            )
        was = Config(**options)
        config = replace(was, **changes | {"trl": (*was.trl, *changes.get("trl", ()))})
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        settings = make_settings(job if train else replace(job, out=scratch / "out"), config)
        settings |= {"report_to": "none"} | ({} if train else {"save_strategy": "no"})
        passes: int = settings["gradient_accumulation_steps"]
        if micro_batch is not None and not 0 <= micro_batch < passes:
            raise UnknownName(
                f"step {step} has no micro-batch {micro_batch}", f"There are 0 to {passes - 1}."
            )
        # One batch of answers may serve several steps.
        served = settings.get("steps_per_generation") or passes
        served = max(1, served * settings.get("num_iterations", 1) // passes)
        first, last = recorded.sampled[0], min(recorded.sampled[-1] + served, config.steps) - 1
        if not first <= step <= last:
            raise UnknownName(
                f"run {run_id} has no tokens of step {step}", f"It has steps {first} to {last}."
            )

        start, checkpoint = replaying.find_weights(
            recorded, step, model, scratch, needs_start=bool(config.beta)
        )
        tokenizer = loading.load_tokenizer(start)
        feed = replaying.Recorded(
            lake=lake,
            run=recorded,
            rule=configure_reward(config)[0],
            group_size=config.group_size,
            tokenizer=hash_tokenizer(tokenizer),
            micro_batch=micro_batch,
        )
        watch = replaying.Watch(last if train else step, job.progress)
        count = config.steps * config.prompts_per_step
        placeholder = {"task_id": "", "prompt": [{"role": "user", "content": ""}]}
        trainer = stack.enter_context(
            open_trainer(
                replaying.ReplayTrainer,
                settings,
                start,
                config,
                feed=feed if ranks.is_main() else None,
                only=None if micro_batch is None else (step, micro_batch),
                train_dataset=Rows.from_list([placeholder] * count),
                processing_class=tokenizer,
                callbacks=[watch],
            )
        )
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        if train:
            trainer.save_model(str(job.out / FINAL))

        figures = [
            figure
            for at in range(step, watch.last + 1)
            for figure in (
                *replaying.compare(lake, run_id, at, watch.logs[at], whole=micro_batch is None),
                *(one for one in feed.figures if one["step"] == at),
            )
        ]
        notes = replaying.describe_differences(feed, settings)
        notes.insert(0, f"began with {checkpoint or start}")
    return Replayed(figures=figures, notes=notes, settings=settings)


def make_settings(job: Job, config: Config) -> dict[str, Any]:
    """Return the arguments of GRPOConfig.

    Raises:
        FlywheelError: --trl sets the same as an option, or the answers of a step cannot be divided.
    """
    from trl.trainer.grpo_config import GRPOConfig

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
    # With the option of ours that sets it, or with what --trl may not change at all, since stored
    # rows depend on it.
    passes = answers // (processes * config.batch)
    owned: dict[str, tuple[str | None, Any]] = {
        "num_generations": ("--group-size", config.group_size),
        "per_device_train_batch_size": ("--batch", config.batch),
        "gradient_accumulation_steps": ("--prompts-per-step", passes),
        "max_completion_length": ("--max-completion", config.max_completion),
        "max_steps": ("--steps", config.steps),
        "temperature": ("--sampling-temperature", config.sampling_temperature),
        "top_p": ("--top-p", config.top_p),
        "beta": ("--beta", config.beta),
        "epsilon": ("--epsilon", config.epsilon),
        "mask_truncated_completions": ("--mask-truncated", config.mask_truncated),
        "use_vllm": ("--vllm", config.vllm != "off"),
        "scale_rewards": (None, "group"),
        "remove_unused_columns": (None, False),
        "shuffle_dataset": (None, False),
    }
    ours = {name: value for name, (_, value) in owned.items()}
    ours |= {"loss_type": "grpo", "top_k": 0, "ddp_timeout": int(ranks.WAIT.total_seconds())}
    if config.vllm != "off":
        ours["vllm_mode"] = config.vllm
    flags = {name: flag for name, (flag, _) in owned.items()} | {
        "generation_batch_size": "--prompts-per-step",
        "vllm_mode": "--vllm",
        "reward_weights": None,
    }
    return trl_trainers.make_settings(GRPOConfig, config, job.out, ours, flags)


def configure_reward(config: Config) -> tuple[Rule, Terms]:
    """Return the reward rule of a run and its options.

    Raises:
        FlywheelError: the rule has no such option, or reads a clock that the judge does not time.
    """
    from trainers.rewarding.scoring import configure_rule, load_rule

    rule = load_rule(config.reward_rule)
    terms = configure_rule(rule, parse_values("reward", config.reward))
    if terms.clock and judging.parse_options(config.judge, "training").protocol == "training":
        raise FlywheelError(
            f"no kernel would have a speedup by the clock {terms.clock}: the judge's protocol "
            "training times by the clock that ranks alone",
            "Add --judge protocol=full, or leave out --reward clock=….",
        )
    return rule, terms


def choose_tasks(run: Run, dataset: Dataset, wanted: tuple[str, ...]) -> list[str]:
    """Return the ids of the tasks to train on, in the order of the dataset.

    Raises UnknownName: a task is not in the dataset.
    """
    rows = dataset.table(["task_id", "task"]).to_pylist()
    tasks = list(dict.fromkeys(row["task_id"] for row in rows))
    if not wanted:
        return tasks
    with store.open(run.job.lake_url) as lake:
        names = read_task_names(lake)
    chosen: set[str] = set()
    for one in wanted:
        found = {row["task_id"] for row in names.match(one)}
        if not found.intersection(tasks):
            raise UnknownName.among("task of the dataset", one, {row["task"] for row in rows})
        chosen |= found
    return [one for one in tasks if one in chosen]


def list_steps(tasks: list[str], config: Config) -> datasets.Dataset:
    """Return the rows of GRPOTrainer: the tasks of all steps, shuffled again for each pass.

    TRL's own shuffling restarts when a run is resumed, and it drops rows that do not fill a step.
    """
    import datasets

    wanted = config.steps * config.prompts_per_step
    ids: list[str] = []
    for time_round in range(-(-wanted // len(tasks))):
        parts = ("order", str(config.seed), str(time_round))
        keyed = sorted((store.ids.content_id(*parts, task), task) for task in tasks)
        ids += [task for _, task in keyed]
    # A placeholder for the prompt of the step, so that TRL knows its shape.
    prompt = [{"role": "user", "content": ""}]
    return datasets.Dataset.from_dict({"task_id": ids[:wanted], "prompt": [prompt] * wanted})
