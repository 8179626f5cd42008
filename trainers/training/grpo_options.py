"""Options of contrastive reinforcement learning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipelines import ExemplarOptions, Strategy
from trainers.runs.job import Training


@dataclass(frozen=True, kw_only=True)
class Config(Training, ExemplarOptions):
    """Options of contrastive."""

    tasks: tuple[str, ...] = ()
    """Names or ids of the tasks to train on (default: all of the train split)."""
    arm: Strategy = "bucket"
    """How to draw exemplars. bucket: CUDA-L1's softmax over score buckets. random, island, none:
    its ablations. top: the fastest. shuffled: like bucket, but with their scores shuffled."""
    namespace: str | None = None
    """Namespace of the attempts. Prompts show its kernels and those without one, so arms on one
    lake do not see each other's (default: none, and prompts show all kernels)."""
    steps: int = 100
    """Number of optimization steps."""
    prompts_per_step: int = 4
    """Number of prompts per step."""
    group_size: int = 8
    """Number of answers to each prompt. Our choice; CUDA-L1 does not publish it."""
    batch: int = 4
    """Number of answers in one forward and backward pass of a process."""
    max_completion: int = 1024
    """Maximum number of tokens of an answer; the prompt gets the rest of --max-length. A prompt
    that is too long is sent without exemplars."""
    mask_truncated: bool = True
    """Exclude truncated answers from the loss. They still get a reward."""
    sampling_temperature: float = 1.0
    """Temperature of sampling."""
    top_p: float = 1.0
    """Sample from the most likely tokens with this total probability."""
    beta: float = 0.01
    """Weight of the KL divergence from the initial model; 0 needs no reference model. Our choice;
    CUDA-L1 does not publish it."""
    epsilon: float = 0.2
    """Clip the probability ratio to 1 ± this. Our choice; CUDA-L1 does not publish it."""
    reward_rule: str = "cuda-l1"
    """Reward rule (a file of trainers/rewards), which defines smoothing and clipping."""
    reward: tuple[str, ...] = ()
    """Option of the rule, as KEY=VALUE, such as clip=1.5. Repeat it for more options."""
    device: str = "auto"
    """Devices to judge kernels on: cpu, cuda:1, cuda:2,cuda:3 … auto takes the GPUs that no process
    trains on. If there is none, the first GPU alternates between training and judging."""
    workers: int = 1
    """Number of judges on the CPU or on each GPU. Those of a GPU take turns at timing."""
    judge: tuple[str, ...] = ()
    """Option of the judge, as KEY=VALUE, such as baselines=eager,compile. Repeat it for more
    options. Verdicts of the default protocol=training are rewards only and never rank; a kernel
    that beats every ranked kernel of its task is also judged in full at once. A URL names a judge
    service (`evaluators serve`), which always judges in full, to use instead of this host."""
    vllm: Literal["off", "colocate", "server"] = "off"
    """Sample with vLLM: in the training processes (colocate) or through `vllm serve` (server). Give
    further settings with --trl, such as vllm_server_base_url=…"""
    starter: bool = False
    """Import the starter suite if the lake does not have the tasks; create the lake
    ./lake if needed."""
    overfit: bool = False
    """First overfit the model on a few short answers, so that it writes kernels."""
