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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import store
from store import ids
from store.commandline.escape import quote_name
from store.errors import FlywheelError, ImportFailed
from store.foreign import parquet
from store.foreign.parquet import ParquetLimits
from store.hub.client import REPO, Hub, RepositoryState
from store.hub.comparison import compare, describe_joining
from store.hub.edition_writer import FORMAT, MANIFEST
from store.hub.incoming import IncomingTable, Preparation, list_tables, replace_column
from store.hub.redact import Redactor
from store.lake.checksums import hash_file
from store.lake.location import Location
from store.lake.reader import Lake
from store.schema import catalog as catalogs
from store.schema.tables import Table

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "pull"
VERSION = 2
MANIFEST_BYTES = 64 << 20
Progress: TypeAlias = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
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
    limits: ParquetLimits = parquet.DEFAULT,
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
    _check_size(there, paths, int(limits.total_gb * parquet.GB))
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
    import pyarrow as pa

    started_at = datetime.now(UTC)
    known = catalogs.load()
    notices: list[str] = []
    unknown = sorted(set(manifest["tables"]) - set(known.tables))
    if unknown:
        notices.append(f"tables that this version does not know: {', '.join(unknown)}")
    with writer.reader() as lake:
        incoming = Preparation(origin=repo, moment=started_at, lake=lake)
        parts = list_tables(manifest, folder, incoming)
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
        row = lake.run("SELECT row_counts FROM ingest_log WHERE bundle_id = $1", [bundle_id]).one()
        counts = json.loads(row["row_counts"]) if row and stored is not None else {}
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


def _open_reader(
    part: IncomingTable, repo: str, revision: str, own: list[dict[str, Any]]
) -> pa.RecordBatchReader:
    import pyarrow as pa

    from store.writing.bundle import conform

    def batches() -> Iterator[pa.RecordBatch]:
        for rows in part.new_rows():
            kept = _add_source(part.table, rows, repo, revision)
            yield from conform(part.table, kept).to_batches()
        if own:
            yield from conform(part.table, own).to_batches()

    return pa.RecordBatchReader.from_batches(part.table.open_schema, batches())


def _add_source(table: Table, rows: pa.Table, repo: str, revision: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    if table.name == "lakes":
        # The oldest row is this lake's own; pulled rows count from the time of the pull.
        moment = pa.scalar(datetime.now(UTC), table.arrow_schema.field("created_at").type)
        rows = replace_column(rows, "created_at", pa.repeat(moment, rows.num_rows))
        return replace_column(rows, "name", pc.coalesce(rows.column("name"), pa.scalar(repo)))
    if table.name not in ("evaluations", "generations", "runs"):
        return rows
    ours = pc.is_null(rows.column("source"))
    for name, value in (("source", repo), ("source_revision", revision)):
        rows = replace_column(rows, name, pc.if_else(ours, pa.scalar(value), rows.column(name)))
    return rows


def _list_quarantined(lake: Lake) -> set[str]:
    return {str(row["kernel_id"]) for row in lake.run("SELECT kernel_id FROM quarantined").rows()}
