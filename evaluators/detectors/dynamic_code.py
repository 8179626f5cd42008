"""Runs code that is made at run time, or hides what it runs."""

from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, split_names

VERSION = 1
_RUN = split_names("exec eval compile", "", "builtins.")
_IMPORT = frozenset(("__import__", "builtins.__import__", "importlib.import_module"))
_DECODE = (
    split_names("loads load", "marshal.", "pickle.", "dill.", "cloudpickle.")
    | split_names("CodeType FunctionType", "types.")
    | split_names("b64decode b85decode b16decode", "base64.")
    | split_names("decompress", "zlib.", "lzma.", "bz2.", "gzip.")
    | {"codecs.decode", "bytes.fromhex"}
)


def find(source: Source) -> Iterator[Hit]:
    """Yield exec and similar calls, with more confidence if the code is not a literal."""
    for module, call, name in source.calls:
        literal = bool(call.args) and module.text(call.args[0]) is not None
        if name in _RUN:
            yield module.hit(call, 0.3 if literal else 0.8)
        elif name in _IMPORT:
            yield module.hit(call, 0.2 if literal else 0.7)
        elif name in _DECODE:
            yield module.hit(call, 0.5)
