"""Generated tasks of graded difficulty with a teacher's kernels: thousands from one seed.

Each family (store/generated/*.py) draws tasks from the seed. The same seed gives the same bytes,
and a larger count continues where a smaller one stopped. Every task has correct kernels of
different speed in PyTorch, C, Triton and CUDA, and some wrong ones by the author teacher-wrong.
Whole families are in the test split. With --held-out, tasks of any family go to the test split
under a family of their own, NAME:held-out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import store
from store import ids
from store.errors import ImportFailed
from store.generated.writing import families as families_module
from store.generated.writing.texts import TeacherKernel, describe_kernel
from store.importers.reading import pieces, sources

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
    families: tuple[str, ...] = ()
    """Family to draw from (default: all). Repeat it for several families, which take turns."""
    count: int = 200
    """Number of tasks."""
    seed: int = 0
    """Seed of every draw."""
    kernels: Literal["all", "cpu", "cuda", "none"] = "all"
    """Import the teacher's kernels for these devices."""
    steps: int | None = None
    """Make only tasks with this number of elementwise steps (families tuned_rows, tuned_columns,
    tuned_transpose and tuned_window)."""
    held_out: bool = False
    """Put the tasks into the test split, as held-out tasks of their families. Tasks that the lake
    has in another split are skipped."""


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield a bundle for every 64 tasks."""
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
        # Tasks of the lake that are not held-out tasks of a family.
        known = {
            row["task_id"]
            for row in lake.run(
                "SELECT DISTINCT task_id FROM task_labels WHERE NOT ends_with(family, $1)",
                [HELD_OUT],
            ).rows()
        }
        generated = (
            (family, task) for family, task in generated if ids.task_id(task.code) not in known
        )
    drawn, languages = islice(generated, config.count), _LANGUAGES[config.kernels]
    # The family of a task's label is the family that it is drawn from, and its side.
    side = HELD_OUT if config.held_out else ""
    reading = pieces.Import(lake, NAME, config, source_revision=SUITE_REVISION, license=LICENSE)
    while chunk := list(islice(drawn, BUNDLE_TASKS)):
        picked = [
            (family, task, [one for one in task.kernels if one.language in languages])
            for family, task in chunk
        ]
        texts: list[tuple[str, bytes]] = []
        for family, task, kernels in picked:
            texts.append((family + side, task.code.encode()))
            texts += [(_path(family, kernel), kernel.code.encode()) for kernel in kernels]
        # It depends on the content alone: the same tasks have the same id with another --count.
        content = sources.digest(texts)
        identity = ids.content_id("import", NAME, str(IMPORTER_VERSION), SUITE_REVISION, content)
        rows = reading.start(None, identity)
        if rows.is_new:
            for family in sorted({family for family, _, _ in picked}):
                split = "test" if config.held_out else families_module.load_family(family).SPLIT
                rule = HELD_OUT_RULE if config.held_out else RULE
                row = {"suite": NAME, "family": family + side, "split": split, "rule": rule}
                rows.add("splits", (NAME, family + side), row)
            for family, task, kernels in picked:
                task_id = rows.add_task(task.code)
                # Named after its text, so that no two seeds give one name to different tasks.
                name = f"{family}{side}/{task_id[:12]}"
                rows.add_label(
                    task_id,
                    family=family + side,
                    suite=NAME,
                    revision=SUITE_REVISION,
                    name=name,
                    title=task.title,
                    level=task.level,
                )
                rows.add_workload(task_id, "cuda", task.cuda)
                for kernel in kernels:
                    policy = f"teacher-{kernel.language if kernel.right else 'wrong'}"
                    rows.add_policy(policy, "script", output_terms=LICENSE)
                    # The path keeps the variant's name, which the lake stores nowhere else.
                    entry_path = _path(family, kernel)
                    kernel_id = rows.add_kernel({entry_path: kernel.code}, entry_path=entry_path)
                    rows.add_attempt(
                        # A kernel whose text stays gets the words of a new revision as well.
                        [SUITE_REVISION, policy, task_id, kernel_id],
                        policy=policy,
                        task_id=task_id,
                        kernel_id=kernel_id,
                        analysis=task.analysis,
                        design=describe_kernel(kernel),
                    )
        count = sum(len(kernels) for _, _, kernels in picked)
        message = f"{NAME} {SUITE_REVISION}: {len(picked)} tasks, {count} kernels"
        yield reading.finish(rows, message, NAME)


def _path(family: str, kernel: TeacherKernel) -> str:
    return f"{family}/{kernel.variant}.py"
