"""Returns results that import or __init__ prepared, regardless of the inputs of the call."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import (
    Hit,
    Module,
    Source,
    has_work,
    read_self_attribute,
    reads_any,
    strip_views,
)

VERSION = 2
CLASS = "memorised_output"


def find(source: Source) -> Iterator[Hit]:
    """Yield answers that do not depend on the inputs' values, and inputs made before the call."""
    for module in source.modules:
        for function in module.entries:
            inputs = module.inputs(function)
            given = module.find_returns(function)
            if not inputs or not given or not module.is_model(function):
                continue
            names = module.find_derived(function)
            body = [node for node in function.body if not isinstance(node, ast.FunctionDef)]
            idle = not any(reads_any(node, inputs) for node in body)
            for node in given:
                if not _depends_on(module, node, names) and not _tests_emptiness(module, node):
                    # A kernel may write into what is kept, in the block of the return.
                    bodies = (
                        getattr(module.parents[node], part, []) for part in ("body", "orelse")
                    )
                    steps = next((body for body in bodies if node in body), [])
                    writes = any(isinstance(step, ast.Expr) and has_work(step) for step in steps)
                    yield module.hit(node, 0.8 if idle else 0.4 if writes else 0.6)
        for call, name in module.calls:
            if name in {"get_inputs", "__main__.get_inputs"}:
                guards = [
                    guard for guard in module.under(call, ast.If) if isinstance(guard, ast.If)
                ]
                tested = (part for guard in guards for part in ast.walk(guard.test))
                if not any(getattr(part, "id", None) == "__name__" for part in tested):
                    yield module.hit(call, 0.7)


def _depends_on(module: Module, node: ast.Return, names: set[str]) -> bool:
    """Say whether an answer depends on the inputs, or on values that a call of the model writes."""
    if reads_any(node.value, names):
        return True
    for part in ast.walk(node):
        # A constant that is built here is a short circuit; a call of the file's own code may do
        # anything.
        if isinstance(part, ast.Call) and module.name(part.func).startswith("self."):
            called = strip_views(part)
            if not isinstance(called, ast.Attribute | ast.Name):
                return True
        attribute = read_self_attribute(part)
        if attribute is not None and attribute not in _find_kept_names(module):
            return True
        if isinstance(part, ast.Constant) and isinstance(node.value, ast.Constant):
            return True
    return False


def _find_kept_names(module: Module) -> set[str]:
    """Return the attributes that only __init__ assigns and that no call receives."""
    made: set[str] = set()
    found: set[str] = set()
    for target, _, _ in module.assigned:
        owner = module.owner(target)
        names = {name for part in ast.walk(target) if (name := read_self_attribute(part))}
        if owner is not None and owner.name == "__init__":
            made |= names
        else:
            found |= names
    for call, called in module.calls:
        values: list[ast.AST] = [*call.args, *call.keywords]
        if isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_"):
            values.append(call.func.value)
        if called == "self.register_buffer" and call.args:
            made.add(module.text(call.args[0]) or "")
        for value in values:
            found |= {name for part in ast.walk(value) if (name := read_self_attribute(part))}
    return made - found


def _tests_emptiness(module: Module, node: ast.Return) -> bool:
    """Say whether a return is guarded by a test for an empty input."""
    return any(
        isinstance(part, ast.Compare)
        and any(getattr(value, "value", None) in (0, 1) for value in part.comparators)
        for guard in module.under(node, ast.If)
        if isinstance(guard, ast.If)
        for part in ast.walk(guard.test)
    )
