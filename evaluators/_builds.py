"""Compiled extensions kept by what they were made from, so that no kernel is compiled twice.

A build directory has a path that depends on its key alone, since ninja and the compilers remember
paths: what one process built there, another finds up to date. One process holds a directory at a
time, by a lock of the operating system that ends with the process. What is kept was written by
hostile code: only plain files that a build leaves are copied, never followed links, and they are
handed to nobody but the same bytes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from evaluators._extensions import RECORD
from evaluators._sandbox import remove

KEPT_BYTES = 10 << 30
"""Size above which the oldest builds are dropped."""
_BUILD_BYTES = 512 << 20
_BUILD_FILES = 2000
_SUFFIXES = {".so", ".o", ".ninja", ".cpp", ".cu", ".cuh", ".h", ".hpp", ".d", ".gch"}
_NAMES = {".ninja_log", ".ninja_deps", RECORD}


def default_root() -> Path:
    """Return the folder of this user's builds: FLYWHEEL_CACHE, or the usual place of caches."""
    given = os.environ.get("FLYWHEEL_CACHE")
    if given:
        return Path(given).absolute() / "builds"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "flywheel" / "builds"


def prepare(root: Path) -> None:
    """Make the folders of kept builds and of those at work."""
    for name in ("kept", "live"):
        (root / name).mkdir(parents=True, exist_ok=True, mode=0o700)


class Builds:
    """Kept builds of one toolchain: any text that tells compilers, torch and architecture.

    A process that runs foreign text itself, as a judge does with a task's, can read what is kept
    for all and not write there: what it compiles it keeps in the folder `own`, for itself.
    """

    def __init__(self, root: Path, toolchain: str, own: Path | None = None) -> None:
        self._root = root
        self._toolchain = toolchain
        self._own = own if own is not None else root / "kept"
        prepare(root)
        self._own.mkdir(exist_ok=True, mode=0o700)

    def key(self, files: Mapping[str, str]) -> str:
        """Return the sha256 over the candidate's files and the toolchain."""
        digest = hashlib.sha256(self._toolchain.encode())
        for name, text in sorted(files.items()):
            for part in (name, text):
                raw = part.encode("utf-8", "surrogateescape")
                digest.update(len(raw).to_bytes(8, "big") + raw)
        return digest.hexdigest()

    def claim(self, files: Mapping[str, str]) -> Build:
        """Take the build directory of a candidate, filled with what is kept of it.

        Where another process holds it, the directory is an empty one of its own.
        """
        key = self.key(files)
        lock = os.open(self._root / "live" / f"{key}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            return Build(Path(tempfile.mkdtemp(dir=self._root / "live")), None, None)
        path = self._root / "live" / key
        remove(path)  # left behind by a process that was killed
        folders = (self._root / "kept" / key, self._own / key)
        kept = next((folder for folder in folders if folder.is_dir()), None)
        if kept is not None:
            # The same times: ninja compares them.
            with contextlib.suppress(OSError):
                shutil.copytree(kept, path)
                os.utime(kept)
        path.mkdir(exist_ok=True)
        return Build(path, self._own / key, lock, hit=kept is not None)

    def trim(self, most_bytes: int = KEPT_BYTES) -> None:
        """Drop the builds that were used longest ago, until the rest is no larger than this."""
        found = [(entry.stat().st_mtime, entry) for entry in (self._root / "kept").iterdir()]
        held = 0
        for _, folder in sorted(found, reverse=True):
            held += sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            if held > most_bytes:
                remove(folder)


class Build:
    """One build directory in use; `keep` it where the build is good, `release` it in any case."""

    def __init__(self, path: Path, kept: Path | None, lock: int | None, hit: bool = False) -> None:
        self.path = path
        self.hit = hit
        """Whether it was filled with an earlier build."""
        self._kept = kept
        self._lock = lock

    def keep(self) -> bool:
        """Publish what was built, in one step; returns whether anything was.

        Called when nothing of the candidate runs any more.
        """
        if self._kept is None or self.hit or self._kept.exists():
            return False
        files = list(_built(self.path))
        if not any(file.suffix == ".so" or file.name == RECORD for file in files):
            return False
        made = Path(tempfile.mkdtemp(dir=self._kept.parent))
        try:
            for file in files:
                target = made / file.relative_to(self.path)
                target.parent.mkdir(parents=True, exist_ok=True)
                _copied(file, target)
            made.rename(self._kept)
        except OSError:
            remove(made)
            return False
        return True

    def release(self) -> None:
        """Remove the directory and let others have its path."""
        remove(self.path)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _built(folder: Path) -> Iterator[Path]:
    """Yield the plain files that a build leaves; nothing where there are too many or too much."""
    held = count = 0
    found: list[Path] = []
    for root, _, names in os.walk(folder):
        for name in names:
            file = Path(root) / name
            known = os.lstat(file)
            if not stat.S_ISREG(known.st_mode):
                continue
            if file.suffix not in _SUFFIXES and name not in _NAMES:
                continue
            held += known.st_size
            count += 1
            if held > _BUILD_BYTES or count > _BUILD_FILES:
                return
            found.append(file)
    yield from found


def _copied(source: Path, target: Path) -> None:
    """Copy one file with its times, never through a link."""
    fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
    with open(fd, "rb") as reader, target.open("wb") as sink:
        shutil.copyfileobj(reader, sink)
        known = os.fstat(fd)
    target.chmod(0o700 if source.suffix == ".so" else 0o600)
    os.utime(target, ns=(known.st_atime_ns, known.st_mtime_ns))
