"""The build cache: compiled extensions by their sources, so that no kernel is compiled twice.

Hostile code writes builds, so a kept build is used only for the same kernel at the same task. Its
key is the sha256 of the kernel's files, the task's code and axes (which determine the constructor's
arguments), and the toolchain. No other verdict sees what a kernel or a task writes there.

The path of a build directory depends on its key alone, since ninja and the compilers remember
paths: a build of one process is up to date for another. One process holds a directory at a time, by
a lock of the operating system that ends with the process. The sandbox gets the directory as an open
descriptor and can write to nothing beside it. Once its processes have ended, the build is
published: plain files are copied from that descriptor, with their digests in a manifest. Every use
verifies them. None of these steps follows a link.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import secrets
import stat
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from evaluators.sandbox.folders import OpenFolder, remove_folder
from evaluators.worker import RECORD
from store.errors import SandboxFailed
from store.lake.host import choose_cache

log = logging.getLogger(__name__)

KEPT_BYTES = 10 << 30
"""Size of the cache above which the oldest builds are removed."""
BUILD_LIMIT_BYTES = 512 << 20
_BUILD_FILES = 2000
_BUILD_ENTRIES = 20_000
_DEPTH = 8
_PIECE_BYTES = 1 << 20
_SUFFIXES = {".so", ".o", ".ninja", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".d", ".gch"}
_NAMES = {".ninja_log", ".ninja_deps", RECORD}
_MANIFEST = "manifest.json"
_MANIFEST_BYTES = 4 << 20
_FILES = "files"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True)
class _Entry:
    parts: tuple[str, ...]
    sha256: str
    size: int
    mtime_ns: int
    """Ninja compares times."""


def default_root() -> Path:
    """Return the folder of this user's builds."""
    return choose_cache("builds")


def make_folders(root: Path) -> None:
    """Make the folders of kept builds and of builds in use, closed to other users."""
    for name in ("kept", "live"):
        (root / name).mkdir(parents=True, exist_ok=True, mode=0o700)


class Builds:
    """Kept builds of one toolchain, named by any text for compilers, torch and architecture."""

    def __init__(self, root: Path, toolchain: str) -> None:
        self.root = root
        self._toolchain = toolchain
        make_folders(root)

    def key(self, files: Mapping[str, str], task: str, axes: str) -> str:
        """Return the sha256 over a kernel's files, the task's text and axes, and the toolchain.

        `axes` is the workload's JSON object; the order of its keys does not matter.
        """
        axes = json.dumps(json.loads(axes), sort_keys=True)
        digest = hashlib.sha256()
        texts = [text for name in sorted(files) for text in (name, files[name])]
        for part in (self._toolchain, task, axes, *texts):
            raw = part.encode("utf-8", "surrogateescape")
            digest.update(len(raw).to_bytes(8, "big") + raw)
        return digest.hexdigest()

    def claim(self, files: Mapping[str, str], task: str, axes: str) -> Build:
        """Lock the build directory of a kernel at a task, filled with its kept build.

        If another process holds it, return an empty directory of its own. Raises SandboxFailed
        where no directory can be made.
        """
        key = self.key(files, task, axes)
        try:
            with _open_folder(self.root / "live") as live:
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                lock = os.open(f"{key}.lock", flags, 0o600, dir_fd=live)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    os.close(lock)
                    return Build(self._make_folder(live, f"tmp{secrets.token_hex(8)}"), None, None)
                try:
                    folder, hit = self._fill(live, key)
                except OSError:
                    os.close(lock)
                    raise
                return Build(folder, self.root / "kept" / key, lock, hit)
        except OSError as error:
            raise SandboxFailed(
                f"there is no folder to build in: {error}",
                f"Check the free space and permissions of {self.root}, or set FLYWHEEL_CACHE.",
            ) from error

    def trim(self, most_bytes: int = KEPT_BYTES) -> None:
        """Remove the least recently used builds until the rest is no larger than this."""
        found = [(entry.lstat().st_mtime, entry) for entry in (self.root / "kept").iterdir()]
        held = 0
        for _, folder in sorted(found, reverse=True):
            held += sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file())
            if held > most_bytes:
                remove_folder(folder)

    def _fill(self, live: int, key: str) -> tuple[OpenFolder, bool]:
        kept = self.root / "kept" / key
        remove_folder(self.root / "live" / key)  # left behind by a process that was killed
        folder = self._make_folder(live, key)
        if not kept.exists():
            return folder, False
        try:
            with _open_folder(kept) as top:
                with open(os.open(_MANIFEST, _READ, dir_fd=top), "rb") as file:
                    entries = [_Entry(**entry) for entry in json.loads(file.read(_MANIFEST_BYTES))]
                with _open_below(top, (_FILES,)) as files:
                    for entry in entries:
                        *below, name = entry.parts
                        with (
                            _open_below(files, tuple(below)) as source,
                            _open_below(folder.descriptor, tuple(below), make=True) as into,
                        ):
                            copied = _copy_file((*below, name), source, into, entry.size)
                        if copied.sha256 != entry.sha256:
                            raise _Unfit(f"{name!a} is not what was kept")
                os.utime(top)  # `trim` removes the oldest first
        except (OSError, ValueError, TypeError, RecursionError, _Unfit) as error:
            log.warning("the kept build %s is dropped: %s", key[:12], error)
            remove_folder(kept)
            os.close(folder.descriptor)
            remove_folder(folder.path)
            return self._make_folder(live, key), False
        return folder, True

    def _make_folder(self, live: int, name: str) -> OpenFolder:
        os.mkdir(name, 0o700, dir_fd=live)
        return OpenFolder(self.root / "live" / name, os.open(name, _FOLDER, dir_fd=live))


