"""Scored kernels of the requested tasks, by measured or published speedups, and draws from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import store
from pipelines.contract import Baseline, DrawOptions, Evidence, Request
from pipelines.selection.queries import Relation, Rows, keep, query, sql
from pipelines.selection.rules import find_exclusions
from store.dossier.pages import choose_device
from store.errors import DatasetError, EmptyDataset
from store.schema.clocks import Clock

if TYPE_CHECKING:
    import pyarrow as pa


LEAST_PUBLISHED_RATIO = 1.2
"""Ratio from which two published scores count as different. They have no interval."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """The scored kernels of some tasks."""

    eligible: Relation
    """Kernels that may be shown: task_id, kernel_id, score (baseline time / kernel time), low and
    reach (two scores differ where low of the faster is above reach of the slower: low / reach is
    the lower end of the interval of their ratio), score_low and score_high (interval of a measured
    score), workload_id, scored_on (device of the score), implied (whether the score follows from
    two published figures)."""
    dropped: dict[str, int]
    """Number of kernels that may not be shown, by reason."""
    device: str
    notes: dict[str, str]
    """The device and how it was chosen, for the user."""


def find_scores(
    lake: store.Lake,
    request: Request,
    tasks: pa.Table,
    *,
    evidence: Evidence,
    device: str | None,
    baseline: Baseline,
    clock: Clock | None = None,
    shown: int | None = None,
    baselines: bool = False,
    namespace: str | None = None,
) -> Scores:
    """Return the scored kernels of some tasks.

    Args:
        evidence: Whether speedups are measured or published.
        device: Device whose speedups count; None takes the first of `rank_devices`.
        baseline: What speedups are relative to.
        clock: Clock of measured speedups; None is the one that ranks (view default_clocks).
        shown: Number of kernels in a prompt. If it is given and speedups are published ones, then
            without a device, kernels with figures only for other GPUs are included, too, for tasks
            with fewer kernels than a prompt shows.
        baselines: Include the released codes of baselines, with the speedups that two published
            ones imply.
        namespace: If it is given, kernels that only other namespaces attempted are left out.

    Raises:
        EmptyDataset: there is no speedup of that kind; the hint says what would help.
        DatasetError: a clock of published speedups is asked for.
    """
    if clock and evidence == "claimed":
        raise DatasetError(
            "published speedups have no clock", "Leave out --clock, or use --evidence measured."
        )
    ranked = rank_devices(lake, evidence, baseline)
    if device:
        ranked = [choose_device(device, ranked)]
    if not ranked:
        raise _refuse_nothing(lake, evidence, baseline, None)
    chosen, others = ranked[0], ranked[1:]
    given: dict[str, object] = {"device": chosen, "baseline": baseline}
    if evidence == "measured":
        given["clock"] = clock
    else:
        given |= {
            "every_text": baselines,
            "fill_to": 0 if device else shown or 0,
            "least_ratio": LEAST_PUBLISHED_RATIO,
        }
    exclusions = find_exclusions(lake, request)
    scored = keep(
        lake,
        sql("shared", f"scores_{evidence}"),
        given,
        asked=tasks,
        unfit=exclusions.unfit,
        excluded=exclusions.excluded if evidence == "measured" else exclusions.excluded_claims,
    )
    if namespace is not None:
        scored = keep(
            lake,
            sql("shared", "hide_namespaces"),
            scored=scored,
            hidden=keep(lake, sql("shared", "other_namespaces"), {"namespace": namespace}),
        )
    reasons = query(
        lake,
        "SELECT dropped, count(*) AS kernels FROM scored GROUP BY ALL ORDER BY ALL",
        scored=scored,
    ).to_pylist()
    counts = {row["dropped"]: row["kernels"] for row in reasons}
    if not counts:
        raise _refuse_nothing(lake, evidence, baseline, chosen, clock)
    counts.pop(None, None)
    notes = {"device": chosen} | ({"clock": clock} if clock else {})
    if evidence == "claimed":
        notes["scores"] = (
            f"differ from a ratio of {LEAST_PUBLISHED_RATIO} on, as published ones have no interval"
        )
    else:
        notes["scores"] = "differ where the interval of the ratio of two excludes 1"
    if others and evidence == "measured":
        notes["other devices"] = f"{', '.join(others)} (choose one with --device)"
    return Scores(
        eligible=scored.where("dropped IS NULL"), dropped=counts, device=chosen, notes=notes
    )


def rank_devices(lake: store.Lake, evidence: Evidence, baseline: Baseline) -> list[str]:
    """Return the devices with speedups of a kind, the default first.

    For measured speedups the default is the device that this lake's own runs measured last. In a
    lake that holds imported measurements alone, and for published speedups, it is the device with
    the most of them.
    """
    name = "measured_devices" if evidence == "measured" else "claimed_devices"
    rows = query(lake, sql("shared", name), {"baseline": baseline}).to_pylist()
    return [str(row["device"]) for row in rows]


def name_clock(rows: pa.Table, clock: Clock | None) -> pa.Table:
    """Return rows with the clock that their prompts name, or none for the one that ranks."""
    import pyarrow as pa

    return rows.append_column("_clock", pa.array([clock] * rows.num_rows, pa.string()))


def find_device_kind(lake: store.Lake, device: str | None) -> str:
    """Return cpu or cuda; a device without measurements counts as a GPU.

    A name that both kinds of device have is that of a GPU, as in the view default_clocks.
    """
    [row] = lake.run("SELECT max(kind) AS kind FROM devices WHERE name = $1", [device]).rows()
    return str(row["kind"] or "cuda")


def _refuse_nothing(
    lake: store.Lake,
    evidence: Evidence,
    baseline: Baseline,
    device: str | None,
    clock: Clock | None = None,
) -> EmptyDataset:
    on = (f" on {device}" if device else "") + (f" by the clock {clock}" if clock else "")
    others = [name for name in rank_devices(lake, evidence, baseline) if name != device]
    if device and others and not clock:
        kind = "measured" if evidence == "measured" else "published"
        return EmptyDataset(
            f"no {kind} speedup against {baseline}{on} for these tasks",
            f"There are speedups on {', '.join(others)}: choose one with --device.",
        )
    if evidence == "claimed":
        return EmptyDataset(
            f"no published speedup of a released kernel against {baseline}{on}",
            '`store import cuda-l1` imports some; `store query "SELECT DISTINCT gpu, baseline '
            'FROM claims WHERE kernel_id IS NOT NULL"` lists those in the lake.',
        )
    if clock:
        return EmptyDataset(
            f"no measured speedup against {baseline}{on} for these tasks",
            'Leave out --clock; `store query "SELECT device, clock, count(*) AS n FROM speedups '
            'GROUP BY ALL"` lists what was timed.',
        )
    claimed = rank_devices(lake, "claimed", baseline)
    hint = "Measure kernels first: `evaluators run`."
    if claimed:
        hint = (
            "The lake has published speedups: --evidence claimed uses them and marks every row. "
            "Or measure kernels first: `evaluators run`."
        )
    return EmptyDataset(f"no measured speedup against {baseline}{on} for these tasks", hint)


_NARROWEST = 1e-9
"""Buckets are numbered from 0. Narrower ones could have numbers that are too large for SQL."""
MOST_ROWS = 2**62


def place(
    lake: store.Lake, eligible: Rows, options: DrawOptions, *, reference: bool = True
) -> Relation:
    """Return eligible kernels with their buckets, and which of them prompts may show.

    The kernels of one prompt differ: the interval of the ratio of any two of their scores excludes
    1 (placed.sql). Tasks without a kernel that may be shown get no prompt.

    reference: Whether one kernel beside the reference is a contrast as well, if it differs from
        it.

    Raises DatasetError: an option is out of its range.
    """
    check_options(options)
    return keep(
        lake,
        sql("contrastive_batch", "placed"),
        {
            "exemplars": options.exemplars,
            # Each score is a bucket of its own.
            "bucket_width": _NARROWEST if options.strategy == "top" else options.bucket_width,
            "islands": options.islands if options.strategy == "island" else 1,
            "reference": reference,
        },
        eligible=eligible,
    )


def draw(
    lake: store.Lake, candidates: pa.Table, placed: Rows, options: DrawOptions, request: Request
) -> pa.Table:
    """Return one row per exemplar: row_index, task_id, draw, kernel_id, score, beside_reference.

    Args:
        candidates: task_id of every task that gets prompts.
        placed: Kernels with their buckets (`place`).
    """
    import pyarrow as pa

    per_task = options.per_task or 1
    if options.per_task is None and request.limit is not None and candidates.num_rows:
        per_task = max(1, -(-request.limit // candidates.num_rows))
    draws = query(
        lake,
        sql("contrastive_batch", "draws"),
        {
            "seed": request.seed,
            "per_task": per_task,
            "limit": MOST_ROWS if request.limit is None else request.limit,
        },
        candidates=candidates.select(["task_id"]),
    )
    if options.strategy == "none":
        return query(lake, sql("contrastive_batch", "none"), draws=draws)
    if options.strategy == "top":
        values = {"exemplars": options.exemplars}
        return query(lake, sql("contrastive_batch", "top"), values, draws=draws, placed=placed)
    keyed = keep(
        lake,
        sql("contrastive_batch", "buckets"),
        {
            "seed": request.seed,
            "temperature": options.temperature,
            "uniform": options.strategy == "random",
        },
        draws=draws,
        placed=placed,
    )
    # One kernel of each draw at a time: which others differ depends on those that are taken.
    taken = pa.table(
        {
            "row_index": pa.array([], pa.int64()),
            "bucket": pa.array([], pa.int64()),
            "low": pa.array([], pa.float64()),
            "reach": pa.array([], pa.float64()),
        }
    )
    picks: list[pa.Table] = []
    for number in range(options.exemplars):
        picked = query(
            lake,
            sql("contrastive_batch", "pick"),
            {"seed": request.seed, "several": number > 1},
            keyed=keyed,
            placed=placed,
            taken=taken,
        )
        picks.append(picked.drop_columns(["bucket", "low", "reach"]))
        if picked.num_rows == 0:
            break
        taken = pa.concat_tables([taken, picked.select(taken.column_names)])
    return pa.concat_tables(picks)


def check_options(options: DrawOptions) -> None:
    """Raise DatasetError, naming the option, if a constant of the draw is out of its range."""
    for name in ("exemplars", "islands", "per_task"):
        if (value := getattr(options, name)) is not None and value < 1:
            option = name.replace("_", "-")
            raise DatasetError(f"--{option} {value} is too few", "Give 1 or more.")
    for name in ("temperature", "bucket_width"):
        if not (value := getattr(options, name)) > 0:
            option = name.replace("_", "-")
            raise DatasetError(f"--{option} {value} is not above 0", "Give a positive number.")
    if options.bucket_width < _NARROWEST:
        raise DatasetError(
            f"--bucket-width {options.bucket_width} is too narrow", f"Give {_NARROWEST:g} or more."
        )
