"""A folder of cache files that several processes read and replace."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from pathlib import Path


class CacheFolder:
    """Locks files while they are read, and replaces files that nobody reads.

    Args:
        folder: Where the files are; made when the first one is written.
        is_readable: Tells whether a file is whole.
    """

    def __init__(self, folder: Path, is_readable: Callable[[Path], bool]) -> None:
        self.folder = folder
        self._is_readable = is_readable
        self._locked: dict[Path, int] = {}

    def close(self) -> None:
        """Release the files in use."""
        for file in list(self._locked):
            os.close(self._locked.pop(file))

    def lock(self, file: Path) -> bool:
        """Lock a file against removal; return whether it exists and is readable."""
        if file in self._locked:
            return True
        try:
            descriptor = os.open(file, os.O_RDONLY)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink == 0 or not self._is_readable(file):
                raise FileNotFoundError(file)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError):
                return False
            raise
        self._locked[file] = descriptor
        return True

    def replace(
        self,
        pattern: str,
        name: str,
        write: Callable[[Path], None],
        keep: Collection[Path] = (),
    ) -> Path | None:
        """Write and lock a file, and remove the other files of a pattern, except those to keep.

        `write` writes to the path that it gets. Returns None if the file is not readable then.
        Raises OSError where the folder cannot be written to or another process is writing.
        """
        file = self.folder / name
        partial = file.with_suffix(".partial")
        with _lock_folder(self.folder):
            if not self.lock(file):  # which another process has made in the meantime
                try:
                    write(partial)
                except BaseException:
                    partial.unlink(missing_ok=True)
                    raise
                _sync(partial)
                partial.rename(file)
                _sync(self.folder)
                if not self.lock(file):
                    return None
            for other in self.folder.glob(pattern):
                if other != file and other not in keep:
                    if other in self._locked:
                        os.close(self._locked.pop(other))
                    _remove(other)
        return file

    @contextmanager
    def make_scratch(self) -> Generator[Path]:
        """Make a folder for temporary files, and remove it at the end.

        The next process that writes a file removes the folder of a process that was killed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=self.folder))
        descriptor = os.open(made, os.O_RDONLY)
        scratch = made.with_name(f"{made.name}.partial")
        try:
            # Locked before it has a name under which others would remove it.
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            made.rename(scratch)
            yield scratch
        finally:
            os.close(descriptor)
            shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _lock_folder(folder: Path) -> Generator[None]:
    """Hold the lock for writing and removing files; raise OSError if another process has it."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for partial in folder.glob("*.partial"):
            _remove(partial)  # of a process that was killed
        yield
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    """Remove a file or folder unless it is in use."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    except BlockingIOError:
        return
    finally:
        os.close(descriptor)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
