"""Falls back to torch if its own kernel fails, so the kernel need never work."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 1
_NO_WORK = split_names(
    "empty empty_like zeros zeros_like device no_grad cuda is_available randn ones compile",
    "torch.",
)  # fmt: skip
_BUILDS = split_names("load load_inline _compile_kernel CDLL compile")


def find(source: Source) -> Iterator[Hit]:
    """Yield torch operations in except handlers, and handlers that silently give up a build."""
    for module in source.modules:
        for handler in module.all(ast.ExceptHandler):
            if module.is_hot(handler):
                calls = [part for part in ast.walk(handler) if isinstance(part, ast.Call)]
                computes = (
                    name.startswith("torch.")
                    and name not in _NO_WORK
                    and not name.startswith(("torch.cuda.", "torch.backends."))
                    for name in (module.name(call.func) for call in calls)
                )
                if any(computes):
                    yield module.hit(handler, 0.5)
            elif isinstance(parent := module.parents.get(handler), ast.Try):
                tried = [part for node in parent.body for part in ast.walk(node)]
                builds = any(
                    isinstance(part, ast.Call)
                    and module.name(part.func).rpartition(".")[2] in _BUILDS
                    for part in tried
                )
                raises = any(isinstance(part, ast.Raise) for part in ast.walk(handler))
                if builds and not raises:
                    yield module.hit(handler, 0.4)
