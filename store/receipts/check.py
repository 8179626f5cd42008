"""Checks a receipt: its form, what follows from its rows, code beside it, and its signature."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store import ids
from store.errors import FlywheelError, RowsRejected
from store.receipts import figures, signing
from store.receipts.receipt import (
    MOST_BYTES,
    ROWS,
    ReceiptRefused,
    canonicalize,
    get_signed,
    read_receipt,
)
from store.schema import catalog
from store.writing.bundle import conform

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What holds for a receipt, and what could not be checked."""

    receipt: dict[str, Any]
    checked: list[str] = field(default_factory=list[str])
    unchecked: list[str] = field(default_factory=list[str])
    signer: str | None = None
    """Name of the signer, as the file of allowed signers has it."""


def read_file(file: Path) -> bytes:
    """Return the bytes of a file that may be a receipt. Raises FlywheelError if it is no file."""
    try:
        with file.open("rb") as handle:
            return handle.read(MOST_BYTES + 1)
    except OSError as error:
        raise FlywheelError(
            f"cannot read {file}: {error.strerror}", "Give a file that `store receipt` wrote."
        ) from error


def verify(
    data: bytes,
    *,
    code: Path | None = None,
    tasks: Sequence[Path] = (),
    allowed_signers: Path | None = None,
) -> Verification:
    """Check everything about a receipt that its file shows.

    Args:
        data: The bytes of the file.
        code: File of the kernel, or folder with its files.
        tasks: Files with the texts of its tasks.
        allowed_signers: File of allowed signers, as ssh-keygen reads it.

    Raises ReceiptRefused if anything does not hold.
    """
    receipt = read_receipt(data)
    done = Verification(receipt=receipt)
    done.checked.append(f"form: {len(data)} bytes in the canonical form, with their sha256")
    rows = _read_rows(receipt)
    kernel_id = receipt["kernel"]["kernel_id"]
    computed = figures.compute_figures(rows, kernel_id, receipt["device"], receipt["clock"])
    difference = figures.find_difference(receipt["figures"], computed)
    if difference is not None:
        raise ReceiptRefused(
            f"the figures do not follow from the rows: {difference}",
            f"It was made by version {receipt['program']!a:.40}; if that is not this one, verify it"
            " with that one.",
        )
    samples = sum(len(row.get("samples_ms", ())) for row in receipt["rows"]["timings"])
    counts = ", ".join(f"{view} {len(rows)}" for view, rows in computed.items() if rows)
    done.checked.append(f"figures: they follow from {samples} samples and the verdicts ({counts})")
    if code is None:
        done.unchecked.append("code of the kernel: give its file or folder with --code")
    else:
        check_code(receipt, code)
        done.checked.append(f"code: {len(receipt['kernel']['files'])} files are the kernel's")
    known = {task["task_id"]: task["name"] for task in receipt["tasks"]}
    for file in tasks:
        name = known.pop(find_task(receipt, file)["task_id"], None)
        done.checked.extend([f"task: the text is that of {name}"] if name else [])
    done.unchecked.extend(f"text of task {name}: give it with --task" for name in known.values())
    done.unchecked.append(
        "what other rows of the lake decide: withheld, trivial tasks, which figures rank"
    )
    if receipt["signature"] is None:
        if allowed_signers is not None:
            raise ReceiptRefused(
                "the receipt is not signed", "`store receipt --sign KEY` signs a receipt."
            )
        done.unchecked.append("author: the receipt is not signed, so anybody may have made it")
        return done
    name, key = signing.find_signer(get_signed(receipt), receipt["signature"], allowed_signers)
    if name is None:
        done.unchecked.append(f"author: signed with {key}; --allowed-signers says whose it is")
    else:
        done.checked.append(f"author: signed by {name} with {key}")
    return replace(done, signer=name)


def _read_rows(receipt: Mapping[str, Any]) -> dict[str, pa.Table]:
    """Return the rows of a receipt by table.

    Raises ReceiptRefused if a row is none of its table, is written otherwise than `store receipt`
    writes it, or is about another kernel, task or workload than the receipt.
    """
    kernel_id, rows = receipt["kernel"]["kernel_id"], receipt["rows"]
    names = sorted(file.stem for file in ROWS.glob("*.sql"))
    if sorted(rows) != names:
        raise ReceiptRefused(f"the tables of rows are {sorted(rows)!a:.200}, not {names}")
    typed: dict[str, pa.Table] = {}
    for name in names:
        table = catalog.load().table(name)
        try:
            typed[name] = conform(table, rows[name])
        except RowsRejected as error:
            raise ReceiptRefused(f"the rows are none of a lake: {error.message}") from error
        public = [one.name for one in table.columns.values() if one.sensitivity != "private"]
        written = figures.to_json(typed[name].select(public))
        given = [{table.renamed.get(one, one): row[one] for one in row} for row in rows[name]]
        if canonicalize({name: written}) != canonicalize({name: given}):
            raise ReceiptRefused(
                f"a row of {name} has a private column, or a value in another form than a lake's",
                "Ask its author for the file that `store receipt` wrote.",
            )
        keys = [str(row.get(table.key[0])) for row in written]
        if keys != sorted(set(keys)):
            raise ReceiptRefused(f"rows of {name} are out of order, or one is there twice")
    stated = {
        "task_id": {task["task_id"] for task in receipt["tasks"]},
        "workload_id": {row.get("workload_id") for row in rows["workloads"]},
        "device_id": {row.get("device_id") for row in rows["devices"]},
    }
    for table in ("evaluations", "timings", "findings"):
        for row in rows[table]:
            if row.get("kernel_id") != kernel_id:
                raise ReceiptRefused(f"a row of {table} is about another kernel")
            for name, known in stated.items():
                if table != "findings" and row.get(name) not in known:
                    raise ReceiptRefused(f"a row of {table} has a {name} that is not stated")
    for row in rows["workloads"]:
        parts = [row.get("task_id"), row.get("axes"), row.get("dtype")]
        if ids.compute_row_id("workload", None, parts) != row.get("workload_id"):
            raise ReceiptRefused("the id of a workload is not the hash of its task and axes")
    return typed


