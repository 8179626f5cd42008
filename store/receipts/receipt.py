"""Makes a receipt of a kernel's numbers, and reads and writes its one canonical form.

A receipt has the rows of a lake that the numbers of one kernel are computed from, as an edition
publishes them: without private columns, with hashed names. Beside them are the answers of the
views over these rows. `verify` asks the same views again, so that a figure is defined in one place.

The canonical form is JSON in one line of printable ASCII, so that it passes every terminal
unchanged: keys sorted, no blanks, other characters as \\uXXXX, numbers as Python prints them (the
shortest text that reads back as the same float64), and a newline at the end. A FLOAT of the catalog
is the float64 with its shortest text. `sha256` is that of the file without this member.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import msgspec

from store import __version__
from store.dossier.pages import choose_device, find_kernel
from store.errors import FlywheelError, RowsRejected, UnknownName
from store.hub.redact import Redactor, find_secret_holders
from store.lake.sql_files import read_sql
from store.receipts import figures
from store.schema import catalog

if TYPE_CHECKING:
    from store.lake.reader import Lake
    from store.schema.catalog import Column, Table

SCHEMA = 1
"""Number of the schema of receipts. Raise it with every change that older programs cannot read."""
MOST_BYTES = 64 << 20
"""Size above which a file is no receipt."""
ROWS = Path(__file__).parent / "sql" / "rows"
"""The query of each table of a receipt."""
UNSIGNED = ("sha256", "signature")
_DIGEST = b',"sha256":"'
_LICENSES = Path(figures.__file__).parents[1] / "hub" / "licenses.py"
Sha256 = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class ReceiptRefused(FlywheelError):
    """A file is no receipt, or states what does not follow from it."""

    exit_code = 3


class KernelFile(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A file of the kernel."""

    path: str
    sha256: Sha256
    bytes: int


