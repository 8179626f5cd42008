"""Looks for the reference or its answers: caller frames, live objects, modules of the harness."""

import ast
import builtins
from collections.abc import Iterator

from evaluators.audit.source import Hit, Module, Source, split_names

VERSION = 1
_CALLS = (
    split_names("_getframe _current_frames", "sys.")
    | split_names("currentframe stack trace getouterframes getinnerframes getmembers", "inspect.")
    | split_names("get_objects get_referrers get_referents", "gc.")
    | split_names("extract_stack walk_stack format_stack", "traceback.")
)
_FRAMES = split_names(
    "f_back f_locals f_globals f_code tb_frame gi_frame cr_frame __subclasses__ __globals__"
)
_REFERENCE = frozenset(("Model", "get_inputs", "get_init_inputs"))


def find(source: Source) -> Iterator[Hit]:
    """Yield reads of frames, the heap and sys.modules, and names that only a harness defines."""
    yield from source.find_calls(_CALLS, 0.8)
    for module in source.modules:
        for node in module.all(ast.Attribute):
            if node.attr in _FRAMES:
                yield module.hit(node, 0.8)
            elif module.name(node) == "sys.modules":
                # One module may be read, by its own or a known name.
                key = getattr(module.parents.get(node), "slice", None)
                if module.name(key) != "__name__" and not module.text(key):
                    yield module.hit(node, 0.7)
        for statement in module.all(ast.Import, ast.ImportFrom):
            named = {name.name for name in statement.names}
            if "__main__" in named or getattr(statement, "module", None) == "__main__":
                yield module.hit(statement, 0.9)
        defined = _find_defined_names(module)
        if defined is None:
            continue
        for node in module.all(ast.Name):
            if (
                node.id in _REFERENCE
                and isinstance(node.ctx, ast.Load)
                and node.id not in defined
                and not hasattr(builtins, node.id)
            ):
                yield module.hit(node, 0.9)


def _find_defined_names(module: Module) -> set[str] | None:
    """Return the names that the file binds, or None where a star import may bind any."""
    found: set[str] = set()
    for node in module.all(ast.Import, ast.ImportFrom):
        for name in node.names:
            if name.name == "*":
                return None
            found.add(name.asname or name.name.split(".")[0])
    found |= {node.name for node in module.all(ast.ClassDef, ast.FunctionDef)}
    found |= {node.arg for node in module.all(ast.arg)}
    found |= {node.id for node in module.all(ast.Name) if isinstance(node.ctx, ast.Store)}
    return found
