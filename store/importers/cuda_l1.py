"""The CUDA-L1 release: five JSON Lines files of kernels and scores, one for each GPU.

Reads a checkout (optimized_cuda_code/h100.json …), a folder of such files, or one file. It also
reads the older form (codes/h100.json, one object of levels). Each file is stored as one bundle; its
name states the GPU. Scores become claims, never timings, because the release has no times. The
literal code "None" is not a kernel: its score becomes a claim without a kernel. When another
revision of a file is imported, views use its figures instead of the old ones
(store/views/current_claims.sql).

The license of the release was GPL-3 in July 2025 and is MIT later: give --license for old files.
"""

from __future__ import annotations

import ast
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import store
from store.code.python_syntax import parse_python
from store.errors import ImportFailed
from store.foreign import text_files
from store.foreign.cuda_l1 import SCORES
from store.foreign.text_files import Fields
from store.ids import content_id
from store.importers.reading import pieces, sources

NAME = "cuda-l1"
IMPORTER_VERSION = 2
SUITE = "kernelbench"
SUITE_REVISION = "v0"
POLICY = "cuda-l1"
BASELINE_CODES = {"cuda_graph": "cuda_graph_code", "cudnn": "cudnn_code"}
LINES, NESTED = "cuda-l1", "cuda-l1/codes"
"""Sources of the newer and the older form: a figure of one is not the other's."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    source_revision: str | None = None
    """Commit of the release (default: the checkout's HEAD, else "unknown")."""
    license: str | None = "MIT"
    """SPDX identifier of the release's license; in July 2025 it was GPL-3.0."""


def recognize(path: Path) -> str | None:
    for file in sources.list_files(path, "*.json", "optimized_cuda_code/*.json", "codes/*.json"):
        if sources.has_names(file, "level_id", "ref_code") and "custom_code" in (
            sources.read_first_object(file)
        ):
            return f"{file.name}: lines with level_id, ref_code and custom_code"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield one bundle per file."""
    root = sources.require_path(path, "the CUDA-L1 release")
    folder = root if root.is_dir() else root.parent
    revision = config.source_revision or sources.git_head(folder, folder.parent) or "unknown"
    before: set[tuple[str, ...]] = set()
    files = [root]
    if root.is_dir():
        # The older form only if the newer one is missing.
        folders = (root / "optimized_cuda_code", root, root / "codes")
        files = next(filter(None, (sorted(one.glob("*.json")) for one in folders)), [])
    if not files:
        raise ImportFailed(
            f"{root} holds no file of the CUDA-L1 release",
            "Name the release's checkout, its folder optimized_cuda_code, or one file such as "
            "h100.json.",
        )
    for file in files:
        data = sources.read_bytes(file, folder)
        is_newer = b'"level_id"' in data.lstrip().partition(b"\n")[0]
        origin = LINES if is_newer else NESTED
        lines = text_files.read_lines(file) if is_newer else _read_levels(file, folder)
        released = [line.without("", "None") for line in lines]
        # The file's name states the GPU: h100, 3090.
        gpu = f"RTX {file.stem}" if file.stem.isdigit() else file.stem.upper()
        reading = pieces.Import(
            *(lake, NAME, config),
            version=IMPORTER_VERSION,
            source=origin,
            source_revision=revision,
            namespace=POLICY,
        )
        rows = reading.start(f"{file.name} {revision} {sources.digest([(origin, data)])}")
        if rows.is_new:
            # The other revisions of the GPU's figures that views use so far.
            for earlier in lake.run(
                "SELECT DISTINCT source_revision FROM current_claims "
                "WHERE source = $1 AND gpu = $2 AND task_id IS NOT NULL AND source_revision <> $3",
                [origin, gpu, revision],
            ).rows():
                log.warning(
                    "%s: views now take revision %s; the figures of revision %s are kept in claims",
                    file.name,
                    revision,
                    earlier["source_revision"],
                )
            policy = {
                "policy_id": POLICY,
                "name": "CUDA-L1",
                "kind": "released",
                "stage": "contrastive",
                "model": "DeepSeek-V3-671B",
                "output_terms": rows.license,
            }
            rows.add("policies", (POLICY,), policy)
        pieces.add_records(partial(_add, gpu), rows, released)
        families = {row["family"] for row in rows.tables.get("task_labels", {}).values()}
        rows.add_splits(pieces.decide_splits(SUITE, families, lake))
        # Files share most of their texts, and an earlier file is stored before the next.
        kernels = rows.tables.get("kernels", {})
        rows.tables["kernels"] = {k: row for k, row in kernels.items() if k not in before}
        before.update(kernels)
        message = f"{NAME} {file.name}: {len(released)} tasks"
        yield reading.finish(rows, message, f"{origin}/{file.name}")


def _read_levels(file: Path, root: Path) -> Iterator[Fields]:
    """Read the older form: level to a list of tasks, whose scores are texts."""
    document = pieces.parse_document(file, root)
    for level in document.values:
        for place, task in enumerate(document.list(level), start=1):
            score = task.values.get("score")
            with suppress(TypeError, ValueError):
                score = float(score or "nan")
            number = int(level) if level.isdecimal() else level
            stated = {"level_id": number, "score_default": score}
            where = f"{file}, level {level}, entry {place}"
            yield Fields(values={**task.values, **stated}, where=where)


def _add(gpu: str, rows: pieces.BundleRows, row: Fields) -> None:
    scores: dict[str, float] = {}
    for column, baseline in SCORES.items():
        if (score := row.number(column)) is not None:
            if score <= 0:
                raise row.refuse(column, "a speedup above 0")
            scores[baseline] = score
    reference, level = row.require_code("ref_code"), row.require_whole("level_id")
    family = pieces.classify_task(reference, f"{row.where}, ref_code")
    problem_id, code = row.require_whole("task_id"), row.code("custom_code")
    task_id = rows.add_task(reference)
    name = f"level{level}/{problem_id}"
    # The first line of the model's docstring serves as the task's title in the release.
    title = None
    tree = parse_python(reference)
    for node in tree.body if tree else ():
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            lines = (ast.get_docstring(node) or "").strip().splitlines()
            title = lines[0].rstrip(".: ") if lines else None
            break
    rows.add_label(
        task_id,
        family=family,
        suite=SUITE,
        revision=SUITE_REVISION,
        name=name,
        title=title,
        level=level,
        problem_id=problem_id,
    )
    attempt = pieces.Attempt(policy=POLICY, task_id=task_id)
    if code is not None:
        kernel_id = rows.add_kernel({pieces.ENTRY_PATH: code})
        attempt = rows.add_attempt(
            [task_id, kernel_id], policy=POLICY, task_id=task_id, kernel_id=kernel_id
        )
    kernel_id = attempt.kernel_id
    baseline_kernels = {
        # The baselines are written as the reference is: their class is Model.
        baseline: rows.add_kernel({pieces.ENTRY_PATH: baseline_code}, entry_point="Model")
        for baseline, column in BASELINE_CODES.items()
        if (baseline_code := row.code(column)) is not None
    }
    # What has a score is named by its claim.
    unscored = {arm: id_ for arm, id_ in baseline_kernels.items() if arm not in scores}
    if kernel_id is not None and not scores:
        unscored["kernel"] = kernel_id
    for arm, unscored_id in unscored.items():
        released = {"task_id": task_id, "gpu": gpu, "arm": arm, "kernel_id": unscored_id}
        rows.add("released_code", tuple(released.values()), {**released, **rows.origin()})
    for baseline, speedup in scores.items():
        stated: dict[str, Any] = {
            "baseline_kernel_id": baseline_kernels.get(baseline),
            "suite": SUITE,
            "suite_revision": SUITE_REVISION,
            "level": level,
        }
        identity = {
            **stated,
            **rows.origin(),
            "task_id": task_id,
            "kernel_id": kernel_id,
            "policy_id": POLICY,
            "gpu": gpu,
            "baseline": baseline,
            "metric": "speedup",
            "speedup": speedup,
        }
        rows.add_claim(
            attempt,
            "speedup",
            speedup,
            f"{Path(row.where).name}, {baseline} score of {name}",
            gpu=gpu,
            baseline=baseline,
            claim_id=content_id("claim", json.dumps(identity, sort_keys=True)),
            **stated,
        )
