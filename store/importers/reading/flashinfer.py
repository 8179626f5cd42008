"""Definitions, solutions, workloads and traces in the form of flashinfer-bench, and their rows.

Files are validated only in the fields that are needed. Arithmetic of axes is checked and not
evaluated.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any, cast

from store.commandline.escape import quote_name
from store.errors import ImportFailed
from store.foreign.text_files import NOTHING_STORED, Fields, read_figure
from store.ids import content_id
from store.importers.reading.pieces import Attempt, BundleRows

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
    inputs: dict[str, Mapping[str, Any]]

    @property
    def from_files(self) -> bool:
        """Whether an input comes from a file of the dataset."""
        return any(one.get("type") == "safetensors" for one in self.inputs.values())


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One workload, with the verdict on a solution if there is one."""

    workload: Workload
    solution: str | None
    evaluation: Fields | None
    where: str


def parse_definition(fields: Fields) -> Definition:
    """Return a definition; raises ImportFailed if it cannot become a task."""
    _refuse_surrogates(fields)
    where = fields.where
    generator = fields.text("custom_inputs_entrypoint")
    if generator is not None and not _is_name(generator):
        raise ImportFailed(f"{where}: custom_inputs_entrypoint {generator!a:.40} is no function")
    constants: dict[str, int] = {}
    variables: list[str] = []
    expressions: dict[str, str] = {}
    axes = fields.inner("axes")
    for name in axes.values:
        if not _is_name(name) or name in _TAKEN:
            raise ImportFailed(f"{where}: axis {name!a:.40} cannot be a name in Python")
        axis = axes.inner(name)
        kind = axis.text("type")
        if kind == "const":
            constants[name] = axis.require_whole("value")
        elif kind == "expr":
            expressions[name] = axis.require_text("expression")
        else:
            variables.append(name)
    inputs: list[Tensor] = []
    specs = fields.inner("inputs")
    for name in specs.values:
        spec = specs.inner(name)
        shape = spec.values.get("shape")
        if shape is not None and not isinstance(shape, list):
            raise spec.refuse("shape", "a list of axes")
        named = None if shape is None else tuple(map(str, cast("list[Any]", shape)))
        unknown = set(named or ()) - constants.keys() - set(variables) - expressions.keys()
        if unknown:
            raise ImportFailed(f"{where}: input {name!a:.40} has no axis {min(unknown)!a:.40}")
        inputs.append(Tensor(name=name, shape=named, dtype=spec.require_text("dtype")))
    return Definition(
        name=fields.require_text("name"),
        op_type=fields.text("op_type") or fields.text("type") or "other",
        constants=constants,
        variables=tuple(variables),
        inputs=tuple(inputs),
        reference=fields.require_code("reference"),
        expressions=expand_axes(expressions, {*constants, *variables}, where),
        generator=generator,
    )


def parse_solution(fields: Fields) -> Solution:
    """Return a solution; raises ImportFailed if its entry point is none of its sources."""
    _refuse_surrogates(fields)
    files: dict[str, str] = {}
    for source in fields.list("sources"):
        path = source.require_text("path")
        parts = PurePosixPath(path)
        if parts.is_absolute() or ".." in parts.parts:
            raise ImportFailed(f"{source.where}: source {path!a:.80} leaves its folder")
        files[path] = str(source.values.get("content") or "")
    entry = fields.inner("spec").require_text("entry_point")
    entry_path, _, entry_point = entry.partition("::")
    if entry_path not in files:
        raise ImportFailed(
            f"{fields.where}: entry point {entry_path!a:.80} is none of its sources",
            "It is FILE::NAME.",
        )
    return Solution(
        name=fields.require_text("name"),
        author=fields.text("author") or "unknown",
        files=files,
        entry_path=entry_path,
        entry_point=entry_point or "run",
    )


def parse_workload(fields: Fields) -> Workload:
    """Return a workload; raises ImportFailed if its axes are no sizes or it has no uuid."""
    _refuse_surrogates(fields)
    axes, inputs = fields.inner("axes"), fields.inner("inputs")
    return Workload(
        axes={name: axes.require_whole(name) for name in axes.values},
        uuid=fields.require_text("uuid"),
        inputs={name: inputs.inner(name).values for name in inputs.values},
    )


def parse_trace(fields: Fields) -> Trace:
    """Return a trace; raises ImportFailed for an unknown status."""
    evaluation = None
    if fields.values.get("evaluation") is not None:
        evaluation = fields.inner("evaluation")
        status = evaluation.text("status")
        if status not in STATUSES:
            raise ImportFailed(
                f"{fields.where}: status {status!a:.40} is unknown",
                f"Known are {', '.join(STATUSES)}.",
            )
    return Trace(
        workload=parse_workload(fields.inner("workload")),
        solution=fields.text("solution"),
        evaluation=evaluation,
        where=fields.where,
    )


