"""A flashinfer-trace dataset, in its documented files, becomes rows of a lake."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

import store
from store.errors import ImportFailed
from store.importers import flashinfer_trace
from store.importers.reading.flashinfer import STATUSES
from store.importers.reading.pieces import ImportSummary, run_import

REFERENCE = """import torch

def run(hidden_states, weight, eps):
    return hidden_states * weight * eps
"""
DEFINITION: dict[str, Any] = {
    "name": "rmsnorm_h128",
    "op_type": "rmsnorm",
    "axes": {"batch_size": {"type": "var"}, "hidden": {"type": "const", "value": 128}},
    "inputs": {
        "hidden_states": {"shape": ["batch_size", "hidden"], "dtype": "bfloat16"},
        "weight": {"shape": ["hidden"], "dtype": "bfloat16"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"output": {"shape": ["batch_size", "hidden"], "dtype": "bfloat16"}},
    "reference": REFERENCE,
    "tags": ["status:verified"],
}
SOLUTION: dict[str, Any] = {
    "name": "rmsnorm_cuda_v1",
    "definition": "rmsnorm_h128",
    "author": "a-model",
    "spec": {
        "language": "cuda",
        "target_hardware": ["NVIDIA_H100"],
        "entry_point": "main.cpp::run",
        "dependencies": [],
    },
    "sources": [
        {"path": "main.cpp", "content": '#include "kernel.h"\nvoid run() {}\n'},
        {"path": "kernel.cu", "content": "__global__ void norm(float* x) {}\n"},
    ],
}
RANDOM = {"type": "random"}


def workload(uuid: str = "w1", batch: int = 4, **inputs: Any) -> dict[str, Any]:
    """Return a workload object."""
    given = {"hidden_states": RANDOM, "weight": RANDOM, "eps": {"type": "scalar", "value": 1e-6}}
    return {"axes": {"batch_size": batch}, "inputs": given | inputs, "uuid": uuid}


def verdict(status: str = "PASSED", **fields: Any) -> dict[str, Any]:
    """Return an evaluation object."""
    found: dict[str, Any] = {
        "status": status,
        "environment": {"hardware": "NVIDIA_H100", "libs": {"torch": "2.8"}},
        "timestamp": "2025-10-16T00:00:00",
        "log": "",
        "correctness": None,
        "performance": None,
    }
    if status == "PASSED":
        found["correctness"] = {"max_relative_error": 0.01, "max_absolute_error": 0.002}
        found["performance"] = {
            "latency_ms": 0.01,
            "reference_latency_ms": 0.05,
            "speedup_factor": 5.0,
        }
    return found | fields


def trace(of: dict[str, Any], evaluation: dict[str, Any] | None, **fields: Any) -> dict[str, Any]:
    """Return a trace object."""
    solution = None if evaluation is None else SOLUTION["name"]
    return {
        "definition": DEFINITION["name"],
        "workload": of,
        "solution": solution,
        "evaluation": evaluation,
    } | fields


def dataset(root: Path, *traces: dict[str, Any]) -> Path:
    """Write a dataset with one definition and one solution."""
    files = {
        "definitions/rmsnorm/rmsnorm_h128.json": json.dumps(DEFINITION),
        "solutions/a-model/rmsnorm/rmsnorm_h128/rmsnorm_cuda_v1.json": json.dumps(SOLUTION),
        "workloads/rmsnorm/rmsnorm_h128.jsonl": json.dumps(trace(workload(), None)) + "\n",
        "traces/rmsnorm/rmsnorm_h128.jsonl": "".join(json.dumps(t) + "\n" for t in traces),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    return root


def import_source(url: Path, source: Path, **options: Any) -> ImportSummary:
    """Import into a lake."""
    with store.writer(str(url), author="tests") as writer:
        config = flashinfer_trace.Config(**options)
        return run_import(writer, flashinfer_trace, source, config)


def test_definition_solution_and_trace_become_rows(tmp_path: Path) -> None:
    source = dataset(tmp_path / "trace", trace(workload(), verdict()))
    import_source(tmp_path / "lake", source, source_revision="abc")
    with store.open(str(tmp_path / "lake")) as lake:
        task = lake.sql("SELECT code FROM tasks").rows()[0]["code"]
        assert task.startswith(REFERENCE)
        names = {one.name for one in ast.parse(task).body if hasattr(one, "name")}
        assert names == {"run", "Model", "get_inputs", "get_init_inputs"}
        assert "batch_size = 4\n" in task
        assert "torch.randn((batch_size, hidden, )).to(torch.bfloat16)" in task
        kernel = lake.sql("SELECT path, entry_point, other_files, license FROM kernels").rows()[0]
        assert (kernel["path"], kernel["entry_point"]) == ("main.cpp", "run")
        assert [one["path"] for one in kernel["other_files"]] == ["kernel.cu"]
        assert kernel["license"] == "Apache-2.0"
        language = lake.sql("SELECT language FROM kernel_features").rows()
        assert language == [{"language": "cuda"}]
        judged = lake.sql(
            "SELECT evaluator, status, max_abs_error, workloads.name, workloads.axes, "
            "strftime(evaluations.created_at AT TIME ZONE 'UTC', '%Y-%m-%d') AS day "
            "FROM evaluations JOIN workloads USING (workload_id)"
        ).rows()
        assert judged == [
            {
                "evaluator": "flashinfer-bench",
                "status": "correct",
                "max_abs_error": 0.002,
                "name": "w1",
                "axes": '{"INPUT_eps": 1e-06, "batch_size": 4}',
                "day": "2025-10-16",
            }
        ]
        claims = lake.sql(
            "SELECT gpu, metric, baseline, speedup, value, policy_id FROM claims ORDER BY metric"
        ).rows()
        policy = "flashinfer-trace/a-model"
        assert [tuple(one.values()) for one in claims] == [
            ("H100", "latency_ms", None, None, 0.01, policy),
            ("H100", "speedup", "eager", 5.0, None, policy),
        ]
        label = lake.sql("SELECT suite, suite_revision, name, family FROM task_labels").rows()
        assert [tuple(one.values()) for one in label] == [
            ("flashinfer-trace", "abc", "rmsnorm_h128", "rmsnorm")
        ]


@pytest.mark.slow
def test_every_status_is_kept(tmp_path: Path) -> None:
    traces = [
        trace(workload(f"x{number}", batch=number + 10), verdict(status))
        for number, status in enumerate(STATUSES)
    ]
    import_source(tmp_path / "lake", dataset(tmp_path / "trace", *traces))
    with store.open(str(tmp_path / "lake")) as lake:
        found = lake.sql(
            "SELECT workloads.name, status, reason FROM evaluations JOIN workloads "
            "USING (workload_id) ORDER BY ALL"
        ).rows()
    wanted = [(f"x{n}", *STATUSES[status]) for n, status in enumerate(STATUSES)]
    assert [tuple(one.values()) for one in found] == wanted


@pytest.mark.slow
def test_inputs_out_of_files_are_workloads_of_their_own(tmp_path: Path) -> None:
    kept = {"type": "safetensors", "path": "blob/x.safetensors", "tensor_key": "x"}
    traces = [
        trace(workload("w1"), verdict()),
        trace(workload("w2", hidden_states=kept), verdict()),
        trace(workload("w3", hidden_states=kept), verdict()),
    ]
    import_source(tmp_path / "lake", dataset(tmp_path / "trace", *traces))
    with store.open(str(tmp_path / "lake")) as lake:
        found = lake.sql(
            "SELECT name, generator FROM workloads WHERE name <> 'default' ORDER BY ALL"
        ).rows()
    assert [tuple(one.values()) for one in found] == [
        ("w1", "get_inputs"),
        ("w2", "safetensors"),
        ("w3", "safetensors"),
    ]


@pytest.mark.slow
def test_an_import_that_is_repeated_or_goes_on_adds_what_is_new(tmp_path: Path) -> None:
    source = dataset(tmp_path / "trace", trace(workload(), verdict()))
    assert import_source(tmp_path / "lake", source).files == 1
    assert import_source(tmp_path / "lake", source).rows == {}
    dataset(tmp_path / "trace", trace(workload(), verdict()), trace(workload("w2", 8), verdict()))
    again = import_source(tmp_path / "lake", source)
    assert (again.rows["evaluations"], again.rows.get("kernels", 0)) == (1, 0)


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("traces", {"evaluation": verdict("FINE")}, r"line 1: status 'FINE' is unknown"),
        ("traces", {"definition": "other"}, r"line 1: there is no definition 'other'"),
        ("traces", {"solution": "other"}, r"line 1: there is no solution 'other'"),
        (
            "traces",
            {"workload": {"axes": {"batch_size": [4]}}},
            r"batch_size is list",
        ),
        ("definitions", {"axes": {"run": {"type": "var"}}}, "axis 'run' cannot be a name"),
        ("definitions", {"axes": {"x y": {"type": "var"}}}, "axis 'x y' cannot be a name"),
        ("definitions", {"reference": ""}, "reference is str '', not a text"),
        ("solutions", {"sources": [{"path": "../x.py", "content": ""}]}, "leaves its folder"),
        ("solutions", {"sources": []}, "entry point 'main.cpp' is none of its sources"),
        ("solutions", {"author": "\ud800"}, "holds a lone surrogate"),
        ("definitions", {"op_type": "\ud800"}, "holds a lone surrogate"),
        ("traces", {"evaluation": {"status": ["PASSED"]}}, "status is list"),
    ],
)
def test_what_is_malformed_is_left_out_with_its_place(
    tmp_path: Path,
    file: str,
    change: dict[str, Any],
    message: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = dataset(tmp_path / "trace", trace(workload(), verdict()))
    written = next(iter((source / file).rglob("*.json*")))
    written.write_text(json.dumps(json.loads(written.read_text("utf-8")) | change), "utf-8")
    assert import_source(tmp_path / "lake", source).left_out >= 1
    assert message.removeprefix("line 1: ") in caplog.text
    kept = int(file != "solutions")
    with store.open(str(tmp_path / "lake")) as lake:
        assert lake.sql("SELECT count(*) AS n FROM kernels").rows() == [{"n": kept}]


def test_a_folder_without_definitions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="holds no definitions"):
        import_source(tmp_path / "lake", tmp_path)
