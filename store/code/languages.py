"""The languages of kernels, in one table: files, Markdown fences, parsers and decorators.

To add a language, add it here. Code that reads kernels takes the parser from this table, code that
renders them takes the fence, and code that reads completions takes the info strings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Language:
    """One language that kernels are written in."""

    name: str
    """Its word in the enumeration `language` of catalog.yaml."""
    parser: Literal["python", "c++"]
    """The parser that reads its text: `store.code.python_syntax` or `store.code.cuda_facts`."""
    suffixes: tuple[str, ...] = ()
    """Suffixes of its files; none for a language that is embedded in files of another one."""
    fence: str = ""
    """Info string of its Markdown blocks."""
    fences: frozenset[str]
    """Info strings, in lower case, that models write for it."""
    kernel_decorators: frozenset[str] = frozenset()
    """Decorators that turn a Python function into a kernel for the device."""


PYTORCH = Language(
    name="pytorch",
    parser="python",
    suffixes=(".py",),
    fence="python",
    fences=frozenset(("python", "py", "python3", "py3", "pytorch")),
)
TRITON = Language(
    name="triton",
    parser="python",
    fences=frozenset(("triton",)),
    kernel_decorators=frozenset(
        ("triton.jit", "triton.runtime.jit", "triton.experimental.gluon.jit")
    ),
)
CUDA = Language(
    name="cuda",
    parser="c++",
    suffixes=(".cu", ".cuh"),
    fence="cuda",
    fences=frozenset(("cuda", "cu")),
)
CPP = Language(
    name="cpp",
    parser="c++",
    suffixes=(".cpp", ".cc", ".cxx", ".c", ".h", ".hpp"),
    fence="cpp",
    fences=frozenset(("cpp", "c++", "c")),
)
LANGUAGES = (PYTORCH, TRITON, CUDA, CPP)
PYTHON_FENCES = frozenset[str]().union(
    *(language.fences for language in LANGUAGES if language.parser == "python")
)
"""Info strings of blocks that hold Python."""


def find_language(path: str) -> Language | None:
    """Return the language of a file by its name, or None.

    >>> find_language("a/b.cu").name, find_language("notes")
    ('cuda', None)
    """
    return next((one for one in LANGUAGES if path.endswith(one.suffixes)), None)


def is_python(path: str) -> bool:
    """Return whether a file is Python by its name."""
    language = find_language(path)
    return language is not None and language.parser == "python"


def is_native(path: str) -> bool:
    """Return whether a file is C++ or CUDA by its name."""
    language = find_language(path)
    return language is not None and language.parser == "c++"


def find_fence(path: str) -> str:
    """Return the info string of a Markdown block for a file; empty for an unknown suffix.

    >>> find_fence("kernel.py"), find_fence("a/b.cu"), find_fence("notes")
    ('python', 'cuda', '')
    """
    language = find_language(path)
    return "" if language is None else language.fence
