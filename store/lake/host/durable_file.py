"""A small file that survives a crash of the host."""

from __future__ import annotations

import os
from pathlib import Path

from store.faults import replace_file


def write_durably(file: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace a file as a whole, by default readable by its owner only."""
    with (
        replace_file(file) as partial,
        open(partial, "wb", opener=lambda path, flags: os.open(path, flags, mode)) as handle,
    ):
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    _sync_folder(file.parent)


def rename_durably(source: Path, target: Path) -> None:
    """Rename a file that no part of this process has open; its content is on disk before."""
    with open(source, "rb") as handle:
        os.fsync(handle.fileno())
    source.replace(target)
    _sync_folder(target.parent)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # the new name
    finally:
        os.close(folder)
