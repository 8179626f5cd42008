"""The samples that KernelBench's authors published (ScalingIntelligence/kernelbench-samples).

Reads the layout of revision b32b70b: baseline_eval/ and repeated_sampling/ have
levelL/MODEL/problem_P/sample_S/kernel.json with the fields kernel, eval_result and model_name, and
iterative_refinement/ has levelL/FEEDBACK/MODEL/problem_P/sample_S/log.json, one object per turn
with kernel_code and eval_result. The turns of a log are one trajectory. Name the whole dataset or a
folder inside it. Verdicts become evaluations of kernelbench, and mean runtimes become claims.
Import the tasks first (`store import kernelbench --revision v0`); samples of other problems are
stored without a task.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import store
from store.errors import ImportFailed
from store.foreign.text_files import Fields, clean
from store.importers.kernelbench_run import parse_entry
from store.importers.reading import pieces, sources

log = logging.getLogger(__name__)

NAME = "kernelbench-samples"
SUITE = "kernelbench"
EVALUATOR = "kernelbench"
_PLACE = re.compile(
    r"(?:.*/)?([^/]+)/level_?([0-9]{1,2})/((?:[^/]+/)?[^/]+)/problem_([0-9]{1,6})/"
    r"sample_([0-9]{1,6})/"
    r"(?:kernel|log)\.json"
)


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    suite_revision: str | None = "v0"
    """Revision of KernelBench that the samples are for, as it was imported."""
    source_revision: str = "unknown"
    license: str | None = "Apache-2.0"


def recognize(path: Path) -> str | None:
    deep = "problem_*/sample_*/kernel.json", "problem_*/sample_*/log.json"
    for above in ("", "*/", "*/*/", "*/*/*/"):
        for file in sources.list_files(path, *(above + one for one in deep))[:1]:
            if _PLACE.fullmatch(file.resolve().as_posix()):
                return f"{file.relative_to(path)} in a folder levelN/MODEL"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the samples of each model and level in bundles."""
    root = sources.require_path(path, "kernelbench-samples or a folder inside it")
    groups: dict[str, list[Path]] = {}
    for pattern in ("kernel.json", "log.json"):
        for file in sorted(root.rglob(pattern)):
            match = _PLACE.fullmatch(file.resolve().as_posix())
            if match is not None:
                subset, level, model, _, _ = match.groups()
                groups.setdefault(f"{subset}/level{level}/{model}", []).append(file)
    if not groups:
        raise ImportFailed(
            f"{root} holds no levelN/MODEL/problem_P/sample_S/kernel.json or log.json",
            "Name a checkout of kernelbench-samples, or a folder inside it such as baseline_eval.",
        )
    revision = config.suite_revision
    known = lake.run(
        "FROM task_labels WHERE suite = $1 AND suite_revision = $2 LIMIT 1", [SUITE, revision]
    ).rows()
    if revision is not None and not known:
        log.warning(
            "The lake has no tasks of KernelBench %s. The attempts get no task, also if you import "
            "the tasks later: import them first, with `store import kernelbench`.",
            revision,
        )
    tasks = pieces.read_suite_tasks(lake, SUITE, revision if known else None)
    source = "ScalingIntelligence/kernelbench-samples"
    yield from pieces.Import(lake, NAME, config, source=source).read(
        (
            pieces.open_documents(name, files, root, partial(_parse, root=root))
            for name, files in sorted(groups.items())
        ),
        lambda: partial(_add, tasks),
    )


def _parse(file: Path, root: Path) -> Iterable[Fields]:
    document = pieces.parse_document(file, root)
    place = _PLACE.fullmatch(file.resolve().as_posix())
    assert place is not None
    turns = {None: document}
    if file.name == "log.json":
        numbers = sorted((key for key in document.values if key.isdecimal()), key=int)
        turns = {int(number): document.inner(number) for number in numbers}
    values = {"place": [clean(part) for part in place.groups()], "turns": turns}
    yield Fields(values=values, where=str(file), size=document.size)


def _add(tasks: Mapping[Any, str], rows: pieces.BundleRows, sample: Fields) -> None:
    """Add a sample: one attempt, or one per turn of a log."""
    subset, model = sample.values["place"][0], sample.values["place"][2]
    level, problem, number = (int(sample.values["place"][at]) for at in (1, 3, 4))
    place = [subset, model, str(level), str(problem), str(number)]
    before: pieces.Attempt | None = None
    turns: dict[int | None, Fields] = sample.values["turns"]
    for at, turn in turns.items():
        code = turn.code("kernel" if at is None else "kernel_code")
        attempt = rows.add_attempt(
            [*place, "" if at is None else str(at)],
            policy=model.rpartition("/")[2],
            task_id=tasks.get((level, problem)),
            problem=f"level{level}/{problem}",
            kernel_id=rows.add_code(code),
            group_id=rows.identify(["group", *place[:4]]),
            sample_index=number,
            parse_error="the file has no code" if code is None else None,
            trajectory_id=None if at is None else rows.identify(place),
            turn=at,
            parent_generation_id=before and before.generation_id,
        )
        before = attempt
        result = turn.inner("eval_result")
        listed = [result.inner(name) for name in sorted(result.values) if name.startswith("eval_")]
        for one in listed or [result]:
            if "correct" in one.values or "correctness" in one.values:
                entry = parse_entry(problem, one)
                gpu, latency_ms = entry.hardware, entry.latency_ms
                shown = "/".join(Path(sample.where).parts[-6:])
                rows.add_verdict(
                    attempt, evaluator=EVALUATOR, gpu=gpu, quote=shown, **entry.verdict()
                )
                quote = f"mean runtime in {shown}: {json.dumps(latency_ms)} ms on {gpu}"
                rows.add_claim(attempt, "latency_ms", latency_ms, quote, gpu=gpu)
