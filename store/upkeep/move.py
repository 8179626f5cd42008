"""Moves a lake with its history to another place: other data files, another catalog database.

Snapshots keep their numbers and the lake its identity, so that tags and citations stay true. Both
places record the move until it is complete, and neither can be read or written meanwhile except
by the move. An interrupted move is run again: it continues with the files that are missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePath

from store import faults
from store.commandline.echo import Progress
from store.errors import FlywheelError, LakeUnreachable
from store.lake import checksums
from store.lake.attachment import attach, connect, list_filled_tables
from store.lake.location import FolderLocation, Location, Move
from store.lake.sql_files import read_sql
from store.schema.sql_text import fetch_row, quote_names
from store.upkeep.maintenance import require_whole
from store.writing import spool
from store.writing.writer import Writer

AUTHOR = "store move"


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a move did."""

    snapshots: int
    rows: int
    files: int
    copied: int
    """Data files that this run copied; the others were there."""


def move(source: Location, target: Location, progress: Progress | None = None) -> Summary | int:
    """Move a lake; return a summary, or the number of spooled files that it forwarded.

    The source is left in place, and refuses to be opened from then on. Where the lake was moved
    before, bundles in this host's spool for the source are committed to the target.

    Raises FlywheelError, with nothing lost, where the target holds something else, a data file is
    damaged, or the copy differs.
    """
    source.require_writable()
    away = source.read_move()
    if away is not None and (not away.is_away or away.url != target.url):
        source.refuse_move(away)
    if away is not None and target.read_move() is None:
        files = spool.forward(source.spool, target.spool)
        with Writer(target, AUTHOR) as writer:
            writer.flush()
        return files
    if away is None:
        source.require()
        with Writer(source, AUTHOR) as writer:
            writer.flush()
    with source.lock(AUTHOR, moving=True):
        with connect(to=source) as connection:
            attach(connection, source)
            oldest = "SELECT lake_id FROM lake.lakes ORDER BY created_at LIMIT 1"
            lake_id = str(fetch_row(connection, oldest)[0])
        _require_room(source, target, lake_id)
        with target.lock(AUTHOR, moving=True):
            note = "Nothing is lost: the same command resumes the move."
            with faults.at(target.url, LakeUnreachable, note):
                # Copy, compare, and then retire the source and release the target, in this order.
                target.announce_lake()
                # What a full disk stops from here on finds this record, and goes on.
                target.write_move(Move(lake_id=lake_id, url=source.url, is_away=False))
                target.prepare()
                target.write_salt(source.read_salt())
                files = checksums.list_files(source)
                copied, _ = checksums.copy_files(files, target.files, progress)
                with target.make_catalog() as place:
                    if not place.exists:
                        # Let DuckLake create its own tables.
                        with connect(to=place) as connection:
                            attach(connection, place, writable=True, create=True)
                    with (
                        Catalog(source, writable=False) as old,
                        Catalog(place, writable=True) as new,
                    ):
                        copy_catalog(old, new, target.files.url)
                said = f"Nothing was moved: delete that file in {target.files.url}."
                require_whole(target, checksums.list_files(target), said, progress)
                snapshots, rows = _require_equal(source, target)
                source.write_move(Move(lake_id=lake_id, url=target.url, is_away=True))
                target.write_move(None)
                return Summary(snapshots=snapshots, rows=rows, files=len(files), copied=copied)


def _require_room(source: Location, target: Location, lake_id: str) -> None:
    """Raise FlywheelError unless the target is empty or has an unfinished move of this lake."""
    if spool.list_files(source.spool):
        raise FlywheelError(
            f"a program has spooled bundles for {source.url} just now",
            "Stop the programs that write to it, and run this again.",
        )
    coming = target.read_move()
    if coming is not None and not coming.is_away and coming.lake_id == lake_id:
        return
    is_folder = isinstance(target, FolderLocation)
    if coming is not None or target.exists or (is_folder and not target.is_empty):
        raise FlywheelError(
            f"{target.url} is not empty", "Name a new folder, schema or prefix; nothing was moved."
        )
    if source.files == target.files:
        raise FlywheelError(
            f"both lakes would have their data files in {source.files.url}",
            "Name another place in data=: deleting the old lake would delete its files.",
        )
    inside = [
        new
        for new in _list_places(target)
        if any(PurePath(new).is_relative_to(old) for old in _list_places(source))
    ]
    if inside:
        raise FlywheelError(
            f"{inside[0]} is inside the lake itself",
            "Name a place outside of it: deleting the old lake would delete the new one.",
        )


def _list_places(location: Location) -> list[str]:
    folders = [str(location.root)] if isinstance(location, FolderLocation) else []
    return [*folders, location.files.url]


def _require_equal(source: Location, target: Location) -> tuple[int, int]:
    """Compare two lakes row by row and snapshot by snapshot; return how many of each they have."""
    snapshots = rows = 0
    for old, new in zip_longest(digest_lake(source), digest_lake(target)):
        if old != new:
            raise FlywheelError(
                f"the copy in {target.url} differs from {source.url} in {(old or new)[0]}",
                "Nothing was moved, and the lake is unchanged. Run `store check --full` on it, "
                "empty the target, and try again.",
            )
        name, parts = old
        if name == "snapshots":
            snapshots = len(parts)
        else:
            rows += sum(int(str(part[1])) for part in parts)
    return snapshots, rows


