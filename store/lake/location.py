"""The location of a lake: where its parts are, how to attach it, and the lock for writing.

A lake is in a local folder, or its catalog is on a PostgreSQL server, for many hosts. Then its data
files are in a folder that all hosts see, or in a bucket (`store.lake.data_files`).
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import logging
import os
import re
import secrets
import shlex
import shutil
import struct
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from io import FileIO
from itertools import chain
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, ClassVar, LiteralString, TypeAlias, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from store import faults
from store.commandline.escape import escape_terminal, quote_name
from store.errors import FlywheelError, LakeNotFound, LakeUnreachable, summarize_error
from store.lake.data_files import DataFiles, FolderFiles, open_data_files
from store.lake.host import (
    choose_scratch,
    choose_state,
    name_holder,
    rename_durably,
    require_local,
    take_lock,
    write_durably,
)
from store.lake.sql_files import read_sql

if TYPE_CHECKING:
    import psycopg

    Session = psycopg.Connection[tuple[Any, ...]]


class FolderLeases(AbstractContextManager["FolderLeases"]):
    """Names that this process holds and no other process of this host does.

    A lease ends when it is released or when its holder ends, even if it is killed. It says who
    works on something; it does not keep anyone from writing. Each is a lock of one byte of a file,
    which stays empty. The kernel gives the locks to the open file, not to the process.
    """

    def __init__(self, file: Path) -> None:
        """Open the file. Raises LakeUnreachable."""
        with faults.at(file, LakeUnreachable):
            self._file = FileIO(file, "a")
        _open_leases.add(self)

    def take(self, names: Sequence[str]) -> set[str]:
        """Return those of the names that are held here now; the others are held elsewhere."""
        held: set[str] = set()
        for name in names:
            with suppress(BlockingIOError):
                _ask_kernel(self._file, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, name)
                held.add(name)
        return held

    def release(self, names: Iterable[str]) -> None:
        """Let other processes take these names."""
        for name in names:
            _ask_kernel(self._file, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, name)

    def close(self) -> None:
        """Release every name."""
        self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _ask_kernel(file: FileIO, question: int, lock: int, name: str) -> int:
    """Lock, unlock or test the byte of a name; return the lock in the answer."""
    flock = "@hhqqi"  # of Linux: type, whence, start, length, process
    asked = struct.pack(flock, lock, os.SEEK_SET, hash_name(name), 1, 0)
    return int(struct.unpack(flock, fcntl.fcntl(file, question, asked))[0])


def _close_leases() -> None:
    """Begin a fork without its parent's leases, which it would hold as long as it lives."""
    for leases in _open_leases:
        leases.close()


_open_leases: weakref.WeakSet[FolderLeases] = weakref.WeakSet()
os.register_at_fork(after_in_child=_close_leases)


