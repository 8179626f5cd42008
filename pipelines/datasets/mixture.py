"""Mixes improvements with other rows, so that the share holds in the dataset that is written.

selection ─▶ leave out duplicates and long rows ─▶ as many improvements as the share needs,
                                                   spread evenly
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace

from pipelines.contract.rows import Selection
from pipelines.datasets.folder import ROW_GROUP_ROWS
from pipelines.datasets.job import Job
from pipelines.datasets.repeats import choose_rows, join_texts
from pipelines.selection.texts import fetch_texts
from store.ids import prompt_id

log = logging.getLogger(__name__)


def choose_mixture(job: Job, selection: Selection, share: float) -> Selection:
    """Return the rows of the dataset: `share` of them improvements, as far as there are enough.

    If there are too few improvements, all of them are taken with all other rows. A warning and the
    notes state the share that the dataset then has.
    """
    import pyarrow as pa

    selection = _leave_out_repeats(job, selection)
    rows = selection.rows
    gains = rows["gain"].is_valid().to_pylist() if "gain" in rows.column_names else []
    pairs = [index for index, is_pair in enumerate(gains) if is_pair]
    singles = sorted(set(range(rows.num_rows)) - set(pairs))
    wanted = round(len(singles) * share / (1 - share))
    limit = job.request.limit
    if limit is not None and len(singles) + wanted > limit:
        wanted = round(limit * share)
        singles = singles[: limit - min(wanted, len(pairs))]
    available = len(pairs)
    pairs = pairs[:wanted]
    total = len(singles) + len(pairs)
    found = f"{len(pairs)} of {total} rows ({len(pairs) / max(total, 1):.1%})"
    if available < wanted:
        lack = (
            f"--improvement-share {share} needs {wanted} improvements for {len(singles)} other "
            f"rows, and there are {available}"
        )
        log.warning("%s; the dataset has %s", lack, found)
        found = f"{found}; {lack}"
    places = [
        ((place + 0.5) / len(kind), number, index)
        for number, kind in enumerate((singles, pairs))
        for place, index in enumerate(kind)
    ]
    order = pa.array([index for _, _, index in sorted(places)], pa.int64())
    return replace(
        selection,
        rows=rows.take(order),
        notes=selection.notes | {"improvements": found},
    )


def _leave_out_repeats(job: Job, selection: Selection) -> Selection:
    """Return the selection without the rows that rendering would leave out.

    Rows are rendered for this and again when they are written, so that only a batch of texts is in
    memory.
    """
    import pyarrow as pa

    kept: list[int] = []
    seen: set[bytes] = set()
    dropped: Counter[str] = Counter()
    start = 0
    for _, batch in fetch_texts(job.lake, selection.rows, ROW_GROUP_ROWS):
        texts = [job.module.render(row) for row in batch]
        digests = [[prompt_id(turns) for turns in row.values()] for row in texts]
        tokens = job.counter.count([join_texts(row) for row in texts])
        kept += (start + at for at in choose_rows(digests, tokens, job.max_tokens, seen, dropped))
        start += len(batch)
    return replace(
        selection,
        rows=selection.rows.take(pa.array(kept, pa.int64())),
        dropped=selection.dropped | dict(sorted(dropped.items())),
    )
