"""Reads definitions, solutions and traces, and validates only the fields that it needs."""

from __future__ import annotations

import json
import keyword
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias, cast

from store.commandline.escape import quote_name
from store.errors import ImportFailed
from store.foreign.fields import NOTHING_STORED
from store.ids import content_id
from store.importers.flashinfer import axis_expressions
from store.importers.reading import sources

Mapping: TypeAlias = "dict[str, Any]"

STATUSES = {
    "PASSED": ("correct", None),
    "INCORRECT_SHAPE": ("incorrect", "incorrect_shape"),
    "INCORRECT_NUMERICAL": ("incorrect", "incorrect_numerical"),
    "INCORRECT_DTYPE": ("incorrect", "incorrect_dtype"),
    "RUNTIME_ERROR": ("crash", "unspecified"),
    "COMPILE_ERROR": ("compile_error", "unspecified"),
    "TIMEOUT": ("timeout", "unspecified"),
    "REWARD_HACK": ("rejected", "unspecified"),
    "INVALID_REFERENCE": ("evaluator_error", "reference_failed"),
}
"""Statuses of flashinfer-bench and SOL-ExecBench to ours with its reason."""
_TAKEN = {"torch", "run", "Model", "get_inputs", "get_init_inputs", "_sizes", "_drawn"}


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One input of a definition."""

    name: str
    shape: tuple[str, ...] | None
    """Names of axes; None for a scalar."""
    dtype: str


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One computation with its inputs and outputs."""

    name: str
    op_type: str
    constants: dict[str, int]
    variables: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    reference: str
    expressions: dict[str, str] = field(default_factory=dict[str, str])
    """Axes that follow from others, as Python expressions over constants and variables."""
    generator: str | None = None
    """Function of the reference that draws the inputs in `drawn`."""
    drawn: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Solution:
    """One kernel of one or several files."""

    name: str
    author: str
    files: dict[str, str]
    entry_path: str
    entry_point: str


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One setting of a definition's inputs."""

    uuid: str
    axes: dict[str, int]
    inputs: dict[str, Mapping]

    @property
    def from_files(self) -> bool:
        """Whether an input comes from a file of the dataset."""
        return any(one.get("type") == "safetensors" for one in self.inputs.values())


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One workload, with the verdict on a solution if there is one."""

    definition: str
    workload: Workload
    solution: str | None
    evaluation: Mapping | None
    where: str

    @property
    def status(self) -> tuple[str, str | None]:
        """Our status and reason."""
        return STATUSES[str((self.evaluation or {})["status"])]

    def part(self, name: str) -> Mapping:
        """Return an object of the evaluation, empty if it is missing."""
        value = (self.evaluation or {}).get(name)
        return cast("Mapping", value) if isinstance(value, dict) else {}


@dataclass(kw_only=True)
class Dataset:
    """All objects of a folder."""

    definitions: list[Definition] = field(default_factory=list[Definition])
    solutions: dict[str, list[Solution]] = field(default_factory=dict[str, list[Solution]])
    traces: dict[str, list[Trace]] = field(default_factory=dict[str, list[Trace]])
    """By definition: those of workloads/ first, then those with verdicts."""
    _digests: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    def digest(self, definition: str) -> str:
        """Return a hash over everything that belongs to a definition."""
        return content_id(*self._digests.get(definition, []))

    def note(self, definition: str, text: str) -> None:
        """Add a text to the digest of a definition."""
        self._digests.setdefault(definition, []).append(content_id(text))


def read(root: Path) -> Dataset:
    """Read the dataset of a folder; raises ImportFailed with file and line."""
    dataset = Dataset()
    for file in _files(root, "definitions", "json"):
        text = sources.read_text(file, root)
        fields = require_object(sources.parse_json(text, file), str(file))
        definition = parse_definition(fields, str(file))
        if any(one.name == definition.name for one in dataset.definitions):
            raise ImportFailed(f"{file}: {quote_name(definition.name)} is defined twice")
        dataset.definitions.append(definition)
        dataset.note(definition.name, text)
    if not dataset.definitions:
        raise ImportFailed(
            f"{root} holds no definitions/**/*.json", "Name the folder that has definitions/ in it."
        )
    known = {one.name for one in dataset.definitions}
    for file in _files(root, "solutions", "json"):
        text = sources.read_text(file, root)
        fields = require_object(sources.parse_json(text, file), str(file))
        of = _require_known(fields, known, str(file))
        dataset.solutions.setdefault(of, []).append(parse_solution(fields, str(file)))
        dataset.note(of, text)
    for folder in ("workloads", "traces"):
        for file in _files(root, folder, "jsonl"):
            for number, line in enumerate(sources.read_text(file, root).splitlines(), 1):
                if not line.strip():
                    continue
                where = f"{file}, line {number}"
                trace = parse_trace(require_object(_parse_line(line, where), where), known, where)
                dataset.traces.setdefault(trace.definition, []).append(trace)
                dataset.note(trace.definition, line)
    return dataset


def number(value: Any) -> float | None:
    """Return a finite figure of zero or more, or None; the files write infinities as texts."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def _files(root: Path, folder: str, ending: str) -> Iterable[Path]:
    return sorted(file for file in (root / folder).rglob(f"*.{ending}"))


