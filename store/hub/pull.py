"""`store pull`: merge the rows of a published lake into this one without overwriting any row.

Before one transaction stores the new rows, every file is checked against the manifest's sha256 and
the limits on its expanded size, every task, kernel, workload and prompt against the hash that is
its id, and every row against the rules of the catalog. A row whose key exists here with other
content is left out and listed.

Pulled rows never override a decision of this lake. Rows of tables with decisions, measurements,
figures, names or attempts state the repository in `origin`, and the views prefer this lake's own
rows. Findings, claims and analyses get ids that no own row can have (own_rows). Times in the future
are set to now. Rows that would change the meaning of this lake's own rows are left out: rows that
join a run, evaluation, timing session or dataset of this lake, splits that contradict fixed ones,
and features, which are extracted here from the pulled code.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import store
from store import ids
from store.bounds import GB, PARQUET_LIMITS, ParquetLimits
from store.code import features, task_families
from store.commandline.display import list_rows
from store.commandline.escape import quote_name
from store.errors import FlywheelError, ImportFailed
from store.foreign import parquet
from store.foreign.parquet import cast_null_types, clamp_times
from store.hub.client import REPO, Hub, RepositoryState
from store.hub.edition_writer import FORMAT, MANIFEST
from store.hub.redact import PSEUDONYM, VERBATIM, Redactor, is_scrubbed
from store.ids import hash_file
from store.lake.location import Location
from store.lake.reader import Lake
from store.lake.sql_files import read_sql
from store.schema import catalog as catalogs
from store.schema import row_checks
from store.schema.catalog import Table
from store.schema.row_checks import EXAMPLES, describe_rows
from store.schema.sql_text import quote_names
from store.writing.bundle import conform

STAYS = ("catalogs", "tags", "ingest_log", "file_checksums", "kernel_features")
"""Tables about snapshots or files of their own lake, or derived from other tables."""
BATCH_ROWS = 10_000
REKEYED = ("findings", "claims", "analyses", "standings")
_RENAMED = {
    "evaluations": ("evaluation_id", "withdraws"),
    "timings": ("timing_id", "evaluation_id", "session_id"),
    "findings": ("evaluation_id",),
    "analyses": ("evaluation_id",),
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


def hash_content(table: Table, row: Mapping[str, Any]) -> str:
    """Return the hash of a row's content, which leaves out its id, origin, time and license.

    Pseudonyms are left out, because each lake hashes a name with its own salt. A column that is
    NULL is left out too, so that a column that is added later changes no hash.
    """
    left_out = (*table.key, *_NOT_HASHED)
    if table.name == "analyses":  # every lake that pulls it names its evaluation in another way
        left_out = (*left_out, "evaluation_id")
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

        Raises ImportFailed if a file lacks a column that the catalog requires, or has one twice.
        """
        number = 0
        for file in self.files:
            opened = pq.ParquetFile(file)
            names = [self.table.renamed.get(one, one) for one in opened.schema_arrow.names]
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
                rows = pa.Table.from_batches([batch]).rename_columns(names)
                known = [one for one in rows.column_names if one in self.table.columns]
                rows = cast_null_types(self.table, rows.select(known))
                yield self.prepare(self.table, number, rows)
                number += 1

    def new_rows(self) -> Iterator[pa.Table]:
        """Yield the rows to store."""
        for rows, mask in zip(self.batches(), self.fresh, strict=True):
            if mask.any():
                yield rows.filter(pa.array(mask))


@dataclass(kw_only=True)
class IncomingFeatures(IncomingTable):
    """Features of the pulled kernels, extracted here from their code."""

    kernels: IncomingTable

    def batches(self) -> Iterator[pa.Table]:
        """Yield the keys of the features for each batch of kernels."""
        for rows in self.kernels.batches():
            version = pa.array([features.EXTRACTOR_VERSION] * rows.num_rows, pa.int32())
            yield rows.select(["kernel_id"]).append_column("extractor_version", version)

    def new_rows(self) -> Iterator[pa.Table]:
        """Yield features of the kernels that lack features of this version."""
        for rows, mask in zip(self.kernels.batches(), self.fresh, strict=True):
            if mask.any():
                yield features.extract_features(rows.filter(pa.array(mask)))


