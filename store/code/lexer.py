"""Splits code into tokens that have colors on pages and on terminals."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pygments.lexer import Lexer

_CUDA = re.compile(r"__global__|#include|torch::|at::Tensor")
_TRITON = {"triton", "tl"}


def make_lexer(language: str) -> Lexer:
    """Return the lexer of a language.

    Sources of CUDA in the strings of a Python file have tokens of CUDA, and names of Triton are
    built-in names.
    """
    from pygments.lexer import Lexer
    from pygments.lexers import get_lexer_by_name
    from pygments.token import Name, String

    options = {"stripnl": False, "ensurenl": False}
    whole, cuda = (get_lexer_by_name(name, **options) for name in (language, "cuda"))

    class KernelLexer(Lexer):
        def get_tokens(self, text: str, unfiltered: bool = False) -> Iterator[tuple[Any, str]]:
            tokens = whole.get_tokens(text)
            for is_string, group in itertools.groupby(tokens, lambda token: token[0] in String):
                many = list(group)
                string = "".join(part for _, part in many)
                if is_string and language == "python" and _CUDA.search(string):
                    quotes = len(string) - len(string.lstrip("\"'"))
                    yield String, string[:quotes]
                    yield from cuda.get_tokens(string[quotes : len(string) - quotes])
                    yield String, string[len(string) - quotes :]
                else:
                    for kind, part in many:
                        yield (Name.Builtin if kind in Name and part in _TRITON else kind), part

    return KernelLexer()
