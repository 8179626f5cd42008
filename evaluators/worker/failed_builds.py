"""Extensions whose compilation has failed fail again at once, as the same sources do.

Ninja remembers what it has built and not what it could not build: the file in which an extension
fails is compiled anew each time. Half of the released CUDA-L1 kernels that call load_inline have
such an extension, and go on without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

RECORD = "failed.json"
_SOURCES = {".ninja", ".cpp", ".cc", ".cu", ".cuh", ".h", ".hpp"}
_UNLUCKY = ("Killed", "No space left", "out of memory", "annot allocate", "bad_alloc")
"""What a compiler says where the machine has failed it, and not the sources."""
_MOST_BYTES = 1 << 20


def remember_failures() -> None:
    """Have torch.utils.cpp_extension look for a record of the failure first, and leave one.

    The record lies in the build directory, and holds for the sources and commands that stand there.
    """
    from torch.utils import cpp_extension

    build = cpp_extension._run_ninja_build  # pyright: ignore[reportPrivateUsage]

    def run_build(build_directory: str, verbose: bool, error_prefix: str) -> None:
        record = Path(build_directory, RECORD)
        made_of = _compute_digest(Path(build_directory))
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            told = json.loads(record.read_text("utf-8"))
            if told["made_of"] == made_of:
                raise RuntimeError(told["message"])
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
