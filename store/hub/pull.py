"""`store pull`: rows of a published lake merged into one's own, by content; nothing is overwritten.

Every file is held against the manifest's sha256 and against limits on what it expands to, every
task, kernel, workload and prompt against the hash that is its id, and every row against the rules
of the catalog, before one transaction stores what is new. A row whose key is here with other
content stays out and is listed.

Pulled rows inform and decide nothing that this lake has decided. Rows of tables that carry
decisions or measurements state the repository in `origin`, and the views count this lake's own
before them. Times in the future are set to now. What would change this lake's own rows through
others stays out: rows that join a run, evaluation, timing session or dataset of this lake, splits
that contradict decided ones, and features, which are extracted here from the pulled code.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import store
from store import ids
from store.code import features, task_families
from store.commandline.escape import quote_name
from store.errors import FlywheelError, ImportFailed
from store.foreign import parquet
from store.foreign.parquet import ParquetLimits
from store.foreign.times import clamp_times
from store.hub.client import REPO, Hub, There
from store.hub.edition import FORMAT, MANIFEST
from store.hub.redact import PSEUDONYM, VERBATIM, Redactor, salt, scrubs
from store.lake.checksums import sha256_of
from store.lake.reader import Lake
from store.schema import catalog as catalogs
from store.schema import id_checks
from store.schema.catalog import Table
from store.schema.row_checks import EXAMPLES, columns, describe

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

NAME = "pull"
VERSION = 2
STAYS = ("catalogs", "tags", "ingest_log", "file_checksums", "kernel_features")
"""Tables that speak of their own lake's snapshots or files, or that follow from others."""
OWNED = {
    "run_id": "runs",
    "dataset_id": "datasets",
    "evaluation_id": "evaluations",
    "session_id": "timings",
}
"""Columns by which a row belongs to another one, and the table that says whose that is."""
ATTACHED = {
    "policies": ("run_id",),
    "generations": ("run_id",),
    "evaluations": ("run_id",),
    "timings": ("evaluation_id", "session_id"),
    "rewards": ("run_id",),
    "metrics": ("run_id",),
    "findings": ("run_id",),
    "scans": ("run_id",),
    "claims": ("run_id",),
    "datasets": ("run_id",),
    "dataset_rows": ("dataset_id",),
}
"""Tables whose rows add to a run, evaluation, session or dataset, by these columns."""
MANIFEST_BYTES = 64 << 20
BATCH_ROWS = 10_000
Progress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """Rows of a table whose key is here with other content; they were not merged."""

    table: str
    count: int
    columns: str
    """Columns that differ."""
    examples: list[str]


@dataclass(frozen=True, kw_only=True)
class Pulled:
    """What a pull did."""

    repo: str
    revision: str
    rows: dict[str, int]
    """Table to rows added."""
    there: int
    """Rows that were here already."""
    conflicts: list[Conflict]
    notices: list[str]
    snapshot: int


