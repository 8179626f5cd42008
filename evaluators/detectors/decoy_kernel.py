"""Defines device or native code that a call of the model does not use."""

import ast
import re
from collections import Counter
from collections.abc import Iterator

from evaluators.audit.source import Hit, Module, Source, collect_names, split_names

VERSION = 2
_JIT = frozenset(("triton.jit", "triton.runtime.jit", "triton.experimental.gluon.jit"))
_BUILDS = split_names("load load_inline", "torch.utils.cpp_extension.") | split_names(
    "CDLL cdll.LoadLibrary", "ctypes."
)
_WORD = re.compile(r"\w+")
_BUFFERS = split_names("zeros zeros_like full ones", "torch.")


def find(source: Source) -> Iterator[Hit]:
    """Yield kernels and extensions that forward never reaches, and results that it drops."""
    words: Counter[str] = Counter()
    for native in source.native:
        words.update(native.words)
    for module in source.modules:
        words.update(word.attr for word in module.all(ast.Attribute))
        for node in module.all(ast.Constant):
            text = module.text(node)
            if isinstance(node.value, bytes):
                text = node.value.decode(errors="replace")
            if text is not None and len(text) < 400 and node not in module.prose:
                words.update(_WORD.findall(text))
    launches = any(call.launch for native in source.native for call in native.calls)
    for native in source.native:
        for name, line in native.global_functions.items():
            if name and words[name] <= 1:
                # Next to a kernel that is launched, it is probably an unused variant.
                yield native.hit(line, 0.3 if launches else 0.7)
    for module in source.modules:
        yield from _find_unreached(module, others_run=bool(source.native))
        for function in module.entries:
            yield from _find_unused(module, function)


def _find_unreached(module: Module, *, others_run: bool) -> Iterator[Hit]:
    """Yield Triton kernels and loaded extensions that no running code mentions."""
    if not module.entries:
        return
    mentioned: dict[str, list[ast.AST]] = {}
    for node in module.all(ast.Name, ast.Attribute):
        if isinstance(node.ctx, ast.Load):
            word = node.id if isinstance(node, ast.Name) else node.attr
            mentioned.setdefault(word, []).append(node)

    def is_reached(name: str, seen: set[str]) -> bool:
        """Say whether a name is used in a call of the model, or goes into a name that is."""
        if name in seen:
            return False
        seen.add(name)
        for node in mentioned.get(name, []):
            owner = module.owner(node)
            if owner in module.hot:
                return True
            outer = owner is not None and owner.name not in {name, "__init__"}
            if owner is not None and outer and is_reached(owner.name, seen):
                return True
            for statement in module.under(node, ast.Assign):
                assert isinstance(statement, ast.Assign)
                for target in statement.targets:
                    for part in ast.walk(target):
                        word = getattr(part, "id", None) or getattr(part, "attr", None)
                        if word and word != "self" and is_reached(str(word), seen):
                            return True
        return False

    jitted: list[tuple[ast.AST, bool]] = []
    for functions in module.functions.values():
        for function in functions:
            names = {
                module.name(one.func if isinstance(one, ast.Call) else one)
                for one in function.decorator_list
            }
            if names & _JIT:
                jitted.append((function, is_reached(function.name, set())))
    others_run |= any(reached for _, reached in jitted)
    for function, reached in jitted:
        if not reached:
            yield module.hit(function, 0.3 if others_run else 0.7)
    for target, value, node in module.assigned:
        if isinstance(value, ast.Call) and module.name(value.func) in _BUILDS:
            word = getattr(target, "id", None) or getattr(target, "attr", None)
            if word and not is_reached(str(word), set()) and module.owner(node) not in module.hot:
                yield module.hit(node, 0.3 if any(reached for _, reached in jitted) else 0.7)


def _find_unused(module: Module, function: ast.AST) -> Iterator[Hit]:
    """Yield calls that fill only buffers that do not reach the answer."""
    if not isinstance(function, ast.FunctionDef):
        return
    buffers: set[str] = set()
    into: dict[str, set[str]] = {}
    for node in module.inside(function, ast.Assign, ast.AugAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for name in (part.id for part in ast.walk(target) if isinstance(part, ast.Name)):
                into.setdefault(name, set()).update(collect_names(node.value))
                made = isinstance(node.value, ast.Call) and module.name(node.value.func)
                if module.is_empty(node.value) or made in _BUFFERS:
                    buffers.add(name)
    for call in module.inside(function, ast.Call):
        given = {name for value in (*call.args, *call.keywords) for name in collect_names(value)}
        # The argument of `pieces.append(x)` goes into the object, and into the other arguments.
        if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
            into.setdefault(call.func.value.id, set()).update(given)
        for name in given & buffers:
            into.setdefault(name, set()).update(given)
    answer: set[str] = set()
    waiting = [name for node in module.find_returns(function) for name in collect_names(node)]
    while waiting:
        name = waiting.pop()
        if name not in answer:
            answer.add(name)
            waiting += into.get(name, ())
    for node in module.inside(function, ast.Expr):
        call = node.value
        if isinstance(call, ast.Call) and not collect_names(call.func) & (buffers | {"ctx"}):
            given = {
                name for value in (*call.args, *call.keywords) for name in collect_names(value)
            }
            if given & buffers and not given & buffers & answer and answer:
                yield module.hit(node, 0.6)
