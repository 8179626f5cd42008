"""Runs in the sandbox: compares a kernel with its task in double precision, and by a simple rule.

The judge has no part in either. The text of `DRIVER` is a module of its own: it imports task and
kernel into one process, as simple checks do, and gives back numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

DRIVER_FILE = "score_driver.py"
DIFFERS, RULE = 0, 1
"""What a call of the driver is asked for."""
_DRIVER = '''\
import ast, copy, importlib.util, math, pathlib, re, sys
import torch

ORDER = __ORDER__
HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 2e-2}
NO_ANSWER, NO_ORIGINAL, NO_REFERENCE, UNDECIDED = -1.0, -2.0, -3.0, -4.0
INDICES = re.compile(r"arg(max|min|sort)|topk|sort\\(|median|kthvalue|mode\\(|\\.(max|min)\\(")
"""Of equal values, the index of any is right, which is not decided here."""


class Constants(ast.NodeTransformer):
    def __init__(self, values):
        self.values = values

    def visit_Assign(self, node):
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id in self.values:
                node.value = ast.Constant(self.values[target.id])
        return node


def load_task(axes):
    tree = Constants(axes).visit(ast.parse(ORDER["task"]))
    names = {"__name__": "score_task", "__file__": str(HERE / "score_task.py")}
    exec(compile(ast.fix_missing_locations(tree), "score_task.py", "exec"), names)
    return names


def load_kernel(path, name):
    spec = importlib.util.spec_from_file_location(name, HERE / path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from tensors_of(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from tensors_of(one)


def convert(value, change):
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: convert(one, change) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [convert(one, change) for one in value]
    return value


def place(value):
    return convert(value, lambda one: one.to(ORDER["device"]))


def clone(value):
    return convert(value, torch.clone)


def double(value):
    return convert(value, lambda one: one.double() if one.is_floating_point() else one.clone())


def build(make, arguments):
    torch.manual_seed(42)
    module = make(*clone(arguments))
    return module.to(ORDER["device"]) if isinstance(module, torch.nn.Module) else module


def adopt(module, source):
    if isinstance(module, torch.nn.Module):
        state, own = source.state_dict(), module.state_dict()
        same = {n: t for n, t in state.items() if n in own and own[n].shape == t.shape}
        module.load_state_dict({**own, **same}, strict=False)


def worst(answer, value, exact):
    """The largest error of an answer over its tolerance; infinite if the form differs."""
    answers, values, exacts = map(list, map(tensors_of, (answer, value, exact)))
    if len(answers) != len(values):
        return math.inf
    largest = 0.0
    for c, r, r64 in zip(answers, values, exacts):
        if c.shape != r.shape or c.dtype != r.dtype:
            return math.inf
        if not c.numel():
            continue
        if not (r.is_floating_point() or r.is_complex()):
            if bool((c != r).any()):
                return UNDECIDED if INDICES.search(ORDER["task"]) else math.inf
            continue
        wide = torch.complex128 if r.is_complex() else torch.float64
        c, r, r64 = (one.detach().to(wide) for one in (c, r, r64))
        finite = torch.isfinite(r64) & torch.isfinite(r)
        if bool((torch.isfinite(c) != torch.isfinite(r)).any()):
            return math.inf
        odd = ~finite & torch.isfinite(c).logical_not()
        if bool(((c != r) & ~(torch.isnan(c) & torch.isnan(r)) & odd).any()):
            return math.inf
        if not bool(finite.any()):
            continue
        size = torch.where(finite, r64.abs(), 0.0)
        rms = float((size.square().sum() / finite.sum()).sqrt())
        eager = float(torch.where(finite, (r - r64).abs(), 0.0).max())
        limit = TOLERANCE.get(values[0].dtype, 1e-4) * (size + rms) + 4 * eager
        ratio = torch.where(finite, (c - r64).abs(), 0.0) / limit.clamp_min(1e-300)
        largest = max(largest, float(torch.nan_to_num(ratio, nan=0.0).max()))
    return largest


def attempt(module, inputs):
    try:
        return module(*inputs) if not isinstance(inputs, dict) else module(**inputs)
    except Exception:
        return None


class Shape:
    """The modules of one shape."""

    def __init__(self, axes, driver):
        self.task = load_task(axes)
        arguments = self.task.get("get_init_inputs", list)()
        arguments = list(place(list(arguments)))
        self.reference = build(self.task["Model"], arguments)
        self.exact = copy.deepcopy(self.reference).double()
        self.modules = []
        for kernel in driver.kernels:
            try:
                module = build(getattr(kernel, ORDER["entry_point"]), arguments)
                adopt(module, self.reference)
            except Exception:
                module = None
            self.modules.append(module)

    def draw(self, seed):
        torch.manual_seed(seed)
        return place(list(self.task["get_inputs"]()))

    def compare(self, seed):
        try:
            inputs = self.draw(seed)
            value = self.reference(*clone(inputs))
            try:
                exact = self.exact(*double(inputs))
            except Exception:
                exact = value
        except Exception:
            return [NO_REFERENCE] * len(self.modules)
        found = []
        for module, none in zip(self.modules, (NO_ANSWER, NO_ORIGINAL)):
            answer = None if module is None else attempt(module, clone(inputs))
            found.append(none if answer is None else worst(answer, value, exact))
        return found


def follow_rule(driver):
    """KernelBench's rule: the same seed, five trials, torch.allclose with 1e-2."""
    task = load_task(ORDER["shapes"][0])
    for trial in range(5):
        torch.manual_seed(trial)
        inputs = place(list(task["get_inputs"]()))
        arguments = list(place(list(task.get("get_init_inputs", list)())))
        torch.manual_seed(trial)
        reference = task["Model"](*arguments).to(ORDER["device"])
        torch.manual_seed(trial)
        module = getattr(driver.kernels[0], ORDER["entry_point"])(*arguments)
        module = module.to(ORDER["device"]) if isinstance(module, torch.nn.Module) else module
        output, answer = reference(*inputs), module(*inputs)
        if ORDER["device"] == "cuda":
            torch.cuda.synchronize()
        pairs = list(zip(tensors_of(output), tensors_of(answer)))
        if not pairs or any(a.shape != b.shape for a, b in pairs):
            return 0.0
        if not all(torch.allclose(a, b, atol=1e-2, rtol=1e-2) for a, b in pairs):
            return 0.0
    return 1.0


