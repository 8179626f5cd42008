"""Remembers failed builds, so that identical sources fail immediately.

Ninja remembers successful builds but not failed ones, so that it compiles the failing file of an
extension every time. Half of the released CUDA-L1 kernels that call load_inline have such an
extension, and continue without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

RECORD = "failed.json"
_SOURCES = {".ninja", ".cpp", ".cc", ".cu", ".cuh", ".h", ".hpp"}
_UNLUCKY = (
    *("Killed", "No space left", "out of memory", "annot allocate", "bad_alloc", "quota exceeded"),
    *("not found", "cannot execute", "Read-only file system", "ermission denied", "Python.h"),
    *("annot open temporary", "cannot create", "cannot find -l", "unsupported GNU version"),
)
"""Messages of a compiler that fails because of the machine, not because of the sources."""
_MOST_BYTES = 1 << 20


def remember_failures() -> None:
    """Make torch.utils.cpp_extension record failed builds and repeat a recorded failure.

    The record is in the build directory and applies to its present sources and commands.
    """
    from torch.utils import cpp_extension

    build = cpp_extension._run_ninja_build  # pyright: ignore[reportPrivateUsage]

    def run_build(build_directory: str, verbose: bool, error_prefix: str) -> None:
        record = Path(build_directory, RECORD)
        made_of = _compute_digest(Path(build_directory))
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            failure = json.loads(record.read_text("utf-8"))
            if failure["made_of"] == made_of:
                raise RuntimeError(failure["message"])
        try:
            build(build_directory, verbose, error_prefix)
        except RuntimeError as error:
            message = str(error)
            if "error" in message and not any(one in message for one in _UNLUCKY):
                text = json.dumps({"made_of": made_of, "message": message[-_MOST_BYTES:]})
                with contextlib.suppress(OSError):
                    record.write_text(text, "utf-8")
            raise

    cpp_extension._run_ninja_build = run_build  # pyright: ignore[reportPrivateUsage]


def _compute_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for part in _iterate_parts(folder):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def _iterate_parts(folder: Path) -> Iterator[bytes]:
    for file in sorted(folder.iterdir()):
        if file.suffix in _SOURCES and file.is_file():
            yield file.name.encode()
            yield file.read_bytes()
