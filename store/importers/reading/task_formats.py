"""Reads one task from a file or folder of any format that people write tasks in.

Each adapter returns the task in KernelBench's form: one text with class Model, get_inputs() and
get_init_inputs(), and the values of module-level names for each workload. Texts of foreign files
are only put together here; they run in the sandbox of the judge.

Such a text may define rules of its own, which the judge follows: TASK_TOLERANCE, a dict with rtol
and atol, and optionally `either` (an element passes by one of both) and `matched` (the share of
elements that have to pass); TASK_CHECK(inputs, output), which returns whether an output is right,
and a text; and TASK_SCRATCH, which is true if calls may write into their inputs.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from store.code.entry_points import count_arguments, count_parameters, list_bound
from store.code.python_syntax import parse_python
from store.errors import FlywheelError
from store.foreign import text_files
from store.foreign.text_files import Fields, read_figure
from store.importers.reading import flashinfer, sources
from store.importers.reading.flashinfer import TORCH_NAMES, scalar_name, task_text

FORMATS = {
    "KernelBench": "a Python file, or a folder with one, that defines class Model and get_inputs()",
    "KernelBench-Hard": "a folder with reference.py, and shapes.py or problem.yaml",
    "robust-kbench": "a folder with func_forward.py and config_forward.json",
    "GPU MODE": "a folder with reference.py (ref_kernel, generate_input), and task.yml",
    "flashinfer-bench": "a definition in JSON, with its workloads beside it or in workloads/",
}
_ROBUST_TOLERANCE = {"rtol": 1e-3, "atol": 1e-3}
"""Defaults of robust-kbench's run_kernel.py, at 078f5ba."""
_FLASHINFER_TOLERANCE = {"rtol": 1e-2, "atol": 1e-2, "either": True}
"""Defaults of flashinfer-bench's evaluator, at 40e6ca78."""
_FLASHINFER_MATCHED = {"moe": 0.95}
_MOST_LISTED = 8
_FORWARD = "func_forward.py"


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Code around a function that writes into its outputs and returns nothing."""

    outputs: int
    """Number of the outputs."""
    code: str
    """Text of a module whose function allocates them, with the fields `module` and `function`."""


@dataclass(frozen=True, kw_only=True)
class TaskFile:
    """One task of a file or folder."""

    code: str
    """The task in KernelBench's form."""
    format: str
    """A name of FORMATS."""
    function_code: str | None = None
    """The task for a bare function that also gets the weights, where the format has such ones."""
    workloads: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Values of module-level names by the name of the workload; the first is the default."""
    required: tuple[str, ...] = ()
    """Names that have no value without a workload."""
    arguments: int | None = None
    """Number of inputs, if it is known."""
    destination: Destination | None = None
    """How to call a function that takes its outputs as further arguments."""
    files: tuple[tuple[str, str], ...] = ()
    """Path and text of files that kernels of the format import."""
    rule: str | None = None
    """The task's own tolerance or checker, in words."""


class UnknownFormat(FlywheelError):
    """A path holds no task of a known format."""

    def __init__(self, path: Path, detail: str) -> None:
        forms = "; ".join(f"{name}: {form}" for name, form in FORMATS.items())
        super().__init__(f"{path} is no task: {detail}", f"A task is one of these. {forms}.")


