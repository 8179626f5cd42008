"""Data flow in a Python file: names that depend on inputs, attributes that are patched."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from evaluators.audit.source import Function, Module, Source, split_names

MODEL = "ModelNew"
_ABOUT = split_names(
    "shape device dtype is_cuda requires_grad ndim layout size dim numel is_contiguous stride "
    "get_device is_floating_point new_zeros new_ones new_full new_empty nelement element_size"
)
_EMPTY = split_names("empty empty_like empty_strided", "torch.") | {
    "numpy.empty",
    "numpy.empty_like",
}
_VIEWS = split_names(
    "view reshape expand expand_as detach contiguous to clone squeeze unsqueeze t transpose "
    "permute flatten unflatten view_as reshape_as cuda cpu type type_as float double alias "
    "requires_grad_"
)
_PATCHED_ROOTS = split_names(
    "torch builtins numpy time timeit sys os random math inspect gc triton subprocess functools "
    "json pickle"
)
_SETTINGS = (
    "torch.backends.",
    "torch._dynamo.config.",
    "torch._inductor.config.",
    "torch.utils.cpp_extension.CUDA_HOME.",
)
_QUESTIONS = split_names("data_ptr get detach clone item_size")
_PLAIN = split_names("len id hash tuple int isinstance getattr type bool range min max")


class Patch(NamedTuple):
    """One write to an attribute of something that was imported."""

    module: Module
    node: ast.AST
    name: str
    """Full name of what is written."""


def find_patches(source: Source) -> Iterator[Patch]:
    """Yield every write to an attribute of an imported module or class, however it is spelled.

    Settings under torch.backends and the compiler's config are meant to be set and are left out.
    """
    for module in source.modules:
        for node, name in _find_writes(module):
            if name.split(".")[0] in _PATCHED_ROOTS and not f"{name}.".startswith(_SETTINGS):
                yield Patch(module, node, name)


def _find_writes(module: Module) -> Iterator[tuple[ast.AST, str]]:
    for target, _, _ in module.assigned:
        if isinstance(target, ast.Attribute) or (
            isinstance(target, ast.Subscript)
            and (
                module.name(target.value).endswith(".__dict__")
                or isinstance(target.value, ast.Call)
                or module.name(target.value) == "sys.modules"
            )
        ):
            name = module.name(target)
            if module.name(getattr(target, "value", None)) == "sys.modules":
                name = f"sys.modules.{name}"
            yield target, name
    for node in module.all(ast.Delete):
        yield from (
            (target, module.name(target))
            for target in node.targets
            if isinstance(target, ast.Attribute)
        )
    for call, name in module.calls:
        if name in {"setattr", "builtins.setattr", "delattr", "?.__setattr__"} and call.args:
            what = module.text(call.args[1]) if len(call.args) > 1 else None
            yield call, f"{module.name(call.args[0])}.{what or '?'}"
        elif name in {"type.__setattr__", "object.__setattr__"} and len(call.args) > 1:
            yield call, f"{module.name(call.args[0])}.{module.text(call.args[1]) or '?'}"
        elif name.endswith(".__dict__.update"):
            yield call, name.removesuffix(".__dict__.update") + ".?"
        elif name in {"unittest.mock.patch", "unittest.mock.patch.object", "mock.patch"}:
            first = call.args[0] if call.args else None
            yield call, module.text(first) or f"{module.name(first)}.?"


def strip_views(node: ast.expr | None) -> ast.expr | None:
    """Return an expression without the views, copies and conversions around it."""
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _VIEWS
    ) or isinstance(node, ast.Subscript):
        node = node.value if isinstance(node, ast.Subscript) else node.func.value  # pyright: ignore
    return node


def is_empty(module: Module, node: ast.expr | None) -> bool:
    """Say whether an expression makes a tensor without writing it."""
    node = strip_views(node)
    if not isinstance(node, ast.Call):
        return False
    name = module.name(node.func)
    return name in _EMPTY or name.rpartition(".")[2] == "new_empty"


def reads_any(node: ast.AST | None, names: set[str]) -> bool:
    """Say whether an expression uses one of the names for more than its shape, type or place."""
    return not names.isdisjoint(collect_value_names(node))


def collect_value_names(node: ast.AST | None) -> set[str]:
    """Return the names in an expression that are used for more than shape, type or place."""
    if node is None:
        return set()
    inspected: set[ast.AST] = set()
    found: list[ast.Name] = []
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            found.append(part)
        elif isinstance(part, ast.Attribute):
            if part.attr in _ABOUT:
                inspected.add(part.value)
        elif isinstance(part, ast.Call):
            function = part.func
            last = function.attr if isinstance(function, ast.Attribute) else ""
            plain = function.id if isinstance(function, ast.Name) else ""
            if part.args and (last.endswith("_like") or plain in {"len", "isinstance", "type"}):
                inspected.add(part.args[0])
    return {part.id for part in found if part not in inspected}


def find_derived(module: Module, function: Function) -> set[str]:
    """Return the names in a function that depend on the values of its arguments.

    What a call is given together with such a value may have been written by it.
    """
    names = module.inputs(function)
    fixed = {"self", "ctx"} | module.imported_names
    flows: list[tuple[set[str], ast.AST]] = []
    for target, value, _ in module.assigned:
        if value is not None and module.owner(target) is function:
            held = value if isinstance(value, ast.Tuple | ast.List | ast.Dict) else target
            flows.append((collect_names(target) | collect_names(held), value))
    for loop in module.inside(function, ast.For):
        flows.append((collect_names(loop.target), loop.iter))
    for call in module.inside(function, ast.Call):
        values: list[ast.AST] = [*call.args, *call.keywords]
        if isinstance(call.func, ast.Attribute):
            values.append(call.func.value)
        flows.append((set().union(*map(collect_names, values)) - fixed, call))
    sources = [(written, collect_value_names(value)) for written, value in flows if written]
    # Loops carry a value back; four passes reach what real code has.
    for _ in range(4):
        before = len(names)
        for written, read in sources:
            if not names.isdisjoint(read):
                names |= written
        if len(names) == before:
            break
    return names - fixed


def collect_names(node: ast.AST) -> set[str]:
    """Return the names in an expression."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def find_returns(module: Module, function: Function) -> list[ast.Return]:
    """Return a function's own return statements that give a value."""
    return [node for node in module.inside(function, ast.Return) if node.value is not None]


