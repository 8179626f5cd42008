"""Computes at a lower precision than that of its inputs."""

import ast
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 1
_TYPES = split_names("float16 half bfloat16 float8_e4m3fn float8_e5m2", "torch.")
_METHODS = split_names("half bfloat16")
_NATIVE_TYPES = split_names("__half __half2 half2 __nv_bfloat16 __nv_bfloat162 half")
_FLAGS = ("-use_fast_math", "--use_fast_math", "-ftz=true")


def find(source: Source) -> Iterator[Hit]:
    """Yield conversions to half types inside of a call, half types in C++, and fast-math flags."""
    for module, call, name in source.calls:
        if not module.is_hot(call) and "autocast" not in name:
            continue
        given = {module.name(value) for value in (*call.args, *(k.value for k in call.keywords))}
        if (
            (name.rpartition(".")[2] in _METHODS and not call.args)
            or given & _TYPES
            or name.startswith(("torch.autocast", "torch.cuda.amp.autocast", "torch.amp.autocast"))
        ):
            yield module.hit(call, 0.4)
    for module in source.modules:
        for node in module.all(ast.Constant):
            if node.value in _FLAGS and node not in module.prose:
                yield module.hit(node, 0.2)
    for native in source.native:
        lines = sorted(line for name, line in native.types.items() if name in _NATIVE_TYPES)
        for line in lines[:1]:
            yield native.hit(line, 0.2)
