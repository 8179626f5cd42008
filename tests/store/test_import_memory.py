"""A source of one gigabyte is imported within one gigabyte of memory, by each family of reader."""

from __future__ import annotations

import csv
import json
import random
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from import_sources import count, kernel, query

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="reads Linux's VmHWM"),
]

GB = 1_000_000_000
SIZE = int(0.98 * GB)
"""A Parquet file is refused if it decodes to more than 1 GB."""
TEXT = 100_000
"""Characters of the long text of a row."""
KERNELS = 50
"""Distinct kernels; their features are extracted once each."""

PROGRAM = """
import resource, sys
from pathlib import Path
from store.cli.app import main
code = 0
try:
    main()
except SystemExit as ended:
    code = ended.code
# Not ru_maxrss, which begins with the memory of the process that started this one.
status = Path("/proc/self/status").read_text()
own = int(status.partition("VmHWM:")[2].split()[0])
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print("peak", own * 1024, children * 1024)
sys.exit(code)
"""


def long_text(number: int) -> str:
    """Return a text of TEXT characters that no other number has."""
    words = random.Random(number).choices(range(1_000_000), k=200)
    line = " ".join(map(str, words))
    return f"{number} {line} " + (line + "\n") * (TEXT // len(line))


def numbers() -> Iterator[int]:
    """Yield numbers of rows until their long texts are SIZE characters."""
    yield from range(SIZE // TEXT)


def write_json_lines(root: Path) -> Path:
    """Write a trace of OpenEvolve: one line a program, with a long prompt."""
    file = root / "evolution_trace.jsonl"
    with open(file, "w") as handle:
        for number in numbers():
            line = {
                "iteration": number,
                "timestamp": 1_750_000_000.0,
                "parent_id": f"p{max(number - 1, 0)}",
                "child_id": f"p{number + 1}",
                "parent_metrics": {},
                "child_metrics": {"combined_score": 1.0},
                "child_code": kernel(number % KERNELS),
                "prompt": {"user": long_text(number)},
                "generation": number,
            }
            handle.write(json.dumps(line) + "\n")
    return file


def write_session(root: Path) -> Path:
    """Write one session of Claude Code with long results of tools."""
    file = root / "session.jsonl"
    about = {"sessionId": "s", "timestamp": "2026-05-01T10:00:00Z"}
    with open(file, "w") as handle:
        for number in numbers():
            written = {"file_path": "/w/solution.py", "content": kernel(number % KERNELS)}
            call = {"type": "tool_use", "id": f"t{number}", "name": "Write", "input": written}
            asked = {"id": f"m{number}", "role": "assistant", "content": [call]}
            told = {"type": "tool_result", "tool_use_id": f"t{number}"}
            answer = {"role": "user", "content": [told | {"content": long_text(number)}]}
            for role, message in (("assistant", asked), ("user", answer)):
                handle.write(json.dumps(about | {"type": role, "message": message}) + "\n")
    return file


def write_json_folder(root: Path) -> Path:
    """Write samples of KernelBench: one document each, with a long log."""
    for number in numbers():
        folder = root / f"baseline_eval/level1/model/problem_1/sample_{number}"
        folder.mkdir(parents=True)
        verdict = {"compiled": True, "correct": False, "metadata": {"log": long_text(number)}}
        sample = {"kernel": kernel(number % KERNELS), "eval_result": verdict}
        (folder / "kernel.json").write_text(json.dumps(sample))
    return root / "baseline_eval"


def write_parquet(root: Path) -> Path:
    """Write dialogues of Dr.Kernel in one row group."""
    file = root / "dialogues.parquet"

    def row(number: int) -> dict[str, Any]:
        asked = {"role": "user", "content": long_text(number)}
        answer = {"role": "assistant", "content": f"```python\n{kernel(number % KERNELS)}```"}
        return {"messages": [asked, answer], "uuid": number, "original_python_code": "pass"}

    table = pa.concat_tables([pa.Table.from_pylist([row(number)]) for number in numbers()])
    pq.write_table(table, file, row_group_size=len(table), use_dictionary=False)
    return file


def write_sqlite(root: Path) -> Path:
    """Write a database of ShinkaEvolve with long feedback."""
    file = root / "evolution_db.sqlite"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(
            "CREATE TABLE programs (id TEXT PRIMARY KEY, code TEXT, language TEXT, parent_id TEXT,"
            " generation INTEGER, timestamp REAL, combined_score REAL, public_metrics TEXT,"
            " text_feedback TEXT, correct BOOLEAN, island_idx INTEGER)"
        )
        for number in numbers():
            parent = f"p{number - 1}" if number else None
            row = (f"p{number}", kernel(number % KERNELS), "python", parent, number, 1.0, 0.5)
            marks = ", ".join("?" * 11)
            database.execute(
                f"INSERT INTO programs VALUES ({marks})", (*row, None, long_text(number), 1, 0)
            )
    return file


def write_csv(root: Path) -> Path:
    """Write results of robust-kbench with long profiles."""
    file = root / "results.csv"
    about = {"Kernel Name": "relu", "Correct": True, "Runtime (ms)": 0.5, "Speedup": 2.0}
    about |= {"Speedup Compile": 1.5, "task_name": "relu", "forward": True}
    with open(file, "w", newline="") as handle:
        writer = csv.DictWriter(handle, [*about, "Code", "Sample ID", "NCU Profile"])
        writer.writeheader()
        for number in numbers():
            code = f"__global__ void k{number % KERNELS}() {{}}"
            row = {"Code": code, "Sample ID": number, "NCU Profile": long_text(number)}
            writer.writerow(about | row)
    return file


FAMILIES: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "JSON Lines": ("openevolve", write_json_lines),
    "a session": ("claude-code", write_session),
    "a folder of JSON": ("kernelbench-samples", write_json_folder),
    "Parquet": ("drkernel", write_parquet),
    "SQLite": ("shinka", write_sqlite),
    "CSV": ("robust-kbench", write_csv),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_one_gigabyte_needs_less_than_one(family: str, tmp_path: Path) -> None:
    importer, write = FAMILIES[family]
    source, lake = tmp_path / "source", tmp_path / "lake"
    source.mkdir()
    path = write(source)
    asked = ["import", importer, str(path), "--lake", str(lake)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *asked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    own, children = map(int, done.stdout.splitlines()[-1].split()[1:])
    size = sum(file.stat().st_size for file in source.rglob("*") if file.is_file())
    sys.stdout.write(
        f"{importer}: {size / GB:.2f} GB, peak {own / GB:.2f} GB, child {children / GB:.2f} GB\n"
    )
    assert count(lake, "generations") >= SIZE // TEXT
    assert query(lake, "SELECT count(*) FROM kernels") == [(KERNELS,)]
    assert own < GB