def _refuse_surrogates(fields: Fields) -> None:
    """Raise ImportFailed for a lone surrogate, which JSON can escape and no file can hold."""
    try:
        json.dumps(dict(fields.values), ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        raise ImportFailed(f"{fields.where} holds a lone surrogate", NOTHING_STORED) from error


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


def expand_axes(expressions: Mapping[str, str], known: Set[str], where: str) -> dict[str, str]:
    """Return each axis as an expression over the axes in `known`.

    >>> expand_axes({"pairs": "tokens // 2", "tokens": "batch * 8"}, {"batch"}, "definition.json")
    {'pairs': '(batch * 8) // 2', 'tokens': 'batch * 8'}

    Raises ImportFailed if an expression is not arithmetic, names an unknown axis or itself, or is
    longer than MAX_CHARACTERS.
    """
    parsed: dict[str, str] = {}
    for name, text in expressions.items():
        place = f"{where}, axis {name}"
        if len(text) > MAX_CHARACTERS:
            raise ImportFailed(f"{place}: the expression has more than {MAX_CHARACTERS} characters")
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ImportFailed(f"{place}: {text!a:.60} is no expression") from error
        for node in ast.walk(tree):
            number = not isinstance(node, ast.Constant) or type(node.value) in (int, float)
            if not isinstance(node, _ALLOWED) or not number:
                raise ImportFailed(f"{place}: {text!a:.60} is no arithmetic of axes")
        parsed[name] = ast.unparse(tree)

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
    return value if isinstance(value, bool | int) else read_figure(value, 0) or 0


@dataclass
class TraceRows:
    """Adds the rows of one definition to a bundle; the importer's name is that of its suite.

    A definition without its text is no task: solutions are attempts at the problem of this name.
    """

    rows: BundleRows
    definition: Definition | str
    evaluator: str
    evaluator_version: int
    level: int | None = None
    _task_id: str | None = None
    _solutions: dict[str, Attempt] = field(default_factory=dict[str, Attempt])

    def add_workload(self, workload: Workload) -> str:
        """Add a workload, and with the first one the task; return its id."""
        task_id, definition = self._add_task(workload), self.definition
        if isinstance(definition, str) or task_id is None:
            return workload.uuid
        axes: dict[str, object] = {
            name: workload.axes[name] for name in definition.variables if name in workload.axes
        }
        axes |= {
            scalar_name(one.name): _scalar(workload, one.name)
            for one in definition.inputs
            if one.shape is None
        }
        if not workload.from_files:
            return self.rows.add_workload(task_id, workload.uuid, axes)
        # Other inputs, though the axes may be the same.
        axes["WORKLOAD"] = workload.uuid
        return self.rows.add_workload(task_id, workload.uuid, axes, "safetensors")

    def add_solution(self, solution: Solution) -> None:
        """Add a kernel with its origin."""
        task_id = self._add_task(None)
        kernel_id = self.rows.add_kernel(
            solution.files, entry_path=solution.entry_path, entry_point=solution.entry_point
        )
        self._solutions[solution.name] = self.rows.add_attempt(
            [task_id or self.name, solution.name, kernel_id],
            policy=f"{self.rows.importer}/{solution.author}",
            policy_kind="released",
            task_id=task_id,
            problem=self.name if task_id is None else None,
            kernel_id=kernel_id,
        )

    def add_verdict(self, trace: Trace) -> None:
        """Add the evaluation of a trace and the figures it states."""
        if trace.solution is None or trace.evaluation is None:
            return
        attempt = self._solutions.get(trace.solution)
        if attempt is None:
            raise ImportFailed(f"{trace.where}: there is no solution {trace.solution!a:.80}")
        rows, suite, evaluation = self.rows, self.rows.importer, trace.evaluation
        hardware = evaluation.inner("environment").text("hardware") or "unknown"
        hardware = hardware.replace("_", " ")
        workload_id = self.add_workload(trace.workload)
        stated = json.dumps(dict(evaluation.values), sort_keys=True)
        place = (self._task_id or self.name, attempt.kernel_id, workload_id, hardware, stated)
        quote = f"{self.name}, workload {trace.workload.uuid} on {hardware}"
        status, reason = STATUSES[evaluation.require_text("status")]
        difference = evaluation.inner("correctness").values.get("max_absolute_error")
        rows.add_verdict(
            attempt,
            evaluator=self.evaluator,
            evaluator_version=self.evaluator_version,
            gpu=hardware,
            status=status,
            reason=reason,
            quote=quote,
            evaluation_id=content_id("evaluation", suite, *place),
            workload_id=workload_id,
            log=(evaluation.prose("log") or "")[:LOG_CHARACTERS] or None,
            max_abs_error=read_figure(difference, 0),
            created_at=evaluation.moment("timestamp"),
        )
        performance = evaluation.inner("performance").values
        for metric, name, baseline in (
            ("latency_ms", "latency_ms", None),
            ("speedup", "speedup_factor", "eager"),  # the reference is plain PyTorch
        ):
            rows.add_claim(
                attempt,
                metric,
                read_figure(performance.get(name), 0) or None,
                quote,
                gpu=hardware,
                baseline=baseline,
                claim_id=content_id("claim", suite, *place, metric),
            )

    @property
    def name(self) -> str:
        """Name of the definition."""
        return self.definition if isinstance(self.definition, str) else self.definition.name

    def _add_task(self, first: Workload | None) -> str | None:
        """Add the task unless it was added; `first` sets the axes of its text. Return its id."""
        if self._task_id is None and not isinstance(self.definition, str):
            self._task_id = self.rows.add_task(task_text(self.definition, first))
            self.rows.add_label(
                self._task_id,
                family=self.definition.op_type,
                suite=self.rows.importer,
                revision=str(self.rows.source_revision),
                name=self.name,
                level=self.level,
            )
        return self._task_id
