"""Folders of untrusted code: writing a kernel's files, and removing what code has left."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from store.errors import SandboxFailed


@dataclass(frozen=True)
class OpenFolder:
    """A folder by its path, and by a descriptor that stays valid if the path is exchanged."""

    path: Path
    descriptor: int


def find_outside_files(files: Iterable[str]) -> list[str]:
    """Return names of files that are not inside the folder they are written to.

    >>> find_outside_files(["a.py", "b/c.cu", "../d", "/etc/e", "f/../../g", ""])
    ['../d', '/etc/e', 'f/../../g', '']
    """
    paths = {name: PurePosixPath(name) for name in files}
    return [
        name
        for name, path in paths.items()
        if path.is_absolute() or ".." in path.parts or not path.name or "\x00" in name
    ]


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write texts into a new folder. Raises SandboxFailed where a name or the disk forbids it."""
    outside = find_outside_files(files)
    if outside:
        raise SandboxFailed(
            f"a file of the kernel is called {outside[0]!r:.200}",
            "Give the files of a kernel relative names without `..`.",
        )
    try:
        for name, text in files.items():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    except OSError as error:  # one name is a folder of another, or too long
        raise SandboxFailed(
            f"the files of a kernel cannot be written: {error}",
            f"Check the names of its files, and the free space of {folder.parent}.",
        ) from error


def remove_folder(top: Path) -> None:
    """Remove a folder that untrusted code has filled and no process uses any more.

    Links are removed and never followed, names may be any bytes, folders may be closed to their
    owner or nested deeper than a path can be long: a folder's folders are moved up before it goes,
    so that neither recursion nor open files grow with the depth.
    """
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(os.lstat(top).st_mode):
            os.unlink(top)
            return
        os.chmod(top, 0o700)
        folder = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            while names := os.listdir(folder):
                for name in names:
                    _remove_entry(folder, name)
        finally:
            os.close(folder)
        os.rmdir(top)


def _remove_entry(folder: int, name: str) -> None:
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return
    os.chmod(name, 0o700, dir_fd=folder)
    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        for entry in os.listdir(inner):
            if stat.S_ISDIR(os.stat(entry, dir_fd=inner, follow_symlinks=False).st_mode):
                os.chmod(entry, 0o700, dir_fd=inner)  # to move a folder is to write into it
                upper = secrets.token_hex(16)
                os.rename(entry, upper, src_dir_fd=inner, dst_dir_fd=folder)
            else:
                os.unlink(entry, dir_fd=inner)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=folder)
