"""What is judged: kernels of this repository and their mutants, each with what is known of it."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

from scoring.operators import mutate

from evaluators.judging.case import Case
from store.generated.writing import families
from store.importers import starter

ADVERSARIAL = Path(__file__).parents[2] / "tests/evaluators/adversarial"
GENERATED_TASKS = 39
"""Generated tasks whose kernels count: three of each family."""
_BAD_KINDS = ("flagged", "wrong", "cheating", "hostile", "faulty")
_COMPILERS = re.compile(r"torch\.compile|load_inline|cpp_extension")
_HERE = {"cpu": ("cpu", "any"), "cuda": ("cuda", "any")}

Kind: TypeAlias = Literal["mutant", "cheat", "honest", "public"]


@dataclass(frozen=True, kw_only=True)
class Item:
    """One kernel to judge."""

    name: str
    kind: Kind
    family: str
    """Operator of a mutant, kind of a cheat, origin of any other kernel."""
    language: str
    code: str
    task: str
    """Text of the task."""
    axes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Names of the task's text and the values that replace them."""
    path: str = "kernel.py"
    entry_point: str = "ModelNew"
    other_files: tuple[tuple[str, str], ...] = ()
    original: str | None = None
    """Text of the kernel that was mutated."""
    change: str | None = None
    """The mistake of a mutant."""
    head: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the head of an adversarial file says."""
    corpus: str = "repository"

    @property
    def digest(self) -> str:
        """Hash of all that decides what comes of it."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def make_case(self) -> Case:
        """Return the case of the judge; its `request_id` is the name."""
        return Case(
            kernel_id="k",
            task_id="t",
            workload_id="w",
            request_id=self.name,
            code=self.code,
            path=self.path,
            entry_point=self.entry_point,
            other_files=self.other_files,
            task_code=self.task,
            axes=json.dumps(dict(self.axes)),
            trusted=self.kind in ("honest", "public"),
        )


def list_honest(device: str) -> Iterator[Item]:
    """Yield the honest kernels of this repository that run on a device."""
    for task in starter.read_suite().tasks:
        for kernel in task.kernels:
            if kernel.label == "honest" and kernel.device in _HERE[device]:
                yield Item(
                    name=f"starter/{task.name}/{kernel.name}",
                    kind="honest",
                    family="starter",
                    language=find_language(kernel.code),
                    code=kernel.code,
                    task=task.code,
                    axes=task.workloads.get(device, {}),
                )
    stream = families.generate_tasks(families.family_names(), 0)
    languages = ("torch", "cpp") if device == "cpu" else ("torch", "triton", "cuda")
    for number, (family, task) in enumerate(itertools.islice(stream, GENERATED_TASKS)):
        for kernel in task.kernels:
            if kernel.right and kernel.language in languages:
                yield Item(
                    name=f"generated/{family}-{number}/{kernel.variant}",
                    kind="honest",
                    family="generated",
                    language=find_language(kernel.code),
                    code=kernel.code,
                    task=task.code,
                    axes=task.cuda if device == "cuda" else {},
                )
    yield from _list_adversarial("honest", device)


def list_cheats(device: str) -> Iterator[Item]:
    """Yield the adversarial kernels that run on a device, of all kinds but the honest ones."""
    for kind in _BAD_KINDS:
        yield from _list_adversarial(kind, device)


def _list_adversarial(kind: str, device: str) -> Iterator[Item]:
    for path in sorted((ADVERSARIAL / kind).glob("*.py")):
        code = path.read_text(encoding="utf-8", errors="surrogateescape")
        head = dict(line[2:].split(": ", 1) for line in code.split("\n\n")[0].splitlines()[2:])
        if head["device"] != device:
            continue
        folder = path.with_suffix("")
        files = {
            name: (folder / name).read_text() if folder.is_dir() else "escaped = True\n"
            for name in head.get("files", "").split()
        }
        yield Item(
            name=f"adversarial/{kind}/{path.stem}",
            kind="honest" if kind == "honest" else "cheat",
            family="adversarial" if kind == "honest" else kind,
            language=find_language(code),
            code=code,
            task=(ADVERSARIAL / "tasks" / f"{head['task']}.py").read_text(),
            other_files=tuple(files.items()),
            head=head,
        )


def list_mutants(device: str, most_each: int, honest: Sequence[Item]) -> Iterator[Item]:
    """Yield the mutants of honest kernels, `most_each` at most by kernel and operator."""
    for kernel in honest:
        # A processor judges those in PyTorch. Builds of torch's own compilers take minutes.
        if (device == "cuda" and kernel.language == "pytorch") or _COMPILERS.search(kernel.code):
            continue
        numbers: Counter[str] = Counter()
        for mutant in mutate(kernel.code, most_each):
            numbers[mutant.family] += 1
            word = mutant.family.replace(" ", "-")
            yield replace(
                kernel,
                name=f"mutant/{kernel.name}/{word}-{numbers[mutant.family]}",
                kind="mutant",
                family=mutant.family,
                code=mutant.code,
                original=kernel.code,
                change=f"line {mutant.line}: {mutant.change}",
                head={},
            )


def find_language(code: str) -> str:
    """Return the language that a kernel's own device or host code is in."""
    if "@triton.jit" in code:
        return "triton"
    if "__global__" in code:
        return "cuda"
    return "c++" if "ctypes" in code or "load_inline" in code else "pytorch"


def choose(items: Sequence[Item], count: int) -> list[Item]:
    """Return items of all families and languages in turn, by the hash of their texts."""
    groups: dict[tuple[str, str], list[Item]] = {}
    for item in sorted(items, key=lambda one: hashlib.sha256(one.digest.encode()).digest()):
        groups.setdefault((item.family, item.language), []).append(item)
    rounds = itertools.zip_longest(*(groups[key] for key in sorted(groups)))
    turns = (item for one in rounds for item in one if item is not None)
    return list(itertools.islice(turns, count))
