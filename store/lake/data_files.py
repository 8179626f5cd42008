"""The Parquet files of a lake: in a folder, or under a prefix of a bucket with S3's protocol.

DuckLake writes and deletes the files. This module tells DuckDB how to reach them, and lists, hashes
and reads them for everything else. Files are named by their path from the folder or prefix.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import secrets
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from store import faults
from store.errors import LakeUnreachable
from store.lake.host import rename_durably, sync
from store.schema.sql_text import quote_values

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
        self, connection: duckdb.DuckDBPyConnection, since_s: float, tables: Collection[str]
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

    def hash(self, path: str) -> str:
        """Return the sha256 of a file's bytes. Raises OSError."""
        with self.filesystem.open_input_stream(path) as stream:
            # Arrow's streams lack what hashlib.file_digest asks for.
            digest = hashlib.sha256()
            while piece := stream.read(PIECE_BYTES):
                digest.update(piece)
        return digest.hexdigest()

    @abstractmethod
    def stamp(self, path: str) -> Stamp:
        """Return the stamp of a file. Raises FileNotFoundError, or another OSError."""

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
        return str(self.folder)

    @property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        from pyarrow import fs

        return fs.SubTreeFileSystem(str(self.folder), fs.LocalFileSystem())

    def create(self) -> None:
        with faults.at(self.folder, LakeUnreachable):
            self.folder.mkdir(parents=True, exist_ok=True)

    def authorize(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Do nothing: the user's rights are those of the process."""

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
        try:
            with other.filesystem.open_input_stream(path) as source, open(partial, "wb") as handle:
                while piece := source.read(PIECE_BYTES):
                    handle.write(piece)
            rename_durably(partial, target)
        finally:
            partial.unlink(missing_ok=True)

    def list_new(
        self, connection: duckdb.DuckDBPyConnection, since_s: float, tables: Collection[str]
    ) -> list[str]:
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
        files = [self.folder / path for path in paths]
        folders = [folder for file in files for folder in (file.parent, *file.parents[1:3])]
        # All at once, so that the file system writes its journal once instead of for each file.
        with ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(sync, dict.fromkeys([*files, *folders])))


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
    if "://" in url:
        return BucketFiles.parse(url)
    return FolderFiles(Path(url).expanduser().resolve())


def name_file(time_s: float) -> str:
    """Return how the name of a data file begins that is written at a time."""
    milliseconds = max(0, int((time_s - CLOCK_SLACK_S) * 1000))
    digits = f"{milliseconds:012x}"
    return f"ducklake-{digits[:8]}-{digits[8:]}"


_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9_.=/-]*")