@dataclass(kw_only=True)
class Preparation:
    """Converts rows of another lake, published or in a folder, into rows of this lake.

    A detector or an importer that runs here later computes the ids of its rows, or brings verdicts
    and timings with ids of their own. If a pulled row had one of these ids, the store would drop or
    refuse the own row as a duplicate. Pulled findings, claims and analyses therefore get the hash
    of their content as their id, and the ids of pulled verdicts and timings begin with `pulled-`,
    unless this lake has the row already.
    """

    origin: str
    """Name of the other lake: its repository, or the folder with its rows."""
    moment: datetime
    lake: Lake
    """This lake. It is asked when a batch is prepared for the first time."""
    resplit: int = 0
    """Number of splits that were replaced by fixed ones."""
    _own: dict[str, tuple[set[str], dict[str, str]]] = field(
        default_factory=dict[str, tuple[set[str], dict[str, str]]]
    )
    """For each table of REKEYED, the ids of the rows that this lake made, also by their content."""
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
        if table.name == "standings":
            # Decisions that the other lake made itself, under ids that no decision which an
            # importer adds here later can have. They follow the findings, whose ids are others.
            if "origin" in rows.column_names:
                rows = rows.filter(pc.is_null(rows.column("origin")))
            given = cast("list[str | None]", rows.column("standing_id").to_pylist())
            own, _ = self._find_own(table)
            others = [one for one in given if one is not None and one not in own]
            new_ids = {one: ids.content_id("pulled", one) for one in others}
            rows = _replace_ids(rows, "finding_id", self._names["findings"])
            rows = _replace_ids(rows, "standing_id", new_ids)
        elif table.name in REKEYED:
            # Give rows the id of the own row with this id or content, or else the content's hash.
            key, names = table.key[0], self._names[table.name]
            own_ids, by_content = self._find_own(table)
            for row in list_rows(rows):
                published = cast("str | None", row[key])
                if published is None or published in own_ids or published in names:
                    continue
                content = hash_content(table, row)
                repeat = self._repeats[content] if table.duplicates == "reject" else 0
                self._repeats[content] += 1
                new = ids.content_id("pulled", content, str(repeat)) if repeat else content
                names[published] = by_content.get(content, new)
            rows = _replace_ids(rows, key, names)
        elif table.name == "splits":
            # A suite with a fixed split gets that of this program.
            listed, before = list_rows(rows), self.resplit
            for row in listed:
                split = task_families.find_split(str(row["suite"]), str(row["family"]))
                if split is not None and split != row["split"]:
                    row["split"] = split
                    self.resplit += 1
            if self.resplit > before:
                rows = pa.Table.from_pylist(listed, schema=rows.schema)
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

    def _find_own(self, table: Table) -> tuple[set[str], dict[str, str]]:
        if table.name not in self._own:
            by_content: dict[str, str] = {}
            own_ids: set[str] = set()
            query = f"SELECT * FROM {table.name} WHERE origin IS NULL"
            for batch in self.lake.run(query).reader(BATCH_ROWS):
                for row in list_rows(batch):
                    own_ids.add(str(row[table.key[0]]))
                    by_content[hash_content(table, row)] = str(row[table.key[0]])
            self._own[table.name] = (own_ids, by_content)
        return self._own[table.name]

    def _rename(self, table: str, column: str, number: int, rows: pa.Table) -> pa.Table:
        """Give measurements another id, except those that this lake has.

        The other id contains the first one, so that rows of this lake that another lake has pulled
        and published are recognized when they come back.
        """
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


def replace_column(rows: pa.Table, name: str, values: Any) -> pa.Table:
    """Return rows with one column replaced."""
    return rows.set_column(rows.column_names.index(name), name, values)


def _replace_ids(rows: pa.Table, column: str, names: Mapping[str, str]) -> pa.Table:
    given = cast("list[str | None]", rows.column(column).to_pylist())
    here = [one if one is None else names.get(one, one) for one in given]
    return replace_column(rows, column, pa.array(here, pa.string()))


