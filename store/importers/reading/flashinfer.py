"""Definitions, solutions, workloads and traces in the form of flashinfer-bench, and their rows.

Files are validated only in the fields that are needed. Arithmetic of axes is checked and not
evaluated.
"""

from __future__ import annotations

import ast
import json
import keyword
import math
import re
from collections.abc import Iterator, Set
from collections.abc import Mapping as ReadOnly
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias, cast

from store.commandline.escape import quote_name
from store.errors import ImportFailed
from store.foreign.fields import NOTHING_STORED
from store.ids import content_id
from store.importers.reading.rows import Attempt, BundleRows

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
MAX_CHARACTERS = 2_000
"""Longest expression, also after the axes that it names are replaced by theirs."""
_ALLOWED = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Name, ast.Load, ast.Constant),
    *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.UAdd, ast.USub),
)
_AXIS = re.compile(r"[A-Za-z_]\w*", re.ASCII)
LOG_CHARACTERS = 8_000
_INTEGERS = ("int64", "int32", "int16", "int8", "bool")
TORCH_NAMES = {"float8_e4m3": "float8_e4m3fn", "float4_e2m1": "float4_e2m1fn_x2"}
"""Element types with another name in torch."""


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


def read_lines(text: str, file: Path) -> Iterator[tuple[Mapping, str, str]]:
    """Yield the objects of JSON Lines, with their text and place; raises ImportFailed."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        where = f"{file}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ImportFailed(f"{where}: {error}") from error
        yield require_object(value, where), line, where


def number(value: Any) -> float | None:
    """Return a finite figure of zero or more, or None; the files write infinities as texts."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) and value >= 0 else None


def parse_definition(fields: Mapping, where: str) -> Definition:
    """Return a definition; raises ImportFailed if it cannot become a task."""
    _refuse_surrogates(fields, where)
    generator = fields.get("custom_inputs_entrypoint")
    if generator is not None and not (isinstance(generator, str) and _is_name(generator)):
        raise ImportFailed(f"{where}: custom_inputs_entrypoint {generator!a:.40} is no function")
    constants: dict[str, int] = {}
    variables: list[str] = []
    expressions: dict[str, str] = {}
    for name, axis in require_object(fields.get("axes"), f"{where}, axes").items():
        if not _is_name(name) or name in _TAKEN:
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
        if shape is not None and not isinstance(shape, list):
            raise ImportFailed(
                f"{where}, input {name!a:.40}: shape is {shape!a:.40}, no list of axes"
            )
        axes = None if shape is None else tuple(map(str, cast("list[Any]", shape)))
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
        expressions=expand_axes(expressions, {*constants, *variables}, where),
        generator=generator,
    )


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


def parse_trace(fields: Mapping, known: Set[str], where: str) -> Trace:
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
        definition=require_known(fields, known, where),
        workload=parse_workload(workload, where),
        solution=None if fields.get("solution") is None else _text(fields, "solution", where),
        evaluation=cast("Mapping | None", evaluation),
        where=where,
    )


