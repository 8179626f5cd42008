"""The entry point of a kernel: the class or function of its file that is judged.

The rule, in this order: what `--entry-point` names; the class `ModelNew`; the class `Model`, or a
function with a name of CONVENTIONS; the one public function that takes as many arguments as the
task gives. Functions that a JIT compiler decorates, such as `@triton.jit`, are no entry points,
because a launcher calls them. The text is read and never run.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from store.code.python_syntax import parse_python
from store.errors import FlywheelError

DEFAULT = "ModelNew"
COPY = "Model"
"""Class of KernelBench's tasks; a kernel's file may use the name too."""
CONVENTIONS = ("custom_kernel", "run", "solution", "kernel_fn", "kernel_function")
"""Names of functions in GPU MODE's competitions, flashinfer-bench, KernelAgent and others."""
NATIVE = (".cu", ".cpp")
"""Suffixes of files that are a kernel by themselves: a loader builds and imports them."""
NATIVE_FUNCTION = "forward"
NATIVE_LOADER = """\
import pathlib

from torch.utils.cpp_extension import load

_source = pathlib.Path(__file__).absolute().with_name({name!r})
{function} = load(name="kernel", sources=[str(_source)]).{function}
"""
_OF_TASKS = ("get_inputs", "get_init_inputs", "main")
_COMPILERS = ("jit", "autotune", "heuristics", "prim_func", "cute.kernel")


@dataclass(kw_only=True)
class _Names:
    """What the top level of a file binds."""

    classes: list[str] = field(default_factory=list[str])
    functions: dict[str, tuple[int, int | None]] = field(
        default_factory=dict[str, tuple[int, int | None]]
    )
    """Fewest and most positional arguments of each; the most is None with *args."""
    others: list[str] = field(default_factory=list[str])

    def binds(self, name: str) -> bool:
        return name in self.classes or name in self.functions or name in self.others


def list_bound(tree: ast.Module | None) -> set[str]:
    """Return the names that the top level of a file binds; none if it cannot be parsed."""
    names = _Names()
    _gather(tree.body if tree is not None else [], names)
    return {*names.classes, *names.functions, *names.others}


def find_entry_point(code: str, arguments: int | None = None) -> str | None:
    """Return the entry point of a file by the rule, or None if nothing in it is one.

    >>> find_entry_point("def helper(x): ...\\ndef softmax(x, dim): ...", 2)
    'softmax'

    Args:
        code: Text of the file.
        arguments: Number of inputs that the task gives, if known.

    Raises FlywheelError if several fit.
    """
    names = _read_names(code)
    if names.binds(DEFAULT):
        return DEFAULT
    chosen = [name for name in (*CONVENTIONS, COPY) if names.binds(name)]
    if len(chosen) > 1 and arguments is not None:
        chosen = [name for name in chosen if _fits(names, name, arguments)]
    if not chosen:
        public = [name for name in names.functions if not name.startswith("_")]
        chosen = [name for name in public if name not in _OF_TASKS]
        if arguments is not None:
            chosen = [name for name in chosen if _fits(names, name, arguments)]
    if len(chosen) > 1:
        raise FlywheelError(
            f"the kernel has more than one entry point: {', '.join(sorted(chosen))}",
            f"Name the class or function to judge, such as --entry-point {chosen[0]}.",
        )
    return chosen[0] if chosen else None


def choose_stored(code: str, *, copies: bool = False) -> str:
    """Return the entry point of a kernel to store: the only usual name that its file binds.

    >>> choose_stored("def custom_kernel(data): ...")
    'custom_kernel'

    copies: Whether a class `Model` counts. It does not where the text may repeat the task, as a
        completion does.
    """
    names = _read_names(code)
    usual = (*CONVENTIONS, COPY) if copies else CONVENTIONS
    chosen = [name for name in usual if names.binds(name)]
    return DEFAULT if names.binds(DEFAULT) or len(chosen) != 1 else chosen[0]


def list_names(code: str) -> list[str]:
    """Return the classes and functions that a file defines and that could be entry points."""
    names = _read_names(code)
    return [*names.classes, *names.functions]


def list_classes(code: str) -> list[str]:
    """Return the classes that a file defines."""
    return _read_names(code).classes


def count_arguments(task_code: str) -> int | None:
    """Return how many inputs a task gives, or None if its text does not show it.

    >>> count_arguments("def get_inputs():\\n    return [torch.rand(2), 3]")
    2
    """
    tree = parse_python(task_code)
    for node in reversed(tree.body if tree is not None else []):
        if isinstance(node, ast.FunctionDef) and node.name == "get_inputs":
            returned = [n.value for n in ast.walk(node) if isinstance(n, ast.Return)]
            if len(returned) == 1 and isinstance(returned[0], ast.List | ast.Tuple):
                items = returned[0].elts
                return None if any(isinstance(n, ast.Starred) for n in items) else len(items)
            return None
    return None


def count_parameters(code: str, name: str) -> int | None:
    """Return how many positional arguments a function of a file takes at most, if it is known.

    >>> count_parameters("def run(a, b, out): ...", "run")
    3
    """
    return _read_names(code).functions.get(name, (0, None))[1]


def _fits(names: _Names, name: str, arguments: int) -> bool:
    fewest, most = names.functions.get(name, (0, None))
    return fewest <= arguments and (most is None or arguments <= most)


def _read_names(code: str) -> _Names:
    names = _Names()
    tree = parse_python(code)
    _gather(tree.body if tree is not None else [], names)
    return names


def _gather(body: list[ast.stmt], names: _Names) -> None:
    for node in body:
        if isinstance(node, ast.ClassDef):
            names.classes.append(node.name)
        elif isinstance(node, ast.FunctionDef):
            decorators = (
                ast.unparse(one.func if isinstance(one, ast.Call) else one)
                for one in node.decorator_list
            )
            if not any({name, name.rpartition(".")[2]} & {*_COMPILERS} for name in decorators):
                arguments = node.args
                count = len(arguments.posonlyargs) + len(arguments.args)
                # A keyword argument without a default cannot be given.
                needed = any(default is None for default in arguments.kw_defaults)
                names.functions[node.name] = (
                    1 << 30 if needed else count - len(arguments.defaults),
                    None if arguments.vararg is not None else count,
                )
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.others += [one.asname or one.name.partition(".")[0] for one in node.names]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names.others += [one.id for one in targets if isinstance(one, ast.Name)]
        elif isinstance(node, ast.If | ast.With | ast.Try | ast.For | ast.While):
            _gather(node.body, names)  # which binds names of the module too
            if not isinstance(node, ast.With):
                _gather(node.orelse, names)
            if isinstance(node, ast.Try):
                _gather(node.finalbody, names)
                for handler in node.handlers:
                    _gather(handler.body, names)