def _parse_line(line: str, where: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ImportFailed(f"{where}: {error}") from error


def parse_definition(fields: Mapping, where: str) -> Definition:
    """Return a definition; raises ImportFailed if it cannot become a task."""
    _refuse_surrogates(fields, where)
    constants: dict[str, int] = {}
    variables: list[str] = []
    expressions: dict[str, str] = {}
    for name, axis in require_object(fields.get("axes"), f"{where}, axes").items():
        if not name.isidentifier() or keyword.iskeyword(name) or name in _TAKEN:
            raise ImportFailed(f"{where}: axis {name!a:.40} cannot be a name in Python")
        about = require_object(axis, f"{where}, axis {name}")
        if about.get("type") == "const":
            constants[name] = _size(about.get("value"), f"{where}, axis {name}")
        elif about.get("type") == "expr":
            expressions[name] = _text(about, "expression", f"{where}, axis {name}")
        else:
            variables.append(name)
    inputs: list[Tensor] = []
    for name, value in require_object(fields.get("inputs"), f"{where}, inputs").items():
        spec = require_object(value, f"{where}, input {name!a:.40}")
        shape = spec.get("shape")
        axes = None if shape is None else tuple(_names(shape, f"{where}, input {name!a:.40}"))
        unknown = set(axes or ()) - constants.keys() - set(variables) - expressions.keys()
        if unknown:
            raise ImportFailed(f"{where}: input {name!a:.40} has no axis {min(unknown)!a:.40}")
        inputs.append(Tensor(name=name, shape=axes, dtype=_text(spec, "dtype", where)))
    return Definition(
        name=_text(fields, "name", where),
        op_type=str(fields.get("op_type") or fields.get("type") or "other"),
        constants=constants,
        variables=tuple(variables),
        inputs=tuple(inputs),
        reference=_text(fields, "reference", where),
        expressions=axis_expressions.expand(expressions, {*constants, *variables}, where),
        generator=_read_generator(fields, where),
    )


def _read_generator(fields: Mapping, where: str) -> str | None:
    name = fields.get("custom_inputs_entrypoint")
    if name is None:
        return None
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ImportFailed(f"{where}: custom_inputs_entrypoint {name!a:.40} is no function")
    return name


def parse_solution(fields: Mapping, where: str) -> Solution:
    """Return a solution; raises ImportFailed if its entry point is none of its sources."""
    _refuse_surrogates(fields, where)
    spec = require_object(fields.get("spec"), f"{where}, spec")
    files: dict[str, str] = {}
    listed = fields.get("sources")
    for one in cast("list[Any]", listed) if isinstance(listed, list) else []:
        source = require_object(one, f"{where}, sources")
        path = _text(source, "path", where)
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts:
            raise ImportFailed(f"{where}: source {path!a:.80} leaves its folder")
        files[path] = str(source.get("content") or "")
    entry_path, _, entry_point = _text(spec, "entry_point", where).partition("::")
    if entry_path not in files:
        raise ImportFailed(
            f"{where}: entry point {entry_path!a:.80} is none of its sources", "It is FILE::NAME."
        )
    return Solution(
        name=_text(fields, "name", where),
        author=str(fields.get("author") or "unknown"),
        files=files,
        entry_path=entry_path,
        entry_point=entry_point or "run",
    )


def parse_workload(workload: Mapping, where: str) -> Workload:
    """Return a workload; raises ImportFailed if its axes are no sizes or it has no uuid."""
    _refuse_surrogates(workload, where)
    axes = {
        name: _size(value, f"{where}, axis {name!a:.40}")
        for name, value in require_object(workload.get("axes"), f"{where}, axes").items()
    }
    inputs = {
        name: require_object(value, f"{where}, input {name!a:.40}")
        for name, value in require_object(workload.get("inputs") or {}, f"{where}, inputs").items()
    }
    return Workload(uuid=_text(workload, "uuid", where), axes=axes, inputs=inputs)


def parse_trace(fields: Mapping, known: set[str], where: str) -> Trace:
    """Return a trace; raises ImportFailed for an unknown definition or status."""
    workload = require_object(fields.get("workload"), f"{where}, workload")
    evaluation = fields.get("evaluation")
    if evaluation is not None:
        status = require_object(evaluation, f"{where}, evaluation").get("status")
        if not isinstance(status, str) or status not in STATUSES:
            raise ImportFailed(
                f"{where}: status {status!a:.40} is unknown", f"Known are {', '.join(STATUSES)}."
            )
    return Trace(
        definition=_require_known(fields, known, where),
        workload=parse_workload(workload, where),
        solution=None if fields.get("solution") is None else _text(fields, "solution", where),
        evaluation=cast("Mapping | None", evaluation),
        where=where,
    )


def _require_known(fields: Mapping, known: set[str], where: str) -> str:
    name = _text(fields, "definition", where)
    if name not in known:
        raise ImportFailed(f"{where}: there is no definition {name!a:.80}")
    return name


def _refuse_surrogates(fields: Mapping, where: str) -> None:
    """Raise ImportFailed for a lone surrogate, which JSON can escape and no file can hold."""
    try:
        json.dumps(fields, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        raise ImportFailed(f"{where} holds a lone surrogate", NOTHING_STORED) from error


def require_object(value: Any, where: str) -> Mapping:
    """Return an object; raises ImportFailed for anything else."""
    if not isinstance(value, dict):
        raise ImportFailed(f"{where} is {type(value).__name__} where an object is wanted")
    return cast("Mapping", value)


def _text(fields: Mapping, name: str, where: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not value or "\0" in value:
        raise ImportFailed(f"{where}: {name} is {value!a:.40}, no text")
    return value


def _names(value: Any, where: str) -> list[str]:
    if not isinstance(value, list):
        raise ImportFailed(f"{where}: shape is {value!a:.40}, no list of axes")
    return [str(axis) for axis in cast("list[Any]", value)]


def _size(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ImportFailed(f"{where} is {value!a:.40}, no size")
    return value