def require_known(fields: Mapping, known: Set[str], where: str) -> str:
    """Return the definition that an object names; raises ImportFailed if it is unknown."""
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


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def _size(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ImportFailed(f"{where} is {value!a:.40}, no size")
    return value


def expand_axes(expressions: ReadOnly[str, str], known: Set[str], where: str) -> dict[str, str]:
    """Return each axis as an expression over the axes in `known`.

    >>> expand_axes({"pairs": "tokens // 2", "tokens": "batch * 8"}, {"batch"}, "definition.json")
    {'pairs': '(batch * 8) // 2', 'tokens': 'batch * 8'}

    Raises:
        ImportFailed: an expression is not arithmetic, names an unknown axis or itself, or is longer
            than MAX_CHARACTERS.
    """
    parsed = {
        name: _normalize_axis(text, f"{where}, axis {name}") for name, text in expressions.items()
    }

    def replace(name: str, above: tuple[str, ...]) -> str:
        place = f"{where}, axis {name}"
        if name in above:
            raise ImportFailed(f"{place} follows from itself")

        def one(match: re.Match[str]) -> str:
            inner = match[0]
            if inner in known:
                return inner
            if inner not in parsed:
                raise ImportFailed(f"{place}: there is no axis {inner!a:.40}")
            return f"({replace(inner, (*above, name))})"

        text = _AXIS.sub(one, parsed[name])
        if len(text) > MAX_CHARACTERS:
            raise ImportFailed(f"{place}: the expression has more than {MAX_CHARACTERS} characters")
        return text

    return {name: replace(name, ()) for name in parsed}


def _normalize_axis(text: str, where: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise ImportFailed(f"{where}: the expression has more than {MAX_CHARACTERS} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ImportFailed(f"{where}: {text!a:.60} is no expression") from error
    for node in ast.walk(tree):
        number = not isinstance(node, ast.Constant) or type(node.value) in (int, float)
        if not isinstance(node, _ALLOWED) or not number:
            raise ImportFailed(f"{where}: {text!a:.60} is no arithmetic of axes")
    return ast.unparse(tree)


def task_text(definition: Definition, first: Workload | None) -> str:
    """Return the task of a definition: its reference, then a Model that calls it.

    Axes and scalar inputs are names of the module. Those that vary have the values of the first
    workload, or 1; other workloads replace them. Numbers are drawn from a normal distribution,
    whole numbers are 0 or 1. Inputs that the definition has a function for come from it.
    """
    axes = definition.constants | {
        name: first.axes.get(name, 1) if first is not None else 1 for name in definition.variables
    }
    lines = [f"{name} = {value}" for name, value in axes.items()]
    values: list[str] = []
    for one in definition.inputs:
        if one.shape is None:
            lines.append(f"{scalar_name(one.name)} = {_scalar(first, one.name)!r}")
            values.append(scalar_name(one.name))
            continue
        if one.name in definition.drawn:
            values.append(f"_drawn[{one.name!r}]")
            continue
        size = "(" + "".join(f"{_write_size(definition, axis)}, " for axis in one.shape) + ")"
        kind = f"torch.{TORCH_NAMES.get(one.dtype, one.dtype)}"
        drawn = f"torch.randint(0, 2, {size})" if one.dtype in _INTEGERS else f"torch.randn({size})"
        values.append(f"{drawn}.to({kind})")
    listed = "".join(f"        {value},\n" for value in values)
    return (
        f"{definition.reference.rstrip()}\n\n\nimport torch\n\n"
        + "\n".join(lines)
        + "\n\n\nclass Model(torch.nn.Module):\n    def forward(self, *inputs):\n"
        + "        return run(*inputs)\n\n\n"
        + f"def get_inputs():\n{_draw(definition)}    return [\n{listed}    ]\n\n\n"
        + "def get_init_inputs():\n    return []\n"
    )


def _write_size(definition: Definition, axis: str) -> str:
    """Return the size of an axis as Python; one that follows from others is computed anew."""
    expression = definition.expressions.get(axis)
    return axis if expression is None else f"int({expression})"


def _draw(definition: Definition) -> str:
    """Return the lines of get_inputs that call the definition's own generator, if it has one."""
    if definition.generator is None or not definition.drawn:
        return ""
    names = [*definition.constants, *definition.variables, *definition.expressions]
    known = [f"{name!r}: {_write_size(definition, name)}" for name in names]
    known += [
        f"{one.name!r}: {scalar_name(one.name)}" for one in definition.inputs if one.shape is None
    ]
    return (
        f"    _sizes = {{{', '.join(known)}}}\n"
        f"    _drawn = {definition.generator}(_sizes, torch.device('cpu'))\n"
    )


def scalar_name(name: str) -> str:
    """Return the name of a scalar input in the task's module.

    Raises ImportFailed if the name cannot be one in Python.
    """
    if not name.isidentifier():
        raise ImportFailed(f"input {quote_name(name)} cannot be a name in Python")
    return f"INPUT_{name}"


def _scalar(workload: Workload | None, name: str) -> int | float | bool:
    value = workload.inputs.get(name, {}).get("value") if workload is not None else None
    return value if isinstance(value, bool | int) else number(value) or 0


class TraceRows:
    """Adds the rows of one definition to a bundle; the importer's name is that of its suite."""

    def __init__(
        self,
        rows: BundleRows,
        definition: Definition,
        evaluator: str,
        evaluator_version: int,
        level: int | None = None,
    ) -> None:
        self._rows = rows
        self._definition = definition
        self._evaluator = evaluator
        self._version = evaluator_version
        self._level = level
        self._task_id = ""
        self._solutions: dict[str, Attempt] = {}

    def add_workload(self, workload: Workload) -> str:
        """Add a workload, and with the first one the task; return its id."""
        task_id = self._add_task(workload)
        axes: dict[str, object] = {
            name: workload.axes[name]
            for name in self._definition.variables
            if name in workload.axes
        }
        axes |= {
            scalar_name(one.name): _scalar(workload, one.name)
            for one in self._definition.inputs
            if one.shape is None
        }
        if not workload.from_files:
            return self._rows.add_workload(task_id, workload.uuid, axes)
        # Other inputs, though the axes may be the same.
        axes["WORKLOAD"] = workload.uuid
        return self._rows.add_workload(task_id, workload.uuid, axes, "safetensors")

    def add_solution(self, solution: Solution) -> None:
        """Add a kernel with its origin."""
        task_id = self._add_task(None)
        kernel_id = self._rows.add_kernel(
            solution.files, entry_path=solution.entry_path, entry_point=solution.entry_point
        )
        self._solutions[solution.name] = self._rows.add_attempt(
            [task_id, solution.name, kernel_id],
            policy=f"{self._rows.importer}/{solution.author}",
            policy_kind="released",
            task_id=task_id,
            kernel_id=kernel_id,
        )

    def add_verdict(self, trace: Trace) -> None:
        """Add the evaluation of a trace and the figures it states."""
        if trace.solution is None or trace.evaluation is None:
            return
        attempt = self._solutions.get(trace.solution)
        if attempt is None:
            raise ImportFailed(f"{trace.where}: there is no solution {trace.solution!a:.80}")
        rows, suite = self._rows, self._rows.importer
        hardware = str(trace.part("environment").get("hardware") or "unknown").replace("_", " ")
        workload_id = self.add_workload(trace.workload)
        stated = json.dumps(trace.evaluation, sort_keys=True)
        place = (self._task_id, attempt.kernel_id, workload_id, hardware, stated)
        status, reason = trace.status
        rows.add_verdict(
            attempt,
            evaluator=self._evaluator,
            evaluator_version=self._version,
            gpu=hardware,
            status=status,
            reason=reason,
            evaluation_id=content_id("evaluation", suite, *place),
            workload_id=workload_id,
            log=str(trace.evaluation.get("log") or "").replace("\0", "")[:LOG_CHARACTERS] or None,
            max_abs_error=number(trace.part("correctness").get("max_absolute_error")),
            created_at=_moment(trace.evaluation.get("timestamp")),
        )
        performance = trace.part("performance")
        for metric, name, baseline in (
            ("latency_ms", "latency_ms", None),
            ("speedup", "speedup_factor", "eager"),  # the reference is plain PyTorch
        ):
            rows.add_claim(
                attempt,
                metric,
                number(performance.get(name)) or None,
                f"{self._definition.name}, workload {trace.workload.uuid} on {hardware}",
                gpu=hardware,
                baseline=baseline,
                claim_id=content_id("claim", suite, *place, metric),
            )

    def _add_task(self, first: Workload | None) -> str:
        """Add the task unless it was added; `first` sets the axes of its text. Return its id."""
        if not self._task_id:
            name = self._definition.name
            self._task_id = self._rows.add_task(task_text(self._definition, first))
            self._rows.add_label(
                self._task_id,
                family=self._definition.op_type,
                suite=self._rows.importer,
                revision=str(self._rows.source_revision),
                name=name,
                level=self._level,
            )
        return self._task_id


def _moment(written: object) -> datetime | None:
    """Return an ISO time, in UTC if it has no zone, or None if it is not a time."""
    try:
        moment = datetime.fromisoformat(str(written))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
