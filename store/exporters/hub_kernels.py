"""Repositories for Hugging Face's `kernels`: the winner of each task as a function and a layer.

Writes a folder for each task that has a kernel with a speedup over eager whose lower bound is above
1. `kernels.get_local_kernel` opens it, and `get_kernel` does so once it is uploaded. A winner is
chosen at call time by device and shape; calls that were not judged run the task's own code. Leaves
out kernels without a license, withheld or not equivalent kernels, and trivial tasks.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from store import __version__
from store.commandline.escape import quote_name
from store.errors import ExportRefused, RowsRejected
from store.exporters.writing.run import require_device
from store.hub import card, licenses
from store.hub.redact import find_secret_rows
from store.lake.reader import Lake
from store.receipts.receipt import make_receipt, write_receipt
from store.winners.package import name_function, name_layer, write_package
from store.winners.selection import TaskWinners, read_details, read_winners

log = logging.getLogger(__name__)
VARIANT = "torch-universal"
"""The build of `kernels` for every version of torch: nothing in it is compiled."""
_PROGRESS_S = 10.0
"""Seconds between messages of progress: in a large lake, a receipt takes a second."""
_MOST_NAMED = 5


@dataclass(frozen=True, kw_only=True)
class Config:
    where: str | None = None
    """Write only kernels with this SQL condition, such as "task = 'layer_norm'". Its columns are
    task, suite, family, level, device, workload, kernel_id, author, language, speedup, speedup_low,
    sessions, license and others."""
    device: str | None = None
    """Write only winners on this device model (default: on every device)."""


def write(lake: Lake, folder: Path, config: Config) -> dict[str, int]:
    """Write a folder with README.md, build/ and receipts/ for every task with a winner."""
    if lake.include & {"nonequivalent", "weak_tasks"}:
        raise ExportRefused(
            "kernels of another function and of trivial tasks never leave for use",
            "Leave out --include-nonequivalent and --include-trivial.",
        )
    conditions = [f"({config.where}\n)"] if config.where else []
    if config.device is not None:
        require_device(lake, config.device)
        conditions.append("device = '{}'".format(config.device.replace("'", "''")))
    found = read_winners(lake, licensed=True, where=" AND ".join(conditions) or None)
    lines = [_explain(row) for row in found.without]
    if not found.tasks:
        raise ExportRefused(
            "no kernel may leave" if lines else "no kernel has a speedup over eager here",
            "; ".join(lines[:_MOST_NAMED])
            or "`evaluators run` judges kernels; --where and --device leave some of them out.",
        )
    for line in lines[:_MOST_NAMED]:
        log.info("no winner for %s", line)
    if len(lines) > _MOST_NAMED:
        log.info("and none for %d other tasks and devices", len(lines) - _MOST_NAMED)
    details = {name: read_details(lake, name) for name in ("speedups", "other_shapes", "parents")}
    names: dict[str, str] = {}
    shown = time.monotonic()
    for winners in found.tasks:
        if time.monotonic() > shown + _PROGRESS_S:
            log.info("%d of %d repositories", len(names), len(found.tasks))
            shown = time.monotonic()
        name = name_repository(winners.task)
        if name in names:  # another suite has a task of this name
            name = f"{name}-{winners.task_id[:8]}"
        names[name] = winners.task_id
        about = {what: rows.get(winners.task_id, []) for what, rows in details.items()}
        _write_repository(lake, winners, about, name, folder / name)
    kernels = {one for winners in found.tasks for one in winners.kernels}
    return {"repositories": len(names), "kernels": len(kernels)}


def name_repository(task: str) -> str:
    """Return the name of a task's repository, as `kernels` allows names.

    >>> name_repository("rms_norm_residual"), name_repository("1_Add")
    ('rms-norm-residual', 'task-1-add')
    """
    name = name_function(task).replace("_", "-")
    return name if len(name) > 1 else f"task-{name}"


def _explain(row: Mapping[str, Any]) -> str:
    """Return why a task has no winner on a device, by the kernel that comes nearest."""
    interval = f"[{row['speedup_low']:.2f}, {row['speedup_high']:.2f}]"
    return (
        f"{quote_name(row['task'])} on {row['device']}: kernel {row['kernel_id'][:12]} is "
        f"{row['speedup']:.2f} {interval} times as fast as eager: {row['left_out']}"
    )


def _write_repository(
    lake: Lake, winners: TaskWinners, about: Mapping[str, Any], name: str, folder: Path
) -> None:
    rows = pa.Table.from_pylist([*winners.kernels.values(), {"code": winners.code}])
    if secret := find_secret_rows(rows.select(["code"])):
        told = [list(winners.kernels)[place] for place in secret if place < len(winners.kernels)]
        raise RowsRejected(
            "kernels", "published texts contain no token or key", len(secret), told or [name]
        )
    build = folder / "build" / VARIANT
    build.mkdir(parents=True)
    write_package(winners, build)
    terms = sorted(
        {one for row in winners.rows for one in (row["license"], row["task_license"]) if one}
    )
    on_cuda = any(row["kind"] == "cuda" for row in winners.rows)
    metadata = {
        "name": name,
        "id": f"_{name_function(winners.task)}_{winners.task_id[:12]}",
        "version": 1,
        "license": " AND ".join(terms),
        "python-depends": [],
        "backend": {"type": "cuda" if on_cuda else "cpu"},
    }
    (build / "metadata.json").write_text(json.dumps(metadata, indent=1) + "\n", "utf-8")
    (folder / "receipts").mkdir()
    for kernel_id in winners.kernels:
        receipt = write_receipt(make_receipt(lake, kernel_id))
        (folder / "receipts" / f"{kernel_id}.json").write_bytes(receipt)
    (folder / "README.md").write_text(_render_card(lake, winners, about, name, terms), "utf-8")


def _render_card(
    lake: Lake, winners: TaskWinners, about: Mapping[str, Any], name: str, terms: list[str]
) -> str:
    import yaml

    simple = [part for one in terms for part in re.split(r"\s+AND\s+", one)]
    head = yaml.dump(
        {
            **licenses.build_hub_field(sorted(set(simple))),
            "library_name": "kernels",
            "tags": ["kernel", "kernel-flywheel"],
        },
        sort_keys=False,
    )
    first: dict[str, Any] = winners.rows[0]
    template = card.read_template(Path(__file__).parent / "templates" / "hub_kernels.md.j2")
    body = template.render(
        winners=winners,
        **about,
        name=name,
        function=name_function(winners.task),
        layer=name_layer(winners.task),
        title=first["title"],
        terms=terms,
        lake_id=lake.lake_id,
        snapshot=lake.snapshot,
        version=__version__,
    )
    return f"---\n{head}---\n\n{body}"