def read_task_path(path: Path) -> TaskFile:
    """Return the task of a file or folder.

    Raises FlywheelError (UnknownFormat, ImportFailed) with what is missing.
    """
    folder = path if path.is_dir() else path.parent
    backward = (folder / "func_backward.py").is_file() and not (folder / _FORWARD).is_file()
    if backward if path.is_dir() else path.name in ("func_backward.py", "config_backward.json"):
        raise FlywheelError(
            f"{path} asks for gradients, and the judge calls no backward pass",
            "Give the folder of a forward task. `evaluators doctor --limits` lists what the judge "
            "cannot judge (limit backward).",
        )
    if not path.is_dir():
        if path.name in (_FORWARD, "config_forward.json"):
            return _read_robust_kbench(folder)
        if path.name == "task.yml":
            return _read_gpu_mode(folder)
        if path.suffix == ".json":
            return _read_flashinfer(path)
        if path.suffix != ".py":
            raise UnknownFormat(path, "no format has such a file")
        _, defined = _read_python(path, folder)
        if {"ref_kernel", "generate_input"} <= defined:
            return _read_gpu_mode(folder, path)
        has_shapes = (folder / "shapes.py").is_file() or (folder / "problem.yaml").is_file()
        if path.name == "reference.py" and has_shapes:
            return _read_kernelbench_hard(folder)
        return _read_kernelbench(path)
    if (folder / _FORWARD).is_file():
        return _read_robust_kbench(folder)
    if (folder / "definition.json").is_file():
        return _read_flashinfer(folder / "definition.json")
    reference = folder / "reference.py"
    if reference.is_file():
        _, defined = _read_python(reference, folder)
        if "generate_input" in defined or (folder / "task.yml").is_file():
            return _read_gpu_mode(folder)
        return _read_kernelbench_hard(folder)
    files: list[Path] = []
    for file in sorted(folder.glob("*.py")):
        with suppress(FlywheelError):
            _read_python(file, folder, "Model", "get_inputs")
            files.append(file)
    if len(files) == 1:
        return _read_kernelbench(files[0])
    if not files:
        inner = [one for one in sorted(folder.glob("*.json")) if one.is_file()]
        if len(inner) == 1:
            return _read_flashinfer(inner[0])
        raise UnknownFormat(folder, "no file in it is a task")
    names = ", ".join(file.name for file in files[:_MOST_LISTED])
    more = f" and {len(files) - _MOST_LISTED} more" if len(files) > _MOST_LISTED else ""
    raise FlywheelError(
        f"{folder} has {len(files)} tasks: {names}{more}", f"Name one, such as {files[0]}."
    )


def _read_text(file: Path, root: Path) -> str:
    """Return the text of a file without a byte-order mark, which nothing may come before."""
    return sources.read_text(file, root).removeprefix("\ufeff")


def _read_kernelbench(file: Path) -> TaskFile:
    code, defined = _read_python(file, file.parent, "Model", "get_inputs")
    code = sources.add_init_inputs(code, defined)
    return TaskFile(code=code, format="KernelBench", arguments=count_arguments(code))


def _read_kernelbench_hard(folder: Path) -> TaskFile:
    """Read reference.py, with the settings of shapes.py and the tolerance of problem.yaml."""
    task = _read_kernelbench(folder / "reference.py")
    code, rule = task.code, None
    about = folder / "problem.yaml"
    if about.is_file():
        problem = text_files.parse_yaml(_read_text(about, folder), f"{about}")
        stated = problem.values.get("tolerance")
        if isinstance(stated, dict):
            limits = [read_figure(value, 0) for value in cast("dict[str, Any]", stated).values()]
            # One for each element type, of outputs that have only one in practice.
            limit = max((one for one in limits if one is not None), default=None)
            if limit is not None:
                tolerance = {"rtol": limit, "atol": limit}
                code, rule = _add_tolerance(code, tolerance)
    return TaskFile(
        code=code,
        format="KernelBench-Hard",
        workloads=_name_settings("shape", _read_shapes(folder)),
        arguments=task.arguments,
        rule=rule,
    )


def _read_shapes(folder: Path) -> list[dict[str, Any]]:
    file = folder / "shapes.py"
    if not file.is_file():
        return []
    tree = parse_python(_read_text(file, folder))
    for node in tree.body if tree is not None else []:
        match node:
            case ast.Assign(targets=[ast.Name(id="SHAPES")], value=value):
                try:
                    shapes = ast.literal_eval(value)
                except (ValueError, TypeError, MemoryError, RecursionError):
                    break
                if isinstance(shapes, list) and all(isinstance(one, dict) for one in shapes):
                    return cast("list[dict[str, Any]]", shapes)
            case _:
                continue
    raise UnknownFormat(file, "it has no literal list SHAPES of dicts")


