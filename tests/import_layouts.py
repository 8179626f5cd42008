"""A small source of every importer of foreign history: two records each, and what breaks it."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from import_sources import RELU, TASK, kernel, write_json, write_lines

from store.importers import (
    accelopt,
    agent_kernel_arena,
    atif,
    claude_code,
    drkernel,
    k_search,
    kernelagent,
    kernelbench_hard_runs,
    kernelbench_samples,
    kernelbench_v3_runs,
    kernelbook,
    kernelbot,
    openevolve,
    robust_kbench,
    shinka,
    sol_execbench,
    triton_gpu_latency,
    verifiers,
)

NUMBERS = (1, 2)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One source."""

    importer: ModuleType
    write: Callable[[Path], None]
    """Writes two records below a folder."""
    target: str
    """The file that a test breaks, inside the folder."""
    path: str = "."
    """What is imported, inside the folder."""
    options: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def name(self) -> str:
        """Name of the importer."""
        return str(self.importer.NAME)


def _rows(file: str, *rows: dict[str, Any]) -> Callable[[Path], None]:
    return lambda root: pq.write_table(pa.Table.from_pylist(list(rows)), root / file)


def _lines(file: str, rows: Sequence[dict[str, Any]]) -> Callable[[Path], None]:
    return lambda root: _nothing(write_lines(root / file, rows))


def _documents(files: dict[str, Any]) -> Callable[[Path], None]:
    return lambda root: _nothing([write_json(root / name, one) for name, one in files.items()])


def _nothing(_: object) -> None:
    return None


def _table(file: str, rows: Sequence[dict[str, Any]]) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        with open(root / file, "w", newline="") as handle:
            writer = csv.DictWriter(handle, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)

    return write


def _all(*writers: Callable[[Path], None]) -> Callable[[Path], None]:
    return lambda root: _nothing([write(root) for write in writers])


def _text(file: str, text: str) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text)

    return write


def _database(root: Path) -> None:
    with closing(sqlite3.connect(root / "evolution_db.sqlite")) as database, database:
        database.execute(
            "CREATE TABLE programs (id TEXT, code TEXT, parent_id TEXT, combined_score REAL, "
            "generation INTEGER, island_idx INTEGER)"
        )
        for n in NUMBERS:
            row = (f"p{n}", kernel(n), None, 0.5, n, 0)
            database.execute("INSERT INTO programs VALUES (?, ?, ?, ?, ?, ?)", row)


def _turns() -> list[dict[str, Any]]:
    """Return a session of Claude Code that writes two kernels."""
    turns: list[dict[str, Any]] = []
    for n in NUMBERS:
        written = {"file_path": "/w/solution.py", "content": kernel(n)}
        call = {"type": "tool_use", "id": f"t{n}", "name": "Write", "input": written}
        told = {"type": "tool_result", "tool_use_id": f"t{n}", "content": "ok"}
        about = {"sessionId": "s-1", "timestamp": "2026-05-01T10:00:00Z"}
        asked = {"role": "assistant", "id": f"m{n}", "content": [call]}
        turns.append(about | {"type": "assistant", "message": asked})
        turns.append(about | {"type": "user", "message": {"role": "user", "content": [told]}})
    return turns


def _trajectory() -> dict[str, Any]:
    steps = [
        {"source": "agent", "message": f"```python\n{kernel(n)}```", "step_id": n} for n in NUMBERS
    ]
    agent = {"name": "agent", "version": "1", "model_name": "model"}
    return {"schema_version": "ATIF-v1.7", "session_id": "s", "agent": agent, "steps": steps}


def _problem(n: int) -> dict[str, Any]:
    definition = {
        "name": f"relu_{n}",
        "axes": {"N": {"type": "const", "value": 16 * n}},
        "inputs": {"x": {"shape": ["N"], "dtype": "float32"}},
        "reference": "import torch\n\ndef run(x):\n    return x.clamp(min=0)\n",
    }
    solution = {
        "name": "mine",
        "definition": f"relu_{n}",
        "spec": {"entry_point": "a.py::run"},
        "sources": [{"path": "a.py", "content": kernel(n)}],
    }
    folder = f"L1/relu_{n}"
    return {f"{folder}/definition.json": definition, f"{folder}/solution.json": solution}


