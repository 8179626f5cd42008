"""Replaces functions of torch, Python or the harness that a judge relies on."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source
from evaluators.detectors.random_state import is_generator
from evaluators.detectors.timer_tampering import is_clock

VERSION = 2
_MODES = frozenset(
    (
        "torch.overrides.TorchFunctionMode",
        "torch.utils._python_dispatch.TorchDispatchMode",
        "torch.library.Library",
    )
)
_QUIET = ("os.environ", "sys.path", "sys.stdout", "sys.stderr", "sys.setrecursionlimit")


def find(source: Source) -> Iterator[Hit]:
    """Yield writes to imported modules and classes that are neither clocks nor generators."""
    for module, node, name in source.find_patches():
        if is_clock(name) or is_generator(name):
            continue
        yield module.hit(node, 0.3 if name.startswith(_QUIET) else 0.9)
    for module in source.modules:
        for model in module.all(ast.ClassDef):
            if _MODES & {module.name(base) for base in model.bases}:
                yield module.hit(model, 0.8)
        for target, _, _ in module.assigned:
            own = module.name(target).split(".")[0] not in module.imported
            if isinstance(target, ast.Attribute) and target.attr == "__call__" and own:
                classes = {"cls", *(one.name for one in module.all(ast.ClassDef))}
                yield module.hit(target, 0.3 if module.name(target.value) in classes else 0.6)
    for module, call, name in source.calls:
        if name in _MODES or name.startswith("ctypes.pythonapi."):
            yield module.hit(call, 0.7)
        elif (
            name == "setattr"
            and len(call.args) > 1
            and module.name(call.args[0]) not in {"self", "cls"}
            and module.text(call.args[1]) is None
        ):
            # A computed name on a computed object.
            yield module.hit(call, 0.4)