_IMPORTS = '''\
import importlib.util
import inspect
import linecache
import sys

import torch

_TEXTS = {texts!r}


class _Files:
    """Imports the files of the task from their texts."""

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self) if name in _TEXTS else None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        text, path = _TEXTS[module.__name__], module.__name__ + ".py"
        linecache.cache[path] = (len(text), None, text.splitlines(True), path)
        exec(compile(text, path, "exec"), vars(module))


sys.meta_path.insert(0, _Files())
'''
_ROBUST = """

import inspect as _inspect

SETTINGS = {settings!r}
_get_inputs = get_inputs


def get_inputs():
    return _get_inputs(**SETTINGS["inputs"])


def get_init_inputs():
    bound = _inspect.signature(Model).bind(**SETTINGS["init"])
    bound.apply_defaults()
    return list(bound.args)
"""
_ROBUST_FUNCTION = """
import func_forward

SETTINGS = {settings!r}


class _Called(Exception):
    pass


def get_inputs():
    given = []

    def keep(*values, **named):
        signature = inspect.signature(func_forward.forward_fn)
        given.extend(signature.bind(*values, **named).args)
        raise _Called

    module = func_forward.Model(**SETTINGS["init"])
    try:
        module(*func_forward.get_inputs(**SETTINGS["inputs"]), fn=keep)
    except _Called:
        pass
    return [one.detach() if torch.is_tensor(one) else one for one in given]


class Model(torch.nn.Module):
    def forward(self, *inputs):
        return func_forward.forward_fn(*inputs)


def get_init_inputs():
    return []
"""


def _read_robust_kbench(folder: Path) -> TaskFile:
    """Read func_forward.py with its settings.

    A class gets the module's inputs and has its own weights. A function replaces `forward_fn`, and
    gets what the module gives to it: inputs, weights and numbers.
    """
    code, _ = _read_python(folder / _FORWARD, folder, "Model", "get_inputs", "forward_fn")
    settings: dict[str, dict[str, Any]] = {}
    tolerance = dict(_ROBUST_TOLERANCE)
    config = folder / "config_forward.json"
    if config.is_file():
        fields = text_files.parse_object(_read_text(config, folder), f"{config}")
        for kind in ("single", "multi"):
            parts = [
                _list_objects(fields, f"{kind}_{part}_configs") or [{}]
                for part in ("init", "input", "shared")
            ]
            for number, (init, inputs, shared) in enumerate(itertools.product(*parts), 1):
                values = {"inputs": {**inputs, **shared}, "init": {**init, **shared}}
                settings[f"{kind}_{number}"] = {"SETTINGS": values}
        for name in tolerance:
            stated = read_figure(fields.values.get(name, fields.values.get(f"op_{name}")), 0)
            tolerance[name] = tolerance[name] if stated is None else stated
    first = next(iter(settings.values()), {"SETTINGS": {"inputs": {}, "init": {}}})["SETTINGS"]
    own, rule = _add_tolerance(code + _ROBUST.format(settings=first), tolerance)
    imports = _IMPORTS.format(texts={"func_forward": code})
    function, _ = _add_tolerance(imports + _ROBUST_FUNCTION.format(settings=first), tolerance)
    return TaskFile(
        code=own,
        function_code=function,
        format="robust-kbench",
        workloads=settings,
        arguments=count_parameters(code, "forward_fn"),
        rule=rule,
    )


_GPU_MODE = """
import reference

SETTING = {setting!r}


class Model(torch.nn.Module):
    def forward(self, data):
        return reference.ref_kernel(data)


def get_inputs():
    setting = dict(SETTING)
    if "seed" in inspect.signature(reference.generate_input).parameters:
        setting["seed"] = int(torch.randint(0, 2**31 - 1, (), device="cpu"))
    return [reference.generate_input(**setting)]


def get_init_inputs():
    return []


TASK_SCRATCH = True
"""
_GPU_MODE_CHECK = """

def TASK_CHECK(inputs, output):
    answer = reference.check_implementation(*inputs, output)
    if isinstance(answer, tuple):
        return bool(answer[0]), str(answer[1])
    return (not answer, answer) if isinstance(answer, str) else (bool(answer), "")
"""


