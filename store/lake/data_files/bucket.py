"""The data files of a lake under a prefix of a bucket, on any server with S3's protocol."""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import re
import secrets
import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from store import faults
from store.errors import LakeUnreachable
from store.lake.data_files.files import CLOCK_SLACK_S, PIECE_BYTES, DataFiles, Stamp, name_file
from store.schema.sql_text import quote_values

if TYPE_CHECKING:
    import duckdb
    import pyarrow.fs

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
        """The prefix as s3://BUCKET/PREFIX."""
        return f"s3://{self.bucket}/{self.prefix}"

    @property
    def filesystem(self) -> pyarrow.fs.FileSystem:
        """Arrow's file system of the prefix."""
        from pyarrow import fs

        return fs.SubTreeFileSystem(f"{self.bucket}/{self.prefix}", self._store)

    @functools.cached_property
    def _store(self) -> pyarrow.fs.FileSystem:
        from pyarrow import fs

        given = {"endpoint_override": _read_endpoint(), "region": _read_region()}
        options: dict[str, Any] = {name: value for name, value in given.items() if value}
        return fs.S3FileSystem(**options)

    def create(self) -> None:
        """Test that the bucket is there."""
        from pyarrow import fs

        with faults.at(self.url, LakeUnreachable):
            is_there = self._store.get_file_info(self.bucket).type == fs.FileType.Directory
        if not is_there:
            raise LakeUnreachable(
                f"there is no bucket {self.bucket}, or these credentials cannot see it",
                "Create the bucket first, as with `aws s3 mb`, or correct data= in the URL.",
            )

    def authorize(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Give the connection a secret for this prefix only, which it can use and not show."""
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

    def hash(self, path: str) -> str:
        """Return the sha256 of a file's bytes."""
        with self.filesystem.open_input_stream(path) as stream:
            # Arrow's streams lack what hashlib.file_digest asks for.
            digest = hashlib.sha256()
            while piece := stream.read(PIECE_BYTES):
                digest.update(piece)
        return digest.hexdigest()

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
        self,
        connection: duckdb.DuckDBPyConnection,
        since_s: float,
        tables: Collection[str],
    ) -> list[str]:
        """Return the paths of new files."""
        oldest = name_file(since_s)
        # Listing by what the names of old and future files have in common takes one request for
        # each table, however many files it has.
        newest = name_file(time.time() + 2 * CLOCK_SLACK_S)
        same = itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(oldest, newest, strict=True)
        )
        common = "".join(letter for letter, _ in same)
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
