"""Runs importers, whose sources are read in pieces, and builds the rows of each piece.

Each piece is a bundle, stored whole and once. A file is read twice: the first pass decides the
splits of all its tasks, and the second one yields the pieces. Memory holds one piece at a time. An
interrupted import skips the pieces that are stored. A record that cannot be read is left out and
named; so are the files of a source that nothing reads.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, TypeVar, cast

import store
from store import faults, ids
from store.code import task_families
from store.code.completion import ENTRY_PATH as ENTRY_PATH
from store.code.python_syntax import parse_python
from store.commandline import echo
from store.commandline.escape import escape_terminal
from store.commandline.members import AuthorOption, Common, DeviceModel, Member
from store.dossier.pages import find_task
from store.errors import ImportFailed, RowsRejected
from store.foreign import left_out, text_files
from store.foreign.text_files import Fields, clean, measure
from store.ids import content_id
from store.importers.reading import sources
from store.rollouts.attempt_rows import Attempt as Attempt
from store.rollouts.attempt_rows import AttemptRows, select_stated
from store.rollouts.attempt_rows import read_content as read_content
from store.writing.bundle import Bundle

log = logging.getLogger(__name__)

PIECE_RECORDS = 1_000
PIECE_BYTES = 16 << 20
"""A piece ends when it has this many records, or bytes in the file or in texts."""
MAX_DOCUMENT_BYTES = 64 << 20
"""Largest JSON file that is parsed as a whole."""
_MB = 1_000_000
_GPU = re.compile(r"\b(?:(?:RTX|GTX|MI|A|B|GB|GH|H|L|P|T|V)(?: )?A?[0-9]+[A-Z]*(?: Ti)?)\b")
SCORE = "combined_score"
_PATHS = {
    **dict.fromkeys(("python", "triton"), ENTRY_PATH),
    **dict.fromkeys(("cuda", "hip"), "kernel.cu"),
    **dict.fromkeys(("cpp", "c++"), "kernel.cpp"),
}


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Options of an importer: where its rows come from."""

    source_revision: str | None = None
    """Commit or revision of the source."""
    license: str | None = None
    """SPDX identifier of the license that the source was released under."""


@dataclass(frozen=True, kw_only=True)
class TaskOrigin(Origin):
    """Options of an importer of kernels for one task."""

    task: str | None = None
    """Task of the kernels: its name, or the first 6 characters of its id."""


