"""Short timing sessions for `make test`, in the test process and in judge processes.

A session of whole samples takes three times as long, and half of it is the writing of twice the
cache before each call. What the tests assert of times holds of short samples with warm caches as
well; `make test-all` measures as users do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaluators.judge import Config
    from evaluators.judging.case import Case
    from evaluators.timing.session import Plan

Patch = Callable[[object, str, object], None]
"""What sets an attribute of a module."""


def use_short_sessions(patch: Patch = setattr) -> None:
    """Take short samples on the processor, and flush its caches by 1 MiB, in part."""
    from evaluators import judge
    from evaluators.device import timing_conditions

    build_plan, compute_flush_bytes = judge.build_plan, timing_conditions.compute_flush_bytes

    def build_short_plan(case: Case, config: Config, device: str) -> Plan:
        plan = build_plan(case, config, device)
        if device == "cuda":
            return plan
        blocks = min(2, plan.further_blocks)
        return replace(plan, sample_ms=0.3, further_blocks=blocks, further_s=0.05)

    def compute_few_bytes(device: str) -> int:
        return compute_flush_bytes(device) if device == "cuda" else 1 << 20

    patch(judge, "build_plan", build_short_plan)
    patch(timing_conditions, "compute_flush_bytes", compute_few_bytes)


def use_in_judges(patch: Patch = setattr) -> None:
    """Let the judge processes that this process starts use short sessions."""
    from evaluators.scheduling.judges import process

    start = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import short_sessions; "
        "del sys.path[0]; short_sessions.begin_judge(); "
    )
    patch(
        process, "_START", vars(process)["_START"].replace("import main;", f"import main; {start}")
    )


def begin_judge() -> None:
    """Use short sessions in this judge process, once it has its walls, since that imports torch."""
    from evaluators.sandbox import isolation

    confine_judge = isolation.confine_judge

    def confine(**folders: Any) -> None:
        confine_judge(**folders)
        use_short_sessions()

    isolation.confine_judge = confine