@dataclass(kw_only=True)
class _Table:
    """One table of the edition, and which of its rows are new."""

    table: Table
    files: list[Path]
    prepare: Callable[[Table, pa.Table], pa.Table]
    """Turns rows as published into rows as this lake takes them."""
    fresh: list[np.ndarray[Any, Any]] = field(default_factory=list["np.ndarray[Any, Any]"])
    """For each batch, whether a row is to be stored."""
    there: int = 0
    conflicts: list[str] = field(default_factory=list[str])
    differing: set[str] = field(default_factory=set[str])
    conflicting: int = 0
    joining: Counter[str] = field(default_factory=Counter[str])
    """New rows that stay out, by the column that names something of this lake."""

    def batches(self) -> Iterator[pa.Table]:
        """Yield the rows with the columns that the catalog knows, always cut the same way."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        for file in self.files:
            for batch in pq.ParquetFile(file).iter_batches(BATCH_ROWS):
                rows = pa.Table.from_batches([batch])
                known = [one for one in rows.column_names if one in self.table.columns]
                yield self.prepare(self.table, rows.select(known))

    def new_rows(self) -> Iterator[pa.Table]:
        """Yield the rows that are to be stored."""
        import pyarrow as pa

        for rows, mask in zip(self.batches(), self.fresh, strict=True):
            if mask.any():
                yield rows.filter(pa.array(mask))


@dataclass(kw_only=True)
class _Features(_Table):
    """Features of the pulled kernels: extracted here from their code, whatever was published."""

    kernels: _Table

    def batches(self) -> Iterator[pa.Table]:
        """Yield the keys that the features of each batch of kernels have."""
        import pyarrow as pa

        for rows in self.kernels.batches():
            version = pa.array([features.EXTRACTOR_VERSION] * rows.num_rows, pa.int32())
            yield rows.select(["kernel_id"]).append_column("extractor_version", version)

    def new_rows(self) -> Iterator[pa.Table]:
        """Yield features of those kernels that have none of this version."""
        import pyarrow as pa

        for rows, mask in zip(self.kernels.batches(), self.fresh, strict=True):
            if mask.any():
                yield features.extract_many(rows.filter(pa.array(mask)))


@dataclass(kw_only=True)
class _Rows:
    """How published rows become rows of this lake."""

    repo: str
    revision: str
    moment: datetime
    own_standings: frozenset[str]
    """Ids of the decisions made here."""
    resplit: int = 0
    """Splits that were replaced by the decided ones."""

    def prepare(self, table: Table, rows: pa.Table) -> pa.Table:
        """Return rows with their origin, times not after now, and nothing decided for this lake."""
        import pyarrow as pa

        if table.name == "standings":
            rows = self._standings(rows)
        elif table.name == "splits":
            rows = self._splits(rows)
        elif table.name == "workloads":
            rows = _named_default(rows)
        if "origin" in table.columns:
            origin = pa.repeat(pa.scalar(self.repo), rows.num_rows)
            if "origin" in rows.column_names:
                rows = _replaced(rows, "origin", origin)
            else:
                rows = rows.append_column("origin", origin)
        return clamp_times(table, rows, self.moment)

    def _standings(self, rows: pa.Table) -> pa.Table:
        """Keep decisions that the other lake made itself, under ids that none of ours can have.

        A pulled row must not take the id of a decision that an importer makes here later.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if "origin" in rows.column_names:
            rows = rows.filter(pc.is_null(rows.column("origin")))
        given = cast("list[str | None]", rows.column("standing_id").to_pylist())
        named = [
            one if one is None or one in self.own_standings else ids.content_id("pulled", one)
            for one in given
        ]
        return _replaced(rows, "standing_id", pa.array(named, pa.string()))

    def _splits(self, rows: pa.Table) -> pa.Table:
        """Put this program's split in place of another one, where a suite has been decided."""
        import pyarrow as pa

        changed = 0
        listed = rows.to_pylist()
        for row in listed:
            split = task_families.decided(str(row["suite"]), str(row["family"]))
            if split is not None and split != row["split"]:
                row["split"] = split
                changed += 1
        if not changed:
            return rows
        self.resplit += changed
        return pa.Table.from_pylist(listed, schema=rows.schema)