_OWN_IDS = {
    name: f'SELECT "{column}" FROM {table} WHERE origin IS NULL'
    for name, table, column in (
        ("run", "runs", "run_id"),
        ("dataset", "datasets", "dataset_id"),
        ("evaluation", "evaluations", "evaluation_id"),
        ("timing session", "timings", "session_id"),
    )
} | {
    "session": "SELECT session_id FROM sessions WHERE run_id IS NULL "
    "OR run_id IN (SELECT run_id FROM runs WHERE origin IS NULL)",
    "device": "SELECT device_id FROM evaluations WHERE origin IS NULL "
    "UNION SELECT device_id FROM task_audits WHERE origin IS NULL",
}
"""Records that rows belong to, with the query for the ids of those that this lake made."""
_ATTACHED: dict[str, dict[str, str]] = {
    table: dict([column])
    for column, tables in {
        ("run_id", "run"): "policies generations evaluations rewards run_ends metrics findings "
        "scans claims datasets sessions",
        ("dataset_id", "dataset"): "dataset_rows",
        ("session_id", "session"): "session_steps tool_calls",
        # An own audit on the device has the key of such a row, and would be dropped as its copy.
        ("device_id", "device"): "task_audits",
    }.items()
    for table in tables.split()
} | {"timings": {"evaluation_id": "evaluation", "session_id": "timing session"}}
"""Tables whose rows add to such a record, by these columns."""


def compare(lake: Lake, redactor: Redactor, part: IncomingTable, *, are_own: bool = False) -> None:
    """Find the rows that are new, the rows that are here, and the rows in conflict.

    With `are_own`, this lake's owner measured the rows elsewhere, so they may join its records.

    Raises:
        ImportFailed: an id is not the hash of its text, or a device passes for one of this lake.
    """
    table = part.table
    for rows in part.batches():
        wrong_ids = row_checks.find_wrong_ids(table, rows)
        if wrong_ids:
            raise ImportFailed(
                f"{table.name}: {len(wrong_ids)} ids are not the hash of their text, such as "
                f"{wrong_ids[0]!a:.70}",
                "Nothing was merged: these rows are not what they claim to be.",
            )
        places = pa.array(range(rows.num_rows), pa.int64())
        incoming = rows.append_column("_place", places)
        lake.register("_incoming", incoming)
        if table.name == "devices":
            for conflict in lake.run(read_sql(__file__, "device_conflicts")).rows():
                raise ImportFailed(
                    f"devices: {conflict['name']!a:.70} of kind {conflict['kind']} would rank with "
                    f"or beside {conflict['known_name']!a:.70} of kind {conflict['known_kind']}",
                    "Nothing was merged: one name has one spelling and one kind of device.",
                )
        # The columns in which a row must equal the row with the same key: not provenance
        # (catalog.yaml), hashed names, private columns, which are missing, and texts, which are
        # checked against their id.
        compared = [
            column.name
            for column in table.columns.values()
            if column.name in rows.column_names
            and column.sensitivity == "public"
            and column.name not in table.key
            and not column.provenance
            and (
                (table.name, column.name) not in VERBATIM
                or table.name in ("generations", "findings")
            )
        ]
        listed = "".join(f', o."{name}"' for name in compared)
        own = lake.run(
            f"SELECT i._place, {quote_names(table.key)}{listed} FROM {table.name} AS o "
            f"JOIN _incoming AS i USING ({quote_names(table.key)}) ORDER BY i._place"
        ).arrow()
        fresh = np.ones(rows.num_rows, dtype=bool)
        held = own.column("_place").to_numpy()
        fresh[held] = False
        # A pulled row that names a run, an evaluation, a session or a dataset that this lake
        # recorded would change that record.
        tests = ", ".join(
            f"CASE WHEN \"{column}\" IN ({_OWN_IDS[record]}) THEN '{record}' END"
            for column, record in _ATTACHED.get(table.name, {}).items()
            if column in rows.column_names
        )
        if tests and fresh.any() and not are_own:
            lake.register("_fresh", incoming.filter(pa.array(fresh)))
            for row in lake.run(
                "SELECT _place, joins FROM (SELECT _place, "
                f"list_filter([{tests}], x -> x IS NOT NULL) AS joins FROM _fresh) "
                "WHERE len(joins) > 0 ORDER BY _place"
            ).rows():
                part.joining.update(map(str, row["joins"]))
                fresh[row["_place"]] = False
        part.fresh.append(fresh)
        part.there += len(set(held.tolist()))
        if not own.num_rows or not compared:
            continue
        # Rows are compared in the form in which they leave this lake; redacted parts do not differ.
        scrubbed = [name for name in compared if is_scrubbed(table, table.columns[name])]
        for name in scrubbed:
            column = table.columns[name]
            own = replace_column(own, name, redactor.redact_column(table, column, own.column(name)))
            clean = redactor.redact_column(table, column, incoming.column(name))
            incoming = replace_column(incoming, name, clean)
        lake.register("_incoming", incoming)
        lake.register("_own", own)
        cases: list[str] = []
        for name in compared:
            mine, theirs = f'o."{name}"', f'i."{name}"'
            if name in scrubbed:
                # Each lake hashes the same name with its own salt.
                mine, theirs = (
                    f"regexp_replace({side}::VARCHAR, '{PSEUDONYM.pattern}', 'anon', 'g')"
                    for side in (mine, theirs)
                )
            cases.append(f"CASE WHEN {mine} IS DISTINCT FROM {theirs} THEN '{name}' END")
        key = ", ".join(f'i."{name}"' for name in table.key)
        found = lake.run(
            f"SELECT {key}, differs FROM (SELECT i.*, "
            f"list_filter([{', '.join(cases)}], x -> x IS NOT NULL) AS differs "
            "FROM _incoming AS i JOIN _own AS o USING (_place)) AS i "
            "WHERE len(differs) > 0 ORDER BY ALL"
        ).arrow()
        part.conflicting += found.num_rows
        part.differing |= {str(name) for row in found.to_pylist() for name in row["differs"]}
        room = EXAMPLES - len(part.conflicts)
        shown = found.slice(0, max(0, room)).select(list(table.key)).to_pylist()
        part.conflicts += describe_rows(table.key, [tuple(row.values()) for row in shown])