def hash_name(name: str) -> int:
    """Return a number below 2^62 for a name: a byte of a file, or a key of an advisory lock."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 2


class ServerLeases(AbstractContextManager["ServerLeases"]):
    """Leases like `FolderLeases` among all hosts: advisory locks of a session of the server."""

    def __init__(self, session: psycopg.Connection[tuple[Any, ...]], schema: str) -> None:
        """Take over an open session."""
        self._session = session
        self._schema = schema
        self._held: set[str] = set()

    def take(self, names: Sequence[str]) -> set[str]:
        """Return those of the names that are held here now. Raises LakeUnreachable."""
        import psycopg

        wanted = {hash_name(f"{self._schema} {name}"): name for name in names}
        asked = [key for key, name in wanted.items() if name not in self._held]
        try:
            rows = self._session.execute(
                "SELECT key FROM unnest(%s::bigint[]) AS asked (key) "
                "WHERE pg_try_advisory_lock(key)",
                [asked],
            ).fetchall()
        except psycopg.Error as error:
            raise LakeUnreachable(
                f"the leases of this run are lost: {summarize_error(error)}",
                "Run this again; what was stored is kept.",
            ) from error
        self._held |= {wanted[key] for (key,) in rows}
        return self._held.intersection(names)

    def release(self, names: Iterable[str]) -> None:
        import psycopg

        gone = self._held.intersection(names)
        self._held -= gone
        keys = [hash_name(f"{self._schema} {name}") for name in gone]
        with suppress(psycopg.Error):
            self._session.execute(
                "SELECT pg_advisory_unlock(key) FROM unnest(%s::bigint[]) AS held (key)", [keys]
            )

    def close(self) -> None:
        self._session.close()

    def __exit__(self, *_: object) -> None:
        self.close()


Leases: TypeAlias = FolderLeases | ServerLeases


log = logging.getLogger(__name__)
DEFAULT_LAKE = "./lake"
LOCK_WAIT_MS = 30_000
EDITION_MANIFEST = "flywheel.json"
"""File that a published edition has, and no other lake."""
SALT = "publish.salt"
SALT_BYTES = 32
_READERS = "readers"
"""File of a lake that queries lock, and that its writers make."""
WAIT_S = 10.0
"""Seconds that a commit which moves inlined rows waits for queries."""
_POLL_S = 0.02
_LEASES = "leases"
_MOVE = "move.json"
_OWN_FILES = re.compile(
    r"(catalog\.(sqlite|new|damaged|partial)|(keys|service)\.sqlite)(-\w+)?|(service\.)?lock|readers"
    r"|leases|data|spool|derived|(move\.json|checked\.json|publish\.salt(\.\w+)?)(\.partial)?"
)
"""Names in the folder of a lake that has no catalog yet, or has lost it."""
_SHARED_BYTES = 1 << 16
"""Room that SQLite needs for the file that all who have a catalog open share."""
MARKER = "flywheel.lake"
"""File among the data files that names the lake they belong to."""
METADATA = "__ducklake_metadata_lake"
"""What DuckDB calls the catalog database of the lake attached as `lake`."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """What the two places of a lake that is moved record until the old one is deleted."""

    lake_id: str
    url: str
    """The other place."""
    is_away: bool
    """Whether the lake is at the other place; otherwise it is on its way from there."""


class Location(ABC):
    """Where a lake is: its catalog, its data files, and what this host keeps for it."""

    root: Path
    """This host's folder of the lake: spool, key index, kept answers."""
    extensions: tuple[str, ...]
    """Packages of the DuckDB extensions that open it."""
    metadata_schema: str | None = None
    """Schema of DuckLake's own tables; None where the catalog has no schemas."""
    sees_every_host: ClassVar[bool] = False
    """Whether `find_held` sees the leases of all hosts that use the lake."""

    @staticmethod
    def of(url: str | None) -> Location:
        """Resolve a URL; None means FLYWHEEL_LAKE, else ./lake.

        A path or a file:// URL names a folder, a postgresql:// URL a catalog on a server. Other
        schemes raise LakeUnreachable.
        """
        # An empty FLYWHEEL_LAKE counts as unset; commands pass its text on as an option's.
        if url == "" and os.environ.get("FLYWHEEL_LAKE") != "":
            raise LakeUnreachable(
                "the name of the lake is empty",
                f"Name a folder or a URL, or leave it out for FLYWHEEL_LAKE, else {DEFAULT_LAKE}.",
            )
        text = url or os.environ.get("FLYWHEEL_LAKE") or DEFAULT_LAKE
        scheme, separator, rest = text.partition("://")
        if separator and scheme in ("postgresql", "postgres"):
            return ServerLocation.parse(text)
        if separator and scheme != "file":
            raise LakeUnreachable(
                f'cannot open a lake at "{text}": neither a folder nor postgresql://',
                "Give a path such as ./lake, file:///data/lake, or postgresql://HOST/DATABASE.",
            )
        try:
            return FolderLocation(Path(rest if separator else text).expanduser().resolve())
        except RuntimeError as error:  # a circle of symbolic links, or a user without a home
            raise LakeUnreachable(
                f'cannot open a lake at "{text}": {error}', "Name another folder."
            ) from error

    @property
    @abstractmethod
    def url(self) -> str:
        """The lake's URL, without a secret."""

    @property
    @abstractmethod
    def files(self) -> DataFiles:
        """The Parquet files. Raises LakeUnreachable where their place is unknown."""

    @property
    def catalog_name(self) -> str:
        """The catalog in messages."""
        return self.url

    @property
    @abstractmethod
    def exists(self) -> bool:
        """Whether a lake exists here."""

    @property
    def is_edition(self) -> bool:
        """Whether this is a published edition: a folder with a manifest and a read-only catalog."""
        return False

    @abstractmethod
    def build_attachment(self, *, writable: bool) -> tuple[str, list[str]]:
        """Return what DuckDB's ATTACH names, and its options."""

    @abstractmethod
    def make_catalog(self) -> AbstractContextManager[Location]:
        """Yield the location at which to make the catalog of a new lake; call it under the lock.

        The catalog must be complete and closed at the end. Until then no lake exists here, and what
        a killed process leaves of the catalog never becomes one.
        """

    @abstractmethod
    def prepare(self) -> None:
        """Make the place of the data files, or test it; call it under the lock before writing.

        Raises LakeUnreachable if it cannot be used, or another lake uses it.
        """

    @abstractmethod
    def read_salt(self) -> bytes:
        """Return the secret under which editions hash names; the first call makes it.

        It belongs to the lake and is never published. Raises FlywheelError if it cannot be read.
        """

    @abstractmethod
    def write_salt(self, salt: bytes) -> None:
        """Give a new lake the salt of the lake that is moved here; call it under the lock."""

    @abstractmethod
    def lock(
        self, author: str = "a program", *, moving: bool = False
    ) -> AbstractContextManager[None]:
        """Hold the one lock that commits, migrations and maintenance take; waits for it.

        Programs that wait are told the author. The lock is released when the process ends, even if
        it is killed. Raises LakeUnreachable if the lake cannot be written to, or, unless `moving`,
        the lake is elsewhere.
        """

    @abstractmethod
    def read_move(self) -> Move | None:
        """Return where the lake was moved, or from where it is being moved here."""

    @property
    @abstractmethod
    def how_to_return(self) -> str:
        """How to use the lake here again after a move that was given up, in the imperative."""

    @abstractmethod
    def write_move(self, move: Move | None) -> None:
        """Record a move durably, or forget it; call it under the lock."""

    def keep_open(self) -> AbstractContextManager[None]:
        """Keep what `lock` connects to open between the locks within."""
        return nullcontext()

    # DuckLake plans the files of a table and reads its inlined rows in two steps. With a SQLite
    # catalog, each step sees the newest state of the catalog, so that rows which move between the
    # two would be in neither. PostgreSQL gives both steps the same state.

    def hold_inlined_rows(self) -> AbstractContextManager[None]:
        """Keep compaction from moving inlined rows into files; any number of queries may."""
        return nullcontext()

    def wait_for_queries(self) -> AbstractContextManager[bool]:
        """Wait until no query holds inlined rows; yield whether none does, and let none begin."""
        return nullcontext(True)

    def holds_lock(self) -> bool:
        """Whether this process still has the lock that it took; a server may end a session."""
        return True

    @abstractmethod
    def open_leases(self) -> Leases:
        """Return leases among the processes of all hosts that use the lake.

        Raises LakeUnreachable.
        """

    @abstractmethod
    def find_held(self, names: Sequence[str]) -> set[str]:
        """Return the names that some process has leased, this one included.

        Leases of a folder are seen on their own host only. Raises LakeUnreachable.
        """

    @property
    def spool(self) -> Path:
        """The folder in which bundles of this host wait for the committer."""
        return self.root / "spool"

    @property
    def derived(self) -> Path:
        """Folder of kept answers (`store.lake.view_cache`); may be deleted at any time."""
        return self.root / "derived"

    @property
    def key_index(self) -> Path:
        """File of the key index (`store.writing.key_index`); may be deleted at any time."""
        return self.root / "keys.sqlite"

    def require(self) -> None:
        """Raise LakeNotFound unless a lake is here, and LakeUnreachable if it is being moved."""
        self.refuse_move(self.read_move())
        if not self.exists:
            raise self.describe_absence()

    def describe_absence(self) -> FlywheelError:
        """Return the error of a place where no lake exists."""
        return LakeNotFound(
            f"no lake at {self.url}",
            "Make one with `store import starter` (15 tasks with 101 kernels) or `store init` "
            "(empty), or name another with --lake or FLYWHEEL_LAKE.",
        )

    def refuse_move(self, move: Move | None) -> None:
        """Raise LakeUnreachable if the lake was moved, or a move to here is not complete."""
        if move is None:
            return
        if move.is_away:
            raise LakeUnreachable(
                f"the lake at {self.url} was moved to {move.url}",
                "Use that URL. If bundles still wait in a spool of this host, run "
                f"`store move {shlex.quote(self.url)} {shlex.quote(move.url)}` here, which commits "
                "them there. "
                f"If you have given up the move, {self.how_to_return}.",
            )
        raise LakeUnreachable(
            f"the lake at {self.url} is incomplete: it is being moved from {move.url}",
            "If the move was interrupted, continue it with "
            f"`store move {shlex.quote(move.url)} {shlex.quote(self.url)}`, or give it up: empty "
            f"{self.url}, and use the lake where it was.",
        )

    def announce_lake(self) -> None:
        """Log that a command will make a lake here, unless there is one; call it first.

        Raises LakeUnreachable if no lake can be made here.
        """
        if not self.exists:
            self.require_own_folder()
            log.info("making a new lake at %s", self.url)

    def require_own_folder(self) -> None:  # noqa: B027
        """Raise LakeUnreachable if a lake made here would be among files of somebody else."""

    def require_writable(self) -> None:
        """Raise LakeUnreachable if this is a published edition, which is read-only."""
        if self.is_edition:
            raise LakeUnreachable(
                f"{self.url} is a published edition: a read-only copy of one snapshot",
                "You can query, report and export it with --lake. To check, change or extend its "
                "rows, merge it into a lake of your own: `store pull ORG/NAME`.",
            )

    def qualify(self, sql: str) -> str:
        """Return SQL over DuckLake's own tables of the attached lake with their schema named."""
        if self.metadata_schema is None:
            return sql
        schema = self.metadata_schema.replace('"', '""')
        return sql.replace(f"{METADATA}.", f'{METADATA}."{schema}".')