class Driver(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernels = [
            load_kernel(path, f"score_kernel_{number}")
            for number, path in enumerate(ORDER["kernels"])
        ]
        self.shapes = {}

    @torch.no_grad()
    def forward(self, question):
        kind, shape, seed = (int(one) for one in question.cpu())
        if kind == 1:
            try:
                found = [follow_rule(self), 0.0]
            except Exception:
                found = [0.0, 1.0]
        else:
            if shape not in self.shapes:
                try:
                    self.shapes = {shape: Shape(ORDER["shapes"][shape], self)}
                except Exception:
                    self.shapes = {shape: None}
            made = self.shapes[shape]
            found = [NO_REFERENCE] if made is None else made.compare(seed)
        found = (found + [0.0, 0.0])[:2]
        return torch.tensor(found, dtype=torch.float64, device=ORDER["device"])
'''


def write_driver(
    task: str,
    kernels: Sequence[str],
    entry_point: str,
    shapes: Sequence[Mapping[str, Any]],
    device: str,
) -> str:
    """Return the text of a driver.

    Args:
        task: Text of the task.
        kernels: Paths of the kernel and, for a mutant, of its original.
        entry_point: Name of the class.
        shapes: Values that replace names of the task's text, by shape; its own shape first.
        device: cpu or cuda.
    """
    order = {
        "task": task,
        "kernels": list(kernels),
        "entry_point": entry_point,
        "shapes": [dict(one) for one in shapes],
        "device": device,
    }
    return _DRIVER.replace("__ORDER__", repr(json.loads(json.dumps(order))))