def pull(
    url: str | None,
    name: str,
    *,
    hub: Hub | None = None,
    limits: ParquetLimits = parquet.DEFAULT,
    progress: Progress | None = None,
) -> Pulled:
    """Merge ORG/NAME or ORG/NAME@REV into a lake (made where there is none).

    Pulling the same again adds nothing. What came is a bundle with a row of `runs` that names the
    repository, the commit and the licences; imported verdicts, runs and attempts that name no
    source get it as theirs. Standings, verdicts and audits that were pulled override none of this
    lake (views finding_standings, counted_evaluations, weak_workloads).

    Raises:
        ImportFailed: a file is not what the manifest says, expands beyond `limits`, or an id is not
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
    there = hub.look(repo, wanted or None)
    if there is None:
        at = f" at {wanted}" if wanted else ""
        raise FlywheelError(
            f"nothing to be seen at {repo}{at}",
            "Look at the name and the revision; a private one needs a token that may read it.",
        )
    _check_size(there, [MANIFEST], MANIFEST_BYTES)
    folder = hub.download(repo, there.revision, [MANIFEST])
    manifest = _manifest(folder / MANIFEST, name)
    stated = [one for files in manifest["tables"].values() for one in files]
    say(f"{repo}: {len(stated)} files, {sum(int(one['bytes']) for one in stated) / 1e6:.1f} MB")
    paths = [str(one["path"]) for one in stated]
    _check_size(there, paths, int(limits.total_gb * parquet.GB))
    folder = hub.download(repo, there.revision, paths)
    for one in stated:
        _verify(folder, one)
    say("checking what the files expand to")
    with parquet.limited(limits):
        parquet.check([folder / path for path in paths])
    say("comparing rows")
    with store.writer(url, author="store pull") as writer:
        return _merge(writer, repo, there.revision, manifest, folder)


def _manifest(file: Path, name: str) -> dict[str, Any]:
    """Read flywheel.json, trusting nothing in it."""
    try:
        found: Any = json.loads(file.read_text("utf-8"))
        if found["format"] != FORMAT:
            raise ImportFailed(
                f"{name} is an edition of format {found['format']!a:.20}",
                f"This version reads format {FORMAT}: install a newer one.",
            )
        for files in found["tables"].values():
            for one in files:
                path = Path(str(one["path"]))
                if path.is_absolute() or ".." in path.parts or path.parts[0] != "data":
                    raise ValueError(f"path {one['path']!a:.90}")
                one["sha256"] = str(one["sha256"])
                one["bytes"] = int(one["bytes"])
        found["snapshot_id"] = int(found["snapshot_id"])
        found["licences"] = [str(one[1]) for one in found["licences"]]
    except ImportFailed:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ImportFailed(
            f"{name} has no {MANIFEST} that can be read: {error!r:.200}",
            "`store publish` writes one; other datasets have importers (store import --help).",
        ) from error
    return cast("dict[str, Any]", found)


def _check_size(there: There, paths: list[str], most_bytes: int) -> None:
    """Raise ImportFailed before more is downloaded than could be accepted."""
    size = sum(there.files[path][1] for path in paths if path in there.files)
    if size > most_bytes:
        raise ImportFailed(
            f"{len(paths)} files of {size} bytes, where {most_bytes} are allowed",
            "Nothing was downloaded. If you trust the repository, raise --max-total-gb.",
        )


def _verify(folder: Path, stated: dict[str, Any]) -> None:
    """Raise ImportFailed where a file is not the one that was published; it is downloaded anew."""
    file = folder / str(stated["path"])
    if file.exists() and sha256_of(file) == stated["sha256"]:
        return
    # Left in the client's cache it would be taken for good the next time.
    for one in {file.resolve(), file}:
        one.unlink(missing_ok=True)
    raise ImportFailed(
        f"{stated['path']} is damaged: its sha256 is not that of {MANIFEST}",
        "Nothing was merged. Run it again; if it stays so, the repository itself is damaged.",
    )


def _merge(
    writer: store.Writer, repo: str, revision: str, manifest: dict[str, Any], folder: Path
) -> Pulled:
    import pyarrow as pa

    started_at = datetime.now(UTC)
    known = catalogs.load()
    notices: list[str] = []
    unknown = sorted(set(manifest["tables"]) - set(known.tables))
    if unknown:
        notices.append(f"tables that this version does not know: {', '.join(unknown)}")
    with writer.reader() as lake:
        own = lake.run("SELECT standing_id FROM standings WHERE origin IS NULL").rows()
        incoming = _Rows(
            repo=repo,
            revision=revision,
            moment=started_at,
            own_standings=frozenset(str(row["standing_id"]) for row in own),
        )
        parts = _parts(manifest, folder, incoming)
        before = _quarantined(lake)
        redactor = Redactor(salt(lake.location), known)
        for part in parts:
            try:
                _compare(lake, redactor, part)
            except pa.ArrowException as error:
                raise ImportFailed(f"{part.table.name} cannot be read: {error}") from error
    hashes = [
        str(one["sha256"])
        for part in parts
        if part.files
        for one in manifest["tables"][part.table.name]
    ]
    bundle_id = ids.content_id(NAME, str(VERSION), *hashes)
    tag = manifest.get("tag")
    run = {
        # The same rows under another name, or pulled elsewhere from a mirror, are another pull.
        "run_id": ids.content_id(NAME, repo, str(tag), bundle_id),
        "kind": "import",
        "name": NAME,
        "config": json.dumps({"repo": repo, "tag": tag}),
        "version": store.__version__,
        "source": repo,
        "source_revision": revision,
        "license": " AND ".join(sorted(set(manifest["licences"]))) or None,
        "started_at": started_at,
        "finished_at": datetime.now(UTC),
    }
    rows: dict[str, Any] = {}
    for part in parts:
        if any(mask.any() for mask in part.fresh):
            own = [run] if part.table.name == "runs" else []
            rows[part.table.name] = _reader(part, repo, revision, own)
    rows.setdefault("runs", [run])
    message = f"{repo}@{revision[:12]}: snapshot {manifest['snapshot_id']} of another lake"
    # An unchanged lake and edition make no commit: the bundle is known.
    stored = writer.load(rows, message, bundle_id=bundle_id)
    with writer.reader() as lake:
        after = _quarantined(lake)
        added = _added(lake, bundle_id) if stored is not None else {}
        snapshot = lake.snapshot
    if after - before:
        notices.append(f"now in quarantine by pulled decisions: {len(after - before)} kernels")
    for part in parts:
        for column, count in sorted(part.joining.items()):
            notices.append(
                f"kept out: {count} rows of {part.table.name} that would join a {column} of this "
                "lake"
            )
    if incoming.resplit:
        notices.append(f"splits replaced by those decided for the suite: {incoming.resplit}")
    return Pulled(
        repo=repo,
        revision=revision,
        rows=added,
        there=sum(part.there for part in parts),
        conflicts=[
            Conflict(
                table=part.table.name,
                count=part.conflicting,
                columns=", ".join(sorted(part.differing)),
                examples=part.conflicts,
            )
            for part in parts
            if part.conflicting
        ],
        notices=notices,
        snapshot=snapshot,
    )


def _parts(manifest: dict[str, Any], folder: Path, incoming: _Rows) -> list[_Table]:
    """Return the tables of an edition that are merged, in the catalog's order."""
    found: list[_Table] = []
    known = catalogs.load()
    for name, table in known.tables.items():
        if name not in manifest["tables"] or name in STAYS:
            continue
        files = [folder / str(one["path"]) for one in manifest["tables"][name]]
        part = _Table(table=table, files=files, prepare=incoming.prepare)
        found.append(part)
        if name == "kernels":
            table = known.table("kernel_features")
            found.append(_Features(table=table, files=[], prepare=incoming.prepare, kernels=part))
    return found