def check_code(receipt: Mapping[str, Any], code: Path) -> dict[str, str]:
    """Return the files of the kernel of a receipt by path, from its file or folder.

    Raises ReceiptRefused if they are not the kernel, FlywheelError if one cannot be read.
    """
    kernel = receipt["kernel"]
    texts: dict[str, str] = {}
    for stated in kernel["files"]:
        is_single = len(kernel["files"]) == 1 and not code.is_dir()
        file = code if is_single else code / stated["path"]
        # A foreign receipt may name any path.
        if not is_single and not file.resolve().is_relative_to(code.resolve()):
            raise ReceiptRefused(f"{stated['path']!a:.80} is outside the folder of the kernel")
        try:
            data = file.read_bytes()
        except OSError as error:
            raise FlywheelError(
                f"cannot read {file}: {error.strerror}",
                "Give the file of the kernel with --code, or the folder if it has several.",
            ) from error
        if hashlib.sha256(data).hexdigest() != stated["sha256"]:
            raise ReceiptRefused(f"{file} is not the text of {stated['path']!a:.80} in the receipt")
        texts[stated["path"]] = data.decode("utf-8", "replace")
    identity = ids.kernel_id(texts, kernel["path"], kernel["entry_point"], kernel["build_flags"])
    if identity != kernel["kernel_id"]:
        raise ReceiptRefused("the id of the kernel is not the hash of its files and entry point")
    return texts


def find_task(receipt: Mapping[str, Any], file: Path) -> dict[str, Any]:
    """Return the task of a receipt whose text is in a file; raises ReceiptRefused without one."""
    try:
        identity = ids.task_id(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FlywheelError(f"cannot read {file}: {error}", "Give the text of the task.") from error
    for task in receipt["tasks"]:
        if task["task_id"] == identity:
            return task
    names = ", ".join(f"{task['name']!a:.60}" for task in receipt["tasks"])
    raise ReceiptRefused(f"{file} is not the text of a task of the receipt, which has {names}")


def summarize(receipt: Mapping[str, Any]) -> list[str]:
    """Return what a receipt says, in lines: the kernel, and its speedup over eager by place."""
    kernel, names = receipt["kernel"], {task["task_id"]: task["name"] for task in receipt["tasks"]}
    author = ", ".join(kernel["authors"]) or "unknown"
    license = kernel["license"] or "no license stated"
    lines = [
        f"kernel       {kernel['kernel_id'][:12]} by {author}, {license}",
        f"made by      kernel-flywheel {receipt['program']} from lake {receipt['lake']['lake_id']} "
        f"at snapshot {receipt['lake']['snapshot']}",
    ]
    if receipt["stated"]["withheld"]:
        lines.append(f"withheld     {receipt['stated']['withheld']}, as the lake states")
    # A foreign receipt may lack any value.
    for verdict in receipt["figures"]["verdicts"]:
        row = defaultdict(lambda: "unknown", verdict)
        why = f" ({row['reason']})" if "reason" in row else ""
        lines.append(
            f"verdict      {row['status']}{why} for {names.get(row['task_id'], row['task_id'])} on "
            f"{row['device']}, {row['precision']}, {row['evaluator']} {row['evaluator_version']}"
        )
    lines += [
        f"speedup      {describe_speedup(row)} over eager on {row.get('device')}, clock "
        f"{row.get('clock')}, {row.get('precision')}, {row['n']} pairs of samples in "
        f"{row['sessions']} sessions"
        for row in receipt["figures"]["pooled_speedups"]
        if row.get("baseline") == "eager"
    ]
    return lines


def describe_speedup(row: Mapping[str, Any]) -> str:
    """Return a speedup with its interval in words.

    >>> describe_speedup({"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1})
    '2.00x (1.90 to 2.10)'
    """
    middle, low, high = (
        f"{row[name]:.2f}" if name in row else "unknown"
        for name in ("speedup", "speedup_low", "speedup_high")
    )
    return f"{middle}x ({low} to {high})"
