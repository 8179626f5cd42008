"""Reads untrusted files, and finds the importer that a path is for (`store import detect PATH`).

Files are regular, inside their folder, of limited size, and are read as text or Parquet. An
importer recognizes its format by a function `recognize(path)`, which returns what it saw, or None.
It reads names, the first line of a file or the columns of a Parquet file, and no more.
"""

from __future__ import annotations

import ast
import hashlib
import logging
import os
import re
import stat
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from store import faults
from store.code.entry_points import list_bound
from store.commandline.members import find_members
from store.errors import FlywheelError, ImportFailed
from store.foreign import left_out, parquet, text_files
from store.foreign.text_files import Fields
from store.ids import content_id

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


MAX_FILE_BYTES = 20 << 20
BUFFER_BYTES = 1 << 20
BATCH_BYTES = 16 << 20
TASK_NAMES = ("Model", "get_inputs", "get_init_inputs")


def require_path(path: Path | None, what: str) -> Path:
    """Return the path; raises ImportFailed if it is missing, with what it should be."""
    if path is None:
        raise ImportFailed("no path given", f"Name {what}.")
    return path


def find_files(path: Path | None, pattern: str, what: str, hint: str) -> tuple[Path, list[Path]]:
    """Return a source and its files: itself, or those below a folder with a name, in order.

    Files that cannot be read are left out and named.

    Raises ImportFailed if there is no path, which should be `what`, or no file, with a hint.
    """
    root = require_path(path, what)
    files = [root] if root.is_file() else sorted(root.rglob(pattern))
    if not files:
        raise ImportFailed(f"{root} holds no {pattern}", hint)
    regular: list[Path] = []
    for file in files:
        with left_out.errors():
            resolve_regular(file, root)
            regular.append(file)
    return root, regular


def resolve_regular(file: Path, root: Path) -> Path:
    """Return a file of a source without links in its path.

    Raises ImportFailed for a link out of the folder of `root`, and for anything but a regular file.
    """
    with faults.at(file, ImportFailed):
        target = Path(os.path.realpath(file, strict=True))
        if not target.is_relative_to((root if root.is_dir() else root.parent).resolve()):
            raise ImportFailed(
                f"{file} is a link to {target}, outside of {root}",
                "Copy the file into the folder if it belongs there.",
            )
        if not stat.S_ISREG(target.stat().st_mode):
            raise ImportFailed(f"{file} is not a regular file")
    left_out.get_record().note_file(target)
    return target


def is_inside(file: Path, root: Path) -> bool:
    """Return whether a path is a regular file of a source."""
    try:
        return file.is_file() and bool(resolve_regular(file, root))
    except (ImportFailed, OSError):  # a name that is too long is no file
        return False


def read_bytes(file: Path, root: Path, limit: int = MAX_FILE_BYTES) -> bytes:
    """Return a file's bytes; raises ImportFailed like `resolve_regular`, and above the limit."""
    target = resolve_regular(file, root)
    with faults.at(file, ImportFailed), open(target, "rb") as handle:
        data = handle.read(limit + 1)
    if len(data) > limit:
        raise ImportFailed(f"{file} is larger than {limit >> 20} MiB")
    return data


def read_text(file: Path, root: Path) -> str:
    """Return the exact text of a file; raises ImportFailed with the position of a bad byte."""
    return decode(read_bytes(file, root), file)