@dataclass(frozen=True)
class FolderLocation(Location):
    """A lake in a local folder: SQLite catalog, Parquet data files, spool and lock."""

    root: Path
    catalog_file: str = "catalog.sqlite"
    extensions = ("duckdb_extension_ducklake", "duckdb_extension_sqlite_scanner")

    @property
    def url(self) -> str:
        return str(self.root)

    @property
    def catalog(self) -> Path:
        """The SQLite file in which DuckLake keeps snapshots and file lists."""
        return self.root / self.catalog_file

    @property
    def catalog_name(self) -> str:
        return str(self.catalog)

    @property
    def data(self) -> Path:
        """The folder of Parquet files."""
        return self.root / "data"

    @property
    def files(self) -> DataFiles:
        return FolderFiles(self.data)

    @property
    def exists(self) -> bool:
        """Whether a file has the name of the catalog, whatever it contains.

        Nothing is made in the place of a file that is empty, damaged or of another program.
        """
        return _is_there(self.catalog)

    @property
    def is_edition(self) -> bool:
        # This does not open the catalog: closing it would drop the locks that DuckDB's SQLite holds
        # on it in this process.
        return (self.root / EDITION_MANIFEST).is_file()

    def build_attachment(self, *, writable: bool) -> tuple[str, list[str]]:
        options = [f"META_BUSY_TIMEOUT {LOCK_WAIT_MS}"]
        if self.exists and not self.catalog.is_file():  # such as a pipe, which would never answer
            raise LakeUnreachable(
                f"{self.catalog} is not the catalog of a lake: it is no file",
                faults.NO_CATALOG,
            )
        if not writable:
            return f"sqlite:{self.find_readable_catalog()}", options
        return f"sqlite:{self.catalog}", [*options, "META_JOURNAL_MODE 'WAL'"]

    def find_readable_catalog(self) -> Path:
        """Return the file that SQLite can read the catalog from, a copy where it needs one.

        To read a catalog, SQLite uses a file beside it that all who have it open share, and makes
        this file unless a writer has. The copy is in a private folder of this process.
        """
        files = [self.root / f"{self.catalog_file}{suffix}" for suffix in ("", "-wal", "-shm")]
        if self.is_edition or files[2].exists():
            return self.catalog
        has_room = shutil.disk_usage(self.root).free >= _SHARED_BYTES
        if has_room and os.access(self.root, os.W_OK):
            return self.catalog
        while True:
            stamps = tuple((file, _stamp(file)) for file in files[:2])
            copy = _copy_files(os.getpid(), stamps)
            if all(_stamp(file) == stamp for file, stamp in stamps):
                return copy / self.catalog_file

    def describe_absence(self) -> FlywheelError:
        files = sum(1 for _ in self.data.glob("**/*.parquet"))
        others = (self.root / f"{self.catalog_file}-wal", self.data / MARKER)
        rest = next((file.name for file in others if _is_there(file)), None)
        if not files and rest is None:
            absence = super().describe_absence()
            parents = self.root.parents
            places = (self.root / "lake", *parents, *(parent / "lake" for parent in parents))
            near = next((place for place in places if _is_there(place / self.catalog_file)), None)
            if near is not None:
                absence.hint = (
                    f"There is one at {near}: add --lake {shlex.quote(str(near))}. {absence.hint}"
                )
            return absence
        if _is_there(self.root / "catalog.partial"):
            return LakeUnreachable(
                f"the backup at {self.url} is incomplete: it was stopped",
                "Run the same `store backup` again, which copies the rest.",
            )
        return LakeUnreachable(
            f"the lake at {self.url} has lost its catalog: {self.catalog.name} is missing, and "
            + (f"{files} data files are there" if files else f"{rest} is there"),
            f"Without it nobody can read them as a lake. {faults.RESTORE_LAKE}",
        )

    @contextmanager
    def make_catalog(self) -> Generator[FolderLocation]:
        """Make the catalog under another name, which only the holder of the lock uses."""
        new = replace(self, catalog_file="catalog.new")
        new.delete_catalog()
        try:
            yield new
            # SQLite has deleted the journal, with the last pages in it, if the catalog is closed.
            assert not _is_there(new.root / f"{new.catalog_file}-wal"), "the catalog is open"
            # SQLite would apply the journal of a catalog that is replaced to the new one.
            self._delete_journals()
            rename_durably(new.catalog, self.catalog)
        finally:
            new.delete_catalog()

    def delete_catalog(self) -> None:
        """Delete the catalog and its journals; call it for names that only this program uses."""
        self.catalog.unlink(missing_ok=True)
        self._delete_journals()

    def _delete_journals(self) -> None:
        for suffix in ("-wal", "-shm", "-journal"):
            (self.root / f"{self.catalog_file}{suffix}").unlink(missing_ok=True)

    def prepare(self) -> None:
        # A new lake would take the files for those of failed commits, and delete them. A move
        # copies files before their catalog.
        if not self.exists and self.read_move() is None:
            absence = self.describe_absence()
            if isinstance(absence, LakeUnreachable):
                raise absence
        self.files.create()
        (self.root / _READERS).touch()

    def find_foreign_file(self, own: re.Pattern[str]) -> str | None:
        """Return a file of the folder that is neither one of a lake nor one of its data files.

        `own` matches what a lake has there, or a process that was killed while it made one.
        """
        entries = sorted(self.root.iterdir()) if self.root.is_dir() else []
        named = (entry.name for entry in entries if not own.fullmatch(entry.name))
        suffixes = (".parquet", ".partial", ".lake")
        data = (file for file in self.data.rglob("*") if not file.is_dir())
        others = (str(file.relative_to(self.root)) for file in data if file.suffix not in suffixes)
        return next(chain(named, others), None)

    def require_own_folder(self) -> None:
        foreign = self.find_foreign_file(_OWN_FILES)
        if foreign is not None:
            raise LakeUnreachable(
                f"no lake can be made in {self.root}: it has other files, such as "
                f"{quote_name(foreign)}",
                "A lake needs a folder of its own. Name a new one with --lake or FLYWHEEL_LAKE, "
                f"such as {shlex.quote(str(self.root / 'lake'))}.",
            )

    @property
    def is_empty(self) -> bool:
        """Whether the folder has no file but those that come before a catalog or a copied file."""
        if not self.root.exists():
            return True
        early = re.compile(r"lock|readers|data|move\.json\.partial|catalog\.new.*")
        return all(early.fullmatch(entry.name) for entry in self.root.iterdir()) and not any(
            not file.is_dir() for file in self.data.rglob("*")
        )

    def read_marker(self) -> str | None:
        """Return the identity of the catalog to which the data files belong, if they are marked."""
        try:
            return (self.data / MARKER).read_text("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return None

    def read_salt(self) -> bytes:
        """Return the salt in a file beside the catalog, readable by its owner only."""
        file = self.root / SALT
        try:
            if not file.exists():
                # A file gets this name when it is whole, and only if no other process was faster.
                with NamedTemporaryFile(dir=self.root, prefix=f"{SALT}.", suffix=".partial") as new:
                    new.write(secrets.token_bytes(SALT_BYTES))
                    new.flush()
                    os.fsync(new.fileno())
                    with suppress(FileExistsError):
                        os.link(new.name, file)
        except OSError as error:
            raise FlywheelError(
                f"no salt can be kept at {file}: {error.strerror}",
                "Names are hashed with it: publish from a lake that you may write to.",
            ) from error
        with faults.at(file):
            salt = file.read_bytes()
        if len(salt) < SALT_BYTES:
            raise FlywheelError(
                f"{file} is not whole", "Put it back from a copy, or delete it to begin anew."
            )
        return salt

    def write_salt(self, salt: bytes) -> None:
        write_durably(self.root / SALT, salt)

    def read_move(self) -> Move | None:
        try:
            return Move(**json.loads((self.root / _MOVE).read_text("utf-8")))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, TypeError) as error:
            raise LakeUnreachable(
                f"{self.root / _MOVE} is damaged: it says where this lake was moved, or from where",
                "Put it back from a copy. If the lake is here and nowhere else, delete that file.",
            ) from error

    @property
    def how_to_return(self) -> str:
        return f"delete {self.root / _MOVE}"

    def write_move(self, move: Move | None) -> None:
        if move is None:
            (self.root / _MOVE).unlink(missing_ok=True)
        else:
            write_durably(self.root / _MOVE, json.dumps(asdict(move)).encode())

    @contextmanager
    def lock(self, author: str = "a program", *, moving: bool = False) -> Generator[None]:
        require_local(self.root)
        file = self.root / "lock"
        with faults.at(self.root, LakeUnreachable):
            if not self.exists:
                self.require_own_folder()
            self.root.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            take_lock(descriptor, file, author)
            if not moving:
                self.refuse_move(self.read_move())
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def hold_inlined_rows(self) -> Generator[None]:
        try:
            file = FileIO(self.root / _READERS)
        except FileNotFoundError:  # nothing has written to the lake since this lock exists
            yield
            return
        with file:
            fcntl.flock(file, fcntl.LOCK_SH)
            yield

    @contextmanager
    def wait_for_queries(self) -> Generator[bool]:
        """Try to lock the file alone, at most for `WAIT_S`."""
        descriptor = os.open(self.root / _READERS, os.O_RDONLY | os.O_CREAT, 0o644)
        until, is_free = time.monotonic() + WAIT_S, False
        try:
            while not is_free and time.monotonic() < until:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    is_free = True
                except BlockingIOError:
                    time.sleep(_POLL_S)
            yield is_free
        finally:
            os.close(descriptor)

    def open_leases(self) -> Leases:
        return FolderLeases(self.root / _LEASES)

    def find_held(self, names: Sequence[str]) -> set[str]:
        try:
            with FileIO(self.root / _LEASES) as file:
                test = functools.partial(_ask_kernel, file, fcntl.F_OFD_GETLK, fcntl.F_WRLCK)
                return {name for name in names if test(name) != fcntl.F_UNLCK}
        except FileNotFoundError:  # nobody has taken a lease yet
            return set()


