"""A small chart of score buckets for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from store.commandline.escape import escape_terminal

if TYPE_CHECKING:
    from rich.console import RenderableType

WIDTH = 14


def draw_chart(
    rows: Sequence[Mapping[str, Any]],
    drawn: Sequence[Mapping[str, Any]],
    *,
    title: str,
    softmax: bool,
) -> RenderableType:
    """Return a chart: one line per bucket, fastest first, with a bar and its drawn exemplars.

    Args:
        rows: Buckets with score_from, score_to, kernels, kernel_ids, mean_score, probability.
        drawn: kernel_id and score of the exemplars of the first draw.
        title: One line on top.
        softmax: Whether bars show the probabilities of the draw; otherwise they count kernels.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    chart = Table(
        box=box.SIMPLE_HEAD,
        title=Text(escape_terminal(title)),
        title_justify="left",
        pad_edge=False,
    )
    for header, side in (("bucket", "right"), ("kernels", "right"), ("mean", "right")):
        chart.add_column(header, justify=side)  # type: ignore[arg-type]
    chart.add_column("P(first)" if softmax else "share", justify="right")
    chart.add_column("", min_width=WIDTH)
    chart.add_column("drawn")
    total = sum(row["kernels"] for row in rows)
    shares = [row["probability"] if softmax else row["kernels"] / total for row in rows]
    for row, share in reversed(list(zip(rows, shares, strict=True))):
        inside = [kernel for kernel in drawn if kernel["kernel_id"] in row["kernel_ids"]]
        marks = ", ".join(f"{kernel['kernel_id'][:8]} {kernel['score']:.2f}x" for kernel in inside)
        chart.add_row(
            f"{row['score_from']:.2f}x"
            + (f" to {row['score_to']:.2f}x" if row["score_to"] > row["score_from"] else ""),
            str(row["kernels"]),
            f"{row['mean_score']:.2f}x",
            f"{share:.3f}",
            "█" * max(1, round(WIDTH * share / max(shares))) if share > 0 else "",
            Text(marks),
        )
    return chart
