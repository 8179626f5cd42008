"""Returns an unchanged input, or leaves inputs, layers or parameters unused."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, read_self_attribute, strip_views

VERSION = 1
_WALKS = frozenset(
    ("parameters", "named_parameters", "children", "modules", "state_dict", "__dict__")
)


def find(source: Source) -> Iterator[Hit]:
    """Yield returns of an unchanged input, and inputs, layers and parameters that nothing reads."""
    for module in source.modules:
        # Layers and parameters that __init__ makes and that no other line mentions. Often they are
        # kept because they affect the order of random weights, or the task does not read them
        # either.
        read = {
            node.attr for node in module.all(ast.Attribute) if isinstance(node.ctx, ast.Load)
        } | {node.value for node in module.all(ast.Constant) if isinstance(node.value, str)}
        for target, value, node in module.assigned if module.entries and not read & _WALKS else ():
            name = read_self_attribute(target)
            made = module.name(value.func) if isinstance(value, ast.Call) else ""
            if name is not None and name not in read and made.startswith("torch.nn."):
                yield module.hit(node, 0.4)
        for function in module.entries:
            if not module.is_model(function):
                continue
            inputs = module.inputs(function)
            stored = {
                name.id
                for name in module.inside(function, ast.Name)
                if isinstance(name.ctx, ast.Store)
            }
            for node in module.find_returns(function):
                value = strip_views(node.value)
                if isinstance(value, ast.Name) and value.id in inputs - stored:
                    # If it is read elsewhere too, it may have been written in place.
                    alone = len(module.find_uses(function, value.id)) == 1
                    yield module.hit(node, 0.8 if alone else 0.2)
            splat = {one.arg for one in (function.args.vararg, function.args.kwarg) if one}
            body = function.body[-1] if function.body else function
            raises = isinstance(body, ast.Raise)
            for name in sorted(inputs - splat - stored):
                inner = any(
                    isinstance(part, ast.Name) and part.id == name for part in ast.walk(function)
                )
                if not inner and not raises:
                    yield module.hit(function, 0.4)