def _is_there(file: Path) -> bool:
    """Return whether a name is taken, by a dangling link too. Raises PermissionError."""
    try:
        file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


@functools.cache
def _copy_files(_pid: int, files: tuple[tuple[Path, tuple[int, int, int] | None], ...]) -> Path:
    """Return a folder of this process with copies of the files that are in these states."""
    folder = choose_scratch("catalog")
    folder.mkdir(parents=True)
    for file, stamp in files:
        if stamp is not None:
            with suppress(FileNotFoundError):  # its state has changed
                shutil.copyfile(file, folder / file.name)
    return folder


DEFAULT_SCHEMA = "lake"
SESSION = "kernel-flywheel "
"""Beginning of the names of sessions; the number of the process follows."""
_TIMEOUTS = {
    "connect_timeout": 10,
    # The network may drop a session without a word.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
_LONGEST_NAME = 63


class ServerLocation(Location):
    """A lake with a catalog on a PostgreSQL server, at postgresql://HOST/DATABASE?schema=&data=.

    Passwords come from where libpq looks for them (PGPASSWORD, ~/.pgpass), never from the URL.

    Commits of all hosts take one advisory lock of the database, which the server releases when its
    holder's session ends. A holder that loses its session without noticing cannot commit any more:
    the next one writes its own token into the table `flywheel_committer`, and a trigger inside
    DuckLake's own commit compares the token with that of the committing session.
    """

    extensions = ("duckdb_extension_ducklake", "duckdb_extension_postgres_scanner")
    sees_every_host = True

    def __init__(self, connection: Mapping[str, str], schema: str, data: DataFiles | None) -> None:
        """Describe a lake without opening it."""
        self._connection = dict(connection)
        self.metadata_schema = self._schema = schema
        self._given_files = data
        self._token = secrets.token_hex(16)
        self._session: Session | None = None
        """The session that holds the lock."""
        self._keeps_session = False
        self._idle: Session | None = None
        """A session that waits for the next lock."""
        self._is_fenced = False
        """Whether the trigger is known to be there."""
        names = (self._connection.get(name, "") for name in ("host", "port", "dbname"))
        identity = hashlib.sha256("\0".join((*names, self._schema)).encode()).hexdigest()
        self.root = choose_state() / "kernel-flywheel" / "lakes" / identity[:16]

    @classmethod
    def parse(cls, url: str) -> ServerLocation:
        """Return the location that a URL names. Raises LakeUnreachable."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise LakeUnreachable(f"not the URL of a lake: {error}") from error
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        if parts.password is not None or "password" in options:
            raise LakeUnreachable(
                "a lake's URL must not contain a password: URLs are printed and stored",
                "Set PGPASSWORD, or write the password into ~/.pgpass.",
            )
        schema = options.pop("schema", DEFAULT_SCHEMA)
        data = options.pop("data", None)
        if not 0 < len(schema.encode()) <= _LONGEST_NAME or "\0" in schema:
            raise LakeUnreachable(
                f'"{schema}" cannot be the schema of a lake',
                f"Name a schema of at most {_LONGEST_NAME} bytes, or leave schema= out for "
                f"{DEFAULT_SCHEMA}.",
            )
        named = {
            "host": parts.hostname,
            "port": None if port is None else str(port),
            "user": None if parts.username is None else unquote(parts.username),
            "dbname": unquote(parts.path.lstrip("/")) or None,
        }
        known = {name: value for name, value in named.items() if value is not None}
        return cls(options | known, schema, None if data is None else open_data_files(data))

    @property
    def url(self) -> str:
        named = {name: quote(value, safe="") for name, value in self._connection.items()}
        host, port, user = (named.pop(name, "") for name in ("host", "port", "user"))
        server = f"{user}@{host}" if user else host
        server += f":{port}" if port else ""
        text = f"postgresql://{server}/{named.pop('dbname', '')}?schema={quote(self._schema)}"
        text += f"&data={quote(self._given_files.url, safe='/:')}" if self._given_files else ""
        return text + "".join(f"&{name}={value}" for name, value in named.items())

    @property
    def exists(self) -> bool:
        with self._connect() as session:
            return self._has_table(session, "ducklake_metadata")

    @property
    def files(self) -> DataFiles:
        return self._found_files

    @functools.cached_property
    def _found_files(self) -> DataFiles:
        known = None
        with self._connect() as session:
            if self._has_table(session, "ducklake_metadata"):
                path = self._run(session, "data_path")[0]
                known = None if path is None else open_data_files(str(path).rstrip("/"))
        if known is None and self._given_files is None:
            raise LakeUnreachable(
                f"no lake at {self.url}, and no place for data files",
                "Add &data=FOLDER (which every host sees under the same path) or "
                "&data=s3://BUCKET/PREFIX to the URL.",
            )
        if known is not None and self._given_files not in (None, known):
            raise LakeUnreachable(
                f"the lake at {self.url} has its data files in {known.url}",
                "Leave data= out of the URL, or name another schema=.",
            )
        found = known or self._given_files
        assert found is not None
        return found

    def build_attachment(self, *, writable: bool) -> tuple[str, list[str]]:
        from psycopg.conninfo import make_conninfo

        # The trigger knows a committing session by this name.
        name = self._token if writable else "kernel-flywheel reader"
        text = make_conninfo(**self._connection, application_name=name)
        schema = self._schema.replace("'", "''")
        return f"postgres:{text}", [f"METADATA_SCHEMA '{schema}'"]

    def make_catalog(self) -> AbstractContextManager[ServerLocation]:
        """Make the catalog here: DuckLake makes all of it in one transaction of the database."""
        return nullcontext(self)

    def prepare(self) -> None:
        self.files.create()
        with self._connect() as session:
            own = str(self._run(session, "identity")[0])
        marked = self.files.read_text(MARKER)
        if marked is None and not self.exists and self.files.list_sizes():
            raise LakeUnreachable(
                f"{self.files.url} already holds data files, and no lake at {self.url} owns them",
                "Name an empty folder or a new prefix in data=.",
            )
        if marked is None:
            self.files.write_text(MARKER, own)
        elif marked == own and not self.exists and self.read_move() is None:
            files = len(self.files.list_sizes())
            if files:
                raise LakeUnreachable(
                    f"the lake at {self.url} has lost its catalog: the schema has no tables of a "
                    f"lake, and {files} data files of it are in {self.files.url}",
                    "Put back the schema from a backup, as with pg_restore.",
                )
        elif marked != own:
            raise LakeUnreachable(
                f"{self.files.url} holds the data files of another lake (see {MARKER} there)",
                "Name an empty folder or a new prefix in data=: two lakes would delete each "
                "other's files.",
            )

    def read_salt(self) -> bytes:
        """Return the salt in the database, which a role that only reads cannot see."""
        with self._connect() as session:
            if not self._has_table(session, "flywheel_lake"):
                with self.lock():
                    pass
            return bytes(self._run(session, "salt")[0])

    def write_salt(self, salt: bytes) -> None:
        with self._connect() as session:
            self._run(session, "write_salt", salt=salt)

    def read_move(self) -> Move | None:
        with self._connect() as session:
            return self._read_move(session)

    def _read_move(self, session: Session) -> Move | None:
        if not self._has_table(session, "flywheel_move"):
            return None
        found = self._run(session, "move")[0]
        return None if found is None else Move(**found)

    @property
    def how_to_return(self) -> str:
        return f'DELETE FROM "{self._schema}".flywheel_move on the server'

    def write_move(self, move: Move | None) -> None:
        with self._connect() as session:
            text = None if move is None else json.dumps(asdict(move))
            self._run(session, "create_move")
            self._run(session, "write_move", move=text)

    @contextmanager
    def keep_open(self) -> Generator[None]:
        """Take the locks within in one session of the server, unless several are held at once."""
        self._keeps_session = True
        try:
            yield
        finally:
            self._keeps_session = False
            if self._idle is not None:
                self._idle.close()
                self._idle = None

    @contextmanager
    def lock(self, author: str = "a program", *, moving: bool = False) -> Generator[None]:
        session, is_unlocked = self._open_locked_session(), False
        try:
            if not moving:
                self.refuse_move(self._read_move(session))
            if not self._is_fenced:
                if not self._has_table(session, "flywheel_lake"):
                    self._run(session, "committer")
                self._run(session, "identify", salt=secrets.token_bytes(SALT_BYTES))
                if self._has_table(session, "ducklake_snapshot_changes"):
                    self._run(session, "fence")
                    self._is_fenced = True
            self._run(session, "take_over", token=self._token)
            self._session = session
            try:
                yield
            finally:
                self._session = None
            if self._keeps_session and self._idle is None:
                with suppress(LakeUnreachable):
                    self._run(session, "unlock", name=self._schema)
                    is_unlocked = True
        finally:
            if is_unlocked:
                self._idle = session
            else:
                session.close()

    def _open_locked_session(self) -> Session:
        kept, self._idle = self._idle, None
        session = kept or self._connect()
        try:
            with name_holder(self._describe_holder):
                self._run(session, "lock", name=self._schema)
        except BaseException as error:
            session.close()
            if kept is None or not isinstance(error, LakeUnreachable):
                raise
            return self._open_locked_session()  # the server or the network had ended the kept one
        return session

    def _describe_holder(self) -> str:
        try:
            with self._connect() as session:
                name, host = self._run(session, "lock_holder", name=self._schema)[:2]
        except (LakeUnreachable, ValueError):  # no session is free, or the lock is
            return "another program"
        return f"{escape_terminal(str(name))} at {host or 'the same host'}"

    def holds_lock(self) -> bool:
        if self._session is None:
            return False
        try:
            return self._run(self._session, "holder")[0] == self._token
        except LakeUnreachable:
            return False

    def open_leases(self) -> Leases:
        return ServerLeases(self._connect(), self._schema)

    def find_held(self, names: Sequence[str]) -> set[str]:
        keys = {hash_name(f"{self._schema} {name}"): name for name in names}
        with self._connect() as session:
            (held,) = self._run(session, "held", keys=list(keys))
        return {keys[key] for key in held or ()}

    def _connect(self) -> Session:
        with faults.at(self.url, LakeUnreachable):
            import psycopg
        own = {"application_name": f"{SESSION}{os.getpid()}"}
        parameters: dict[str, Any] = own | _TIMEOUTS | self._connection
        try:
            return psycopg.connect(**parameters, autocommit=True)
        except psycopg.Error as error:
            raise faults.explain(error, self.url, LakeUnreachable) or LakeUnreachable(
                f"no connection to {self.url}: {summarize_error(error)}",
                "Test host, port, database and user with psql; passwords come from PGPASSWORD or "
                "~/.pgpass. Besides schema= and data=, a URL has only parameters of libpq.",
            ) from error

    def describe_backup(self) -> str:
        """Return the commands that copy the catalog, and after it the data files that it names."""
        from psycopg.conninfo import make_conninfo

        target = make_conninfo(**self._connection)
        files = self.files.url
        copy = (
            f"aws s3 sync {shlex.quote(files)} s3://BACKUP-BUCKET/PREFIX"
            if files.startswith("s3://")
            else f"rsync -a {shlex.quote(files)}/ BACKUP-FOLDER/data/"
        )
        named = shlex.quote(f'"{self._schema}"')
        return (
            f"  pg_dump --format=custom --schema={named} --file=lake.dump {shlex.quote(target)}\n"
            f"  {copy}"
        )

    def _has_table(self, session: Session, name: str) -> bool:
        return bool(self._run(session, "has_table", schema=self._schema, table=name)[0])

    def _run(self, session: Session, file: str, **parameters: object) -> tuple[Any, ...]:
        """Run a statement of this folder's SQL files; return its first row, or Nones."""
        import psycopg
        from psycopg import sql

        text = cast("LiteralString", read_sql(__file__, f"server/{file}"))  # from the package
        schema = sql.Identifier(self._schema)
        statement = sql.SQL(text).format(
            schema=schema,
            namespace=sql.Literal(schema.as_string()),
            changes=sql.Literal(f"{schema.as_string()}.ducklake_snapshot_changes"),
        )
        try:
            answer = session.execute(statement, parameters or None, prepare=False)
            row = answer.fetchone() if answer.description else None
        except psycopg.errors.InsufficientPrivilege as error:
            raise LakeUnreachable(
                f"{self.url}: {summarize_error(error)}",
                "Ask the owner of the database for the right; docs/cluster.md lists the rights of "
                "readers and writers.",
            ) from error
        except psycopg.Error as error:
            raise LakeUnreachable(
                f"{self.url}: {summarize_error(error)}", "Run this again; what was spooled is kept."
            ) from error
        return row or (None,)
