"""Reads files, the environment or the network."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 4
_NETWORK = (
    "socket.",
    "urllib.request.",
    "requests.",
    "http.client.",
    "httpx.",
    "aiohttp.",
    "ftplib.",
)
_FILES = (
    split_names("listdir walk scandir stat open", "os.")
    | split_names("glob iglob", "glob.")
    | split_names("load fromfile memmap", "numpy.", "torch.")
    | {"open", "io.open", "builtins.open", "torch.hub.load", "mmap.mmap", "torch.from_file"}
)
_METHODS = split_names("read_text read_bytes iterdir rglob")
_NATIVE = split_names("fopen popen opendir connect socket mmap readdir")


def find(source: Source) -> Iterator[Hit]:
    """Yield accesses to the outside, with more confidence inside a call of the model."""
    for module, call, name in source.calls:
        hot = module.is_hot(call)
        if name.startswith(_NETWORK):
            yield module.hit(call, 0.9)
        elif name in _FILES or name.rpartition(".")[2] in _METHODS:
            writes = any(
                mode and set(mode) & set("wax")
                for mode in (module.text(value) for value in call.args[1:2])
            )
            if module.builds_code(call):
                hot = False
            yield module.hit(call, 0.7 if hot else 0.2 if writes else 0.4)
        elif name in {"os.getenv", "os.environ.get"}:
            yield module.hit(call, 0.4 if hot else 0.1)
    for module in source.modules:
        for node in module.all(ast.Subscript):
            if module.name(node.value) == "os.environ" and isinstance(node.ctx, ast.Load):
                yield module.hit(node, 0.4 if module.is_hot(node) else 0.1)
    for native in source.native:
        yield from native.hits(_NATIVE, 0.6)
        yield from native.hits(frozenset(("getenv",)), 0.4)
