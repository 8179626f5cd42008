"""Files and folders that commands write for people: whole or not at all, and again on a rerun.

A command replaces what the same command wrote there before, and nothing else. It knows its folders
by a record in them with the sha256 of each file, and its files by an extended attribute with their
own. Until an output is complete, it is in a folder `.flywheel-*.partial` beside its place, which
the next command there removes if its process was killed.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from store import faults
from store.errors import ExportRefused
from store.ids import hash_file, uuid7

RECORD = ".flywheel.json"
"""File of a written folder: the command, and the sha256 of every other file."""
_UNWRITTEN = "Nothing was written."
_PARTIAL = ".flywheel-{}.partial"
_ATTRIBUTE = "user.kernel-flywheel"
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP)


@contextmanager
def write_folder(target: Path, command: str) -> Generator[Path]:
    """Yield an empty folder, which takes the place of `target` when the block ends.

    Raises ExportRefused, before the block and again after it, if `target` has something else than
    what `command` wrote.
    """
    require_replaceable(target, command)
    with open_partial(target.parent) as partial, faults.at(target, note=_UNWRITTEN):
        yield partial
        place_folder(partial, target, command)


@contextmanager
def write_file(target: Path, command: str) -> Generator[Path]:
    """Yield the path of a new file, which takes the place of `target` when the block ends.

    Raises ExportRefused like `write_folder`. A device, pipe or socket is yielded itself.
    """
    if target.exists() and not target.is_file() and not target.is_dir():
        yield target
        return
    _require_own_file(target, command)
    with open_partial(target.resolve().parent) as partial, faults.at(target, note=_UNWRITTEN):
        file = partial / target.name
        yield file
        with suppress(OSError):  # a file system without attributes: the next run asks for a name
            os.setxattr(file, _ATTRIBUTE, _mark(command, file))
        _require_own_file(target, command)
        file.replace(target.resolve())


def require_replaceable(target: Path, command: str) -> None:
    """Raise ExportRefused unless a folder is new or empty, or has only what `command` wrote."""
    target = target.resolve()
    existing = next(path for path in (target, *target.parents) if path.exists())
    if not existing.is_dir():
        raise ExportRefused(f"{existing} is not a folder", "Name another folder.")
    if existing != target:
        return
    if target.is_mount() or Path.cwd().is_relative_to(target):
        raise ExportRefused(
            f"{target} is a mount point or the current folder, which cannot be replaced",
            "Name a folder inside it.",
        )
    if not any(target.iterdir()):
        return
    author, hashes = _read_record(target)
    if author is None:
        raise ExportRefused(
            f"{target} exists already, and `{command}` did not write it",
            "Name a new or an empty folder; nothing was written.",
        )
    if author != command:
        raise ExportRefused(
            f"{target} was written by `{author}`, and not by `{command}`",
            "Name another folder, or delete this one; nothing was written.",
        )
    foreign = [name for name, digest in _hash_files(target).items() if hashes.get(name) != digest]
    if foreign:
        what = "was changed" if foreign[0] in hashes else "was added"
        more = f" (and {len(foreign) - 1} more)" if len(foreign) > 1 else ""
        raise ExportRefused(
            f"{target / foreign[0]}{more} {what} after `{command}` had written this folder",
            "Move it away, or name another folder; nothing was written.",
        )


def place_folder(partial: Path, target: Path, command: str) -> None:
    """Give a complete folder of `open_partial` the place of `target`, at once and as a whole.

    A folder there with the same files stays as it is. Raises ExportRefused like `write_folder`.
    """
    hashes = _hash_files(partial)
    require_replaceable(target, command)
    target = target.resolve()
    if _read_record(target) == (command, hashes) and _hash_files(target) == hashes:
        return
    (partial / RECORD).write_text(
        json.dumps({"command": command, "files": hashes}, indent=1) + "\n", "utf-8"
    )
    rename_over(partial, target)


@contextmanager
def open_partial(parent: Path) -> Generator[Path]:
    """Yield a new folder inside `parent` that is removed in the end, unless it was placed.

    Removes those of killed processes first. Raises ExportRefused if it cannot be made.
    """
    while True:
        with faults.at(parent, ExportRefused, _UNWRITTEN):
            parent.mkdir(parents=True, exist_ok=True)
            for left in parent.glob(_PARTIAL.format("*")):
                with _lock(left) as is_dead:
                    if is_dead:
                        shutil.rmtree(left, ignore_errors=True)
            partial = parent.resolve() / _PARTIAL.format(uuid7()[-12:])
            partial.mkdir()
        with _lock(partial) as is_ours:
            # Another process may have found the folder before it was locked, and removed it.
            if is_ours and partial.exists():
                try:
                    yield partial
                finally:
                    shutil.rmtree(partial, ignore_errors=True)
                return


@contextmanager
def _lock(folder: Path) -> Generator[bool]:
    """Lock a folder until the block or the process ends; yield whether nobody else has."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # gone, or not one of ours
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_free = True
        except BlockingIOError:
            is_free = False
        yield is_free
    finally:
        os.close(descriptor)


def rename_over(partial: Path, target: Path) -> None:
    """Give a folder the name of another one, in one step where the file system can do that.

    The old folder, if it has files, then has the name of the partial one.
    """
    try:
        partial.rename(target)
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(partial), os.fsencode(target)
    if libc.renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return
    number = ctypes.get_errno()
    if number not in _NO_EXCHANGE:
        raise OSError(number, os.strerror(number), str(target))
    aside = partial.with_name(_PARTIAL.format(uuid7()[-12:]))
    target.rename(aside)
    partial.rename(target)
    aside.rename(partial)


def _require_own_file(target: Path, command: str) -> None:
    if target.is_dir() or not target.parent.is_dir():
        number = errno.EISDIR if target.is_dir() else errno.ENOENT
        raise OSError(number, os.strerror(number), str(target))
    if not target.exists():
        return
    try:
        mark = os.getxattr(target, _ATTRIBUTE)
    except OSError:  # no such attribute, or a file system without any
        mark = b""
    if mark != _mark(command, target):
        raise ExportRefused(
            f"{target} exists already, and `{command}` did not write it, or it was changed since",
            "Name another file, or delete this one; nothing was written.",
        )


def _mark(command: str, file: Path) -> bytes:
    return f"{command} {_hash(file)}".encode()


def _read_record(folder: Path) -> tuple[str | None, dict[str, str]]:
    try:
        record = json.loads((folder / RECORD).read_text("utf-8"))
        return str(record["command"]), dict(record["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, {}


def _hash_files(folder: Path) -> dict[str, str]:
    """Return the hash of each file by its path in the folder; a link has that of its target."""
    return {
        file.relative_to(folder).as_posix(): _hash(file)
        for file in sorted(folder.rglob("*"))
        if file != folder / RECORD and (file.is_symlink() or not file.is_dir())
    }


def _hash(file: Path) -> str:
    is_regular = file.is_file() and not file.is_symlink()
    return hash_file(file) if is_regular else "not a regular file"
