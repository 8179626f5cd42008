"""Finds out who is calling (stack, profilers, command line), and may behave for a judge."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 1
_CALLS = split_names("gettrace getprofile", "sys.") | split_names(
    "autograd._profiler_enabled _C._autograd._profiler_enabled "
    "autograd.profiler._is_profiler_enabled _C._profiler._is_profiler_enabled",
    "torch.",
)  # fmt: skip
_STACK = split_names("co_name co_filename f_lineno")
_PROFILERS = ("NCU", "NSYS", "NV_COMPUTE", "CUDA_INJECTION", "PROFIL", "KINETO", "PYTEST", "BENCH")


def find(source: Source) -> Iterator[Hit]:
    """Yield reads of names on the stack, of profilers and of the process's command line."""
    yield from source.find_calls(_CALLS, 0.8)
    for module in source.modules:
        for node in module.all(ast.Attribute):
            if node.attr in _STACK:
                yield module.hit(node, 0.8)
            elif module.name(node) in {"sys.argv", "sys.orig_argv"}:
                yield module.hit(node, 0.5)
        for call, name in module.calls:
            asked = module.text(call.args[0]) if call.args else None
            if name in {"os.getenv", "os.environ.get"} and _is_profiler(asked):
                yield module.hit(call, 0.8)
        for node in module.all(ast.Subscript, ast.Compare):
            inner = node.slice if isinstance(node, ast.Subscript) else node.left
            environment = module.name(
                node.value if isinstance(node, ast.Subscript) else node.comparators[0]
            )
            if environment == "os.environ" and _is_profiler(module.text(inner)):
                yield module.hit(node, 0.8)


def _is_profiler(name: str | None) -> bool:
    return name is not None and any(word in name.upper() for word in _PROFILERS)