def describe_joining(part: IncomingTable) -> list[str]:
    """Describe the rows that stay out because they would join records of this lake."""
    return [
        f"kept out of {part.table.name}: {count} that would join this lake's {record}s"
        for record, count in sorted(part.joining.items())
    ]


NAME = "pull"
VERSION = 2
MANIFEST_BYTES = 64 << 20
Progress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True)
class Conflict:
    """Rows of a table whose key exists here with other content; they were not merged."""

    table: str
    count: int
    columns: str
    """Columns that differ."""
    examples: list[str]


@dataclass(frozen=True, kw_only=True)
class PullSummary:
    """The result of a pull."""

    repo: str
    revision: str
    rows: dict[str, int]
    """Table to rows added."""
    there: int
    """Rows that this lake had before."""
    conflicts: list[Conflict]
    notices: list[str]
    snapshot: int


def pull(
    url: str | None,
    name: str,
    *,
    hub: Hub | None = None,
    limits: ParquetLimits = PARQUET_LIMITS,
    progress: Progress | None = None,
) -> PullSummary:
    """Merge ORG/NAME or ORG/NAME@REV into a lake; create the lake if there is none.

    Pulling the same edition again adds nothing. The rows are stored as one bundle with a row of
    `runs` that names the repository, the commit and the licenses; pulled verdicts, runs and
    attempts without a source get this repository as their source. Pulled standings, verdicts,
    audits, claims, labels and splits never override those of this lake (views finding_standings,
    counted_evaluations, weak_workloads, current_claims, counted_labels).

    Raises:
        ImportFailed: a file differs from the manifest or expands beyond `limits`, or an id is not
            the hash of its text; nothing is merged.
        RowsRejected: rows break a rule of the catalog; nothing is merged (exit 3).
        FlywheelError: no such repository or revision, or the Hub refuses.
    """
    say = progress or (lambda _: None)
    repo, _, wanted = name.partition("@")
    if not REPO.fullmatch(repo):
        raise FlywheelError(
            f"{quote_name(name)} is not a repository", "Write ORG/NAME or ORG/NAME@v1."
        )
    hub = hub or Hub()
    there = hub.find(repo, wanted or None)
    if there is None:
        at = f" at {wanted}" if wanted else ""
        raise FlywheelError(
            f"{repo}{at} does not exist, or you have no access to it",
            "Check the name and the revision; a private one needs a token that may read it.",
        )
    _check_size(there, [MANIFEST], MANIFEST_BYTES)
    folder = hub.download(repo, there.revision, [MANIFEST])
    manifest = _read_manifest(folder / MANIFEST, name)
    stated = [one for files in manifest["tables"].values() for one in files]
    say(f"{repo}: {len(stated)} files, {sum(int(one['bytes']) for one in stated) / 1e6:.1f} MB")
    paths = [str(one["path"]) for one in stated]
    _check_size(there, paths, int(limits.max_total_gb * GB))
    Location.of(url).announce_lake()
    folder = hub.download(repo, there.revision, paths)
    for one in stated:
        file = folder / str(one["path"])
        if file.exists() and hash_file(file) == one["sha256"]:
            continue
        # If it stayed in the client's cache, the next pull would use it.
        for damaged in {file.resolve(), file}:
            damaged.unlink(missing_ok=True)
        raise ImportFailed(
            f"{one['path']} is damaged: its sha256 is not that of {MANIFEST}",
            "Nothing was merged. Run it again; if it stays so, the repository itself is damaged.",
        )
    say("checking what the files expand to")
    with parquet.use_limits(limits):
        parquet.check_files([folder / path for path in paths])
    say("comparing rows")
    # An edition that is refused makes no lake.
    with store.writer(url, author="store pull") as writer:
        return _merge(writer, repo, there.revision, manifest, folder)


