"""Problems, solutions and traces of SOL-ExecBench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from import_sources import count, import_source, query, write_json, write_lines

from store.errors import ImportFailed
from store.importers import sol_execbench
from store.importers.reading import flashinfer, sources

REFERENCE = """import torch

def draw(axes_and_scalars, device):
    tokens = axes_and_scalars["tokens"]
    return {"index": torch.arange(tokens, device=device) % axes_and_scalars["experts"]}

def run(x, index, scale):
    return x[index] * scale
"""
DEFINITION: dict[str, Any] = {
    "name": "gather_rows",
    "axes": {
        "batch": {"type": "var"},
        "experts": {"type": "const", "value": 4},
        "tokens": {"type": "expr", "expression": "batch * per_row"},
        "per_row": {"type": "expr", "expression": "experts // 2"},
    },
    "custom_inputs_entrypoint": "draw",
    "inputs": {
        "x": {"shape": ["tokens", "experts"], "dtype": "float32"},
        "index": {"shape": ["tokens"], "dtype": "int64"},
        "scale": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["tokens", "experts"], "dtype": "float32"}},
    "reference": REFERENCE,
}
SOLUTION = {
    "name": "mine",
    "definition": "gather_rows",
    "author": "a-model",
    "spec": {
        "languages": ["triton"],
        "target_hardware": ["B200"],
        "entry_point": "kernel.py::run",
        "destination_passing_style": True,
    },
    "sources": [{"path": "kernel.py", "content": "def run(x, index, scale, y): ...\n"}],
}


def workload(batch: int) -> dict[str, Any]:
    """Return a workload with a custom input."""
    inputs = {
        "x": {"type": "random"},
        "index": {"type": "custom"},
        "scale": {"type": "scalar", "value": 0.5},
    }
    return {"uuid": f"w{batch}", "axes": {"batch": batch}, "inputs": inputs, "tolerance": {}}


def trace(status: str, solution: str = "mine", **evaluation: Any) -> dict[str, Any]:
    """Return a trace of the evaluator."""
    return {
        "definition": "gather_rows",
        "solution": solution,
        "workload": workload(2),
        "evaluation": {"status": status, "environment": {"hardware": "NVIDIA_B200"}} | evaluation,
    }


def write_problem(root: Path, **changes: Any) -> Path:
    """Write one problem of level 1 with a solution and its traces."""
    folder = root / "benchmark/L1/gather_rows"
    write_json(folder / "definition.json", DEFINITION | changes)
    write_lines(folder / "workload.jsonl", [workload(2), workload(6)])
    write_json(folder / "solution.json", SOLUTION)
    passed = trace(
        "PASSED",
        correctness={"max_absolute_error": 0.01},
        performance={"latency_ms": 0.5, "reference_latency_ms": 2.0, "speedup_factor": 4.0},
    )
    cheat, other = trace("REWARD_HACK"), trace("PASSED", solution="theirs")
    write_json(root / "out/L1/gather_rows/traces.json", [passed, cheat, other])
    return root


def test_a_problem_is_a_task_of_the_test_split(tmp_path: Path) -> None:
    lake, root = tmp_path / "lake", write_problem(tmp_path / "sol")
    import_source(lake, sol_execbench, root)
    [(code, license)] = query(lake, "SELECT code, license FROM tasks")
    assert license == "LicenseRef-NVIDIA-Evaluation-Dataset"
    torch = pytest.importorskip("torch")
    module: dict[str, Any] = {}
    exec(code, module)  # the fixture's own text, not a downloaded one
    module["batch"] = 6
    x, index, scale = module["get_inputs"]()
    assert (x.shape, index.tolist(), scale) == (torch.Size([12, 4]), [0, 1, 2, 3] * 3, 0.5)
    assert query(lake, "SELECT split, level FROM splits JOIN task_labels USING (suite)") == [
        ("test", 1)
    ]
    assert query(lake, "SELECT name, axes::JSON ->> 'batch' FROM workloads ORDER BY ALL")[1:] == [
        ("w2", "2"),
        ("w6", "6"),
    ]
    assert query(lake, "SELECT status, reason, evaluator FROM evaluations ORDER BY ALL") == [
        ("correct", None, "sol-execbench"),
        ("rejected", "unspecified", "sol-execbench"),
    ]
    assert query(lake, "SELECT metric, coalesce(speedup, value), gpu FROM claims ORDER BY ALL") == [
        ("latency_ms", 0.5, "B200"),
        ("speedup", 4.0, "B200"),
    ]
    assert import_source(lake, sol_execbench, root).rows == {}
    assert list(sources.detect(root / "benchmark")) == ["sol-execbench"]


@pytest.mark.slow
def test_rows_of_the_dataset_are_the_same_tasks(tmp_path: Path) -> None:
    root = write_problem(tmp_path / "sol")
    import_source(tmp_path / "folders", sol_execbench, root)
    texts = {name: json.dumps(DEFINITION[name]) for name in ("axes", "inputs", "outputs")}
    row = DEFINITION | texts | {"workloads": json.dumps([workload(2), workload(6)])}
    file = tmp_path / "L1-00000.parquet"
    broken = row | {"axes": "{", "name": "broken"}
    pq.write_table(pa.Table.from_pylist([broken, row]), file)
    assert import_source(tmp_path / "rows", sol_execbench, file).left_out == 1
    ids = "SELECT task_id, workload_id, level FROM workloads JOIN task_labels USING (task_id)"
    assert query(tmp_path / "rows", ids) == query(tmp_path / "folders", ids)
    assert list(sources.detect(file)) == ["sol-execbench"]


@pytest.mark.slow
def test_malformed_problems_are_refused_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = tmp_path / "lake"

    def axes(expression: str) -> dict[str, Any]:
        return {"axes": DEFINITION["axes"] | {"tokens": {"type": "expr", "expression": expression}}}

    refused: dict[str, dict[str, Any]] = {
        "no arithmetic": axes("__import__('os')"),
        "follows from itself": axes("tokens + 1"),
        "there is no axis 'n'": axes("n"),
        "shape is int 5": {"inputs": {"x": {"shape": 5, "dtype": "float32"}}},
        "no custom_inputs_entrypoint": {"custom_inputs_entrypoint": None},
        "is no function": {"custom_inputs_entrypoint": "os.system('x')"},
    }
    for message, change in refused.items():
        with pytest.raises(ImportFailed, match=message):
            import_source(lake, sol_execbench, write_problem(tmp_path / "sol", **change))
    write_problem(tmp_path / "sol")
    lines = tmp_path / "sol/benchmark/L1/gather_rows/workload.jsonl"
    lines.write_text(lines.read_text() + "{]\n")
    assert count(lake, "tasks") == 0
    assert import_source(lake, sol_execbench, tmp_path / "sol").left_out == 1
    assert "workload.jsonl, line 3 is left out" in caplog.text


def test_expressions_that_would_grow_are_refused() -> None:
    doubling = {f"a{n}": f"a{n + 1} + a{n + 1}" for n in range(40)} | {"a40": "batch"}
    with pytest.raises(ImportFailed, match="more than 2000 characters"):
        flashinfer.expand_axes(doubling, {"batch"}, "here")
    for text in ("1 if x else 2", "'a' * 3", "x.y", "[1]", "(" * 1000, "\0", "True"):
        with pytest.raises(ImportFailed):
            flashinfer.expand_axes({"a": text}, {"x"}, "here")
