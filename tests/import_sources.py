"""What the tests of importers share: importing a source, and what a lake has afterwards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import store
from store import ids
from store.importers.reading.pieces import ImportSummary, run_import

TASK = '''import torch

class Model(torch.nn.Module):
    """{doc}"""
    def forward(self, x):
        return {body}

def get_inputs():
    return [torch.randn(16, 16)]

def get_init_inputs():
    return []
'''
RELU = TASK.format(doc="ReLU.", body="torch.relu(x)")
KERNEL = """import torch

class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.clamp(min=0)  # {n}
"""


def kernel(number: int = 0) -> str:
    """Return the text of a kernel."""
    return KERNEL.replace("{n}", str(number))


def import_source(lake: Path, importer: ModuleType, source: Path, **options: Any) -> ImportSummary:
    """Import a source into a lake."""
    with store.writer(str(lake), author="tests") as writer:
        return run_import(writer, importer, source, importer.Config(**options))


def query(lake: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with store.open(str(lake)) as opened:
        return [tuple(row.values()) for row in opened.sql(sql).rows()]


def count(lake: Path, table: str) -> int:
    """Return the number of rows of a table."""
    return int(query(lake, f"SELECT count(*) FROM {table}")[0][0])


def add_task(lake: Path, code: str = RELU, name: str = "level1/19", revision: str = "v0") -> str:
    """Add a task of KernelBench and return its id."""
    task_id = ids.task_id(code)
    level, _, problem = name.removeprefix("level").partition("/")
    with store.writer(str(lake), author="tests") as writer:
        writer.append(
            {
                "tasks": [{"task_id": task_id, "code": ids.normalize(code), "source": "tests"}],
                "workloads": [
                    {
                        "workload_id": ids.workload_id(task_id),
                        "task_id": task_id,
                        "name": "default",
                        "axes": "{}",
                        "generator": "get_inputs",
                    }
                ],
                "task_labels": [
                    {
                        "suite": "kernelbench",
                        "suite_revision": revision,
                        "name": name,
                        "task_id": task_id,
                        "level": int(level),
                        "problem_id": int(problem),
                        "title": "ReLU",
                        "family": "elementwise",
                        "source": "tests",
                    }
                ],
            },
            "a task",
        )
    return task_id


def write_json(file: Path, value: Any) -> Path:
    """Write a JSON file with its folders."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value))
    return file


def write_lines(file: Path, values: Iterable[Mapping[str, Any]]) -> Path:
    """Write a JSON Lines file with its folders."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(value)}\n" for value in values))
    return file