def _read_manifest(file: Path, name: str) -> dict[str, Any]:
    """Read flywheel.json, trusting nothing in it."""
    try:
        found: Any = json.loads(file.read_text("utf-8"))
        if found["format"] != FORMAT:
            raise ImportFailed(
                f"{name} is an edition of format {found['format']!a:.20}",
                f"This version reads format {FORMAT}: install a newer one.",
            )
        # Editions of versions before 0.2.0 have no number.
        schema, known = int(found.get("schema", 0)), catalogs.load().schema
        if schema > known:
            raise ImportFailed(
                f"{name} was published by {found['made_by']!a:.40} (schema {schema}); this is "
                f"kernel-flywheel {store.__version__} (schema {known}), which would lose values",
                "Nothing was merged: install that version or a newer one.",
            )
        for files in found["tables"].values():
            for one in files:
                path = Path(str(one["path"]))
                if path.is_absolute() or ".." in path.parts or path.parts[0] != "data":
                    raise ValueError(f"path {one['path']!a:.90}")
                one["sha256"] = str(one["sha256"])
                one["bytes"] = int(one["bytes"])
        found["snapshot_id"] = int(found["snapshot_id"])
        found["licenses"] = [str(one[1]) for one in found["licenses"]]
    except ImportFailed:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ImportFailed(
            f"{name} has no {MANIFEST} that can be read: {error!r:.200}",
            "`store publish` writes one; other datasets have importers (store import --help).",
        ) from error
    return cast("dict[str, Any]", found)


def _check_size(there: RepositoryState, paths: list[str], most_bytes: int) -> None:
    size = sum(there.files[path][1] for path in paths if path in there.files)
    if size > most_bytes:
        raise ImportFailed(
            f"{len(paths)} files of {size} bytes, where {most_bytes} are allowed",
            "Nothing was downloaded. If you trust the repository, raise --max-total-gb.",
        )


