"""Options of rounds of sampling and training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from trainers.runs.job import Training

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, kw_only=True)
class Config(Training):
    """Options of self-supervised. --dataset is one of prompts, such as self-supervised@v1."""

    rounds: int = 3
    """Rounds of sampling and training. Our choice: CUDA-L1 does not publish it."""
    attempts: int = 8
    """Attempts at each prompt in a round. Our choice: not published."""
    prompts: int | None = None
    """Most prompts of a round (default: one per task of the train split)."""
    max_tokens: int = 2048
    """Most tokens of an attempt."""
    temperature: float = 1.0
    """Temperature of sampling."""
    top_p: float = 1.0
    """Share of the probability that tokens are sampled from."""
    sampling_batch: int = 32
    """Most sequences that a process samples at once."""
    form: Literal["code", "protocol"] = "code"
    """Form of prompts and answers, as of the pipelines sft and self-supervised. With --dataset it
    is to be that of the dataset, since a success is learnt as the answer to what was asked."""
    per_policy: int = 8
    """Most distinct correct kernels of one task that a round trains on."""
    repeats: Literal["once", "keep"] = "once"
    """once: a kernel counts once however often it was written, which slows collapse. keep: as
    often as it was written, as the REINFORCE gradient has it."""
    normalise: Literal["successes", "samples"] = "successes"
    """successes: the gradient is a mean over the successes. samples: over all samples, as REINFORCE
    has it, which is the learning rate times the round's success rate."""
    least_unique: float = 0.1
    """Collapse: fewer distinct kernels than this share of the attempts with code."""
    least_success: float = 0.5
    """Collapse: a success rate below this share of the best round's."""
    device: str = "auto"
    """Where kernels are judged: cpu, cuda:1 …; auto takes the GPUs that no process trains on, and
    where there is none the first, in turns with training."""
    judge: Annotated[tuple[str, ...], Parameter(negative="")] = ()
    """KEY=VALUE of the judge's options, such as calls=8; may be repeated."""
    overfit: bool = False
    """Overfit the model on short answers to two starter tasks first, and ask for these alone."""