_INLINED = "ducklake_inlined_data_"
_INTEGERS = ("int8", "int16", "int32", "int64")
_IN_SQLITE: dict[str, str] = dict.fromkeys((*_INTEGERS, "boolean"), "BIGINT")
_IN_POSTGRES: dict[str, str] = {
    **dict.fromkeys(("varchar", "json", "blob"), "BLOB"),
    "boolean": "BOOLEAN",
    **dict(zip(_INTEGERS, ("SMALLINT", "SMALLINT", "INTEGER", "BIGINT"), strict=True)),
    "float32": "FLOAT",
    "float64": "DOUBLE",
}
"""DuckLake's name of a type to that of the column that holds inlined values; others: VARCHAR."""


class Catalog(AbstractContextManager["Catalog"]):
    """DuckLake's own tables of one lake, opened as plain tables. Use it as a context manager.

    SQLite and PostgreSQL hold the same tables with other types. Rows of small commits are in tables
    of their own there ("inlined"); SQLite keeps their texts as text, and PostgreSQL as bytes.
    """

    def __init__(self, location: Location, *, writable: bool) -> None:
        self.types = _IN_SQLITE if isinstance(location, FolderLocation) else _IN_POSTGRES
        self._schema = location.metadata_schema or "main"
        self.connection = connect(to=location)
        place, _ = location.build_attachment(writable=writable)
        options = "" if writable else " (READ_ONLY)"
        escaped = place.replace("'", "''")
        self.connection.execute(f"ATTACH '{escaped}' AS catalog{options}")

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def locate(self, table: str) -> str:
        """Return how SQL names a table."""
        return f"catalog.{quote_names((self._schema,))}.{quote_names((table,))}"

    def list_columns(self) -> dict[str, dict[str, str]]:
        """Return DuckLake's tables, each with its columns and their types."""
        rows = self.connection.execute(
            read_sql(__file__, "catalog_columns"), {"schema": self._schema}
        ).fetchall()
        tables: dict[str, dict[str, str]] = {}
        for table, column, kind in rows:
            tables.setdefault(table, {})[column] = kind
        return tables


def copy_catalog(source: Catalog, target: Catalog, data_path: str) -> None:
    """Replace the tables of a new lake with those of another lake, in one transaction.

    Args:
        target: A lake that DuckLake has just created, or one that an earlier call filled.
    """
    ours, theirs = source.list_columns(), target.list_columns()
    # The tables of inlined rows, each with the types that DuckLake knows of its columns.
    types: dict[str, dict[str, str]] = {}
    text = read_sql(__file__, "inlined_columns")
    for part in ("ducklake_inlined_data_tables", "ducklake_column"):
        text = text.replace(f"catalog.{part}", source.locate(part))
    for table, column, kind in source.connection.execute(text).fetchall():
        types.setdefault(table, {})[column] = kind
    target.connection.execute("BEGIN")
    for table in theirs:
        if table.startswith(_INLINED) and table != f"{_INLINED}tables":
            target.connection.execute(f"DROP TABLE {target.locate(table)}")
        else:
            target.connection.execute(f"DELETE FROM {target.locate(table)}")
    for table, columns in ours.items():
        if table in types:
            # As DuckLake does in this kind of database. The columns that it adds are numbers of
            # rows and snapshots.
            kinds = dict.fromkeys(columns, "BIGINT") | {
                name: target.types.get(kind, "VARCHAR") for name, kind in types[table].items()
            }
            named = ", ".join(f"{quote_names((name,))} {kinds[name]}" for name in columns)
            target.connection.execute(f"CREATE TABLE {target.locate(table)} ({named})")
    made = target.list_columns()
    for table, columns in ours.items():
        rows = source.connection.execute(f"FROM {source.locate(table)}").to_arrow_reader()
        target.connection.register("_rows", rows)
        values = ", ".join(_convert(name, columns[name], made[table][name]) for name in columns)
        target.connection.execute(
            f"INSERT INTO {target.locate(table)} ({quote_names(tuple(columns))}) "
            f"SELECT {values} FROM _rows"
        )
        target.connection.unregister("_rows")
    # Files that no snapshot reads are not copied, so that none has to be deleted.
    target.connection.execute(
        f"DELETE FROM {target.locate('ducklake_files_scheduled_for_deletion')}"
    )
    target.connection.execute(
        f"UPDATE {target.locate('ducklake_metadata')} SET value = ? "
        "WHERE key = 'data_path' AND scope IS NULL",
        [f"{data_path}/"],
    )
    target.connection.execute("COMMIT")


def _convert(column: str, source: str, target: str) -> str:
    name = quote_names((column,))
    if (source, target) == ("BLOB", "VARCHAR"):
        return f"decode({name})"
    if (source, target) == ("VARCHAR", "BLOB"):
        return f"encode({name})"
    return f"{name}::{target}"


def digest_lake(location: Location) -> Iterator[tuple[str, list[tuple[object, ...]]]]:
    """Yield what two equal lakes have in common, with a name for each part.

    The first part is the list of snapshots. Each other part is a table: for every snapshot that
    added rows, their number and a sum over the hashes of the rows and their ids. Rows are only ever
    added, so equal sums of all snapshots up to n are equal tables at snapshot n.
    """
    with connect(to=location) as connection:
        attach(connection, location)
        snapshots = connection.execute("FROM ducklake_snapshots('lake') ORDER BY ALL")
        yield "snapshots", snapshots.fetchall()
        for table in sorted(list_filled_tables(connection, location)):
            sums = connection.execute(
                "SELECT snapshot_id, count(*), sum(hash(rowid, r)) "
                f"FROM lake.{quote_names((table,))} AS r GROUP BY ALL ORDER BY ALL"
            )
            yield table, sums.fetchall()