class Kernel(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The kernel: its id is the hash of its files, their paths, entry point and build flags."""

    kernel_id: Sha256
    path: str
    entry_point: str
    build_flags: list[str]
    files: list[KernelFile]
    language: str | None
    authors: list[str]
    license: str | None
    source: str
    source_revision: str | None


class Task(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A task that the kernel was judged on: its id is the sha256 of its text."""

    task_id: Sha256
    bytes: int
    name: str
    suite: str | None
    suite_revision: str | None
    license: str | None
    source: str
    source_revision: str | None


class Place(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A lake at a snapshot."""

    lake_id: str
    snapshot: int


class Stated(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What the lake states about the kernel and other rows decide: the receipt cannot show it."""

    withheld: str | None
    """Why no dataset may have the kernel (view withheld)."""
    weak_tasks: list[str]
    """Ids of tasks that a trivial answer passes (view weak_tasks)."""
    ranking: list[dict[str, Any]]
    """Figures by the clock and precision that rank, and whether they do (view kernel_speedups)."""


class Receipt(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Everything that the numbers of one kernel are computed from, and these numbers."""

    receipt: Annotated[int, msgspec.Meta(ge=1)]
    """Number of this schema."""
    catalog: Annotated[int, msgspec.Meta(ge=1)]
    """Number of the schema of the tables in `rows`."""
    program: str
    """Version of kernel-flywheel that made the receipt."""
    lake: Place
    device: str | None
    """The only device model that the receipt is of; null for all."""
    clock: str | None
    """The only clock that the receipt is of; null for all."""
    kernel: Kernel
    tasks: list[Task]
    rows: dict[str, list[dict[str, Any]]]
    """Rows by table, without NULLs."""
    figures: dict[str, list[dict[str, Any]]]
    """Answers of views over these rows, by view, without NULLs."""
    stated: Stated
    signature: str | None = None
    """SSH signature, in namespace `receipt@kernel-flywheel`, of the canonical form without
    `signature` and `sha256`."""
    sha256: Sha256
    """sha256 of the canonical form without `sha256`."""


def make_receipt(
    lake: Lake, kernel: str, *, device: str | None = None, clock: str | None = None
) -> dict[str, Any]:
    """Return the receipt of a kernel's numbers, which `write_receipt` completes.

    Args:
        lake: Where the kernel was judged.
        kernel: Its id, or the first characters of it.
        device: Device model, such as H200; None is all.
        clock: Clock of timing sessions; None is all.

    Raises:
        UnknownName: no such kernel, or it was not judged, or not on the device or by the clock.
        RowsRejected: a text that cannot be published unchanged contains a token or key.
    """
    kernel_id = find_kernel(lake, kernel)
    judged = lake.run(
        'SELECT DISTINCT "name" FROM devices SEMI JOIN evaluations '
        "ON evaluations.device_id = devices.device_id AND kernel_id = $1 ORDER BY ALL",
        [kernel_id],
    ).rows()
    devices = [str(row["name"]) for row in judged]
    if not devices:
        raise UnknownName(
            f"kernel {kernel_id[:12]} has no verdict", f"evaluators run --kernel {kernel_id[:12]}"
        )
    if device is not None:
        device = choose_device(device, devices)
        if device not in devices:
            raise UnknownName.among("device that judged the kernel", device, devices)
    chosen = {"kernel": kernel_id, "device": device, "clock": clock}
    # Names in an edition are hashed already.
    salt = b"" if lake.location.is_edition else lake.location.read_salt()
    redactor = Redactor(salt, lake.catalog)
    rows: dict[str, list[dict[str, Any]]] = {}
    for file in sorted(ROWS.glob("*.sql")):
        table = lake.catalog.table(file.stem)
        query = file.read_text("utf-8")
        names = {name: value for name, value in chosen.items() if f"${name}" in query}
        found = lake.run(query, names).arrow()
        if secrets := find_secret_holders(table, found):
            rule = "published texts contain no token or key"
            raise RowsRejected("receipt", rule, len(secrets), secrets[:20])
        rows[table.name] = figures.to_json(redactor.redact_rows(table, found))
    # From the rows of the receipt, as `verify` does: the views of a large lake take seconds.
    numbers = figures.compute_figures(rows, kernel_id, device, clock)
    if clock is not None and not numbers["speedups"]:
        raise UnknownName(
            f"kernel {kernel_id[:12]} was not timed by clock {clock}", "Leave out --clock."
        )
    only = {"kernel": kernel_id}
    # Of the kernel, or of the attempts that wrote it.
    [licensed] = lake.run(
        f"SELECT license FROM ({read_sql(str(_LICENSES), 'licenses')}\n) "
        "WHERE \"table\" = 'kernels' AND id = $kernel",
        only | {"own": None},
    ).rows()
    [of_kernel] = lake.run(read_sql(__file__, "kernel"), only).rows()
    tasks = lake.run(read_sql(__file__, "tasks"), only).rows()
    files = [(of_kernel["path"], of_kernel["code"])]
    files += [(other["path"], other["code"]) for other in of_kernel["other_files"] or ()]
    weak = [task["task_id"] for task in tasks if task.pop("weak")]
    return {
        "receipt": SCHEMA,
        "catalog": lake.catalog.schema,
        "program": __version__,
        "lake": {"lake_id": lake.lake_id, "snapshot": lake.snapshot},
        "device": device,
        "clock": clock,
        "kernel": {
            **{
                name: of_kernel[name]
                for name in Kernel.__struct_fields__
                if name not in ("files", "authors", "license")
            },
            "license": licensed["license"],
            "authors": of_kernel["authors"] or [],
            "files": [
                {
                    "path": path,
                    "sha256": hashlib.sha256(code.encode()).hexdigest(),
                    "bytes": len(code.encode()),
                }
                for path, code in files
            ],
        },
        "tasks": [task | {"bytes": len(task.pop("code").encode())} for task in tasks],
        "rows": rows,
        "figures": numbers,
        "stated": {
            "withheld": of_kernel["withheld"],
            "weak_tasks": weak,
            "ranking": figures.to_json(lake.run(read_sql(__file__, "ranking"), chosen).arrow()),
        },
        "signature": None,
    }


def canonicalize(content: Mapping[str, Any]) -> bytes:
    """Return the canonical form of a JSON object.

    >>> canonicalize({"b": [1.0, "é"], "a": None})
    b'{"a":null,"b":[1.0,"\\\\u00e9"]}\\n'
    """
    text = json.dumps(content, allow_nan=False, sort_keys=True, separators=(",", ":"))
    # The encoder does not escape DEL, which occurs only in strings.
    return (text.replace("\x7f", "\\u007f") + "\n").encode()


def get_signed(receipt: Mapping[str, Any]) -> bytes:
    """Return the bytes that a signature of a receipt is about."""
    return canonicalize({name: receipt[name] for name in receipt if name not in UNSIGNED})


def write_receipt(receipt: Mapping[str, Any]) -> bytes:
    """Return a receipt in its canonical form, with the hash that binds every byte of it."""
    content = {name: value for name, value in receipt.items() if name != "sha256"}
    digest = hashlib.sha256(canonicalize(content)).hexdigest()
    return canonicalize(content | {"sha256": digest})


def read_receipt(data: bytes) -> dict[str, Any]:
    """Return the receipt in the bytes of a file.

    Raises ReceiptRefused if they are not a receipt in its canonical form that this version reads.
    """
    if len(data) > MOST_BYTES:
        raise ReceiptRefused(
            f"the file has more than {MOST_BYTES >> 20} MiB, which no receipt has",
            "Give a file that `store receipt` wrote.",
        )
    # The last member of this name, since quotes inside of texts are escaped.
    start = data.rfind(_DIGEST)
    end = start + len(_DIGEST) + 65
    digest = hashlib.sha256(data[:start] + data[end:]).hexdigest()
    if start >= 0 and data[end - 65 : end] != f'{digest}"'.encode():
        raise ReceiptRefused(
            "the sha256 in the receipt is not that of its content, so it was changed",
            "Ask its author for the file that `store receipt` wrote.",
        )
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        why = "too deeply nested" if isinstance(error, RecursionError) else str(error)
        raise ReceiptRefused(
            f"the file is not JSON as receipts have it: {why}",
            "Give a file that `store receipt` wrote.",
        ) from error
    if not isinstance(content, dict) or "receipt" not in content:
        raise ReceiptRefused("the file is JSON, and no receipt", "`store receipt` writes receipts.")
    receipt = cast("dict[str, Any]", content)
    for name, ours in (("receipt", SCHEMA), ("catalog", catalog.load().schema)):
        number = receipt.get(name)
        if isinstance(number, int) and number > ours:
            raise ReceiptRefused(
                f"the receipt was written by kernel-flywheel {str(receipt.get('program'))!a:.40}: "
                f"it has schema {number} of its {name}, and this version reads up to {ours}",
                "Verify it with that version: pip install --upgrade kernel-flywheel",
            )
    try:
        if rb"\ud" in data:  # half a pair of surrogates, which no UTF-8 has
            json.dumps(receipt, ensure_ascii=False).encode()
        msgspec.convert(receipt, Receipt)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise ReceiptRefused(
            f"the receipt does not have the schema of receipts: {error}",
            "`store receipt --schema` prints it.",
        ) from error
    try:
        is_canonical = canonicalize(receipt) == data
    except ValueError:  # NaN, or an infinite number
        is_canonical = False
    if not is_canonical:
        raise ReceiptRefused(
            "the receipt is not in its canonical form, so it was changed after it was written",
            "Ask for the file that `store receipt` wrote; editors and pretty-printers change it.",
        )
    return receipt


def make_schema() -> dict[str, Any]:
    """Return the JSON Schema of receipts; the columns of tables are those of the catalog."""
    schema = msgspec.json.schema(Receipt)
    tables = {file.stem: catalog.load().table(file.stem) for file in sorted(ROWS.glob("*.sql"))}
    schema["$defs"]["Receipt"]["properties"]["rows"] = {
        "description": "Rows by table, without NULLs.",
        "type": "object",
        "properties": {name: _describe_table(table) for name, table in tables.items()},
        "required": list(tables),
        "additionalProperties": False,
    }
    title = f"Receipt of a kernel's numbers, schema {SCHEMA}"
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


def _describe_table(table: Table) -> dict[str, Any]:
    columns = [one for one in table.columns.values() if one.sensitivity != "private"]
    item = {
        "type": "object",
        "properties": {one.name: _describe_column(one) for one in columns},
        "required": [one.name for one in columns if one.required],
        "additionalProperties": False,
    }
    return {"type": "array", "description": table.about, "items": item}


def _describe_column(column: Column) -> dict[str, Any]:
    types = {"BOOLEAN": "boolean", "INTEGER": "integer", "BIGINT": "integer"}
    types |= {"FLOAT": "number", "DOUBLE": "number"}
    kind: dict[str, Any] = {"type": types.get(column.type.removesuffix("[]"), "string")}
    if column.type.endswith("[]"):
        kind = {"type": "array", "items": kind}
    return {**kind, "description": column.comment}