def _read_gpu_mode(folder: Path, reference: Path | None = None) -> TaskFile:
    """Read reference.py, the files that it imports, and the settings of task.yml."""
    folder = folder.resolve()
    reference = folder / (reference.name if reference is not None else "reference.py")
    code, defined = _read_python(reference, folder, "ref_kernel", "generate_input")
    settings: dict[str, dict[str, Any]] = {}
    about = folder / "task.yml"
    listed = {"task.py": folder / "task.py", "utils.py": folder / "utils.py"}
    if about.is_file():
        fields = text_files.parse_yaml(_read_text(about, folder), f"{about}")
        if fields.values.get("multi_gpu"):
            raise FlywheelError(
                f"{about} needs several GPUs",
                "The judge runs each kernel on one. `evaluators doctor --limits` lists what it "
                "cannot judge (limit several_gpus).",
            )
        for entry in _list_objects(fields, "files"):
            name, source = str(entry.get("name")), str(entry.get("source"))
            if name.endswith(".py") and not source.startswith("@"):
                listed[name] = folder / source
        for kind in ("benchmark", "test"):
            cases = _list_objects(fields, f"{kind}s")
            named = [{n: v for n, v in case.items() if n != "seed"} for case in cases]
            settings |= _name_settings(kind, [{"SETTING": one} for one in named])
    if not listed["utils.py"].is_file():
        listed["utils.py"] = folder.parent / "utils.py"
    texts = {
        # Files may be shared by problems: above the folder, and beside the one above it.
        Path(name).stem: _read_text(file, folder.parents[1])
        for name, file in listed.items()
        if name not in ("eval.py", "reference.py", "submission.py") and file.is_file()
    }
    first = next(iter(settings.values()), {"SETTING": {}})["SETTING"]
    task = _IMPORTS.format(texts={**texts, "reference": code}) + _GPU_MODE.format(setting=first)
    checks = "check_implementation" in defined
    return TaskFile(
        code=task + _GPU_MODE_CHECK * checks,
        format="GPU MODE",
        workloads=settings,
        arguments=1,
        files=tuple((f"{name}.py", text) for name, text in texts.items()),
        rule="the task's own checker, check_implementation" if checks else None,
    )


def _read_flashinfer(file: Path) -> TaskFile:
    """Read a definition, and its workloads in workload.jsonl, NAME.jsonl or workloads/."""
    value = text_files.parse_json(_read_text(file, file.parent), f"{file}")
    if not isinstance(value, dict) or not {"axes", "inputs", "reference"} <= value.keys():
        raise UnknownFormat(file, "a definition has axes, inputs and reference")
    fields = Fields(values=value, where=f"{file}")
    definition = flashinfer.parse_definition(fields)
    workloads: dict[str, dict[str, Any]] = {}
    scalars = [one.name for one in definition.inputs if one.shape is None]
    for workload in _find_workloads(file, definition.name):
        if workload.from_files:
            continue  # its inputs are in files of the dataset
        values: dict[str, Any] = {
            name: workload.axes[name] for name in definition.variables if name in workload.axes
        }
        for name in scalars:
            values[scalar_name(name)] = workload.inputs.get(name, {}).get("value", 0)
        workloads[workload.uuid] = values
    tolerance: dict[str, Any] = dict(_FLASHINFER_TOLERANCE)
    if definition.op_type in _FLASHINFER_MATCHED:
        tolerance["matched"] = _FLASHINFER_MATCHED[definition.op_type]
    stated = fields.inner("tolerance").values
    known = {name: read_figure(stated.get(name), 0) for name in ("rtol", "atol", "matched")}
    tolerance |= {name: value for name, value in known.items() if value is not None}
    code, rule = _add_tolerance(task_text(definition, None), tolerance)
    return TaskFile(
        code=code,
        format="flashinfer-bench",
        workloads=workloads,
        required=(*definition.variables, *(scalar_name(name) for name in scalars)),
        arguments=len(definition.inputs),
        destination=_write_destination(definition, fields.inner("outputs")),
        rule=rule,
    )


