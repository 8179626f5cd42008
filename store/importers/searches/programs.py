"""The programs of a search: attempts that continue their parents, with the figures it reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from store.code.python_syntax import parse_python
from store.foreign.fields import Fields, clean
from store.importers.reading.attempts import Attempt, AttemptRows
from store.importers.reading.rows import ENTRY_PATH, BundleRows

SCORE = "combined_score"
_PATHS = {
    **dict.fromkeys(("python", "triton"), ENTRY_PATH),
    **dict.fromkeys(("cuda", "hip"), "kernel.cu"),
    **dict.fromkeys(("cpp", "c++"), "kernel.cpp"),
}


@dataclass(kw_only=True)
class ProgramRows:
    """Adds the programs of one search in order; a parent that has not come before is unknown."""

    importer: str
    task_id: str | None
    problem: str
    policy: str
    gpu: str | None
    entry_point: str
    _attempts: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a program to the id of its attempt."""

    def begin(self, gathered: BundleRows, run_id: str) -> AttemptRows:
        """Return an adder of rows to a bundle."""
        return AttemptRows(gathered=gathered, importer=self.importer, run_id=run_id)

    def has(self, program: str) -> bool:
        """Return whether a program has come before."""
        return program in self._attempts

    def add(
        self,
        rows: AttemptRows,
        program: str,
        place: Sequence[str],
        *,
        kernel_id: str | None,
        parent: str | None = None,
        problem: str | None = None,
        **columns: Any,
    ) -> Attempt:
        """Add a program, whose parent is the name of another; `columns` are of generations."""
        attempt = rows.add_attempt(
            place,
            policy=self.policy,
            task_id=self.task_id,
            problem=problem or self.problem,
            kernel_id=kernel_id,
            parent_generation_id=self._attempts.get(parent or ""),
            **columns,
        )
        self._attempts[program] = attempt.generation_id
        return attempt

    def add_kernel(self, rows: AttemptRows, code: str | None, language: str | None) -> str | None:
        """Add the kernel of a program and return its id, or None if there is no code."""
        if code is None:
            return None
        path = _PATHS.get((language or "").lower()) or find_path(code)
        return rows.add_kernel(code, path=path, entry_point=self.entry_point)

    def add_verdict(
        self, rows: AttemptRows, attempt: Attempt, correct: bool | None, quote: str
    ) -> None:
        """Add the verdict of the search on a program, if it has one."""
        if correct is not None:
            status = "correct" if correct else "incorrect"
            rows.add_verdict(
                attempt, evaluator=self.importer, gpu=self.gpu, status=status, quote=quote
            )

    def add_metrics(self, rows: AttemptRows, attempt: Attempt, metrics: Fields, quote: str) -> None:
        """Add every number of an object as a claim; its metric is reported_NAME."""
        for name, value in metrics.values.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                metric = SCORE if name == SCORE else f"reported_{' '.join(clean(name).split())}"
                rows.add_claim(attempt, metric[:100], metrics.number(name), quote, gpu=self.gpu)


def find_path(code: str) -> str:
    """Return the path of a kernel whose language is unknown.

    >>> find_path("import torch"), find_path("__global__ void add(float* x) {}")
    ('kernel.py', 'kernel.cu')
    """
    return "kernel.cu" if "__global__" in code and parse_python(code) is None else ENTRY_PATH


def list_parents_first(parents: Mapping[str, str | None]) -> list[str]:
    """Return the names of programs so that each follows its parent; circles are cut.

    >>> list_parents_first({"c": "b", "b": "a", "a": None, "d": "d"})
    ['a', 'b', 'c', 'd']
    """
    ordered: list[str] = []
    done: set[str] = set()
    for name in parents:
        chain: list[str] = []
        current: str | None = name
        while current is not None and current in parents and current not in done:
            done.add(current)
            chain.append(current)
            current = parents[current]
        ordered += reversed(chain)
    return ordered