def _merge(
    writer: store.Writer, repo: str, revision: str, manifest: dict[str, Any], folder: Path
) -> PullSummary:
    started_at = datetime.now(UTC)
    known = catalogs.load()
    notices: list[str] = []
    unknown = sorted(set(manifest["tables"]) - set(known.tables))
    if unknown:
        notices.append(f"tables that this version does not know: {', '.join(unknown)}")
    with writer.reader() as lake:
        incoming = Preparation(origin=repo, moment=started_at, lake=lake)
        parts: list[IncomingTable] = []
        for name, table in known.tables.items():
            if name not in manifest["tables"] or name in STAYS:
                continue
            files = [folder / str(one["path"]) for one in manifest["tables"][name]]
            part = IncomingTable(table=table, files=files, prepare=incoming.prepare)
            parts.append(part)
            if name == "kernels":
                table = known.table("kernel_features")
                parts.append(
                    IncomingFeatures(table=table, files=[], prepare=incoming.prepare, kernels=part)
                )
        before = _list_quarantined(lake)
        redactor = Redactor(lake.location.read_salt(), known)
        for part in parts:
            try:
                compare(lake, redactor, part)
            except pa.ArrowException as error:
                raise ImportFailed(f"{part.table.name} cannot be read: {error}") from error
    # A repeated pull of the same files is recognized by the id of its bundle.
    hashes = [
        str(one["sha256"])
        for part in parts
        if part.files
        for one in manifest["tables"][part.table.name]
    ]
    bundle_id = ids.content_id(NAME, str(VERSION), *hashes)
    tag = manifest.get("tag")
    # The same rows under another repository name are another pull.
    run_id = ids.content_id(NAME, repo, str(tag), bundle_id)
    run = store.make_run(
        kind="import",
        name=NAME,
        config={"repo": repo, "tag": tag},
        run_id=run_id,
        started_at=started_at,
    ) | {
        "source": repo,
        "source_revision": revision,
        "license": " AND ".join(sorted(set(manifest["licenses"]))) or None,
    }
    own = {"runs": [run], "run_ends": [store.make_end(run_id)]}
    rows: dict[str, Any] = {}
    for part in parts:
        if any(mask.any() for mask in part.fresh):
            rows[part.table.name] = _open_reader(part, repo, revision, own.get(part.table.name, []))
    rows = own | rows
    message = f"{repo}@{revision[:12]}: snapshot {manifest['snapshot_id']} of another lake"
    # If lake and edition are unchanged, there is no commit, because the bundle is known.
    stored = writer.load(rows, message, bundle_id=bundle_id)
    with writer.reader() as lake:
        after = _list_quarantined(lake)
        snapshot = lake.snapshot
    counts = {} if stored is None else writer.find_committed([bundle_id])[bundle_id]
    if after - before:
        notices.append(f"now in quarantine by pulled decisions: {len(after - before)} kernels")
    for part in parts:
        notices += describe_joining(part)
    if incoming.resplit:
        notices.append(f"splits replaced by those decided for the suite: {incoming.resplit}")
    return PullSummary(
        repo=repo,
        revision=revision,
        rows={table: count for table, count in counts.items() if count},
        there=sum(part.there for part in parts),
        conflicts=[
            Conflict(
                part.table.name, part.conflicting, ", ".join(sorted(part.differing)), part.conflicts
            )
            for part in parts
            if part.conflicting
        ],
        notices=notices,
        snapshot=snapshot,
    )


def _open_reader(
    part: IncomingTable, repo: str, revision: str, own: list[dict[str, Any]]
) -> pa.RecordBatchReader:
    table = part.table

    def batches() -> Iterator[pa.RecordBatch]:
        for rows in part.new_rows():
            if table.name == "lakes":
                # The oldest row is this lake's own; pulled rows count from the time of the pull.
                moment = pa.scalar(datetime.now(UTC), table.arrow_schema.field("created_at").type)
                rows = replace_column(rows, "created_at", pa.repeat(moment, rows.num_rows))
                names = pc.coalesce(rows.column("name"), pa.scalar(repo))
                rows = replace_column(rows, "name", names)
            elif table.name in ("evaluations", "generations", "runs"):
                ours = pc.is_null(rows.column("source"))
                for name, value in (("source", repo), ("source_revision", revision)):
                    values = pc.if_else(ours, pa.scalar(value), rows.column(name))
                    rows = replace_column(rows, name, values)
            yield from conform(table, rows).to_batches()
        if own:
            yield from conform(table, own).to_batches()

    return pa.RecordBatchReader.from_batches(table.open_schema, batches())


def _list_quarantined(lake: Lake) -> set[str]:
    return {str(row["kernel_id"]) for row in lake.run("SELECT kernel_id FROM quarantined").rows()}