class Build:
    """One build directory in use; `keep` a good build, and `release` it in any case."""

    def __init__(
        self, folder: OpenFolder, kept: Path | None, lock: int | None, hit: bool = False
    ) -> None:
        self.folder = folder
        self.hit = hit
        """Whether it was filled with an earlier build."""
        self._kept = kept
        self._lock = lock
        self._is_released = False

    def keep(self) -> bool:
        """Publish the build in one step; returns whether there was one.

        Call it once no process of the candidate runs.
        """
        if self._kept is None or self.hit or self._kept.exists():
            return False
        made = self._kept.with_name(f"tmp{secrets.token_hex(8)}")
        try:
            (made / _FILES).mkdir(parents=True, mode=0o700)
            with _open_folder(made / _FILES) as target:
                entries = list(_publish(self.folder.descriptor, target))
            names = [entry.parts[-1] for entry in entries]
            if not any(name.endswith(".so") or name == RECORD for name in names):
                return False
            manifest = json.dumps([vars(entry) for entry in entries])
            (made / _MANIFEST).write_text(manifest, "utf-8")
            made.rename(self._kept)
        except (OSError, _Unfit) as error:
            log.debug("a build is not kept: %s", error)
            return False
        finally:
            remove_folder(made)
        return True

    def release(self) -> None:
        """Remove the directory and unlock its path; may be called again."""
        if self._is_released:
            return
        self._is_released = True
        os.close(self.folder.descriptor)
        remove_folder(self.folder.path)
        if self._lock is not None:
            os.close(self._lock)


class _Unfit(Exception):
    """A build that cannot be kept, or a kept build that has changed."""


@contextlib.contextmanager
def _open_folder(folder: Path) -> Generator[int]:
    fd = os.open(folder, _FOLDER)
    try:
        yield fd
    finally:
        os.close(fd)


@contextlib.contextmanager
def _open_below(top: int, parts: tuple[str, ...], *, make: bool = False) -> Generator[int]:
    """Open a folder below another name by name, without following links."""
    fd = os.dup(top)
    try:
        for part in parts:
            _check_name(part)
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=fd)
            inner = os.open(part, _FOLDER, dir_fd=fd)
            os.close(fd)
            fd = inner
        yield fd
    finally:
        os.close(fd)


def _publish(source: int, target: int) -> Iterator[_Entry]:
    """Copy the plain files of a build from one open folder into another.

    Raises _Unfit where they are too many, too large or too deep.
    """
    held = count = seen = 0
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        folder = waiting.pop()
        if len(folder) > _DEPTH:
            raise _Unfit("its folders are too deep")
        with _open_below(source, folder) as fd:
            for name in sorted(os.listdir(fd)):
                seen += 1
                known = os.stat(name, dir_fd=fd, follow_symlinks=False)
                if stat.S_ISDIR(known.st_mode):
                    waiting.append((*folder, name))
                elif stat.S_ISREG(known.st_mode) and (
                    name in _NAMES or Path(name).suffix in _SUFFIXES
                ):
                    count += 1
                    with _open_below(target, folder, make=True) as into:
                        entry = _copy_file((*folder, name), fd, into, BUILD_LIMIT_BYTES - held)
                    held += entry.size
                    yield entry
                if count > _BUILD_FILES or seen > _BUILD_ENTRIES:
                    raise _Unfit("it has too many files")


def _check_name(name: str) -> None:
    if name in ("", ".", "..") or "/" in name:
        raise _Unfit(f"{name!a} is no name of a file")


def _copy_file(parts: tuple[str, ...], source: int, target: int, most_bytes: int) -> _Entry:
    name = parts[-1]
    _check_name(name)
    with open(os.open(name, _READ, dir_fd=source), "rb") as reader:
        known = os.fstat(reader.fileno())
        if not stat.S_ISREG(known.st_mode):
            raise _Unfit(f"{name!a} is no plain file")
        mode = 0o700 if name.endswith(".so") else 0o600
        digest, size = hashlib.sha256(), 0
        with open(os.open(name, _NEW, mode, dir_fd=target), "wb") as sink:
            while piece := reader.read(_PIECE_BYTES):
                size += len(piece)
                if size > most_bytes:
                    raise _Unfit("it is too large")
                digest.update(piece)
                sink.write(piece)
            sink.flush()
            times = (known.st_atime_ns, known.st_mtime_ns)
            os.utime(sink.fileno(), ns=times)
    return _Entry(parts, digest.hexdigest(), size, known.st_mtime_ns)
