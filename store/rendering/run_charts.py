"""Charts of a run by step; each function draws the rows of one question of the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from store.rendering import charts
from store.rendering.questions import group_rows

_STEP = charts.Axis(label="step")


def draw_reward(name: str, rows: list[dict[str, Any]]) -> str:
    """Draw the mean reward by step, with a band of one standard deviation."""
    mean, spread = _column(rows, "reward_mean"), _column(rows, "reward_std")
    one = charts.Series(
        label=f"mean of attempts ({_counts(rows, 'n')} a point)",
        x=_column(rows, "step"),
        y=mean,
        low=[a - b for a, b in zip(mean, spread, strict=True)],
        high=[a + b for a, b in zip(mean, spread, strict=True)],
    )
    return charts.draw_lines(name, [one], _STEP, charts.Axis(label="reward"))


def draw_success(name: str, rows: list[dict[str, Any]]) -> str:
    """Draw the share of judged attempts that are correct, with its interval."""
    one = charts.Series(
        label=f"correct ({_counts(rows, 'attempts')} attempts a point)",
        x=_column(rows, "step"),
        y=_column(rows, "share"),
        low=_column(rows, "share_low"),
        high=_column(rows, "share_high"),
    )
    axis = charts.Axis(label="share of judged attempts", scale="share")
    return charts.draw_lines(name, [one], _STEP, axis)


def draw_speedup(name: str, rows: list[dict[str, Any]]) -> str:
    """Draw the speedups over eager by step: geometric mean, median and largest."""
    labels = {
        "geomean": f"geomean ({_counts(rows, 'timed')} timed a point)",
        "median_of_steps": "median",
        "max": "largest",
    }
    series = [
        charts.Series(label=label, x=_column(rows, "step"), y=_column(rows, key))
        for key, label in labels.items()
    ]
    return charts.draw_lines(name, series, _STEP, charts.Axis(label="speedup", scale="ratio"))


def draw_kernels(name: str, rows: list[dict[str, Any]]) -> str:
    """Draw the attempts and the new kernels so far."""
    series = [
        charts.Series(label=label, x=_column(rows, "step"), y=_column(rows, key))
        for key, label in (
            ("attempts_so_far", "attempts so far"),
            ("new_kernels_so_far", "new kernels so far"),
        )
    ]
    return charts.draw_lines(name, series, _STEP, charts.Axis(label="count"))


def draw_metric(name: str, rows: list[dict[str, Any]]) -> str:
    """Draw one metric of the trainer by step."""
    metric = rows[0]["metric"]
    one = charts.Series(label=metric, x=_column(rows, "step"), y=_column(rows, "value"))
    unit = " (nats per token)" if metric.rpartition("/")[2] == "entropy" else ""
    return charts.draw_lines(name, [one], _STEP, charts.Axis(label=f"{metric[:40]}{unit}"))


def draw_best(name: str, rows: list[dict[str, Any]]) -> str:
    """Draw the geometric mean of the best speedups so far, one line for each baseline."""
    last = max(_column(rows, "step"))
    series = [
        charts.Series(
            label=f"{baseline} ({mine[-1]['tasks with a speedup']} of {mine[-1]['tasks']} tasks)",
            x=[*_column(mine, "step"), last],
            y=[*_column(mine, "geomean_at_least_1"), mine[-1]["geomean_at_least_1"]],
        )
        for (baseline,), mine in group_rows(rows, ["baseline"]).items()
    ]
    axis = charts.Axis(label="geomean of best so far", scale="ratio")
    return charts.draw_lines(name, series, _STEP, axis, kind="step")


def _column(rows: Sequence[dict[str, Any]], name: str) -> list[float]:
    return [row[name] for row in rows]


def _counts(rows: Sequence[dict[str, Any]], name: str) -> str:
    """Return the number of rows behind a point, as one number or as a range."""
    low, high = min(_column(rows, name)), max(_column(rows, name))
    return f"{low}" if low == high else f"{low} to {high}"