def _write_destination(definition: flashinfer.Definition, outputs: Fields) -> Destination | None:
    """Return code that allocates the outputs of a definition by the sizes of its inputs."""
    lines = [f"    {name} = {value}" for name, value in definition.constants.items()]
    known = set(definition.constants)
    for number, one in enumerate(definition.inputs):
        for place, axis in enumerate(one.shape or ()):
            if axis in definition.variables and axis not in known:
                lines.append(f"    {axis} = inputs[{number}].shape[{place}]")
                known.add(axis)
    for axis, expression in definition.expressions.items():
        lines.append(f"    {axis} = int({expression})")
        known.add(axis)
    tensors = [number for number, one in enumerate(definition.inputs) if one.shape is not None]
    made: list[str] = []
    for name in outputs.values:
        spec = outputs.inner(name).values
        shape, dtype = spec.get("shape"), TORCH_NAMES.get(str(spec.get("dtype")), spec.get("dtype"))
        axes = cast("list[Any]", shape) if isinstance(shape, list) else []
        if not tensors or not set(map(str, axes)) <= known or not str(dtype).isidentifier():
            return None
        size = "".join(f"{axis}, " for axis in axes)
        made.append(f"        torch.empty(({size}), dtype=torch.{dtype}, device=device),")
    lines.append(f"    device = inputs[{tensors[0]}].device")
    listed = "\n".join([*lines, "    outputs = [", *made, "    ]", "    _fill(*inputs, *outputs)"])
    returned = "outputs[0]" if len(made) == 1 else "tuple(outputs)"
    code = (
        "import torch\n\nfrom {module} import {function} as _fill\n\n\n"
        f"def {{function}}(*inputs):\n{listed}\n    return {returned}\n"
    )
    return Destination(outputs=len(made), code=code)


def _find_workloads(file: Path, name: str) -> Iterator[flashinfer.Workload]:
    places = [file.with_name("workload.jsonl"), file.with_suffix(".jsonl")]
    for above in itertools.islice(file.parents, 3):
        folder = above / "workloads"
        places += sorted(folder.rglob(f"{name}.jsonl")) if folder.is_dir() else []
    for place in dict.fromkeys(places):
        if not place.is_file():
            continue
        for fields in sources.read_objects(place, place.parent):
            held = fields.inner("workload") if "workload" in fields.values else fields
            yield flashinfer.parse_workload(held)


def _add_tolerance(code: str, tolerance: Mapping[str, Any]) -> tuple[str, str]:
    """Return a task's text with its own tolerance, and the tolerance in words."""
    words = f"tolerance of the task: rtol {tolerance['rtol']:g}, atol {tolerance['atol']:g}"
    if tolerance.get("either"):
        words += ", either of them"
    if "matched" in tolerance:
        words += f", for {tolerance['matched']:.1%} of the elements"
    return f"{code.rstrip()}\n\n\nTASK_TOLERANCE = {dict(tolerance)!r}\n", words


def _name_settings(kind: str, settings: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {f"{kind}_{number}": one for number, one in enumerate(settings, 1)}


def _list_objects(fields: Fields, name: str) -> list[dict[str, Any]]:
    return [dict(one.values) for one in fields.list(name)]


def _read_python(file: Path, root: Path, *names: str) -> tuple[str, set[str]]:
    """Return the text of a Python file and the names that it binds, which must have `names`."""
    code = _read_text(file, root)
    try:
        compile(code, f"{file}", "exec", ast.PyCF_ONLY_AST)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UnknownFormat(file, f"it is not Python: {error}") from error
    defined = list_bound(parse_python(code))
    missing = sorted(set(names) - defined)
    if missing:
        raise UnknownFormat(file, f"it does not define {' and '.join(missing)}")
    return code, defined