@dataclass(frozen=True, kw_only=True)
class BundleRows(AttemptRows):
    """Collects the rows of one bundle; its id is that of its run."""

    importer: str
    """Name of the importer."""
    is_new: bool = True
    """Whether the lake lacks the bundle."""
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When the import of the bundle began."""

    def add_task(self, code: str) -> str:
        """Add a task with its default workload and return its id."""
        text = ids.normalize(code)
        task_id = ids.task_id(text)
        self.add("tasks", (task_id,), {"task_id": task_id, "code": text, **self.origin()})
        self.add_workload(task_id, "default", {})
        return task_id

    def add_workload(
        self, task_id: str, name: str, axes: Mapping[str, Any], generator: str = "get_inputs"
    ) -> str:
        """Add an input setting of a task and return its id."""
        text = json.dumps(axes, sort_keys=True)
        workload_id = ids.workload_id(task_id, text)
        row = {
            "workload_id": workload_id,
            "task_id": task_id,
            "name": name,
            "axes": text,
            "generator": generator,
        }
        self.add("workloads", (workload_id,), row)
        return workload_id

    def add_label(
        self,
        task_id: str,
        *,
        family: str,
        suite: str,
        revision: str,
        name: str,
        title: str | None = None,
        **columns: Any,
    ) -> None:
        """Name a task in a revision of a suite; `columns` are level, problem_id, degenerate."""
        row = {
            "suite": suite,
            "suite_revision": revision,
            "name": name,
            "task_id": task_id,
            "title": title or name,
            "family": family,
            **columns,
            **self.origin(),
        }
        self.add("task_labels", (suite, revision, name, task_id), row)

    def add_suite_task(
        self, code: str | None, *, suite: str, revision: str, name: str, **columns: Any
    ) -> str | None:
        """Add a task with its label; return its id, or None if the text is no task."""
        if code is None:
            return None
        try:
            family = classify_task(code, "the text")
        except ImportFailed:
            return None
        task_id = self.add_task(code)
        self.add_label(task_id, family=family, suite=suite, revision=revision, name=name, **columns)
        return task_id

    def add_splits(self, decided: Iterable[Mapping[str, str]]) -> None:
        """Add the decided splits of the families that have a label."""
        labels = self.tables.get("task_labels", {}).values()
        labeled = {(row["suite"], row["family"]) for row in labels}
        for row in decided:
            key = (row["suite"], row["family"])
            if key in labeled:
                self.add("splits", key, dict(row))

    def add_device(self, model: str, namespace: str | None = None) -> str:
        """Add a GPU that is known by its name only, and return its id."""
        device_id = content_id("device", namespace or self.namespace, model)
        row = {"device_id": device_id, "name": gpu_name(model), "kind": "cuda", "model": model}
        self.add("devices", (device_id,), row)
        return device_id

    def add_verdict(
        self,
        attempt: Attempt,
        *,
        evaluator: str,
        gpu: str | None,
        status: str,
        reason: str | None = None,
        quote: str = "",
        evaluation_id: str | None = None,
        **columns: Any,
    ) -> None:
        """Add the source's verdict on the kernel of an attempt; `columns` are of evaluations.

        It is an evaluation if the task is known. An evaluation needs the task's text, so that
        without it the verdict becomes a claim with the metric `correct`, 1 or 0.
        """
        if attempt.kernel_id is None:
            return
        if attempt.task_id is None:
            self.add_claim(attempt, "correct", float(status == "correct"), quote, gpu=gpu)
            return
        evaluation_id = evaluation_id or content_id(
            "evaluation", self.namespace, *attempt.place, attempt.kernel_id, gpu, status, reason
        )
        row = {
            "evaluation_id": evaluation_id,
            "run_id": self.run_id,
            "kernel_id": attempt.kernel_id,
            "task_id": attempt.task_id,
            "workload_id": ids.workload_id(attempt.task_id),
            "device_id": columns.get("device_id") or self.add_device(gpu or "unknown"),
            "evaluator": evaluator,
            "evaluator_version": 0,
            "status": status,
            "reason": reason or (None if status == "correct" else "unspecified"),
            **self.origin(),
            **select_stated(columns),
        }
        self.add("evaluations", (evaluation_id,), row)

    def add_result(
        self,
        attempt: Attempt,
        correct: bool | None,
        quote: str,
        *,
        gpu: str | None,
        evaluator: str | None = None,
    ) -> None:
        """Add a verdict that says only whether a kernel is correct; nothing for None."""
        if correct is not None:
            self.add_verdict(
                attempt,
                evaluator=evaluator or self.importer,
                gpu=gpu,
                status="correct" if correct else "incorrect",
                quote=quote,
            )

    def add_claim(
        self,
        attempt: Attempt,
        metric: str,
        figure: float | None,
        quote: str,
        *,
        gpu: str | None = None,
        baseline: str | None = None,
        claim_id: str | None = None,
        **columns: Any,
    ) -> None:
        """Add a reported figure; nothing if there is none. A speedup needs a baseline."""
        # A change of unit makes a number infinite that is finite in the file.
        if figure is None or math.isinf(figure) or (metric == "speedup" and figure <= 0):
            return
        claim_id = claim_id or content_id(
            *("claim", self.namespace, *attempt.place, attempt.kernel_id),
            *(metric, baseline, gpu, repr(figure)),
        )
        is_speedup = metric == "speedup"
        row = {
            "claim_id": claim_id,
            "run_id": self.run_id or None,
            "task_id": attempt.task_id,
            "kernel_id": attempt.kernel_id,
            "policy_id": attempt.policy,
            "gpu": None if gpu is None else gpu_name(gpu),
            "baseline": baseline,
            "metric": metric,
            "speedup": figure if is_speedup else None,
            "value": None if is_speedup else figure,
            "problem": attempt.problem,
            "quote": quote,
            **self.origin(),
            "source_revision": self.source_revision or "unknown",
            **columns,
        }
        self.add("claims", (claim_id,), row)

    def add_analysis(
        self, attempt: Attempt, kind: str, author: str, body: str, *place: str | None
    ) -> None:
        """Add an analysis of an attempt's kernel; `place` distinguishes it, the body does too."""
        analysis_id = content_id("analysis", self.namespace, *attempt.place, *place, body)
        row = {
            "analysis_id": analysis_id,
            "kernel_id": attempt.kernel_id,
            "generation_id": attempt.generation_id,
            "kind": kind,
            "author": author,
            "body": body,
        }
        self.add("analyses", (analysis_id,), row)

    def make_bundle(self, message: str, *, config: Any, what: str) -> Bundle:
        """Return all rows as a bundle, with the run and the features of the kernels."""

        run = store.make_run(
            kind="import",
            name=self.importer,
            config=config_json(config),
            run_id=self.run_id,
            started_at=self.began,
        )
        self.add("runs", (self.run_id,), run | self.origin(what))
        self.add("run_ends", (self.run_id,), store.make_end(self.run_id))
        tables: dict[str, Any] = self.list_tables()
        if "kernels" in tables:
            tables["kernel_features"] = store.extract_row_features(tables["kernels"])
        return Bundle(bundle_id=self.run_id, message=message, tables=tables)


