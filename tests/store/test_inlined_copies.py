"""Small tables that are copied from the catalog's inlined rows are those that DuckLake reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builders as b
import pytest

import store
from store.lake import stored_tables
from store.schema.tables import Table

AWKWARD = ["it's", 'a "quoted" one', "[x, y]", "{'a': 1}", "a\\b", "two\nlines", "", " ü ", "NULL"]


def test_inlined_rows_are_read_as_ducklake_reads_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied_tables: list[str] = []

    def copy(
        connection: Any, table: Table, stored: stored_tables.StoredTable | None, snapshot: int
    ) -> bool:
        copied_tables.extend([table.name] if real(connection, table, stored, snapshot) else [])
        return table.name in copied_tables

    real = stored_tables.copy_inlined
    monkeypatch.setattr(stored_tables, "copy_inlined", copy)
    url = str(tmp_path / "lake")
    text = "\n".join(AWKWARD)
    task, device, policy = b.task(text), b.device("cpu", kind="cpu"), b.policy("one")
    kernel = b.kernel(code=text, other_files=[{"path": "b, c.cu", "code": text}])
    size = b.workload(task)
    verdict = b.evaluation(kernel, task, size, device, message=text, max_abs_error=0.1 + 0.2)
    samples = [0.1 + 0.2, 1e-30, 3.4e38, 1e-45, 1.0, 2.0, 3.0]
    rows = {
        "tasks": [task], "workloads": [size], "devices": [device], "policies": [policy],
        "kernels": [kernel], "evaluations": [verdict],
        "timings": b.session(verdict, samples, eager=samples),
        "generations": [
            b.generation(policy, task, kernel, completion=text)
        ],
        "kernel_features": [b.features(kernel, techniques=AWKWARD, minhash_bands=[-(2**63)])],
    }  # fmt: skip
    with store.writer(url, author="tests") as writer:
        writer.append(rows, "awkward values")
    with store.open(url) as lake:
        for table in rows:
            copied = lake.run(f"FROM {table} ORDER BY ALL").arrow()
            names = ", ".join(f'"{name}"' for name in copied.column_names)
            read = lake.run(f"SELECT {names} FROM lake.main.{table} ORDER BY ALL").arrow()
            assert copied.num_rows == len(rows[table])
            assert copied.equals(read.cast(copied.schema)), table
    assert sorted(copied_tables) == sorted(rows)
