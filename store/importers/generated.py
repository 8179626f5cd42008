"""Generated tasks of graded difficulty with a teacher's kernels: thousands from one seed.

Takes no path. Each family (store/generated/*.py) draws tasks from the seed. The same seed gives the
same bytes, and a larger count continues where a smaller one stopped. Every task has correct kernels
of different speed in PyTorch, C, Triton and CUDA, and some wrong ones by the policy teacher-wrong.
Whole families are in the test split. With --held-out, tasks of any family are a test side of their
own: their family is called NAME:held-out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from store import ids
from store.errors import ImportFailed
from store.generated.writing import families as families_module
from store.generated.writing import words
from store.generated.writing.task import Kernel, Task
from store.importers.reading import sources
from store.importers.reading.rows import BundleRows
from store.writing.bundle import Bundle

if TYPE_CHECKING:
    import store

NAME = "generated"
IMPORTER_VERSION = 1
SUITE_REVISION = "v3"
"""Version of the texts; raise it when any text changes."""
LICENSE = "Apache-2.0"
RULE = "whole families, chosen by hand so that both sides hold row-wise and matrix work"
HELD_OUT = ":held-out"
HELD_OUT_RULE = "tasks of families that also train, drawn apart from theirs"
BUNDLE_TASKS = 64
"""Tasks stored in one transaction."""
TAKES_PATH = False
_LANGUAGES = {
    "all": ("torch", "cpp", "triton", "cuda"),
    "cpu": ("torch", "cpp"),
    "cuda": ("torch", "triton", "cuda"),
    "none": (),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of the generated importer."""

    families: tuple[str, ...] = ()
    """Family to draw from (default: all). Repeat it for several families, which take turns."""
    count: int = 200
    """Number of tasks."""
    seed: int = 0
    """Seed of every draw."""
    kernels: Literal["all", "cpu", "cuda", "none"] = "all"
    """Import the teacher's kernels for these devices."""
    steps: int | None = None
    """Only tasks with this number of elementwise steps (families tuned_rows, tuned_columns,
    tuned_transpose and tuned_window)."""
    held_out: bool = False
    """Put the tasks into the test split, as held-out tasks of their families. Tasks that the lake
    has on another side are skipped."""


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[Bundle]:
    """Yield a bundle for every 64 tasks.

    Raises:
        ImportFailed: a path was given, or the count is below 1.
        UnknownName: no family has the name.
    """
    if path is not None:
        hint = "For example: store import generated --count 1000 --seed 1"
        if str(path) in families_module.family_names():
            hint = f"Repeat --families for each family: --families {path}"
        raise ImportFailed(f"the importer generated takes no path, but {path} was given", hint)
    if config.count < 1:
        raise ImportFailed(f"--count {config.count} is too few", "Give 1 or more.")
    # A family given twice would yield its tasks twice.
    names = tuple(dict.fromkeys(config.families)) or families_module.family_names()
    for name in names:
        families_module.load_family(name)
    # Held-out tasks come from draws of their own, so that each family has as many.
    seed = -1 - config.seed if config.held_out else config.seed
    generated = families_module.generate_tasks(names, seed, config.steps)
    if config.held_out:
        known = _find_other_tasks(lake)
        generated = (
            (family, task) for family, task in generated if ids.task_id(task.code) not in known
        )
    drawn = islice(generated, config.count)
    while chunk := list(islice(drawn, BUNDLE_TASKS)):
        yield _bundle(chunk, config, lake)


def _bundle(chunk: list[tuple[str, Task]], config: Config, lake: store.Lake) -> Bundle:
    languages = _LANGUAGES[config.kernels]
    picked = [
        (family, task, [kernel for kernel in task.kernels if kernel.language in languages])
        for family, task in chunk
    ]
    content = sources.digest(
        (part, text.encode())
        for family, task, kernels in picked
        for part, text in [
            (_name_side(family, config), task.code),
            *((_path(family, kernel), kernel.code) for kernel in kernels),
        ]
    )
    # The id depends on the content alone: the same tasks have the same id with another --count.
    identity = ids.content_id("import", NAME, str(IMPORTER_VERSION), SUITE_REVISION, content)
    count = sum(len(kernels) for _, _, kernels in picked)
    message = f"{NAME} {SUITE_REVISION}: {len(picked)} tasks, {count} kernels"
    if sources.is_stored(lake, identity):
        return Bundle(bundle_id=identity, message=message)
    gathered = BundleRows(source=NAME, source_revision=SUITE_REVISION, license=LICENSE)
    for family in sorted({family for family, _, _ in picked}):
        side = _name_side(family, config)
        split = "test" if config.held_out else families_module.load_family(family).SPLIT
        rule = HELD_OUT_RULE if config.held_out else RULE
        row = {"suite": NAME, "family": side, "split": split, "rule": rule}
        gathered.add("splits", (NAME, side), row)
    for family, task, kernels in picked:
        task_id = _add_task(gathered, _name_side(family, config), task)
        for kernel in kernels:
            _add_kernel(gathered, family, task, task_id, kernel, identity)
    return gathered.make_bundle(identity, message, importer=NAME, config=config, what=NAME)


def _name_side(family: str, config: Config) -> str:
    """Return the family of a task's label."""
    return family + HELD_OUT if config.held_out else family


def _find_other_tasks(lake: store.Lake) -> set[str]:
    """Return the tasks that are not held-out tasks of a family."""
    rows = lake.run(
        "SELECT DISTINCT task_id FROM task_labels WHERE NOT ends_with(family, $1)", [HELD_OUT]
    ).rows()
    return {row["task_id"] for row in rows}


def _add_task(gathered: BundleRows, family: str, task: Task) -> str:
    task_id = gathered.add_task(task.code)
    gathered.add_label(
        task_id,
        family=family,
        suite=NAME,
        revision=SUITE_REVISION,
        # Named after its text, so that no two seeds give one name to different tasks.
        name=f"{family}/{task_id[:12]}",
        title=task.title,
        level=task.level,
    )
    axes = json.dumps(task.cuda, sort_keys=True)
    workload_id = ids.workload_id(task_id, axes)
    row = {
        "workload_id": workload_id,
        "task_id": task_id,
        "name": "cuda",
        "axes": axes,
        "generator": "get_inputs",
    }
    gathered.add("workloads", (workload_id,), row)
    return task_id


def _add_kernel(
    gathered: BundleRows, family: str, task: Task, task_id: str, kernel: Kernel, run_id: str
) -> None:
    policy = f"teacher-{kernel.language if kernel.right else 'wrong'}"
    gathered.add(
        "policies",
        (policy,),
        {"policy_id": policy, "name": policy, "kind": "script", "output_terms": LICENSE},
    )
    # The path keeps the variant's name, which the lake stores nowhere else.
    path = _path(family, kernel)
    kernel_id = gathered.add_kernel({path: kernel.code}, entry_path=path)
    # A kernel whose text stays gets the words of a new revision as another attempt.
    generation_id = ids.content_id("generation", NAME, SUITE_REVISION, policy, task_id, kernel_id)
    generation = {
        "generation_id": generation_id,
        "run_id": run_id,
        "task_id": task_id,
        "policy_id": policy,
        "kernel_id": kernel_id,
        "analysis": task.analysis,
        "design": words.describe_kernel(kernel),
        **gathered.origin(),
    }
    gathered.add("generations", (generation_id,), generation)


def _path(family: str, kernel: Kernel) -> str:
    return f"{family}/{kernel.variant}.py"
