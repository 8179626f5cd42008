"""Run detectors over stored kernels; record decisions on findings; withdraw faulty verdicts."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

import store
from evaluators.audit import detect
from store import read_sql
from store.commandline.echo import Progress, ignore_progress
from store.dossier.pages import choose_id
from store.errors import FlywheelError, name_condition
from store.ids import content_id, uuid7
from store.lake.host import name_user

REVIEW_FROM = 0.5
"""Confidence from which a person should review a finding; weaker ones are tags for queries."""
BATCH = 2048
"""Kernels per bundle: an interrupted audit loses at most this number."""
PERSON = "person"
"""Name of the detector of findings that a person files."""


@dataclass(kw_only=True)
class Audit:
    """What a search has appended."""

    run_id: str | None = None
    """None where nothing was left to search."""
    kernels: int = 0
    findings: int = 0
    seconds: float = 0.0
    snapshot: int = 0


def read_query(name: str) -> str:
    """Return the text of evaluators/audit/sql/NAME.sql."""
    return read_sql(__file__, name)


def sweep(
    lake_url: str | None,
    *,
    detector: str | None = None,
    where: str | None = None,
    limit: int | None = None,
    processes: int | None = None,
    progress: Progress = ignore_progress,
) -> Audit:
    """Run detectors over the kernels that lack their version, and append what they find.

    Each batch is appended at once; the next run resumes an interrupted sweep.

    Args:
        detector: Name of one detector; None runs all.
        where: SQL over the columns of unsearched_kernels.sql.
        limit: Most kernels to search.
        processes: Processes that parse; None means one per core.
    """
    chosen = detect.choose_detectors(detector)
    keys = sorted(one.key for one in chosen)
    done = Audit()
    with store.writer(lake_url, author="evaluators audit") as writer, writer.reader() as lake:
        done.snapshot = lake.snapshot
        query, run = f"WITH pending AS ({read_query('unsearched_kernels')}) FROM pending", lake.run
        if where is not None:
            # What the user writes goes through the guard, with our own text around it.
            query, run = f"{query} WHERE ({where}\n)", lake.sql
        given = {"wanted": keys}
        with name_condition(where or ""):
            [total] = run(f"SELECT count(*) AS n FROM ({query}) AS found", given).rows()
        cut = "" if limit is None else f" LIMIT {int(limit)}"
        kernels_left = run(f"SELECT kernel_id, code, other_files FROM ({query}){cut}", given)
        waiting = min(int(total["n"]), limit or sys.maxsize)
        if not waiting:
            return done
        began = time.monotonic()
        only = None if detector is None else [one.name for one in chosen]
        config = {"detectors": keys, "every_detector": detector is None, "where": where}
        with (
            record_audit(writer, lake, "detectors", config) as record,
            detect.Pool(only, processes) as pool,
        ):
            done.run_id = record.run_id
            for kernels in _read_batches(kernels_left):
                rows = [row | {"run_id": done.run_id} for row in pool.search(kernels)]
                scans = [{"kernel_id": k, "run_id": done.run_id} for k, _, _ in kernels]
                message = f"audited {len(kernels)} kernels"
                writer.append({"findings": rows, "scans": scans}, message, wait=False)
                done.kernels += len(kernels)
                done.findings += len(rows)
                progress(done.kernels, waiting, "searched")
        done.seconds = time.monotonic() - began
        done.snapshot = record.snapshot
    return done


def decide(lake_url: str | None, prefix: str, decision: str, why: str) -> tuple[str, str, int]:
    """Append a decision on a finding; to quarantine a kernel, file a finding on it.

    Args:
        prefix: Id of a finding or, to confirm, of a kernel; or the start of one.
        decision: confirmed or dismissed.

    Returns:
        The ids of finding and kernel, and the snapshot.
    """
    if not why.strip():
        raise FlywheelError("a decision needs a reason", 'Give it with --why "…".')
    with store.writer(lake_url, author="evaluators audit") as writer:
        with writer.reader() as lake:
            kind, identity, kernel_id = _find_by_prefix(lake, prefix)
        if kind == "kernel" and decision == "dismissed":
            raise FlywheelError(
                f"{identity[:12]} is a kernel, and only a finding can be dismissed",
                f"List its findings: evaluators findings {identity[:12]}",
            )
        author = name_user()
        tables: dict[str, list[dict[str, Any]]] = {}
        if kind == "kernel":
            identity = content_id("finding", kernel_id, PERSON, "1", "reported", author, why)
            tables["findings"] = [
                {
                    "finding_id": identity,
                    "kernel_id": kernel_id,
                    "detector": PERSON,
                    "detector_version": 1,
                    "class": "reported",
                    "quote": why,
                    "confidence": 1.0,
                }
            ]
        tables["standings"] = [
            {
                "standing_id": uuid7(),
                "finding_id": identity,
                "decision": decision,
                "author": author,
                "why": why,
                "created_at": writer.choose_time("standings"),
            }
        ]
        snapshot = writer.append(tables, f"{decision} a finding on {kernel_id[:12]}")
    return identity, kernel_id, snapshot


def list_findings(lake: store.Lake, prefix: str | None) -> pa.Table:
    """Return the findings, with their decision, of the kernel with this start of an id, or all."""
    kernel_id = None if prefix is None else _find_by_prefix(lake, prefix)[2]
    return lake.run(read_query("findings"), {"kernel_id": kernel_id}).arrow()


def count_by_class(lake: store.Lake, run_id: str, detectors: Sequence[str]) -> pa.Table:
    """Count the findings of these detectors by class, and those that this run was first to make."""
    given = {"run_id": run_id, "detectors": list(detectors), "look_from": REVIEW_FROM}
    return lake.run(read_query("findings_by_class"), given).arrow()


def find_marked_datasets(lake: store.Lake, kernel_id: str | None = None) -> pa.Table:
    """Return the datasets that contain a marked kernel, or this kernel where it is marked."""
    given = {"look_from": REVIEW_FROM, "kernel_id": kernel_id}
    return lake.run(read_query("marked_datasets"), given).arrow()


def record_audit(
    writer: store.Writer, lake: store.Lake, name: str, config: dict[str, Any]
) -> AbstractContextManager[store.RunRecord]:
    """Return a context that stores an audit run, and how it ended."""
    run = store.make_run(
        kind="audit", name=name, config=config, lake_id=lake.lake_id, snapshot_id=lake.snapshot
    )
    return store.record_run(writer, run, f"audit by {name} begins")


def _read_batches(kernels_left: store.Result) -> Iterator[list[detect.Kernel]]:
    for batch in kernels_left.reader(BATCH):
        columns = [batch.column(name).to_pylist() for name in ("kernel_id", "code", "other_files")]
        if batch.num_rows:
            yield list(zip(*columns, strict=True))


def _find_by_prefix(lake: store.Lake, prefix: str) -> tuple[str, str, str]:
    """Return kind, id and kernel_id of the finding or kernel with this start of an id.

    Raises UnknownName where there is none, or several.
    """
    rows = lake.run(read_query("ids_by_prefix"), {"prefix": prefix.lower()}).rows()
    found = {row["id"]: (row["kind"], row["id"], row["kernel_id"]) for row in rows}
    hint = "`evaluators findings` lists the findings."
    return found[choose_id("finding or kernel", prefix, list(found), hint)]


# Verdicts that a fault of their host decided, and rows that withdraw them.

_SAME = (
    *("kernel_id", "task_id", "workload_id", "device_id", "evaluator", "evaluator_version"),
    *("precision", "protocol"),
)
SHOWN = ("kernel_id", "status", "reason", "fault", "quote", "device", "created_at")
"""Columns to show to a person."""


def find_host_faults(lake: store.Lake) -> pa.Table:
    """Return the verdicts that a fault of their host decided, and that no row withdraws yet."""
    return lake.run(read_sql(__file__, "host_faults")).arrow()


def withdraw(lake_url: str | None, faults: pa.Table) -> int:
    """Append rows that withdraw these verdicts, so that the kernels are pending; return a snapshot.

    faults: Rows of `find_host_faults`.
    """
    rows: list[dict[str, Any]] = [
        {name: row[name] for name in _SAME}
        | {
            "evaluation_id": uuid7(),
            "status": "evaluator_error",
            "reason": "host_unfit",
            "message": f"withdraws a verdict that a fault of the host decided: {row['quote']}",
            "withdraws": row["evaluation_id"],
        }
        for row in faults.to_pylist()
    ]
    with store.writer(lake_url, author="evaluators withdraw") as writer:
        return writer.append({"evaluations": rows}, f"withdrew {len(rows)} verdicts")
