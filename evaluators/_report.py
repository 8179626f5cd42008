"""What a verdict looks like in a terminal."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from typing import Any

from evaluators._intervals import interval, log_ratios


def lines(name: str, device: str, tables: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """One line for the verdict, one for the timing, then what the candidate wrote."""
    [evaluation] = tables["evaluations"]
    reason = f" ({evaluation['reason']})" if evaluation["reason"] else ""
    yield f"{name} on {device}: {evaluation['status']}{reason}"
    if evaluation["message"]:
        yield f"  {evaluation['message']}"
    arms = {row["arm"]: row for row in tables["timings"]}
    if "kernel" in arms and "eager" in arms:
        kernel_ms, eager_ms = arms["kernel"]["samples_ms"], arms["eager"]["samples_ms"]
        low, middle, high = (math.exp(v) for v in interval(log_ratios(eager_ms, kernel_ms)))
        noisy = "; noisy, not for ranking" if arms["kernel"]["noisy"] else ""
        yield (
            f"  speedup {middle:.2f} [{low:.2f}, {high:.2f}] over eager"
            f" ({statistics.median(eager_ms):.4g} ms → {statistics.median(kernel_ms):.4g} ms,"
            f" n = {len(kernel_ms)}{noisy})"
        )
    if evaluation["flags"]:
        yield f"  flags: {', '.join(evaluation['flags'])}"
    if evaluation["status"] != "correct" and evaluation["log"]:
        yield from ("  | " + line for line in evaluation["log"].splitlines()[-20:])
