"""Rewards of completions: the code in a model's answer, its judgment, and a number or none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import store
from evaluators.service.client import Client, Judgement, SubmittedKernel
from store.errors import UnknownName

Rule: TypeAlias = Literal["speedup", "success"]
NO_CODE = "no_code"
"""Status of a completion without a kernel, which is the model's own failure."""
FAULT = "fault"
"""Status of a kernel that was not judged, which has no reward."""
_SPEEDUPS = (0.5, 8.0)


@dataclass(frozen=True, kw_only=True)
class Scored:
    """The reward of one completion, with what it follows from."""

    reward: float | None
    """None where the kernel was not judged: it must not be trained on."""
    status: str
    """As in table evaluations, or no_code, or fault."""
    judgement: Judgement | None = None
    """None where there is no kernel to judge."""

    @property
    def facts(self) -> dict[str, Any]:
        """The same keys for every completion; NaN stands for what is not known."""
        verdict = self.judgement.verdict if self.judgement else None
        return {
            "status": self.status,
            "speedup": _number(verdict and verdict.speedup),
            "speedup_low": _number(verdict and verdict.speedup_low),
            "correct": float(self.status == "correct"),
            "queued_s": _number(self.judgement and self.judgement.queued_s),
            "judged_s": _number(self.judgement and self.judgement.judged_s),
        }


def check_rule(name: str) -> Rule:
    """Return a rule by its name. Raises UnknownName."""
    for rule in get_args(Rule):
        if rule == name:
            return rule
    raise UnknownName.among("reward rule", name, get_args(Rule))


def parse_kernel(text: str) -> SubmittedKernel | None:
    """Return the kernel in a completion, or None."""
    parsed = store.parse_completion(text)
    if parsed.code is None:
        return None
    return SubmittedKernel(code=parsed.code, path=parsed.path, files=parsed.other_files)


async def score_completion(client: Client, task: str, text: str, rule: Rule) -> Scored:
    """Return the reward of a completion.

    Raises Unreachable: the service refuses the request itself: its token, task or form.
    """
    kernel = parse_kernel(text)
    if kernel is None:
        return Scored(reward=0.0, status=NO_CODE)
    return score_judgement(await client.judge(task, kernel), rule)


def score_judgement(judgement: Judgement, rule: Rule) -> Scored:
    """Return the reward of a judgment.

    success: 1 for a correct kernel that computes the same function as its task and is not
    quarantined, else 0. speedup: the same, plus the logarithm of its speedup over eager between
    0.5 and 8 where it could be timed.
    """
    verdict = judgement.verdict
    if verdict is None:
        return Scored(reward=None, status=FAULT, judgement=judgement)
    passes = verdict.status == "correct" and bool(verdict.equivalent) and not verdict.quarantined
    reward = float(passes)
    if passes and rule == "speedup" and verdict.speedup is not None:
        least, most = _SPEEDUPS
        reward += math.log(min(max(verdict.speedup, least), most))
    return Scored(reward=reward, status=verdict.status, judgement=judgement)


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
