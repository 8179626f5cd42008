"""Ends the process, or prints text that a harness may take for its own output."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 2
_ENDS = split_names("_exit abort", "os.")
_LEAVES = frozenset(
    ("sys.exit", "exit", "quit", "atexit.register", "builtins.exit", "atexit._run_exitfuncs")
)
_PRINTS = frozenset(("print", "builtins.print", "sys.stdout.write", "sys.stdout.buffer.write"))
_NATIVE_ENDS = split_names("_exit _Exit quick_exit at_quick_exit atexit on_exit")


def find(source: Source) -> Iterator[Hit]:
    """Yield exits of the process, handlers that run at exit, and prints from a call."""
    yield from source.find_calls(_ENDS, 0.9)
    yield from source.find_calls(_LEAVES, 0.6, hot=0.8)
    for module, call, name in source.calls:
        if name in _PRINTS and module.is_hot(call):
            yield module.hit(call, 0.3)
        elif name == "os.write" and getattr(call.args[0] if call.args else None, "value", 0) in (
            1,
            2,
        ):
            yield module.hit(call, 0.7)
    for module in source.modules:
        for node in module.all(ast.Raise):
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if module.name(raised) in {"SystemExit", "KeyboardInterrupt", "GeneratorExit"}:
                yield module.hit(node, 0.8)
    for native in source.native:
        yield from native.hits(_NATIVE_ENDS, 0.7)
        yield from native.hits(frozenset(("exit", "abort")), 0.2)