@dataclass(frozen=True)
class BucketFiles(DataFiles):
    """Data files in a bucket. Credentials come from where the AWS tools look, and stay there.

    A file appears in a bucket when it is complete and durable, so nothing needs to be synced.
    """

    bucket: str
    prefix: str
    extensions = ("duckdb_extension_httpfs", "duckdb_extension_aws")

    @staticmethod
    def parse(url: str) -> BucketFiles:
        """Return the files at s3://BUCKET/PREFIX. Raises LakeUnreachable."""
        scheme, _, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        prefix = prefix.strip("/")
        parts = prefix.split("/")
        if scheme != "s3" or not _BUCKET.fullmatch(bucket) or not _PREFIX.fullmatch(prefix):
            raise LakeUnreachable(
                f'data files cannot be at "{url}"',
                "Give data= a folder that every host sees under the same path, or "
                "s3://BUCKET/PREFIX with letters, digits and . _ = - in the prefix.",
            )
        if not prefix or any(part in ("", ".", "..") for part in parts):
            raise LakeUnreachable(
                f'"{url}" is a whole bucket or no plain prefix',
                "Give every lake a prefix of its own, such as s3://BUCKET/lake.",
            )
        return BucketFiles(bucket, prefix)

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        from pyarrow import fs

        return fs.SubTreeFileSystem(f"{self.bucket}/{self.prefix}", self._store)

    @functools.cached_property
    def _store(self) -> pyarrow.fs.FileSystem:
        from pyarrow import fs

        given = {"endpoint_override": _read_endpoint(), "region": _read_region()}
        options: dict[str, Any] = {name: value for name, value in given.items() if value}
        return fs.S3FileSystem(**options)

    def create(self) -> None:
        from pyarrow import fs

        with faults.at(self.url, LakeUnreachable):
            is_there = self._store.get_file_info(self.bucket).type == fs.FileType.Directory
        if not is_there:
            raise LakeUnreachable(
                f"there is no bucket {self.bucket}, or these credentials cannot see it",
                "Create the bucket first, as with `aws s3 mb`, or correct data= in the URL.",
            )

    def authorize(self, connection: duckdb.DuckDBPyConnection) -> None:
        import duckdb

        # The extension copies credentials of the environment into settings, which any query could
        # read, and which would hold for every bucket.
        for name in ("s3_access_key_id", "s3_secret_access_key", "s3_session_token"):
            connection.execute(f"SET {name} = ''")
        # Secrets in the user's home folder might be for every bucket.
        nowhere = f"{tempfile.gettempdir()}/{secrets.token_hex(16)}"
        connection.execute(f"SET secret_directory = {quote_values((nowhere,))}")
        options = ["TYPE s3", "PROVIDER credential_chain", "REFRESH auto"]
        options.append(f"SCOPE {quote_values((f'{self.url}/',))}")
        region = _read_region()
        if region is not None:
            options.append(f"REGION {quote_values((region,))}")
        endpoint = _read_endpoint()
        if endpoint is not None:
            parts = urlsplit(endpoint)
            plain = "true" if parts.scheme == "https" else "false"
            options += [f"ENDPOINT {quote_values((parts.netloc,))}", f"USE_SSL {plain}"]
            options.append("URL_STYLE 'path'")
        try:
            connection.execute(f"CREATE OR REPLACE SECRET lake_data ({', '.join(options)})")
        except duckdb.Error as error:
            raise LakeUnreachable(
                f"no credentials for {self.url} were found", faults.FAULTS["bucket"][1]
            ) from error

    def stamp(self, path: str) -> Stamp:
        """Return the size of a file, and the time at which it was written."""
        found = self.filesystem.get_file_info(path)
        if not found.is_file:
            raise FileNotFoundError(path)
        return int(found.size), int(found.mtime_ns or 0)

    def copy_from(self, other: DataFiles, path: str) -> None:
        """Copy a file of another lake here; what an interruption leaves has another size."""
        with (
            other.filesystem.open_input_stream(path) as source,
            self.filesystem.open_output_stream(path) as target,
        ):
            while piece := source.read(PIECE_BYTES):
                target.write(piece)

    def list_new(
        self, connection: duckdb.DuckDBPyConnection, since_s: float, tables: Collection[str]
    ) -> list[str]:
        oldest = name_file(since_s)
        # Listing by what the names of old and future files have in common takes one request for
        # each table, however many files it has. (In a folder, DuckDB's glob takes 18 times as long
        # as `scandir`.)
        common, newest = oldest, name_file(time.time() + 2 * CLOCK_SLACK_S)
        while not newest.startswith(common):
            common = common[:-1]
        listed = " UNION ALL ".join(
            f"SELECT file FROM glob({quote_values((self.locate(f'main/{table}/{common}*'),))})"
            for table in sorted(tables)
        )
        if not listed:
            return []
        rows = connection.execute(listed).fetchall()
        paths = [str(row[0]).removeprefix(f"{self.url}/") for row in rows]
        return [path for path in paths if path.rpartition("/")[2] >= oldest]

    def sync(self, paths: Collection[str]) -> None:
        """Do nothing: what is in a bucket is durable."""


def _read_endpoint() -> str | None:
    """Return the URL of the S3 server, or None for that of AWS."""
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if not endpoint:
        return None
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise LakeUnreachable(
            "AWS_ENDPOINT_URL is no URL such as https://minio.example:9000",
            "Correct it, or unset it for Amazon S3. It contains no credentials.",
        )
    return endpoint.rstrip("/")


def _read_region() -> str | None:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
