"""The Parquet files of a lake: in a folder, or under a prefix of a bucket with S3's protocol.

DuckLake writes and deletes the files. This module tells DuckDB how to reach them, and lists, hashes
and reads them for everything else. Files are named by their path from the folder or prefix.
"""

from __future__ import annotations

import hashlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from store import faults
from store.errors import LakeUnreachable

if TYPE_CHECKING:
    import duckdb
    import pyarrow.fs

CLOCK_SLACK_S = 1.0
PIECE_BYTES = 1 << 20
Stamp = tuple[int, ...]
"""The size of a file in bytes, and what differs once somebody has written or replaced it."""
_THREADS = 16


class DataFiles(ABC):
    """The data files of a lake."""

    extensions: tuple[str, ...]
    """Packages of the DuckDB extensions that reach them."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The folder, or s3://BUCKET/PREFIX; what DuckLake calls the data path."""

    @property
    @abstractmethod
    def filesystem(self) -> pyarrow.fs.FileSystem:
        """Arrow's file system, whose root is the folder or prefix."""

    @abstractmethod
    def create(self) -> None:
        """Make the folder, or test that the bucket is there. Raises LakeUnreachable."""

    @abstractmethod
    def authorize(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Let a connection read and write the files, and nothing else with the same rights."""

    @abstractmethod
    def list_new(
        self,
        connection: duckdb.DuckDBPyConnection,
        since_s: float,
        tables: Collection[str],
    ) -> list[str]:
        """Return the paths of files of these tables that were written since a time.

        The names of files contain their time (UUIDv7) by the clock of the host that wrote them. The
        answer may contain some that were written shortly before.
        """

    @abstractmethod
    def sync(self, paths: Collection[str]) -> None:
        """Make files durable; call it before the commit that names them."""

    def locate(self, path: str) -> str:
        """Return the name by which DuckDB reads a file."""
        return f"{self.url}/{path}"

    @abstractmethod
    def hash(self, path: str) -> str:
        """Return the sha256 of a file's bytes. Raises OSError."""

    @abstractmethod
    def stamp(self, path: str) -> Stamp:
        """Return the stamp of a file. Raises FileNotFoundError, or another OSError."""

    def measure(self, path: str) -> int:
        """Return the size of a file in bytes. Raises FileNotFoundError, or another OSError."""
        return self.stamp(path)[0]

    def read_text(self, path: str) -> str | None:
        """Return the text of a small file, or None where there is none. Raises OSError."""
        try:
            with self.filesystem.open_input_stream(path) as stream:
                return bytes(stream.read()).decode()
        except FileNotFoundError:
            return None

    def write_text(self, path: str, text: str) -> None:
        """Write a small file, or replace it. Raises LakeUnreachable."""
        with (
            faults.at(self.url, LakeUnreachable),
            self.filesystem.open_output_stream(path) as stream,
        ):
            stream.write(text.encode())

    @abstractmethod
    def copy_from(self, other: DataFiles, path: str) -> None:
        """Copy a file of another lake here, under the same path. Raises OSError."""

    def list_sizes(self) -> dict[str, int]:
        """Return the paths of all Parquet files, with their sizes in bytes. Raises OSError."""
        from pyarrow import fs

        selector = fs.FileSelector("", recursive=True, allow_not_found=True)
        return {
            one.path: int(one.size or 0)
            for one in self.filesystem.get_file_info(selector)
            if one.is_file and one.path.endswith(".parquet")
        }


@dataclass(frozen=True)
class FolderFiles(DataFiles):
    """Data files in a folder of the host, or of a file system that all hosts share."""

    folder: Path
    extensions = ()

    @property
    def url(self) -> str:
        """The folder."""
        return str(self.folder)

    @property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        """Arrow's file system of the folder."""
        from pyarrow import fs

        return fs.SubTreeFileSystem(str(self.folder), fs.LocalFileSystem())

    def create(self) -> None:
        """Make the folder."""
        with faults.at(self.folder, LakeUnreachable):
            self.folder.mkdir(parents=True, exist_ok=True)

    def authorize(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Do nothing: the user's rights are those of the process."""

    def hash(self, path: str) -> str:
        """Return the sha256 of a file's bytes."""
        with open(self.folder / path, "rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()

    def stamp(self, path: str) -> Stamp:
        """Return the size of a file, the times of its last changes, and its inode."""
        found = (self.folder / path).stat()
        # A program can set st_mtime back after a change, and not st_ctime.
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino

    def copy_from(self, other: DataFiles, path: str) -> None:
        """Copy a file of another lake here, and force it to disk before it has its name."""
        target = self.folder / path
        partial = target.with_suffix(".partial")
        target.parent.mkdir(parents=True, exist_ok=True)
        with other.filesystem.open_input_stream(path) as source, open(partial, "wb") as handle:
            while piece := source.read(PIECE_BYTES):
                handle.write(piece)
            handle.flush()
            os.fsync(handle.fileno())
        partial.replace(target)
        _sync(str(target.parent))

    def list_new(
        self,
        connection: duckdb.DuckDBPyConnection,
        since_s: float,
        tables: Collection[str],
    ) -> list[str]:
        """Return the paths of new files."""
        oldest = name_file(since_s)
        found: list[str] = []
        for table in tables:
            with (
                suppress(FileNotFoundError, NotADirectoryError),
                os.scandir(self.folder / "main" / table) as entries,
            ):
                found += [
                    f"main/{table}/{entry.name}"
                    for entry in entries
                    if entry.name >= oldest and entry.name.endswith(".parquet")
                ]
        return found

    def sync(self, paths: Collection[str]) -> None:
        """Force files, and the folders that name them, to disk; DuckDB leaves it to the system."""
        files = [self.folder / path for path in paths]
        folders = [folder for file in files for folder in (file.parent, *file.parents[1:3])]
        # All at once, so that the file system writes its journal once instead of for each file.
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(_sync, dict.fromkeys(map(str, [*files, *folders]))))


class NewFiles:
    """The data files that a transaction writes; make one under the lake's lock before it begins."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, files: DataFiles, tables: Collection[str]
    ) -> None:
        self._connection = connection
        self._files = files
        self._tables = tables
        self._began_s = time.time()
        # Those of a commit a moment ago, and those that a killed writer left.
        self._before = self._list()

    def sync(self) -> list[str]:
        """Make the files durable, before the commit that names them; return their paths."""
        written = sorted(self._list() - self._before)
        self._files.sync(written)
        return written

    def _list(self) -> set[str]:
        return set(self._files.list_new(self._connection, self._began_s, self._tables))


def open_data_files(url: str) -> DataFiles:
    """Return the data files at a folder or s3:// URL. Raises LakeUnreachable."""
    from store.lake.data_files.bucket import BucketFiles

    if "://" in url:
        return BucketFiles.parse(url)
    return FolderFiles(Path(url).expanduser().resolve())


def name_file(time_s: float) -> str:
    """Return how the name of a data file begins that is written at a time."""
    milliseconds = max(0, int((time_s - CLOCK_SLACK_S) * 1000))
    digits = f"{milliseconds:012x}"
    return f"ducklake-{digits[:8]}-{digits[8:]}"


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