def _compare(lake: Lake, redactor: Redactor, part: _Table) -> None:
    """Find out which rows are new, which are here, and which are here with other content."""
    import numpy as np
    import pyarrow as pa

    table = part.table
    for rows in part.batches():
        _check_ids(table, rows)
        places = pa.array(range(rows.num_rows), pa.int64())
        incoming = rows.append_column("_place", places)
        lake.register("_incoming", incoming)
        compared = _compared(table, rows.column_names)
        listed = "".join(f', o."{name}"' for name in compared)
        own = lake.run(
            f"SELECT i._place, {columns(table.key)}{listed} FROM {table.name} AS o "
            f"JOIN _incoming AS i USING ({columns(table.key)}) ORDER BY i._place"
        ).arrow()
        fresh = np.ones(rows.num_rows, dtype=bool)
        held = own.column("_place").to_numpy()
        fresh[held] = False
        joining = _find_joining(lake, part, incoming.filter(pa.array(fresh)))
        fresh[joining] = False
        part.fresh.append(fresh)
        part.there += len(set(held.tolist()))
        if own.num_rows and compared:
            _find_conflicts(lake, redactor, part, incoming, own, compared)


def _find_joining(lake: Lake, part: _Table, fresh: pa.Table) -> list[int]:
    """Return the places of new rows that would join what is this lake's own, and count them.

    A run, an evaluation, a timing session and a dataset of this lake are what this lake recorded:
    a pulled row that names one would change what it says.
    """
    table = part.table
    named = [one for one in ATTACHED.get(table.name, ()) if one in fresh.column_names]
    if not named or not fresh.num_rows:
        return []
    lake.register("_fresh", fresh)
    tests = ", ".join(
        f'CASE WHEN "{one}" IN (SELECT "{one}" FROM {OWNED[one]} WHERE origin IS NULL) '
        f"THEN '{one}' END"
        for one in named
    )
    found = lake.run(
        "SELECT _place, joins FROM (SELECT _place, "
        f"list_filter([{tests}], x -> x IS NOT NULL) AS joins FROM _fresh) "
        "WHERE len(joins) > 0 ORDER BY _place"
    ).rows()
    part.joining.update(str(name) for row in found for name in row["joins"])
    return [int(row["_place"]) for row in found]


