"""A small file that survives a crash of the host."""

from __future__ import annotations

import os
from pathlib import Path


def write_durably(file: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file as a whole, by default readable by its owner only."""
    partial = file.with_suffix(".partial")
    with open(partial, "wb", 0, opener=lambda path, flags: os.open(path, flags, mode)) as handle:
        handle.write(content)
        os.fsync(handle.fileno())
    _replace(partial, file)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a file that no part of this process has open; its content is on disk before."""
    with open(source, "rb") as handle:
        os.fsync(handle.fileno())
    _replace(source, target)


def _replace(source: Path, target: Path) -> None:
    source.replace(target)
    folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # the new name
    finally:
        os.close(folder)
