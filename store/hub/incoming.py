"""Converts the tables of another lake, published or in a folder, into rows of this lake.

A detector or an importer that runs here later computes the ids of its rows, or brings verdicts and
timings with ids of their own. If a pulled row had one of these ids, the store would drop or refuse
the own row as a duplicate. Pulled findings, claims and analyses therefore get the hash of their
content as their id, and the ids of pulled verdicts and timings begin with `pulled-`, unless this
lake has the row already.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from store import ids
from store.code import features, task_families
from store.commandline.python_rows import list_rows
from store.errors import ImportFailed
from store.foreign.columns import cast_null_types, clamp_times
from store.lake.reader import Lake
from store.schema import catalog as catalogs
from store.schema.tables import Table

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

STAYS = ("catalogs", "tags", "ingest_log", "file_checksums", "kernel_features")
"""Tables about snapshots or files of their own lake, or derived from other tables."""
BATCH_ROWS = 10_000
REKEYED = ("findings", "claims", "analyses", "standings")
_RENAMED = {
    "evaluations": ("evaluation_id", "withdraws"),
    "timings": ("timing_id", "evaluation_id", "session_id"),
    "findings": ("evaluation_id",),
}
_PULLED = "pulled-"
"""Begins the ids of pulled measurements."""
_MEASURED = {
    "evaluation_id": ("evaluations", "evaluation_id"),
    "withdraws": ("evaluations", "evaluation_id"),
    "timing_id": ("timings", "timing_id"),
    "session_id": ("timings", "session_id"),
}
"""Columns with ids of measurements, and the table and column that have all of them."""
_NOT_HASHED = ("origin", "created_at", "license")


@dataclass(frozen=True, kw_only=True)
class OwnRows:
    """The rows of one table that this lake did not pull."""

    ids: frozenset[str]
    by_content: dict[str, str]
    """Hash of the content to id."""


def hash_content(table: Table, row: Mapping[str, Any]) -> str:
    """Return the hash of a row's content, which leaves out its id, origin, time and license.

    Pseudonyms are left out, because each lake hashes a name with its own salt. A column that is
    NULL is left out too, so that a column that is added later changes no hash.
    """
    left_out = (*table.key, *_NOT_HASHED)
    content = {
        name: value
        for name, value in row.items()
        if value is not None
        and name not in left_out
        and table.columns[name].sensitivity == "public"
    }
    return ids.content_id("pulled", table.name, json.dumps(content, sort_keys=True, default=str))


@dataclass(kw_only=True)
class IncomingTable:
    """One table of the other lake, and which of its rows are new."""

    table: Table
    files: list[Path]
    prepare: Callable[[Table, int, pa.Table], pa.Table]
    """Converts a batch of its rows, given with its number, into rows of this lake."""
    fresh: list[np.ndarray[Any, Any]] = field(default_factory=list["np.ndarray[Any, Any]"])
    """For each batch, which rows to store."""
    there: int = 0
    conflicts: list[str] = field(default_factory=list[str])
    differing: set[str] = field(default_factory=set[str])
    conflicting: int = 0
    joining: Counter[str] = field(default_factory=Counter[str])
    """New rows that are left out, by the column that names a record of this lake."""

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows with the columns of the catalog, in the same batches every time.

        Raises:
            ImportFailed: a file lacks a column that the catalog requires, or has one twice.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        number = 0
        for file in self.files:
            opened = pq.ParquetFile(file)
            names = opened.schema_arrow.names
            required = [one.name for one in self.table.columns.values() if one.required]
            needed = dict.fromkeys((*self.table.key, *required))
            wrong = [f"lacks {one}" for one in needed if one not in names]
            wrong += [f"has {one!a:.70} twice" for one, n in Counter(names).items() if n > 1]
            if wrong:
                raise ImportFailed(
                    f"{self.table.name}: a file {wrong[0]}",
                    "Nothing was merged: the file is malformed.",
                )
            for batch in opened.iter_batches(BATCH_ROWS):
                rows = pa.Table.from_batches([batch])
                known = [one for one in rows.column_names if one in self.table.columns]
                rows = cast_null_types(self.table, rows.select(known))
                yield self.prepare(self.table, number, rows)
                number += 1

    def new_rows(self) -> Iterator[pa.Table]:
        """Yield the rows to store."""
        import pyarrow as pa

        for rows, mask in zip(self.batches(), self.fresh, strict=True):
            if mask.any():
                yield rows.filter(pa.array(mask))


@dataclass(kw_only=True)
class IncomingFeatures(IncomingTable):
    """Features of the pulled kernels, extracted here from their code."""

    kernels: IncomingTable

    def batches(self) -> Iterator[pa.Table]:
        """Yield the keys of the features for each batch of kernels."""
        import pyarrow as pa

        for rows in self.kernels.batches():
            version = pa.array([features.EXTRACTOR_VERSION] * rows.num_rows, pa.int32())
            yield rows.select(["kernel_id"]).append_column("extractor_version", version)

    def new_rows(self) -> Iterator[pa.Table]:
        """Yield features of the kernels that lack features of this version."""
        import pyarrow as pa

        for rows, mask in zip(self.kernels.batches(), self.fresh, strict=True):
            if mask.any():
                yield features.extract_features(rows.filter(pa.array(mask)))


@dataclass(kw_only=True)
class Preparation:
    """Converts rows of another lake into rows of this lake."""

    origin: str
    """Name of the other lake: its repository, or the folder with its rows."""
    moment: datetime
    lake: Lake
    """This lake. It is asked when a batch is prepared for the first time."""
    resplit: int = 0
    """Number of splits that were replaced by fixed ones."""
    _own: dict[str, OwnRows] = field(default_factory=dict[str, OwnRows])
    """This lake's own rows of the tables REKEYED."""
    _names: defaultdict[str, dict[str, str]] = field(
        default_factory=lambda: defaultdict[str, dict[str, str]](dict)
    )
    """For each table of REKEYED, published id to id here."""
    _held: defaultdict[tuple[str, str], list[np.ndarray[Any, Any]]] = field(
        default_factory=lambda: defaultdict[tuple[str, str], "list[np.ndarray[Any, Any]]"](list)
    )
    """For each table and column of ids of measurements and each batch, which ids this lake has."""
    _repeats: Counter[str] = field(default_factory=Counter[str])
    """Number of published rows by the hash of their content."""

    def prepare(self, table: Table, number: int, rows: pa.Table) -> pa.Table:
        """Return a batch with its origin, times not after now, and no decision for this lake."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if table.name == "standings":
            rows = self._prepare_standings(table, rows)
        elif table.name in REKEYED:
            # Give rows the id of the own row with this id or content, or else the content's hash.
            key, own, names = table.key[0], self._find_own(table), self._names[table.name]
            for row in list_rows(rows):
                published = cast("str | None", row[key])
                if published is None or published in own.ids or published in names:
                    continue
                content = hash_content(table, row)
                repeat = self._repeats[content] if table.duplicates == "reject" else 0
                self._repeats[content] += 1
                new = ids.content_id("pulled", content, str(repeat)) if repeat else content
                names[published] = own.by_content.get(content, new)
            rows = _replace_ids(rows, key, names)
        elif table.name == "splits":
            rows = self._prepare_splits(rows)
        elif table.name == "workloads":
            # The default workload of a task has the same name in every lake.
            is_default = pc.equal(rows.column("axes"), pa.scalar("{}"))
            if "dtype" in rows.column_names:
                is_default = pc.and_(is_default, pc.is_null(rows.column("dtype")))
            names = pc.if_else(is_default, pa.scalar("default"), rows.column("name"))
            rows = replace_column(rows, "name", names)
        for column in _RENAMED.get(table.name, ()):
            if column in rows.column_names:
                rows = self._rename(table.name, column, number, rows)
        if "origin" in table.columns:
            origin = pa.repeat(pa.scalar(self.origin), rows.num_rows)
            if "origin" in rows.column_names:
                rows = replace_column(rows, "origin", origin)
            else:
                rows = rows.append_column("origin", origin)
        return clamp_times(table, rows, self.moment)

    def _find_own(self, table: Table) -> OwnRows:
        if table.name not in self._own:
            by_content: dict[str, str] = {}
            own_ids: set[str] = set()
            query = f"SELECT * FROM {table.name} WHERE origin IS NULL"
            for batch in self.lake.run(query).reader(BATCH_ROWS):
                for row in list_rows(batch):
                    own_ids.add(str(row[table.key[0]]))
                    by_content[hash_content(table, row)] = str(row[table.key[0]])
            self._own[table.name] = OwnRows(ids=frozenset(own_ids), by_content=by_content)
        return self._own[table.name]

    def _rename(self, table: str, column: str, number: int, rows: pa.Table) -> pa.Table:
        """Give measurements another id, except those that this lake has.

        The other id contains the first one, so that rows of this lake that another lake has pulled
        and published are recognized when they come back.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        first: Any = pc.replace_substring_regex(
            rows.column(column).cast(pa.string()), f"^({_PULLED})+", ""
        )
        held = self._held[table, column]
        if len(held) == number:
            # The ids that this lake has, also those of rows from other authors.
            measured, key = _MEASURED[column]
            self.lake.register("_wanted", pa.Table.from_arrays([first], names=[key]))
            known = self.lake.run(
                f"SELECT DISTINCT {key} FROM {measured} SEMI JOIN _wanted USING ({key})"
            ).arrow()
            known_ids = known.column(key).combine_chunks()
            held.append(pc.is_in(first.cast(known_ids.type), known_ids).to_numpy())
        other: Any = pc.binary_join_element_wise(_PULLED, first, "")
        return replace_column(rows, column, pc.if_else(pa.array(held[number]), first, other))

    def _prepare_standings(self, table: Table, rows: pa.Table) -> pa.Table:
        """Keep decisions that the other lake made itself, under ids that no own decision can have.

        A pulled row must not take the id of a decision that an importer adds here later. The
        decisions follow the findings, which have other ids here.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if "origin" in rows.column_names:
            rows = rows.filter(pc.is_null(rows.column("origin")))
        given = cast("list[str | None]", rows.column("standing_id").to_pylist())
        own = self._find_own(table).ids
        named = [
            one if one is None or one in own else ids.content_id("pulled", one) for one in given
        ]
        rows = _replace_ids(rows, "finding_id", self._names["findings"])
        return replace_column(rows, "standing_id", pa.array(named, pa.string()))

    def _prepare_splits(self, rows: pa.Table) -> pa.Table:
        """Replace the split of a suite by this program's, if the suite has a fixed split."""
        import pyarrow as pa

        changed = 0
        listed = list_rows(rows)
        for row in listed:
            split = task_families.find_split(str(row["suite"]), str(row["family"]))
            if split is not None and split != row["split"]:
                row["split"] = split
                changed += 1
        if not changed:
            return rows
        self.resplit += changed
        return pa.Table.from_pylist(listed, schema=rows.schema)


def list_tables(
    manifest: dict[str, Any], folder: Path, incoming: Preparation
) -> list[IncomingTable]:
    """Return the tables of an edition that are merged, in the catalog's order."""
    found: list[IncomingTable] = []
    known = catalogs.load()
    for name, table in known.tables.items():
        if name not in manifest["tables"] or name in STAYS:
            continue
        files = [folder / str(one["path"]) for one in manifest["tables"][name]]
        part = IncomingTable(table=table, files=files, prepare=incoming.prepare)
        found.append(part)
        if name == "kernels":
            table = known.table("kernel_features")
            found.append(
                IncomingFeatures(table=table, files=[], prepare=incoming.prepare, kernels=part)
            )
    return found


def replace_column(rows: pa.Table, name: str, values: Any) -> pa.Table:
    """Return rows with one column replaced."""
    return rows.set_column(rows.column_names.index(name), name, values)


def _replace_ids(rows: pa.Table, column: str, names: Mapping[str, str]) -> pa.Table:
    import pyarrow as pa

    given = cast("list[str | None]", rows.column(column).to_pylist())
    here = [one if one is None else names.get(one, one) for one in given]
    return replace_column(rows, column, pa.array(here, pa.string()))
