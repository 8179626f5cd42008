"""The result of a rollout: attempts, kernels and costs by policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from store.errors import FlywheelError
from trainers.policies.interface import FAILED


@dataclass(kw_only=True)
class Tally:
    """The result of one policy."""

    name: str
    attempts: int = 0
    failed: int = 0
    """Attempts that failed because of the endpoint or the machine."""
    reasons: Counter[str] = field(default_factory=Counter[str])
    """Why they failed; may quote a server."""
    no_kernel: int = 0
    """Completions without code."""
    kernels: int = 0
    """Distinct kernels in these completions."""
    correct: int = 0
    """Number of these that were judged correct."""
    tokens: int = 0
    cost_usd: float | None = None
    stopped: FlywheelError | None = None
    """Why it ended early."""


@dataclass(kw_only=True)
class Outcome:
    """What a rollout has appended."""

    run_id: str | None
    """None if nothing was left to sample."""
    tallies: list[Tally]
    snapshot: int
    kernel_ids: list[str] = field(default_factory=list[str])
    """Kernels written in this run, without repeats."""

    def __str__(self) -> str:
        sums = {
            name: sum(getattr(one, name) for one in self.tallies)
            for name in ("attempts", "failed", "kernels", "correct")
        }
        failed = f" ({sums['failed']} failed)" if sums["failed"] else ""
        return (
            f"generations +{sums['attempts']}{failed} kernels {sums['kernels']} "
            f"correct {sums['correct']} → snapshot {self.snapshot}"
        )


def tally_rows(tally: Tally, generations: Sequence[Mapping[str, Any]]) -> None:
    """Add rows of table generations to a tally."""
    for row in generations:
        failed = row["finish_reason"] == FAILED
        tally.attempts += 1
        tally.failed += failed
        if failed:
            tally.reasons[row["parse_error"] or "no reason"] += 1
        tally.no_kernel += not failed and row["kernel_id"] is None
        tally.tokens += row["prompt_tokens"] + row["completion_tokens"]
        if row["cost_usd"] is not None:
            tally.cost_usd = (tally.cost_usd or 0.0) + row["cost_usd"]