def _episode(n: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": f"```python\n{kernel(n)}```"}
    node = {"message": message, "sampled": True, "timestamp": 1_780_000_000.0}
    rewards = {"correct": {"score": 1.0}}
    trace = {"version": 1, "id": f"t{n}", "task": {}, "nodes": [node], "rewards": rewards}
    return {"id": f"e{n}", "env": {"id": "kernels"}, "task": {}, "traces": [trace]}


def _program(n: int) -> dict[str, Any]:
    created_at = "2026-05-01T10:00:00"
    metrics = {"time_ms": 1.0}
    return {"program_id": f"r{n}", "kernel_code": kernel(n), "metrics": metrics} | {
        "problem_id": "relu/problem.py",
        "created_at": created_at,
    }


def _candidates() -> dict[str, Any]:
    service: dict[str, Any] = {"service_name": "relu_ID1", "case_name": "relu"}
    for n in NUMBERS:
        latency = {"latency": 1.0, "speedup": 2.0}
        service[f"plan_{n}_0"] = {"body": kernel(n), "baseline": kernel(0)} | latency
    return {"exp_date": "1", "executor_results": [service]}


_V3 = {
    "model": "m",
    "gpu": "H100",
    "level": 1,
    "correct": True,
    "speedup": 1.5,
    "solution_link": "solutions/a.py.txt",
    "baseline_type": "eager",
    "precision_used": "fp32",
}
_ROBUST = {
    "Kernel Name": "relu",
    "Correct": True,
    "Runtime (ms)": 0.5,
    "Speedup": 2.0,
    "Speedup Compile": 1.5,
    "task_name": "relu",
    "forward": True,
}
_ARENA = "workspace_MI300_codex/run_1/relu_"

LAYOUTS = [
    Layout(
        importer=kernelbench_samples,
        write=_documents(
            {
                f"baseline_eval/level1/model/problem_1/sample_{n}/kernel.json": {
                    "kernel": kernel(n),
                    "eval_result": {"compiled": True, "correct": True},
                }
                for n in NUMBERS
            }
        ),
        target="baseline_eval/level1/model/problem_1/sample_2/kernel.json",
    ),
    Layout(
        importer=kernelbot,
        write=_rows(
            "submissions.parquet",
            *(
                {"submission_id": n, "leaderboard_id": 1, "problem_name": "relu", "code": kernel(n)}
                | {"score": 0.001, "passed": True, "mode": "leaderboard", "runner": "H100"}
                for n in NUMBERS
            ),
        ),
        target="submissions.parquet",
    ),
    Layout(
        importer=kernelbench_v3_runs,
        write=_all(
            _table("results.csv", [_V3 | {"problem": f"{n}_ReLU.py"} for n in NUMBERS]),
            _text("solutions/a.py.txt", kernel()),
        ),
        target="results.csv",
    ),
    Layout(
        importer=kernelbench_hard_runs,
        write=_all(
            _documents(
                {"runs/r1/result.json": {"problem": "relu", "harness": "claude", "model": "m"}
                | {"correct": True, "peak_fraction": 0.5}}
            ),
            _text("runs/r1/solution.py", kernel()),
            _lines("runs/r1/transcript.jsonl", _turns()),
        ),
        target="runs/r1/transcript.jsonl",
    ),
    Layout(importer=claude_code, write=_lines("s-1.jsonl", _turns()), target="s-1.jsonl"),
    Layout(
        importer=atif,
        write=_documents({"agent/trajectory.json": _trajectory()}),
        target="agent/trajectory.json",
    ),
    Layout(importer=shinka, write=_database, target="evolution_db.sqlite"),
    Layout(
        importer=kernelbook,
        write=_rows(
            "data.parquet",
            *(
                {"entry_point": "Model", "python_code": TASK.format(doc=n, body="x")}
                | {"triton_code": kernel(n), "uuid": n, "licenses": ["MIT"]}
                for n in NUMBERS
            ),
        ),
        target="data.parquet",
    ),
    Layout(
        importer=drkernel,
        write=_rows(
            "coldstart.parquet",
            *(
                {"messages": [{"role": "assistant", "content": f"```python\n{kernel(n)}```"}]}
                | {"uuid": n, "original_python_code": RELU}
                for n in NUMBERS
            ),
        ),
        target="coldstart.parquet",
    ),
    Layout(
        importer=triton_gpu_latency,
        write=_rows("test.parquet", *({"x": kernel(n), "y": 1.5} for n in NUMBERS)),
        target="test.parquet",
    ),
    Layout(
        importer=robust_kbench,
        write=_table("results.csv", [_ROBUST | {"Code": f"// {n}"} for n in NUMBERS]),
        target="results.csv",
    ),
    Layout(
        importer=sol_execbench,
        write=_all(
            *(_documents(_problem(n)) for n in NUMBERS),
            *(
                _lines(f"L1/relu_{n}/workload.jsonl", [{"uuid": "w", "axes": {}, "inputs": {}}])
                for n in NUMBERS
            ),
        ),
        target="L1/relu_1/workload.jsonl",
    ),
    Layout(
        importer=openevolve,
        write=_lines(
            "evolution_trace.jsonl",
            [
                {"child_id": f"p{n}", "parent_id": "p0", "child_code": kernel(n)}
                | {"child_metrics": {"combined_score": 1.0}, "llm_response": "Better."}
                for n in NUMBERS
            ],
        ),
        target="evolution_trace.jsonl",
    ),
    Layout(
        importer=k_search,
        write=_lines(
            "relu/world_model/solution_db.jsonl",
            [
                {"solution_id": f"s{n}", "definition": "relu", "code": kernel(n)}
                | {"eval_result": {"status": "passed", "latency_ms": 1.0}}
                for n in NUMBERS
            ],
        ),
        target="relu/world_model/solution_db.jsonl",
    ),
    Layout(
        importer=accelopt,
        write=_documents({"executor_results.json": _candidates()}),
        target="executor_results.json",
    ),
    Layout(
        importer=kernelagent,
        write=_documents({"program_database.json": {"programs": [_program(n) for n in NUMBERS]}}),
        target="program_database.json",
    ),
    Layout(
        importer=agent_kernel_arena,
        write=_all(
            *(
                _text(
                    f"{_ARENA}{n}/task_result.yaml",
                    yaml.safe_dump({"task_name": f"relu_{n}", "pass_compilation": True}
                    | {"pass_correctness": True, "best_optimized_execution_time": 1.0}),
                )
                for n in NUMBERS
            ),
            *(_text(f"{_ARENA}{n}/config.yaml", "source_file_path: a.hip") for n in NUMBERS),
            *(_text(f"{_ARENA}{n}/a.hip", f"__global__ void f{n}() {{}}\n") for n in NUMBERS),
        ),
        target=f"{_ARENA}2/task_result.yaml",
    ),
    Layout(
        importer=verifiers,
        write=_lines("traces.jsonl", [_episode(n) for n in NUMBERS]),
        target="traces.jsonl",
    ),
]  # fmt: skip


def break_record(file: Path) -> str:
    """Damage the last record of a file; return the place that an error must name."""
    if file.suffix == ".jsonl":
        file.write_text(file.read_text() + '{"open": ')
        return f"{file.name}, line {len(file.read_text().splitlines())}"
    if file.suffix == ".csv":
        file.write_text(file.read_text() + ",".join("x" * 30) + "\r\n")
        return f"{file.name}, line {len(file.read_text().splitlines())}"
    if file.suffix in (".json", ".yaml"):
        text = file.read_text()
        file.write_text(text[:-2] if file.suffix == ".json" else f"{text}more: [")
        return file.name
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    return file.name
