"""A lake whose catalog is on a PostgreSQL server, for many hosts; its data files are shared.

The data files are in a folder that all hosts see, or in a bucket (`store.lake.data_files`).

Commits of all hosts take one advisory lock of the database, which the server releases when its
holder's session ends. A holder that loses its session without noticing cannot commit any more: the
next one writes its own token into the table `flywheel_committer`, and a trigger inside DuckLake's
own commit compares the token with that of the committing session.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import secrets
import shlex
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString, cast
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from store import faults
from store.commandline.escape import escape_terminal
from store.errors import LakeUnreachable, summarize_error
from store.lake.data_files.files import DataFiles, open_data_files
from store.lake.host.lock_holder import name_holder
from store.lake.host.salt_file import SALT_BYTES
from store.lake.host.user import choose_state
from store.lake.leases import Leases
from store.lake.location import MARKER, Location, Move
from store.lake.server.leases import ServerLeases
from store.lake.server.lock_session import LockSession
from store.lake.sql_files import read_sql

if TYPE_CHECKING:
    import psycopg

    Session = psycopg.Connection[tuple[Any, ...]]

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
    """

    extensions = ("duckdb_extension_ducklake", "duckdb_extension_postgres_scanner")

    def __init__(self, connection: Mapping[str, str], schema: str, data: DataFiles | None) -> None:
        """Describe a lake without opening it.

        Args:
            connection: Parameters of libpq, such as host and dbname.
            schema: Schema of the catalog's tables.
            data: The data files; None for those that the lake knows.
        """
        self._connection = dict(connection)
        self._schema = schema
        self._given_files = data
        self._token = secrets.token_hex(16)
        self._session: Session | None = None
        """The session that holds the lock."""
        self._lock_session = LockSession(
            connect=self._connect,
            lock=self._take_lock,
            unlock=lambda session: self._run(session, "unlock", name=schema),
        )
        self._is_fenced = False
        """Whether the trigger is known to be there."""
        self.root = self._choose_root()

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
        """The server, database, schema and place of the data files."""
        named = {name: quote(value, safe="") for name, value in self._connection.items()}
        host, port, user = (named.pop(name, "") for name in ("host", "port", "user"))
        server = f"{user}@{host}" if user else host
        server += f":{port}" if port else ""
        text = f"postgresql://{server}/{named.pop('dbname', '')}?schema={quote(self._schema)}"
        text += f"&data={quote(self._given_files.url, safe='/:')}" if self._given_files else ""
        return text + "".join(f"&{name}={value}" for name, value in named.items())

    @property
    def catalog_name(self) -> str:
        """The catalog in messages."""
        return self.url

    @property
    def metadata_schema(self) -> str | None:
        """Schema of DuckLake's own tables."""
        return self._schema

    @property
    def is_edition(self) -> bool:
        """A published edition is a folder."""
        return False

    @property
    def exists(self) -> bool:
        """Whether the schema contains a lake. Raises LakeUnreachable."""
        with self._connect() as session:
            return self._has_table(session, "ducklake_metadata")

    @property
    def files(self) -> DataFiles:
        """The Parquet files. Raises LakeUnreachable where they are unknown or elsewhere."""
        return self._found_files

    @functools.cached_property
    def _found_files(self) -> DataFiles:
        with self._connect() as session:
            known = self._read_data_path(session)
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
        """Return what DuckDB's ATTACH names, and its options."""
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
        """Test that the data files' place can be used, and mark it as this lake's."""
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
        """Replace the salt in the database."""
        with self._connect() as session:
            self._run(session, "write_salt", salt=salt)

    def read_move(self) -> Move | None:
        """Return what the table of moves says."""
        with self._connect() as session:
            return self._read_move(session)

    def _read_move(self, session: Session) -> Move | None:
        if not self._has_table(session, "flywheel_move"):
            return None
        found = self._run(session, "move")[0]
        return None if found is None else Move(**found)

    @property
    def how_to_return(self) -> str:
        """Delete the record."""
        return f'DELETE FROM "{self._schema}".flywheel_move on the server'

    def write_move(self, move: Move | None) -> None:
        """Replace the row of the table of moves."""
        with self._connect() as session:
            text = None if move is None else json.dumps(asdict(move))
            self._run(session, "create_move")
            self._run(session, "write_move", move=text)

    def keep_open(self) -> AbstractContextManager[None]:
        """Take the locks within in one session of the server."""
        return self._lock_session.keep_open()

    @contextmanager
    def lock(self, author: str = "a program", *, moving: bool = False) -> Generator[None]:
        """Hold the lock of the database, which it releases when this session ends."""
        with self._lock_session.hold() as session:
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

    def _take_lock(self, session: Session) -> None:
        with name_holder(self._describe_holder):
            self._run(session, "lock", name=self._schema)

    def _describe_holder(self) -> str:
        try:
            with self._connect() as session:
                name, host = self._run(session, "lock_holder", name=self._schema)[:2]
        except (LakeUnreachable, ValueError):  # no session is free, or the lock is
            return "another program"
        return f"{escape_terminal(str(name))} at {host or 'the same host'}"

    def holds_lock(self) -> bool:
        """Whether the session with the lock lives, and nobody has taken over."""
        if self._session is None:
            return False
        try:
            return self._run(self._session, "holder")[0] == self._token
        except LakeUnreachable:
            return False

    def open_leases(self) -> Leases:
        """Return leases among the processes of all hosts, which are locks of the database."""
        return ServerLeases(self._connect(), self._schema)

    @property
    def sees_every_host(self) -> bool:
        """The database has the leases of all hosts."""
        return True

    def find_held(self, names: Sequence[str]) -> set[str]:
        """Ask the database, which knows the sessions of all hosts."""
        with closing(ServerLeases(self._connect(), self._schema)) as leases:
            return leases.find_held(names)

    def _connect(self) -> Session:
        """Return a session of the database. Raises LakeUnreachable."""
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

    def _choose_root(self) -> Path:
        """Return this host's folder for the lake; spooled bundles in it wait to be committed."""
        names = (self._connection.get(name, "") for name in ("host", "port", "dbname"))
        identity = hashlib.sha256("\0".join((*names, self._schema)).encode()).hexdigest()
        return choose_state() / "kernel-flywheel" / "lakes" / identity[:16]

    def _has_table(self, session: Session, name: str) -> bool:
        return bool(self._run(session, "has_table", schema=self._schema, table=name)[0])

    def _read_data_path(self, session: Session) -> DataFiles | None:
        if not self._has_table(session, "ducklake_metadata"):
            return None
        found = self._run(session, "data_path")[0]
        return None if found is None else open_data_files(str(found).rstrip("/"))

    def _run(self, session: Session, file: str, **parameters: object) -> tuple[Any, ...]:
        """Run a statement of this folder's SQL files; return its first row, or Nones."""
        import psycopg
        from psycopg import sql

        text = cast("LiteralString", read_sql(__file__, file))  # from the package
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
