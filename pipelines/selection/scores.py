"""Scored kernels of the tasks asked for: measured speedups, or published ones that stand in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from pipelines.contract.rows import Request
from pipelines.selection.rules import sql
from store.errors import EmptyDataset

if TYPE_CHECKING:
    import store

Evidence: TypeAlias = Literal["measured", "claimed"]
Baseline: TypeAlias = Literal["eager", "compile", "compile_reduce_overhead", "cuda_graph", "cudnn"]

BASELINE_WORDS = {
    "eager": "PyTorch eager",
    "compile": "torch.compile",
    "compile_reduce_overhead": "torch.compile in its reduce-overhead mode",
    "cuda_graph": "replayed as a CUDA graph",
    "cudnn": "with tuned cuDNN flags",
}


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What is known of the scored kernels, which stand in the view `eligible`."""

    dropped: dict[str, int]
    """Kernels that may not be shown, by reason."""
    device: str


def scores(
    lake: store.Lake,
    request: Request,
    *,
    evidence: Evidence,
    device: str | None,
    baseline: Baseline,
    shown: int | None = None,
) -> Scores:
    """Keep the scored kernels of the tasks registered as `asked` that may be shown as `eligible`.

    Its columns are task_id, kernel_id, score (baseline time / kernel time), workload_id, scored_on
    (the device of the score) and implied (whether the score follows from two published figures).
    Without a device it is the one with the most speedups of that kind.

    Args:
        lake: The pinned lake.
        request: Purpose, seed and number of rows.
        evidence: Whether speedups are measured or published.
        device: Device whose speedups count.
        baseline: What speedups are relative to.
        shown: Kernels that a prompt shows. Where it is given and speedups are published ones, the
            released codes of the baselines are taken too. So are, unless a device is given, kernels
            with figures for other GPUs alone, at tasks that have fewer others than are shown.

    Raises:
        EmptyDataset: no speedup of that kind at all; names what would help.
    """
    chosen = device or best_known_device(lake, evidence, baseline)
    if chosen is None:
        raise _nothing(lake, evidence, baseline, chosen)
    given: dict[str, object] = {"device": chosen, "baseline": baseline}
    if evidence == "claimed":
        given |= {"every_text": shown is not None, "fill_to": 0 if device else shown or 0}
    lake.keep("scored", sql("shared", f"scores_{evidence}"), given)
    lake.define("eligible", "SELECT * EXCLUDE (dropped) FROM scored WHERE dropped IS NULL")
    reasons = lake.run("SELECT dropped, count(*) AS kernels FROM scored GROUP BY ALL ORDER BY ALL")
    counts = {row["dropped"]: row["kernels"] for row in reasons.rows()}
    if not counts:
        raise _nothing(lake, evidence, baseline, chosen)
    counts.pop(None, None)
    return Scores(dropped=counts, device=chosen)


def best_known_device(lake: store.Lake, evidence: Evidence, baseline: Baseline) -> str | None:
    """Return the device with the most speedups of a kind; None where there is no speedup."""
    name = "device" if evidence == "measured" else "claimed_device"
    row = lake.run(sql("shared", name), {"baseline": baseline}).one()
    return None if row is None else str(row["device"])


def device_kind(lake: store.Lake, device: str | None) -> str:
    """Return cpu or cuda; a device that nothing was measured on is taken for a GPU."""
    row = lake.run("SELECT kind FROM devices WHERE name = $1 LIMIT 1", [device]).one()
    return "cuda" if row is None else str(row["kind"])


def _nothing(
    lake: store.Lake, evidence: Evidence, baseline: Baseline, device: str | None
) -> EmptyDataset:
    on = f" on {device}" if device else ""
    if evidence == "claimed":
        return EmptyDataset(
            f"no published speedup of a released kernel against {baseline}{on}",
            '`store import cuda-l1` brings some; `store query "SELECT DISTINCT gpu, baseline '
            'FROM claims WHERE kernel_id IS NOT NULL"` lists what is there.',
        )
    claimed = best_known_device(lake, "claimed", baseline)
    hint = "Measure kernels first: `evaluators run`."
    if claimed is not None:
        hint = (
            "Published speedups are there: --evidence claimed lets them stand in and marks "
            "every row. Or measure kernels first: `evaluators run`."
        )
    return EmptyDataset(f"no measured speedup against {baseline}{on} for these tasks", hint)
