"""The rows of one flashinfer-trace definition: its task, workloads, kernels, verdicts, figures."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from store.commandline.escape import quote_name
from store.errors import ImportFailed
from store.ids import content_id, workload_id
from store.importers.flashinfer.files import Definition, Solution, Trace, Workload, number
from store.importers.reading.kernelbench_results import gpu_name
from store.importers.reading.rows import BundleRows

NAME = "flashinfer-trace"
SUITE = "flashinfer-trace"
EVALUATOR = "flashinfer-bench"
LOG_CHARACTERS = 8_000
_INTEGERS = ("int64", "int32", "int16", "int8", "bool")
TORCH_NAMES = {"float8_e4m3": "float8_e4m3fn", "float4_e2m1": "float4_e2m1fn_x2"}
"""Element types with another name in torch."""


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
        size = "(" + "".join(f"{_size(definition, axis)}, " for axis in one.shape) + ")"
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


def _size(definition: Definition, axis: str) -> str:
    """Return the size of an axis as Python; one that follows from others is computed anew."""
    expression = definition.expressions.get(axis)
    return axis if expression is None else f"int({expression})"


def _draw(definition: Definition) -> str:
    """Return the lines of get_inputs that call the definition's own generator, if it has one."""
    if definition.generator is None or not definition.drawn:
        return ""
    names = [*definition.constants, *definition.variables, *definition.expressions]
    known = [f"{name!r}: {_size(definition, name)}" for name in names]
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
    """Adds the rows of one definition to a bundle."""

    def __init__(
        self,
        gathered: BundleRows,
        run_id: str,
        evaluator_version: int,
        definition: Definition,
        *,
        suite: str = SUITE,
        evaluator: str = EVALUATOR,
        level: int | None = None,
    ) -> None:
        self._gathered = gathered
        self._suite = suite
        self._evaluator = evaluator
        self._level = level
        self._run_id = run_id
        self._version = evaluator_version
        self._definition = definition
        self._task_id = ""
        self._solutions: dict[str, tuple[str, str]] = {}

    def add_workload(self, workload: Workload) -> str:
        """Add a workload, and with the first one the task; return its id."""
        if not self._task_id:
            self._add_task(workload)
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
        if workload.from_files:
            # Other inputs, though the axes may be the same.
            axes["WORKLOAD"] = workload.uuid
        text = json.dumps(axes, sort_keys=True)
        identity = workload_id(self._task_id, text)
        row = {
            "workload_id": identity,
            "task_id": self._task_id,
            "name": workload.uuid,
            "axes": text,
            "generator": "safetensors" if workload.from_files else "get_inputs",
        }
        self._gathered.add("workloads", (identity,), row)
        return identity

    def add_solution(self, solution: Solution) -> None:
        """Add a kernel with its origin."""
        if not self._task_id:
            self._add_task(None)
        policy = self._gathered.add_policy(f"{self._suite}/{solution.author}", "released")
        kernel_id = self._gathered.add_kernel(
            solution.files, entry_path=solution.entry_path, entry_point=solution.entry_point
        )
        self._solutions[solution.name] = (kernel_id, policy)
        generation_id = content_id(
            "generation", self._suite, self._task_id, solution.name, kernel_id
        )
        row = {
            "generation_id": generation_id,
            "run_id": self._run_id,
            "task_id": self._task_id,
            "policy_id": policy,
            "kernel_id": kernel_id,
            **self._gathered.origin(),
        }
        self._gathered.add("generations", (generation_id,), row)

    def add_verdict(self, trace: Trace) -> None:
        """Add the evaluation of a trace and the figures it states."""
        if trace.solution is None or trace.evaluation is None:
            return
        if trace.solution not in self._solutions:
            raise ImportFailed(f"{trace.where}: there is no solution {trace.solution!a:.80}")
        kernel_id, policy = self._solutions[trace.solution]
        hardware = str(trace.part("environment").get("hardware") or "unknown").replace("_", " ")
        device_id = content_id("device", self._suite, hardware)
        device = {
            "device_id": device_id,
            "name": gpu_name(hardware),
            "kind": "cuda",
            "model": hardware,
        }
        self._gathered.add("devices", (device_id,), device)
        workload = self.add_workload(trace.workload)
        place = [self._task_id, kernel_id, workload, hardware]
        place.append(json.dumps(trace.evaluation, sort_keys=True))
        status, reason = trace.status
        evaluation_id = content_id("evaluation", self._suite, *place)
        row = {
            "evaluation_id": evaluation_id,
            "run_id": self._run_id,
            "kernel_id": kernel_id,
            "task_id": self._task_id,
            "workload_id": workload,
            "device_id": device_id,
            "evaluator": self._evaluator,
            "evaluator_version": self._version,
            "status": status,
            "reason": reason,
            "log": str(trace.evaluation.get("log") or "").replace("\0", "")[:LOG_CHARACTERS]
            or None,
            "max_abs_error": number(trace.part("correctness").get("max_absolute_error")),
            **self._gathered.origin(),
        }
        judged_at = _moment(trace.evaluation.get("timestamp"))
        self._gathered.add(
            "evaluations",
            (evaluation_id,),
            row | ({} if judged_at is None else {"created_at": judged_at}),
        )
        performance = trace.part("performance")
        for metric, figure in (
            ("latency_ms", number(performance.get("latency_ms"))),
            ("speedup", number(performance.get("speedup_factor"))),
        ):
            if not figure:
                continue
            claim_id = content_id("claim", self._suite, *place, metric)
            claim = {
                "claim_id": claim_id,
                "run_id": self._run_id,
                "task_id": self._task_id,
                "kernel_id": kernel_id,
                "policy_id": policy,
                "gpu": device["name"],
                # The reference is plain PyTorch.
                "baseline": "eager" if metric == "speedup" else None,
                "metric": metric,
                "speedup": figure if metric == "speedup" else None,
                "value": figure if metric != "speedup" else None,
                "quote": f"{self._definition.name}, workload {trace.workload.uuid} on {hardware}",
                **self._gathered.origin(),
            }
            self._gathered.add("claims", (claim_id,), claim)

    def _add_task(self, first: Workload | None) -> None:
        definition = self._definition
        self._task_id = self._gathered.add_task(task_text(definition, first))
        self._gathered.add_label(
            self._task_id,
            family=definition.op_type,
            suite=self._suite,
            revision=str(self._gathered.source_revision),
            name=definition.name,
            title=definition.name,
            level=self._level,
        )


def _moment(written: object) -> datetime | None:
    """Return an ISO time, in UTC if it has no zone, or None if it is not a time."""
    try:
        moment = datetime.fromisoformat(str(written))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
