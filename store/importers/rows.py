"""Rows of task, code and reward in a JSON Lines, CSV, Parquet or Arrow file.

Reads the columns task and code and, if there are any, reward, prompt, model and step. `--map
task=problem_id` reads a column of another name. A task is the name, the id or the text of one that
the lake has. The code is stored as it is. A reward is stored under a rule with the name of its
column and version 0, because the file does not contain the code that computed it. Rows that cannot
be read, or whose task the lake lacks, are left out and named with their place. The exit code is 0
if any row is stored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import store
from store import ids
from store.code import entry_points
from store.commandline.members import AuthorOption
from store.dossier.pages import read_task_names
from store.errors import FIRST_ROWS, ImportFailed, UnknownName
from store.foreign import left_out, parquet, text_files
from store.foreign.text_files import Fields
from store.importers.reading import pieces, sources

NAME = "rows"
FIELDS = ("task", "code", "reward", "prompt", "model", "step")
SUFFIXES = (".jsonl", ".ndjson", ".csv", ".parquet", ".arrow", ".feather")
"""Text may be compressed as well (.jsonl.gz)."""
_FIRST_RECORDS = 100
"""Records that tell the names of the columns."""
_ARROW_FILE = b"ARROW1"
"""How a file of Arrow begins; a stream begins otherwise."""


@dataclass(frozen=True, kw_only=True)
class Config(pieces.TaskOrigin):
    map: Annotated[tuple[str, ...], Parameter(consume_multiple=False)] = ()
    """FIELD=COLUMN: read task, code, reward, prompt, model or step from this column. Separate
    several by commas, or repeat the option."""
    policy: AuthorOption | None = None
    """Who wrote the kernels of rows without a model (default: the name of the file)."""


def recognize(path: Path) -> str | None:
    try:
        columns = list_columns(path, 1) if path.is_file() else []
    except ImportFailed:
        return None
    return "columns task, code" if {"task", "code"} <= {*columns} else None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the rows of the file in bundles."""
    file = sources.require_path(path, f"a file that ends in {', '.join(SUFFIXES)}")
    # The column of each field.
    pairs = [pair.partition("=") for text in config.map for pair in text.split(",")]
    for field, _, _ in pairs:
        if field not in FIELDS:
            raise UnknownName.among("field", field, FIELDS)
    mapped = {field: column or field for field, _, column in pairs}
    present = list_columns(file)
    needed = ({} if config.task else {"task": "task"}) | {"code": "code"} | mapped
    missing = [field for field, column in needed.items() if column not in present]
    if missing:
        raise ImportFailed(
            f"{file} has no column {', '.join(needed[field] for field in missing)}",
            f"It has {', '.join(present[:20]) or 'none'}. Name what it has instead: "
            + " ".join(f"--map {field}=COLUMN" for field in missing),
        )
    columns = dict(zip(FIELDS, FIELDS, strict=True)) | mapped
    reading = pieces.Import(lake, NAME, config)
    names, digest = read_task_names(lake), pieces.hash_file(file)
    texts = {str(row["task_id"]) for row in lake.run("SELECT task_id FROM tasks").rows()}
    known: dict[str, str | UnknownName] = {}

    def find_task(row: Fields) -> str:
        if reading.task_id is not None:
            return reading.task_id
        column = columns["task"]
        is_text = isinstance(row.values.get(column), str | bytes)
        value = row.code(column) if is_text else row.text(column)
        if value is None:
            raise row.refuse(column, "a task")
        if value not in known:
            try:
                task_id = ids.task_id(ids.normalize(value))
                known[value] = task_id if task_id in texts else names.find(value)["task_id"]
            except UnknownName as error:
                known[value] = error
        found = known[value]
        if isinstance(found, UnknownName):
            raise ImportFailed(f"{row.where}: {found.message}")
        return found

    kept = 0

    def add(rows: pieces.BundleRows, row: Fields, index: int) -> None:
        nonlocal kept
        task_id, code = find_task(row), row.require_code(columns["code"])
        author = row.text(columns["model"]) or config.policy or file.name.partition(".")[0]
        prompt = row.values.get(columns["prompt"])
        messages = [] if prompt is None else pieces.read_messages(prompt, row.where)
        reward, step = row.number(columns["reward"]), row.whole(columns["step"])
        kept += 1
        attempt_id = rows.identify([digest, str(index)])
        if attempt_id in stored:
            return
        rows.add_attempt(
            [],
            generation_id=attempt_id,
            policy=author,
            task_id=task_id,
            kernel_id=rows.add_code(code, entry_point=entry_points.choose_stored(code)),
            prompt_id=rows.add_prompt(messages, task_id, "train"),
            step=step,
        )
        if reward is not None:
            rows.add_reward(attempt_id, columns["reward"], reward, step=step)

    def start() -> pieces.Add:
        indices = itertools.count()
        return lambda rows, row: add(rows, row, next(indices))

    # What an earlier import of the file has stored, when the lake lacked some of the tasks.
    earlier = lake.run(
        "SELECT generation_id FROM generations WHERE run_id IN "
        "(SELECT run_id FROM runs WHERE name = $1 AND starts_with(source, $2))",
        [NAME, f"{file.name} "],
    )
    stored = {str(row["generation_id"]) for row in earlier.rows()}
    check, checked = start(), reading.start(None)
    with left_out.recording(left_out.LeftOut()) as record:
        try:
            for row in _read_rows(file, [*columns.values()]):
                with left_out.errors():
                    check(checked, row)
                checked.tables.clear()
        except ImportFailed as error:  # such as the end of a file that is cut off
            if not kept:
                raise
            record.refuse(error)
    lacking = [name for name, found in known.items() if isinstance(found, UnknownName)]
    if not kept:
        record.report(NAME, {})
        raise ImportFailed(
            f"no row of {file} can be imported",
            f"Import the tasks first, or name the one of all rows with --task. {FIRST_ROWS}"
            if lacking
            else "Correct the rows, or name other columns with --map.",
        )
    source = pieces.SourceFile(
        name=file.name,
        digest=sources.combine(file=digest, lacking="\n".join(sorted(lacking))),
        size=file.stat().st_size,
        open=lambda: _read_rows(file, [*columns.values()]),
    )
    yield from reading.read([source], start)


