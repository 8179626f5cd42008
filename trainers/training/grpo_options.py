"""Options of contrastive reinforcement learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pipelines import ExemplarOptions
from trainers.runs.job import Training
from trainers.training.exemplars import (
    Arm,
)

if TYPE_CHECKING:
    pass


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