def decode(data: bytes, file: Path) -> str:
    """Return bytes as text; raises ImportFailed with the file and the position of a bad byte."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ImportFailed(f"{file} is not UTF-8: byte {error.start} ({error.reason})") from error
    if "\0" in text:
        raise ImportFailed(f"{file} is not text: byte {data.index(0)} is zero")
    return text


def read_objects(file: Path, root: Path) -> Iterator[Fields]:
    """Yield the objects of a JSON Lines file, of a JSON list, or the one object of a file."""
    if file.suffix == ".jsonl":
        resolve_regular(file, root)
        yield from text_files.read_lines(file)
        return
    data = read_bytes(file, root)
    value = text_files.parse_json(decode(data, file), str(file))
    if isinstance(value, list):
        yield from Fields(values={"list": value}, where=str(file)).list("list")
    else:
        yield text_files.require_object(value, str(file), len(data))


def check_task(code: str, where: str, required: Iterable[str] = TASK_NAMES) -> set[str]:
    """Return the names that a task in KernelBench's format defines; never runs it.

    Raises ImportFailed if a required name is missing, or the text is not Python.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the task's own, such as "\d" in a string
            tree = ast.parse(code.removeprefix("\ufeff"))
    except SyntaxError as error:
        raise ImportFailed(f"{where}, line {error.lineno}: {error.msg}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise ImportFailed(f"{where} cannot be parsed: {error}") from error
    defined = list_bound(tree)
    missing = [name for name in required if name not in defined]
    if missing:
        raise ImportFailed(
            f"{where} is no task: it does not define {', '.join(missing)}",
            f"A task defines {', '.join(required)}.",
        )
    return defined


def add_init_inputs(code: str, defined: Collection[str]) -> str:
    """Return a task with get_init_inputs(), which a file need not define."""
    if "get_init_inputs" in defined:
        return code
    return f"{code.rstrip()}\n\n\ndef get_init_inputs():\n    return []\n"


def digest(files: Iterable[tuple[str, bytes]]) -> str:
    """Return one sha256 of names and contents, in the given order."""
    return content_id(
        *(part for name, data in files for part in (name, hashlib.sha256(data).hexdigest()))
    )


def combine(**hashes: str) -> str:
    """Return one hash of several, each with its name."""
    return digest((name, value.encode()) for name, value in hashes.items())


def git_head(*roots: Path) -> str | None:
    """Return the commit of the first folder that is a checkout, or None if it is unknown.

    Reads the files directly, because git would follow the configuration of the checkout.
    """
    for root in roots:
        folder = root / ".git"
        if not (folder / "HEAD").is_file():
            continue
        head = read_text(folder / "HEAD", root).strip()
        name = head.removeprefix("ref: ")
        if name != head:
            loose, packed = folder / name, folder / "packed-refs"
            if loose.is_file():
                head = read_text(loose, root).strip()
            elif packed.is_file():
                lines = read_text(packed, root).splitlines()
                head = next((line[:40] for line in lines if line.endswith(f" {name}")), "")
        if len(head) == 40 and set(head) <= set("0123456789abcdef"):
            return head
    return None


def find_parquet(path: Path | None, what: str) -> tuple[Path, list[Path]]:
    """Return a source and its Parquet files like `find_files`; damaged ones are left out.

    Raises ImportFailed like `find_files`, and if a file exceeds the limits of
    `store.foreign.parquet`.
    """
    root, files = find_files(path, "*.parquet", what, "Name a file or a folder of them.")
    return root, parquet.check_files(files)


def column_names(file: Path) -> list[str]:
    """Return the names of a file's columns."""
    return list(_open(file).schema_arrow.names)


def read_batches(
    file: Path, columns: Mapping[str, bool], rows: int
) -> Iterator[list[dict[str, Any]]]:
    """Yield rows in batches of at most `rows`, and of about BATCH_BYTES at most.

    `columns` states for each column whether it is required; other missing columns are None.

    Raises ImportFailed if the file is not Parquet or truncated, or a required column is missing.
    """
    import pyarrow as pa

    opened = _open(file)
    names = opened.schema_arrow.names
    for name, is_required in columns.items():
        if is_required and name not in names:
            raise ImportFailed(f"{file} has no column {name}", f"It has {', '.join(names[:20])}.")
    meta = opened.metadata
    stated = sum(meta.row_group(at).total_byte_size for at in range(meta.num_row_groups))
    # Rows of mean length, by the metadata, that take BATCH_BYTES.
    most = max(1, BATCH_BYTES * max(meta.num_rows, 1) // max(stated, 1))
    present = [name for name in columns if name in names]
    missing: dict[str, Any] = {name: None for name in columns if name not in names}
    try:
        for batch in opened.iter_batches(batch_size=min(rows, most), columns=present):
            yield [row | missing for row in list_rows(batch)]
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ImportFailed(f"{file} cannot be read: {error}") from error


def list_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return rows of plain values; text that is not UTF-8 stays bytes, for its row to be refused.

    Times are in microseconds, as Python has them, and half floats are floats.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns: list[list[Any]] = []
    for column in cast("list[Any]", batch.columns):
        kind = column.type
        if pa.types.is_dictionary(kind):
            column = column.dictionary_decode()
        elif pa.types.is_run_end_encoded(kind):
            column = cast("Any", pc).run_end_decode(column)
        elif pa.types.is_timestamp(kind) and kind.unit == "ns":
            column = column.cast(pa.timestamp("us", kind.tz), safe=False)
        elif pa.types.is_float16(kind):
            column = column.cast(pa.float32())
        try:
            columns.append(column.to_pylist())
        except UnicodeDecodeError:
            columns.append([_decode_leniently(value) for value in column])
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _decode_leniently(value: pa.Scalar[Any]) -> Any:
    try:
        return value.as_py()
    except UnicodeDecodeError:
        buffer = getattr(value, "as_buffer", None)
        return b"\xff" if buffer is None else buffer().to_pybytes()


def _open(file: Path) -> pq.ParquetFile:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Without a buffer, a column of a row group is read as a whole.
        return pq.ParquetFile(file, buffer_size=BUFFER_BYTES)
    except (pa.ArrowException, OSError) as error:
        raise ImportFailed(f"{file} cannot be read as Parquet: {error}") from error


log = logging.getLogger(__name__)

FIRST_LINE_BYTES = 4 << 20
HEAD_BYTES = 64 << 10
FOOTER_BYTES = 16 << 20
SEARCHED_FILES = 2_000
SEARCHED_ENTRIES = 20_000
"""How many files that fit, and entries of folders, are looked at."""


def detect(path: Path) -> dict[str, str]:
    """Return the importers that recognize a path, in order of their names, and what they saw.

    Raises ImportFailed if the path does not exist.
    """
    if not path.exists():
        raise ImportFailed(f"{path} does not exist", "Check the path.")
    found: dict[str, str] = {}
    for name, member in sorted(find_members("store.importers").items()):
        # An importer of the user that fails is reported and skipped.
        try:
            recognize = getattr(member.load(), "recognize", None)
            seen = None if recognize is None else recognize(path)
        except FlywheelError as error:
            log.warning("%s: %s", member.name, error.message)
            continue
        except OSError as error:
            log.warning("%s cannot read %s: %s", member.name, path, error)
            continue
        if seen is not None:
            found[name] = seen
    return found


def choose(path: Path, found: Mapping[str, str]) -> tuple[str, str]:
    """Return the one match of `detect`; raises ImportFailed if there is none or more than one."""
    if not found:
        raise ImportFailed(
            f"no importer recognizes {path}",
            "`store import rows FILE --map task=COLUMN --map code=COLUMN` imports rows of any JSON "
            "Lines, CSV, Parquet or Arrow file, `evaluators add FILE --task TASK` one kernel. "
            "`store import --help` lists the importers of other formats.",
        )
    if len(found) > 1:
        # Files of other formats may also have the columns of plain rows.
        found = {name: seen for name, seen in found.items() if name != "rows"}
    if len(found) > 1:
        listed = "\n".join(f"  {importer}: {seen}" for importer, seen in found.items())
        raise ImportFailed(
            f"{len(found)} importers recognize {path}:\n{listed}",
            "Name the importer yourself, or a path with the files of one format.",
        )
    return next(iter(found.items()))


def list_files(path: Path, *patterns: str) -> list[Path]:
    """Return a file that fits a pattern, or the first files below a folder that do, in order."""
    if path.is_file():
        return [path] if any(path.match(pattern) for pattern in patterns) else []
    found: list[Path] = []
    for pattern in patterns:
        found += islice(path.glob(pattern), SEARCHED_FILES)
    return sorted(found)


def list_below(path: Path, pattern: str) -> list[Path]:
    """Return a file that fits a pattern, or the first files anywhere below a folder that do."""
    if path.is_file():
        return list_files(path, pattern)
    found: list[Path] = []
    entries = 0
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name != ".git")
        found += [Path(folder, name) for name in sorted(names) if fnmatchcase(name, pattern)]
        entries += len(folders) + len(names)
        if entries > SEARCHED_ENTRIES or len(found) >= SEARCHED_FILES:
            break
    return found


def read_first_object(file: Path) -> dict[str, Any]:
    """Return the object in the first line of a file, empty if there is none."""
    try:
        with text_files.open_bytes(file) as handle:
            line = handle.readline(FIRST_LINE_BYTES)
        value = text_files.parse_json(line.decode("utf-8-sig"), file.name)
    except (ImportFailed, OSError, EOFError, UnicodeDecodeError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def read_head(file: Path) -> str:
    """Return the first characters of a file."""
    try:
        with text_files.open_bytes(file) as handle:
            return handle.read(HEAD_BYTES).decode("utf-8", "replace")
    except (ImportFailed, OSError, EOFError):
        return ""


def has_names(file: Path, *names: str) -> bool:
    """Return whether the beginning of a JSON file has all these names of fields."""
    head = read_head(file)
    return all(re.search(rf'"{re.escape(name)}"\s*:', head) for name in names)


def read_columns(path: Path) -> set[str]:
    """Return the columns of a Parquet file, or of the first one below a folder; empty if none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = list_files(path, "*.parquet", "data/*.parquet", "*/*.parquet")
    if not files:
        return set()
    try:
        with open(files[0], "rb") as handle:
            handle.seek(-8, 2)
            footer = int.from_bytes(handle.read(4), "little")
        if footer > FOOTER_BYTES:
            return set()
        return set(pq.read_schema(files[0]).names)
    except (pa.ArrowException, OSError):
        return set()


def find_columns(path: Path, *names: str) -> str | None:
    """Return the columns in words if a Parquet file, or one below a folder, has all of them."""
    return f"columns {', '.join(names)}" if set(names) <= read_columns(path) else None