def _find_conflicts(
    lake: Lake,
    redactor: Redactor,
    part: _Table,
    incoming: pa.Table,
    own: pa.Table,
    compared: list[str],
) -> None:
    """Compare rows as they would leave this lake: what was cut there is no difference.

    Neither are pseudonyms inside texts: each lake hashes the same name in its own way.
    """
    table = part.table
    scrubbed = [name for name in compared if scrubs(table, table.columns[name])]
    for name in scrubbed:
        column = table.columns[name]
        own = _replaced(own, name, redactor.clean(table, column, own.column(name)))
        clean = redactor.clean(table, column, incoming.column(name))
        incoming = _replaced(incoming, name, clean)
    lake.register("_incoming", incoming)
    lake.register("_own", own)

    def value(side: str, name: str) -> str:
        plain = f'{side}."{name}"'
        if name not in scrubbed:
            return plain
        return f"regexp_replace({plain}::VARCHAR, '{PSEUDONYM.pattern}', 'anon', 'g')"

    differs = ", ".join(
        f"CASE WHEN {value('o', name)} IS DISTINCT FROM {value('i', name)} THEN '{name}' END"
        for name in compared
    )
    key = ", ".join(f'i."{name}"' for name in table.key)
    found = lake.run(
        f"SELECT {key}, differs FROM (SELECT i.*, list_filter([{differs}], x -> x IS NOT NULL) "
        "AS differs FROM _incoming AS i JOIN _own AS o USING (_place)) AS i "
        "WHERE len(differs) > 0 ORDER BY ALL"
    ).arrow()
    part.conflicting += found.num_rows
    part.differing |= {str(name) for row in found.to_pylist() for name in row["differs"]}
    room = EXAMPLES - len(part.conflicts)
    shown = found.slice(0, max(0, room)).select(list(table.key)).to_pylist()
    part.conflicts += describe(table.key, [tuple(row.values()) for row in shown])


def _compared(table: Table, given: list[str]) -> list[str]:
    """Return the columns in which a row may not differ from the one of the same key.

    Provenance (catalog.yaml) says where a row came from. Names were hashed on the way, private
    columns are missing, and texts are held against their id.
    """
    return [
        column.name
        for column in table.columns.values()
        if column.name in given
        and column.sensitivity == "public"
        and column.name not in table.key
        and not column.provenance
        and ((table.name, column.name) not in VERBATIM or table.name in ("generations", "findings"))
    ]


def _check_ids(table: Table, rows: pa.Table) -> None:
    """Raise ImportFailed where an id is not the hash of what it stands for."""
    wrong = id_checks.wrong_ids(table, rows)
    if wrong:
        raise ImportFailed(
            f"{table.name}: {len(wrong)} ids are not the hash of their text, such as "
            f"{wrong[0]!a:.70}",
            "Nothing was merged: these rows are not what they claim to be.",
        )


def _reader(
    part: _Table, repo: str, revision: str, own: list[dict[str, Any]]
) -> pa.RecordBatchReader:
    """Return the new rows of a table as a stream, with where they came from."""
    import pyarrow as pa

    from store.writing.bundle import conform

    def batches() -> Iterator[pa.RecordBatch]:
        for rows in part.new_rows():
            kept = _with_source(part.table, rows, repo, revision)
            yield from conform(part.table, kept).to_batches()
        if own:
            yield from conform(part.table, own).to_batches()

    return pa.RecordBatchReader.from_batches(part.table.open_schema, batches())


def _with_source(table: Table, rows: pa.Table, repo: str, revision: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    if table.name == "lakes":
        # The oldest row is this lake's own: another one counts from when it came.
        moment = pa.scalar(datetime.now(UTC), table.arrow_schema.field("created_at").type)
        rows = _replaced(rows, "created_at", pa.repeat(moment, rows.num_rows))
        return _replaced(rows, "name", pc.coalesce(rows.column("name"), pa.scalar(repo)))
    if table.name not in ("evaluations", "generations", "runs"):
        return rows
    ours = pc.is_null(rows.column("source"))
    for name, value in (("source", repo), ("source_revision", revision)):
        rows = _replaced(rows, name, pc.if_else(ours, pa.scalar(value), rows.column(name)))
    return rows


def _named_default(rows: pa.Table) -> pa.Table:
    """Call a workload that leaves the task as it is by the name that every lake gives it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.equal(rows.column("axes"), pa.scalar("{}"))
    if "dtype" in rows.column_names:
        plain = pc.and_(plain, pc.is_null(rows.column("dtype")))
    return _replaced(rows, "name", pc.if_else(plain, pa.scalar("default"), rows.column("name")))


def _replaced(rows: pa.Table, name: str, values: Any) -> pa.Table:
    return rows.set_column(rows.column_names.index(name), name, values)


def _quarantined(lake: Lake) -> set[str]:
    return {str(row["kernel_id"]) for row in lake.run("SELECT kernel_id FROM quarantined").rows()}


def _added(lake: Lake, bundle_id: str) -> dict[str, int]:
    row = lake.run("SELECT row_counts FROM ingest_log WHERE bundle_id = $1", [bundle_id]).one()
    counts = cast("dict[str, int]", json.loads(row["row_counts"])) if row else {}
    return {table: count for table, count in counts.items() if count}