def list_columns(file: Path, records: int = _FIRST_RECORDS) -> list[str]:
    """Return the columns of a file of rows; raises ImportFailed if it is none."""
    if _find_suffix(file) == ".parquet":
        return sources.column_names(file)
    if _find_suffix(file) == ".csv":  # its header, also if there are no rows
        return text_files.read_header(file)
    columns: dict[str, None] = {}
    with left_out.recording(left_out.LeftOut()) as record, left_out.errors():
        for row in islice(_read_rows(file, []), records):
            columns |= dict.fromkeys(row.values)
    if not columns and record.first:
        raise record.first[0]
    return list(columns)


def _find_suffix(file: Path) -> str:
    """Return the suffix that states the format of a file.

    >>> _find_suffix(Path("a.CSV")), _find_suffix(Path("a.jsonl.gz"))
    ('.csv', '.jsonl')
    """
    return Path(file.name.lower().removesuffix(".gz")).suffix


def _read_rows(file: Path, columns: Sequence[str]) -> Iterator[Fields]:
    """Yield the rows of a file; those that cannot be read are left out."""
    import pyarrow as pa

    suffix = _find_suffix(file)
    if suffix not in SUFFIXES:
        raise ImportFailed(
            f"{file} is no file of rows",
            f"Its name ends in {', '.join(SUFFIXES)}. `jq -c '.[]' FILE` makes the lines of a "
            ".jsonl from a list in JSON.",
        )
    sources.resolve_regular(file, file)
    if suffix in SUFFIXES[:2]:
        yield from text_files.read_lines(file)
    elif suffix == ".csv":
        yield from text_files.read_csv(file, ())
    elif suffix == ".parquet":
        if not parquet.check_files([file]):
            return
        yield from pieces.open_parquet(file, file, dict.fromkeys(columns, False)).open()
    else:
        try:
            with pa.memory_map(str(file)) as opened:
                is_file = opened.read(len(_ARROW_FILE)) == _ARROW_FILE
                opened.seek(0)
                if is_file:
                    blocks = pa.ipc.open_file(opened)
                    batches = map(blocks.get_batch, range(blocks.num_record_batches))
                else:
                    batches = pa.ipc.open_stream(opened)
                number = 0
                for batch in batches:
                    for row in sources.list_rows(batch):
                        yield Fields(values=row, where=f"{file}, row {number}")
                        number += 1
        except (pa.ArrowException, OSError) as error:
            raise ImportFailed(f"{file} cannot be read as Arrow: {error}") from error
