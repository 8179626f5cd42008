"""JSON lines in the form of the CUDA-L1 release: for each device, every task with its best kernel.

Each file has a line for every numbered task of the suite, solved or not. Scores are either those
measured in this lake or those that a release published (--scores), never both.

measured: the best kernel of a task has the highest speedup over eager. Kernels that may not be
ranked, are in quarantine or compute another function than the task are left out. A task without a
kernel has no code and no score.

published: one file for each GPU, with the code and claims of the release that was imported last.
Importing these files again gives the same claims.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from store.errors import ExportRefused, UnknownName
from store.exporters.writing.run import Which, find_revision, read_attempts
from store.foreign.cuda_l1 import SCORES
from store.lake.reader import Lake
from store.lake.sql_files import read_sql


@dataclass(frozen=True, kw_only=True)
class Config(Which):
    scores: Literal["measured", "published"] | None = None
    """Scores to write (default: measured, or published if nothing was judged)."""


def write(lake: Lake, folder: Path, config: Which) -> dict[str, int]:
    """Write optimized_cuda_code/DEVICE.json."""
    revision = find_revision(lake, config)
    tasks = lake.run(
        read_sql(__file__, "numbered_tasks"), {"suite": config.suite, "suite_revision": revision}
    ).rows()
    asked = config.scores if isinstance(config, Config) else None
    files: dict[str, list[dict[str, Any]]] = {}
    written, refusal = "measured", None
    if asked != "published":
        try:
            files = _measured_lines(lake, tasks, config)
        except (ExportRefused, UnknownName) as error:
            if asked == "measured":
                raise
            refusal = error  # scores may have been published all the same
    if not files and asked != "measured":
        written = "published"
        options = {
            "suite": config.suite,
            "suite_revision": revision,
            "device": config.device,
            "policy": config.policy,
        }
        released: dict[str, dict[str, dict[str, Any]]] = {}
        for row in lake.run(read_sql(__file__, "released"), options).rows():
            released.setdefault(row["gpu"], {})[row["task_id"]] = row
        for gpu, of_task in released.items():
            files[gpu] = []
            for task in tasks:
                row = of_task.get(task["task_id"], {})
                codes, scores = (dict(row.get(name) or ()) for name in ("codes", "scores"))
                files[gpu].append(_line(task, codes, scores))
    if not files:
        what = "published score" if asked == "published" else "kernel that was judged"
        on = f" on {config.device}" if config.device else ""
        raise refusal or ExportRefused(
            f"no numbered task of {config.suite} has a {what}{on}",
            "`store export jsonl` writes every kernel.",
        )
    place = folder / "optimized_cuda_code"
    place.mkdir()
    for device, lines in files.items():
        # The release names files by devices: h100, 3090.
        stem = re.sub(r"[^\w-]", "_", device.removeprefix("RTX ").lower())
        with open(place / f"{stem}.json", "x", encoding="utf-8") as handle:
            handle.writelines(json.dumps(line) + "\n" for line in lines)
    lines = [line for of_device in files.values() for line in of_device]
    return {
        "files": len(files),
        "tasks": len(tasks),
        "kernels": sum(line["custom_code"] is not None for line in lines),
        f"{written} scores": sum(line[name] is not None for line in lines for name in SCORES),
    }


def _measured_lines(
    lake: Lake, tasks: list[dict[str, Any]], config: Which
) -> dict[str, list[dict[str, Any]]]:
    device, rows = read_attempts(lake, config)
    if not tasks or device is None or all(row["status"] is None for row in rows):
        return {}
    scored = [row for row in rows if _score(row, "eager") > 0]
    scored.sort(key=lambda row: (_score(row, "eager"), row["kernel_id"]))
    best = {row["task_id"]: row for row in scored}  # the last of a task is its best
    lines: list[dict[str, Any]] = []
    for task in tasks:
        found = best.get(task["task_id"])
        scores = {} if found is None else {one: _score(found, one) for one in SCORES.values()}
        lines.append(_line(task, {} if found is None else {"kernel": found["code"]}, scores))
    return {device: lines}


def _line(
    task: dict[str, Any], codes: Mapping[str, str], scores: Mapping[str, float]
) -> dict[str, Any]:
    """Return a task's line: `codes` by arm, `scores` by baseline."""
    return {
        "level_id": task["level"],
        "task_id": task["problem_id"],
        "ref_code": task["reference"],
        "custom_code": codes.get("kernel"),
        "cuda_graph_code": codes.get("cuda_graph"),
        "cudnn_code": codes.get("cudnn"),
        **{name: scores.get(baseline) or None for name, baseline in SCORES.items()},
    }


def _score(row: dict[str, Any], baseline: str) -> float:
    if row["quarantined"] or not row["equivalent"] or row["status"] != "correct":
        return 0.0
    return float(dict(row["speedups"] or ()).get(baseline) or 0.0)
