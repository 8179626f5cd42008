"""Arguments of GRPOConfig: our defaults, settings from --trl, and those that it may not change."""

from __future__ import annotations

import importlib.util
from typing import Any

from store.errors import FlywheelError
from trainers.rewarding.rules import Rule, configure_rule, load_rule
from trainers.rewarding.terms import Terms
from trainers.runs import key_values
from trainers.runs import processes as ranks
from trainers.runs.job import Job
from trainers.training import trl_settings
from trainers.training.grpo_options import Config
from trainers.training.judging import parse_options

_OWNED: trl_settings.Owned = {
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
"""Settings of GRPOConfig that our options set; None for those that stored rows depend on."""


def require_vllm(config: Config) -> None:
    """Raise FlywheelError if vLLM is asked for and not installed."""
    if config.vllm != "off" and importlib.util.find_spec("vllm") is None:
        raise FlywheelError(
            f"--vllm {config.vllm} needs the package vllm, which is not installed",
            "Install it (`pip install vllm`), or leave out --vllm to sample with Transformers.",
        )


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
    return trl_settings.make_settings(GRPOConfig, config, job.out, ours, _OWNED)


def configure_reward(config: Config) -> tuple[Rule, Terms]:
    """Return the reward rule of a run and its options.

    Raises:
        FlywheelError: the rule has no such option, or reads a clock that the judge does not time.
    """
    rule = load_rule(config.reward_rule)
    terms = configure_rule(rule, key_values.parse_values("reward", config.reward))
    if terms.clock and parse_options(config.judge, "training").protocol == "training":
        raise FlywheelError(
            f"no kernel would have a speedup by the clock {terms.clock}: the judge's protocol "
            "training times by the clock that ranks alone",
            "Add --judge protocol=full, or leave out --reward clock=….",
        )
    return rule, terms