def find_uses(module: Module, function: Function, name: str) -> list[ast.Name]:
    """Return the places in a function that read a name."""
    return [
        node
        for node in module.inside(function, ast.Name)
        if node.id == name and isinstance(node.ctx, ast.Load)
    ]


def read_self_attribute(node: ast.AST | None) -> str | None:
    """Return `x` of `self.x`, or None."""
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    ):
        return node.attr
    return None


def is_model(module: Module, function: ast.AST) -> bool:
    """Say whether a method belongs to the class that is judged, and not to one of its parts."""
    parent = module.parents.get(function)
    classes = module.nodes.get(ast.ClassDef, [])
    return isinstance(parent, ast.ClassDef) and (parent.name == MODEL or len(classes) == 1)


def find_answering(module: Module) -> set[ast.AST]:
    """Return the entries and the functions whose answers they return as their own."""
    found: set[ast.AST] = set(module.entries)
    waiting = list(module.entries)
    while waiting:
        for node in find_returns(module, waiting.pop()):
            if isinstance(node.value, ast.Call):
                word = module.name(node.value.func).rpartition(".")[2]
                new = [one for one in module.functions.get(word, []) if one not in found]
                found.update(new)
                waiting += new
    return found


def has_work(node: ast.AST) -> bool:
    """Say whether a statement calls anything but views, copies and questions."""
    return any(
        isinstance(part, ast.Call)
        and not (
            isinstance(part.func, ast.Attribute) and part.func.attr in _VIEWS | _ABOUT | _QUESTIONS
        )
        and not (isinstance(part.func, ast.Name) and part.func.id in _PLAIN)
        for part in ast.walk(node)
    )


def is_identity(node: ast.AST) -> bool:
    """Say whether a comparison asks whether two names are one object, neither of them None."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Is | ast.IsNot)
        and not any(isinstance(part, ast.Constant) for part in (node.left, *node.comparators))
    )