def read_suite_tasks(
    lake: store.Lake, suite: str, revision: str | None
) -> dict[tuple[int | None, int | None] | str, str]:
    """Return the ids of a suite's tasks by (level, number), by name and by title.

    What means more than one task is left out; without a revision, there are none. Raises
    ImportFailed if the lake has no task of the revision.
    """
    if revision is None:
        return {}
    rows = lake.run(
        "SELECT level, problem_id, name, title, task_id FROM task_labels "
        "WHERE suite = $1 AND suite_revision = $2",
        [suite, revision],
    ).rows()
    if not rows:
        raise ImportFailed(
            f"the lake has no tasks of {suite} {revision}",
            f"Import them first, such as: store import {suite} CHECKOUT --revision {revision}",
        )
    by_key: dict[tuple[int | None, int | None] | str, set[str]] = {}
    for row in rows:
        for key in ((row["level"], row["problem_id"]), row["name"], row["title"]):
            by_key.setdefault(key, set()).add(row["task_id"])
    return {key: task_ids.pop() for key, task_ids in by_key.items() if len(task_ids) == 1}


def config_json(config: Any) -> str:
    """Return the options of an importer (its Config dataclass) as JSON."""
    return json.dumps(dataclasses.asdict(config), sort_keys=True, default=str)


def decide_splits(suite: str, families: Iterable[str], lake: store.Lake) -> list[dict[str, str]]:
    """Return the splits of a suite's families, over the tasks of a source and those in the lake.

    `families` has the family of each task of the source. The splits of a source are decided
    together, not bundle by bundle. Earlier decisions of the lake remain, because the first row of a
    key is kept.
    """
    known = lake.run("SELECT DISTINCT task_id, family FROM task_labels WHERE suite = $1", [suite])
    stored = (str(row["family"]) for row in known.rows())
    return task_families.split_rows(suite, [*families, *stored])


def gpu_name(model: str) -> str:
    """Return the short name of a GPU, as tables use it.

    >>> [gpu_name(m) for m in ("NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 3090", "Tesla T4")]
    ['H100', 'RTX 3090', 'T4']
    >>> [gpu_name(m) for m in ("NVIDIA A100-SXM4-80GB", "NVIDIA RTX A6000", "unknown")]
    ['A100', 'RTX A6000', 'unknown']
    """
    match = _GPU.search(model)
    # A name is printable ASCII (store.schema.catalog).
    return match[0] if match else " ".join(re.findall("[!-~]+", model)) or "unknown"


