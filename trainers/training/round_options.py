"""Options of rounds of sampling and training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from trainers.runs.job import Training


@dataclass(frozen=True, kw_only=True)
class Config(Training):
    """Options of self-supervised. --dataset is a dataset of prompts, such as self-supervised@v1."""

    rounds: int = 3
    """Number of rounds of sampling and training. Our choice; CUDA-L1 does not publish it."""
    attempts: int = 8
    """Number of attempts at each prompt in a round. Our choice; CUDA-L1 does not publish it."""
    prompts: int | None = None
    """Maximum number of prompts in a round (default: one per task of the train split)."""
    max_tokens: int = 2048
    """Maximum number of tokens of an attempt."""
    temperature: float = 1.0
    """Temperature of sampling."""
    top_p: float = 1.0
    """Sample from the most likely tokens with this total probability."""
    sampling_batch: int = 32
    """Maximum number of sequences that a process samples at once."""
    form: Literal["code", "protocol"] = "code"
    """Form of prompts and answers, as in the pipelines sft and self-supervised. With --dataset,
    give the form of the dataset, because each success is learned as the answer to its prompt."""
    per_policy: int = 8
    """Maximum number of distinct correct kernels per task that a round trains on."""
    improvement_share: float = 0.0
    """Share of a round's rows that are improvement-pairs whose answers the policy wrote, from 0 to
    below 1. The model has then seen exemplars before stage 3."""
    repeats: Literal["once", "keep"] = "once"
    """once: train on each distinct kernel once, which slows collapse. keep: train on a kernel as
    often as it was written, as in the REINFORCE gradient."""
    normalize: Literal["successes", "samples"] = "successes"
    """successes: average the gradient over the successes. samples: average it over all samples, as
    REINFORCE does, which multiplies the learning rate by the round's success rate."""
    least_unique: float = 0.1
    """Stop if the number of distinct kernels is below this share of the attempts with code."""
    least_success: float = 0.5
    """Stop if the success rate is below this share of the best round's success rate."""
    device: str = "auto"
    """Devices to judge kernels on: cpu, cuda:1 … auto takes the GPUs that no process trains on. If
    there is none, the first GPU alternates between training and judging."""
    workers: int = 1
    """Number of judges on the CPU or on each GPU. Those of a GPU take turns at timing."""
    judge: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """Option of the judge, as KEY=VALUE, such as calls=8. Repeat it for more options. A URL names
    a judge service (`evaluators serve`) that judges instead of this host."""
    overfit: bool = False
    """First overfit the model on short answers to two starter tasks, and use only these tasks."""
