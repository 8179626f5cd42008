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
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import store
from store.code import task_families
from store.code.python_syntax import parse_python
from store.errors import ImportFailed
from store.ids import content_id
from store.importers.reading import detection, pieces, sources
from store.importers.reading.rows import ENTRY_PATH, Attempt, BundleRows, decide_splits

NAME = "cuda-l1"
IMPORTER_VERSION = 2
SUITE = "kernelbench"
SUITE_REVISION = "v0"
POLICY = "cuda-l1"
SCORES = {
    "score_default": "eager",
    "score_torch_compile_default": "compile",
    "score_torch_compile_reduce_overhead": "compile_reduce_overhead",
    "score_cuda_graph": "cuda_graph",
    "score_cudnn": "cudnn",
}
BASELINE_CODES = {"cuda_graph": "cuda_graph_code", "cudnn": "cudnn_code"}
LINES, NESTED = "cuda-l1", "cuda-l1/codes"
"""Sources of the newer and the older form: a figure of one is not the other's."""
_FORMATS = (
    "Name the release's checkout, its folder optimized_cuda_code, or one file such as h100.json."
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    """Options of the cuda-l1 importer."""

    source_revision: str | None = None
    """Commit of the release (default: the checkout's HEAD, else "unknown")."""
    license: str | None = "MIT"
    """SPDX identifier of the release's license; in July 2025 it was GPL-3.0."""


@dataclass(frozen=True, kw_only=True)
class _Row:
    """One task of one file, as released."""

    where: str
    level: int
    problem_id: int
    reference: str
    code: str | None = None
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    """Baseline to speedup, without missing scores."""
    baseline_codes: Mapping[str, str] = field(default_factory=dict[str, str])


def recognize(path: Path) -> str | None:
    """Return what shows that a path is the release."""
    for file in detection.list_files(path, "*.json", "optimized_cuda_code/*.json", "codes/*.json"):
        if detection.has_names(file, "level_id", "ref_code") and "custom_code" in (
            detection.read_first_object(file)
        ):
            return f"{file.name}: lines with level_id, ref_code and custom_code"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield one bundle per file.

    Raises ImportFailed if the path has no file of the release, or a line is malformed.
    """
    root = sources.require_path(path, "the CUDA-L1 release")
    folder = root if root.is_dir() else root.parent
    revision = config.source_revision or sources.git_head(folder, folder.parent) or "unknown"
    family: dict[str, str] = {}
    before: set[tuple[str, ...]] = set()
    files = [root]
    if root.is_dir():
        # The older form only if the newer one is missing.
        folders = (root / "optimized_cuda_code", root, root / "codes")
        files = next(filter(None, (sorted(one.glob("*.json")) for one in folders)), [])
    if not files:
        raise ImportFailed(f"{root} holds no file of the CUDA-L1 release", _FORMATS)
    for file in files:
        data = sources.read_bytes(file, folder)
        origin, released = _read_file(sources.decode(data, file), file)
        gpu = gpu_name(file.stem)
        for row in released:
            if row.reference not in family:
                sources.check_task(row.reference, f"{row.where}, ref_code")
                family[row.reference] = task_families.classify_family(row.reference)

        def add(
            rows: BundleRows,
            origin: str = origin,
            released: list[_Row] = released,
            file: Path = file,
            gpu: str = gpu,
        ) -> None:
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
            for row in released:
                _add(rows, row, family[row.reference], gpu)
            rows.add_splits(decide_splits(SUITE, set(family.values()), lake))
            # Files share most of their texts, and an earlier file is stored before the next.
            kernels = rows.tables.get("kernels", {})
            rows.tables["kernels"] = {k: row for k, row in kernels.items() if k not in before}
            before.update(kernels)

        reading = pieces.Import(
            *(lake, NAME, config),
            version=IMPORTER_VERSION,
            source=origin,
            source_revision=revision,
            namespace=POLICY,
        )
        yield reading.make_bundle(
            f"{file.name} {revision} {sources.digest([(origin, data)])}",
            f"{NAME} {file.name}: {len(released)} tasks",
            f"{origin}/{file.name}",
            add,
        )


def gpu_name(stem: str) -> str:
    """Return the GPU that a file name states.

    >>> gpu_name("h100"), gpu_name("3090")
    ('H100', 'RTX 3090')
    """
    return f"RTX {stem}" if stem.isdigit() else stem.upper()


def _read_file(text: str, file: Path) -> tuple[str, list[_Row]]:
    """Return the source and rows of a file; raises ImportFailed with the place of a bad value."""
    rows: list[_Row] = []
    if '"level_id"' in text.lstrip().partition("\n")[0]:
        # Not splitlines(): it would also cut at characters that JSON allows inside a string.
        for number, line in enumerate(text.split("\n"), start=1):
            where = f"{file}, line {number}"
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ImportFailed(
                    f"{where}: {error}", "Nothing of this file is stored."
                ) from error
            rows.append(_row(_object(value, where), where))
        return LINES, rows
    # The older form: level to a list of tasks.
    for level, tasks in _object(sources.parse_json(text, file), str(file)).items():
        if not (level.isdecimal() and isinstance(tasks, list)):
            raise ImportFailed(f"{file}: {level!a:.40} is not a level with its tasks", _FORMATS)
        for number, task in enumerate(cast("list[Any]", tasks), start=1):
            where = f"{file}, level {level}, entry {number}"
            row = _object(task, where)
            stated = {"level_id": int(level), "score_default": row.get("score")}
            rows.append(_row({**row, **stated}, where))
    return NESTED, rows


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ImportFailed(f"{where}: an object is expected, not {type(value).__name__}", _FORMATS)
    return cast("dict[str, Any]", value)


def _row(row: dict[str, Any], where: str) -> _Row:
    """Validate one object and return it; fields that the release added later are ignored."""
    reference = _text(row, "ref_code", where)
    if reference is None:
        raise ImportFailed(f"{where}: there is no ref_code", _FORMATS)
    scores = {name: _score(row, column, where) for column, name in SCORES.items()}
    codes = {name: _text(row, column, where) for name, column in BASELINE_CODES.items()}
    return _Row(
        where=where,
        level=_number(row, "level_id", where),
        problem_id=_number(row, "task_id", where),
        reference=reference,
        code=_text(row, "custom_code", where),
        scores={name: score for name, score in scores.items() if score is not None},
        baseline_codes={name: code for name, code in codes.items() if code is not None},
    )


def _text(row: dict[str, Any], name: str, where: str) -> str | None:
    """Return a text, or None if it is missing, empty, or the word None."""
    value = row.get(name)
    if value is None:
        return None
    if not isinstance(value, str):
        raise ImportFailed(f"{where}: {name} is a text or null, not {type(value).__name__}")
    if value.strip() in ("", "None"):
        return None
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ImportFailed(f"{where}: {name} is not Unicode text at {error.start}") from error
    if "\0" in value:
        raise ImportFailed(f"{where}: {name} holds a zero byte at {value.index(chr(0))}")
    return value


def _number(row: dict[str, Any], name: str, where: str) -> int:
    value = row.get(name)
    if not isinstance(value, int) or not 0 < value < 1_000_000:
        raise ImportFailed(f"{where}: {name} is a positive number, not {value!a:.40}", _FORMATS)
    return value


def _score(row: dict[str, Any], name: str, where: str) -> float | None:
    """Return a speedup, or None if it is missing; the older form writes it as text."""
    value = row.get(name)
    if value is None or value in ("", "None"):
        return None
    try:
        score = float(value)
    except (TypeError, ValueError, OverflowError):
        score = -1.0
    if math.isnan(score):
        return None
    if not 0 < score < math.inf:
        raise ImportFailed(
            f"{where}: {name} is {value!a:.40}", "A score is a speedup above 0, or null."
        )
    return score


def _add(rows: BundleRows, row: _Row, family: str, gpu: str) -> None:
    """Add a task, its kernel with its origin, the code of the baselines, and a claim per score."""
    task_id = rows.add_task(row.reference)
    name = f"level{row.level}/{row.problem_id}"
    rows.add_label(
        task_id,
        family=family,
        suite=SUITE,
        revision=SUITE_REVISION,
        name=name,
        title=_title(row.reference),
        level=row.level,
        problem_id=row.problem_id,
    )
    attempt = Attempt(policy=POLICY, task_id=task_id)
    if row.code is not None:
        kernel_id = rows.add_kernel({ENTRY_PATH: row.code})
        attempt = rows.add_attempt(
            [task_id, kernel_id], policy=POLICY, task_id=task_id, kernel_id=kernel_id
        )
    kernel_id = attempt.kernel_id
    baseline_kernels = {
        # The baselines are written as the reference is: their class is Model.
        baseline: rows.add_kernel({ENTRY_PATH: code}, entry_point="Model")
        for baseline, code in row.baseline_codes.items()
    }
    # What has a score is named by its claim.
    unscored = {arm: code for arm, code in baseline_kernels.items() if arm not in row.scores}
    if kernel_id is not None and not row.scores:
        unscored["kernel"] = kernel_id
    for arm, code in unscored.items():
        released = {"task_id": task_id, "gpu": gpu, "arm": arm, "kernel_id": code}
        rows.add("released_code", tuple(released.values()), {**released, **rows.origin()})
    for baseline, speedup in row.scores.items():
        stated: dict[str, Any] = {
            "baseline_kernel_id": baseline_kernels.get(baseline),
            "suite": SUITE,
            "suite_revision": SUITE_REVISION,
            "level": row.level,
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


def _title(reference: str) -> str | None:
    """Return the first line of the model's docstring, which serves as its title in the release."""
    tree = parse_python(reference)
    for node in tree.body if tree else ():
        if isinstance(node, ast.ClassDef) and node.name == "Model":
            lines = (ast.get_docstring(node) or "").strip().splitlines()
            return lines[0].rstrip(".: ") if lines else None
    return None