def read_messages(value: Any, place: str) -> list[dict[str, str]]:
    """Return a prompt as messages; a plain text becomes a message of the user."""
    if isinstance(value, str):
        return [{"role": "user", "content": clean(value)}]
    if isinstance(value, list):
        turns = cast("list[Any]", value)
        if all(isinstance(turn, dict) and isinstance(turn.get("role"), str) for turn in turns):
            return [
                {
                    "role": clean(turn["role"]),
                    "content": clean(read_content(turn.get("content")) or ""),
                }
                for turn in turns
            ]
    raise ImportFailed(f"{place}: prompt is {type(value).__name__}, no text and no messages")


@lru_cache(maxsize=4096)
def classify_task(code: str, where: str) -> str:
    """Return the family of a task; raises ImportFailed if the text is no task."""
    sources.check_task(code, where)
    return task_families.classify_family(code)


@dataclass(frozen=True)
class Import:
    """What the bundles of one import share."""

    lake: store.Lake
    """Pinned reader."""
    name: str
    """Name of the importer."""
    config: Any
    """Its options; part of the identity of every bundle."""
    _: KW_ONLY
    version: int = 1
    """Version of the importer; part of the identity as well."""
    source: str = ""
    """Repository that the rows come from (default: the importer)."""
    source_revision: str | None = None
    """Its revision (default: that of the options)."""
    license: str | None = None
    """Its license (default: that of the options)."""
    namespace: str = ""
    """Name from which ids follow, if it is another one."""

    @cached_property
    def _stored(self) -> set[str]:
        """The bundles of this importer that the lake has. A run of a bundle has its id."""
        rows = self.lake.run(
            "SELECT bundle_id FROM ingest_log "
            "SEMI JOIN (FROM runs WHERE kind = 'import' AND name = $1) AS own "
            "ON ingest_log.bundle_id = own.run_id",
            [self.name],
        ).rows()
        return {str(row["bundle_id"]) for row in rows}

    @cached_property
    def task_id(self) -> str | None:
        """The task that the option --task names; raises UnknownName. None without the option."""
        named = getattr(self.config, "task", None)
        return None if named is None else find_task(self.lake, named)["task_id"]

    def start(self, content: str | None, identity: str = "") -> BundleRows:
        """Return a builder of the rows of a bundle; without content they are only checked.

        Args:
            content: What identifies the bundle, with the options and the version.
            identity: Id of the bundle, if it follows from something else.
        """
        config = self.config
        if content is not None and not identity:
            options = config_json(config)
            identity = content_id("import", self.name, str(self.version), content, options)
        return BundleRows(
            source=self.source or self.name,
            source_revision=self.source_revision or getattr(config, "source_revision", None),
            license=self.license or getattr(config, "license", None),
            importer=self.name,
            namespace=self.namespace or self.name,
            run_id=identity,
            is_new=identity not in self._stored,
        )

    def finish(self, rows: BundleRows, message: str, what: str) -> Bundle:
        """Return the bundle of some rows, or one without rows if the lake has it.

        Evaluations and analyses that an earlier import has stored are left out.

        Args:
            message: A few words about the rows.
            what: Source of their run.
        """
        if not rows.is_new:
            return Bundle(bundle_id=rows.run_id, message=message)
        for table, key in (("evaluations", "evaluation_id"), ("analyses", "analysis_id")):
            if mine := rows.tables.get(table):
                known = self.lake.run(
                    f"SELECT {key} AS id FROM {table} WHERE {key} IN (SELECT unnest($1))",
                    [[key for (key,) in mine]],
                ).rows()
                for row in known:
                    del mine[(row["id"],)]
        return rows.make_bundle(message, config=self.config, what=what)

    def read(self, files: Iterable[SourceFile], start: Callable[[], Add]) -> Iterator[Bundle]:
        """Yield the bundles of files in order.

        Args:
            start: Returns a new function that adds records, called once per pass over a file.

        A record that cannot be read is left out and named. So is what comes after the place where
        a file ends before its end.
        """
        for file in files:
            with left_out.errors():
                yield from self._read_file(file, start)

    def _read_file(self, file: SourceFile, start: Callable[[], Add]) -> Iterator[Bundle]:
        splits: list[dict[str, str]] = []
        if self.start(f"{file.name} 0 {file.digest}").is_new:
            if file.size > 100 * _MB:
                log.info("checking %s (%d MB)", file.name, file.size // _MB)
            # They are decided over the whole file and go into its first piece, so that no task of
            # the test split is ever without one.
            families: dict[str, dict[str, str]] = {}
            with left_out.recording(left_out.LeftOut()), left_out.errors():
                add = start()
                for records in _split(file.open()):
                    rows = self.start(None)
                    add_records(add, rows, records)
                    for label in rows.tables.get("task_labels", {}).values():
                        families.setdefault(label["suite"], {})[label["task_id"]] = label["family"]
                splits = [
                    row
                    for suite, by_task in families.items()
                    for row in decide_splits(suite, by_task.values(), self.lake)
                ]
        add = start()
        first = done = 0
        for number, records in enumerate(_split(file.open())):
            done += sum(record.size for record in records)
            share = f", {min(done / file.size, 1):.0%}" if file.size and done else ""
            last = first + len(records) - 1
            message = f"{self.name} {file.name}: records {first} to {last}{share}"
            first = last + 1
            rows = self.start(f"{file.name} {number} {file.digest}")
            # Later records may continue what a stored piece began, so it is read all the same.
            add_records(add, rows, records)
            for split in splits if number == 0 else ():
                rows.add("splits", (split["suite"], split["family"]), split)
            if any(rows.tables.values()) or not rows.is_new:
                yield self.finish(rows, message, f"{file.name} {number}")


Add = Callable[[BundleRows, Fields], object]
"""Adds the rows of one record to those of its bundle.

It reads what may be malformed before it notes that it has seen the record.
"""


def add_records(add: Add, rows: BundleRows, records: Iterable[Fields]) -> None:
    for record in records:
        sizes = {table: len(keyed) for table, keyed in rows.tables.items()}
        try:
            add(rows, record)
        except ImportFailed as error:
            rows.shrink(sizes)
            left_out.get_record().refuse(error)
        else:
            left_out.get_record().kept += 1


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """One file, or several small ones that belong together."""

    name: str
    """Name in messages; part of the identity."""
    digest: str
    """Hash of the content."""
    size: int
    """Bytes."""
    open: Callable[[], Iterator[Fields]]
    """Reads the records from the start."""


def open_json_lines(
    file: Path, root: Path, read: Callable[[Path], Iterator[Fields]] = text_files.read_lines
) -> SourceFile:
    """Return a JSON Lines file, which may be compressed (.jsonl.gz), and what reads its records."""
    sources.resolve_regular(file, root)
    return SourceFile(
        name=name_inside(file, root),
        digest=hash_file(file),
        size=file.stat().st_size,
        open=partial(read, file),
    )


def name_columns(required: str, optional: str) -> dict[str, bool]:
    """Return the columns of two lists of words, and whether each is required."""
    return dict.fromkeys(required.split(), True) | dict.fromkeys(optional.split(), False)


def open_parquets(path: Path | None, what: str, columns: dict[str, bool]) -> Iterator[SourceFile]:
    """Yield the Parquet files of a source, which should be `what`; see `open_parquet`."""
    root, files = sources.find_parquet(path, what)
    for file in files:
        yield open_parquet(file, root, columns)


def open_parquet(file: Path, root: Path, columns: dict[str, bool]) -> SourceFile:
    """Return a Parquet file whose size has been checked; True marks needed columns."""

    def records() -> Iterator[Fields]:
        number = 0
        for rows in sources.read_batches(file, columns, PIECE_RECORDS):
            for row in rows:
                where = f"{file.name}, row {number}"
                yield Fields(values=row, where=where)
                number += 1

    return SourceFile(name=name_inside(file, root), digest=hash_file(file), size=0, open=records)


def open_documents(
    name: str | None,
    files: Sequence[Path],
    root: Path,
    parse: Callable[[Path], Iterable[Fields]],
    more: Sequence[Path] = (),
) -> SourceFile:
    """Return small files that belong together, each parsed as a whole; None: name of the first.

    `more` are files that `parse` reads by itself.
    """
    hashes: list[tuple[str, bytes]] = []
    size = 0
    for file in (*files, *more):
        with left_out.errors():
            sources.resolve_regular(file, root)
            size += file.stat().st_size
            hashes.append((name_inside(file, root), hash_file(file).encode()))

    def records() -> Iterator[Fields]:
        for file in files:
            with left_out.errors():
                yield from parse(file)

    name = name_inside(files[0], root) if name is None else name
    return SourceFile(name=name, digest=sources.digest(hashes), size=size, open=records)


def parse_document(file: Path, root: Path) -> Fields:
    """Return the object of a JSON file of at most MAX_DOCUMENT_BYTES.

    Raises ImportFailed if the file is larger or holds anything else.
    """
    data = sources.read_bytes(file, root, MAX_DOCUMENT_BYTES)
    return text_files.parse_object(sources.decode(data, file), str(file), len(data))


def hash_file(file: Path) -> str:
    """Return the sha256 of a file."""
    with faults.at(file, ImportFailed):
        return ids.hash_file(file)


def name_inside(file: Path, root: Path) -> str:
    """Return the path of a file inside its source."""
    return file.relative_to(root).as_posix() if file != root else file.name


_Item = TypeVar("_Item")


def _group(
    items: Iterable[_Item], measure_item: Callable[[_Item], int], most: int, most_bytes: int
) -> Iterator[list[_Item]]:
    """Yield items in groups; before an error of their reader, what came before it.

    An item of more bytes than a group may have is a group of its own.
    """
    group: list[_Item] = []
    total = 0
    try:
        for item in items:
            size = measure_item(item)
            if group and (len(group) >= most or total + size > most_bytes):
                yield group
                group, total = [], 0
            group.append(item)
            total += size
    except Exception:
        if group:
            yield group
        raise
    if group:
        yield group


def _split(records: Iterable[Fields]) -> Iterator[list[Fields]]:
    return _group(
        records, lambda one: max(one.size, measure(one.values)), PIECE_RECORDS, PIECE_BYTES
    )


GROUP_BUNDLES = 100
GROUP_BYTES = 16 << 20
"""Most bundles, and about the most bytes of their texts, that are committed together."""

Progress: TypeAlias = Callable[[str, bool], None]
"""Called for each bundle, once it is committed, with its message and whether this import did it."""


@dataclass(frozen=True, kw_only=True)
class ImportSummary:
    """Result of an import."""

    files: int
    """Bundles stored by this import."""
    skipped: int
    """Bundles that the lake had before."""
    rows: dict[str, int]
    """Table name to number of rows added; rows that the lake had before do not count."""
    snapshot: int
    """Newest snapshot after the import."""
    left_out: int = 0
    """Rows of the source that could not be read."""
    unread: int = 0
    """Files below the path that were not read."""


def run_import(
    writer: store.Writer,
    module: ModuleType,
    path: Path | None,
    config: Any,
    progress: Progress | None = None,
) -> ImportSummary:
    """Read a source with one importer and store its bundles, each completely or not at all.

    A module of store/importers defines `Config` with its options, and `read`, which yields one
    bundle per file in a stable order; one that needs no source defines `TAKES_PATH = False`. The
    reader that `read` gets is pinned to the snapshot before the import. The id of a bundle is a
    hash of the file's bytes, the importer, its version and the options, so that a repeated import
    of the same bundle is recognized.

    Bundles are committed in groups. An interrupted import resumes after the last committed group
    when it is run again. A bundle whose rows break a rule is refused with a warning, and the others
    are stored. A row that cannot be read is left out, and so is a file of no use; the log names
    them with the reason.

    Raises:
        ImportFailed: the path does not exist, has no file of the format, or nothing in it can be
            read.
        RowsRejected: a bundle was refused, the first one if there are several. The others are
            stored.
    """
    source = path if getattr(module, "TAKES_PATH", True) else None
    if source is not None and not source.exists():
        near = next(parent for parent in source.absolute().parents if parent.exists())
        raise ImportFailed(f"{path} does not exist", f"Check the path; {near} exists.")
    stored: list[str] = []
    skipped = 0
    refused: dict[str, RowsRejected] = {}
    record = left_out.LeftOut()
    with writer.reader() as lake, left_out.recording(record):
        bundles = module.read(path, config, lake)
        # A large bundle is a group of its own, because only `load` reads it part by part.
        for group in _group(bundles, _measure_texts, GROUP_BUNDLES, GROUP_BYTES):
            # The importer's reader is pinned: it does not see the bundles of this import.
            known = writer.find_committed([one.bundle_id for one in group])
            fresh = {one.bundle_id: one for one in group if one.bundle_id not in known}
            refused |= _store_group(writer, list(fresh.values()))
            for one in group:
                is_stored = fresh.pop(one.bundle_id, None) is not None
                if one.bundle_id in refused:
                    continue
                if is_stored:
                    stored.append(one.bundle_id)
                else:
                    skipped += 1
                if progress is not None:
                    progress(one.message, is_stored)
    unread = {} if source is None else record.list_unread(source)
    importer = getattr(module, "NAME", "")
    if not stored and not skipped and not refused:
        if record.first:
            error = record.first[0]
            raise ImportFailed(f"nothing of {path} can be imported: {error.message}", error.hint)
        log.warning("%s has no row that %s reads", path, importer)
    record.report(importer, unread)
    if refused:
        raise next(iter(refused.values()))
    counts: Counter[str] = Counter()
    for bundle_counts in writer.find_committed(stored).values():
        counts.update(bundle_counts)
    added = {table: count for table, count in counts.items() if count}
    snapshot = writer.find_newest()
    return ImportSummary(
        files=len(stored),
        skipped=skipped,
        rows=added,
        snapshot=snapshot,
        left_out=record.rows,
        unread=sum(map(len, unread.values())),
    )


def run_command(
    importer: Member,
    module: ModuleType,
    path: Path | None,
    config: Any,
    tag: str | None,
    common: Common,
) -> None:
    """Run `store import NAME`: show progress on a terminal, then print what was added."""
    from rich.text import Text

    from store.upkeep import history

    if tag is not None:
        history.require_tag_name(tag)
    console = echo.open_console(stderr=True)
    with (
        store.writer(common.lake, author=f"store import {importer.name}") as writer,
        console.status(Text(escape_terminal(f"reading {path or importer.name}"))) as status,
    ):

        def progress(message: str, fresh: bool) -> None:
            done = "stored" if fresh else "there already"
            status.update(Text(escape_terminal(f"{message}: {done}")))

        summary = run_import(writer, module, path, config, progress)
        if tag is not None:
            history.add_tag(writer, tag, summary.snapshot, f"store import {importer.name}")
    echo.print_result(summarize(summary))
    if "kernels" in summary.rows and "evaluations" not in summary.rows and not common.quiet:
        echo.print_note("next: `evaluators run` judges the kernels that have no verdict here")


def summarize(summary: ImportSummary) -> str:
    """Return the result of an import in one line.

    >>> summarize(ImportSummary(files=1, skipped=2, rows={"tasks": 3}, snapshot=9))
    'tasks +3 (2 files there already) → snapshot 9'
    """
    added = ", ".join(f"{table} +{count}" for table, count in summary.rows.items())
    notes = [
        f"{echo.count_nouns(number, noun)} {what}"
        for number, noun, what in (
            (summary.skipped, "file", "there already"),
            (summary.left_out, "row", "left out"),
            (summary.unread, "file", "not read"),
        )
        if number
    ]
    noted = f" ({', '.join(notes)})" if notes else ""
    return f"{added or 'nothing new'}{noted} → snapshot {summary.snapshot}"


def _measure_texts(bundle: Bundle) -> int:
    return sum(
        measure(rows) if isinstance(rows, list) else rows.nbytes for rows in bundle.tables.values()
    )


def _store_group(writer: store.Writer, bundles: list[Bundle]) -> dict[str, RowsRejected]:
    if len(bundles) > 1 or (bundles and _measure_texts(bundles[0]) <= GROUP_BYTES):
        try:
            writer.append_all(bundles)
            return {}
        except RowsRejected:
            pass  # the loop below skips what is stored, and finds the error of each that is not
    refused: dict[str, RowsRejected] = {}
    for one in bundles:
        try:
            writer.load(one.tables, one.message, bundle_id=one.bundle_id)
        except RowsRejected as error:
            log.warning("refused %s: %s", one.message, error.message)
            refused[one.bundle_id] = error
    return refused


@dataclass(frozen=True, kw_only=True)
class SearchOrigin(TaskOrigin):
    """Options of an importer of searches."""

    policy: AuthorOption = ""
    """Who wrote the programs."""
    gpu: DeviceModel | None = None
    """GPU of the figures."""


@dataclass(frozen=True, kw_only=True)
class ProgramOrigin(SearchOrigin):
    """Options of an importer of searches whose files state neither task nor entry point."""

    problem: str | None = None
    """Name of the task if the lake does not have it (default: what the source states)."""
    entry_point: str = "ModelNew"
    """Class or function that the programs define."""


@dataclass
class ProgramRows:
    """Adds the programs of one search in order; a parent that has not come before is unknown."""

    reading: Import
    problem: str
    entry_point: str
    _attempts: dict[str, str] = field(default_factory=dict[str, str])
    """Name of a program to the id of its attempt."""

    @property
    def config(self) -> SearchOrigin:
        """The options of the importer."""
        return self.reading.config

    def has(self, program: str) -> bool:
        """Return whether a program has come before."""
        return program in self._attempts

    def add(
        self,
        rows: BundleRows,
        program: str,
        place: Sequence[str],
        *,
        kernel_id: str | None,
        parent: str | None = None,
        problem: str | None = None,
        **columns: Any,
    ) -> Attempt:
        """Add a program, whose parent is the name of another; `columns` are of generations."""
        attempt = rows.add_attempt(
            place,
            policy=self.config.policy,
            task_id=self.reading.task_id,
            problem=problem or self.problem,
            kernel_id=kernel_id,
            parent_generation_id=self._attempts.get(parent or ""),
            **columns,
        )
        self._attempts[program] = attempt.generation_id
        return attempt

    def add_code(
        self, rows: BundleRows, code: str | None, language: str | None = None
    ) -> str | None:
        """Add the kernel of a program and return its id, or None if there is no code."""
        if code is None:
            return None
        path = _PATHS.get((language or "").lower()) or find_path(code)
        return rows.add_code(code, path=path, entry_point=self.entry_point)

    def add_metrics(self, rows: BundleRows, attempt: Attempt, metrics: Fields, quote: str) -> None:
        """Add every number of an object as a claim; its metric is reported_NAME."""
        for name, value in metrics.values.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                metric = SCORE if name == SCORE else f"reported_{' '.join(clean(name).split())}"
                figure = metrics.number(name)
                rows.add_claim(attempt, metric[:100], figure, quote, gpu=self.config.gpu)


def find_path(code: str) -> str:
    """Return the path of a kernel whose language is unknown.

    >>> find_path("import torch"), find_path("__global__ void add(float* x) {}")
    ('kernel.py', 'kernel.cu')
    """
    return "kernel.cu" if "__global__" in code and parse_python(code) is None else ENTRY_PATH


def list_parents_first(parents: Mapping[str, str | None]) -> list[str]:
    """Return the names of programs so that each follows its parent; circles are cut.

    >>> list_parents_first({"c": "b", "b": "a", "a": None, "d": "d"})
    ['a', 'b', 'c', 'd']
    """
    ordered: list[str] = []
    done: set[str] = set()
    for name in parents:
        chain: list[str] = []
        current: str | None = name
        while current is not None and current in parents and current not in done:
            done.add(current)
            chain.append(current)
            current = parents[current]
        ordered += reversed(chain)
    return ordered
