"""Rows of the AI CUDA Engineer Archive, in its documented columns, become rows of a lake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import store
from store.errors import ImportFailed
from store.importers import sakana
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
CUDA = """#include <torch/extension.h>
__global__ void relu(const float* x, float* y, int n) { /* {n} */ }
torch::Tensor forward(torch::Tensor x) { return x; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
"""


def row(**changes: Any) -> dict[str, Any]:
    """Return one row in the archive's columns."""
    return {
        "Op_Name": "19_ReLU",
        "Level_ID": 1,
        "Task_ID": 19,
        "Kernel_Name": "19_relu_base",
        "CUDA_Runtime": 0.011,
        "PyTorch_Native_Runtime": 0.014,
        "PyTorch_Compile_Runtime": 0.029,
        "CUDA_Speedup_Native": 1.27,
        "CUDA_Speedup_Compile": 2.64,
        "CUDA_Code": CUDA.replace("{n}", "1"),
        "PyTorch_Code_Module": RELU,
        "PyTorch_Code_Functional": "def module_fn(x): return torch.relu(x)\n",
        "Correct": True,
        "Max_Diff": 0.0,
        "Error": None,
        "NCU_Profile": "{'metrics': {'Executed Ipc Active': {'value': 1.5, 'unit': 'inst'}}}",
        "Torch_Profile": None,
        "Clang_Tidy": "None",
        "__index_level_0__": 7,
    } | changes


def archive(folder: Path, *rows: dict[str, Any], name: str = "level_1.parquet") -> Path:
    """Write rows as a file of the archive."""
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), folder / name)
    return folder


def import_source(url: Path, source: Path, **options: Any) -> ImportSummary:
    """Import into a lake."""
    with store.writer(str(url), author="tests") as writer:
        return run_import(writer, sakana, source, sakana.Config(**options))


def test_a_row_becomes_kernel_verdict_claims_and_profile(tmp_path: Path) -> None:
    source = archive(tmp_path / "archive", row())
    summary = import_source(tmp_path / "lake", source, source_revision="abc")
    assert summary.rows["kernels"] == 1
    with store.open(str(tmp_path / "lake")) as lake:
        kernel = lake.sql("SELECT path, entry_point, license, other_files FROM kernels").rows()
        assert kernel == [
            {
                "path": "kernel.cu",
                "entry_point": "forward",
                "license": "CC-BY-4.0",
                "other_files": [
                    {"path": "functional.py", "code": "def module_fn(x): return torch.relu(x)\n"}
                ],
            }
        ]
        label = lake.sql("SELECT suite, suite_revision, name FROM task_labels").rows()
        assert label == [{"suite": "kernelbench", "suite_revision": "v0", "name": "level1/19"}]
        claims = lake.sql(
            "SELECT gpu, metric, baseline, coalesce(speedup, value) AS figure FROM claims "
            "ORDER BY metric, baseline NULLS FIRST"
        ).rows()
        assert [tuple(one.values()) for one in claims] == [
            ("H100", "latency_ms", None, 0.011),
            ("H100", "speedup", "compile", 2.64),
            ("H100", "speedup", "eager", 1.27),
        ]
        verdict = lake.sql("SELECT evaluator, evaluator_version, status FROM evaluations").rows()
        assert verdict == [
            {"evaluator": "ai-cuda-engineer", "evaluator_version": 0, "status": "correct"}
        ]
        assert lake.sql("SELECT count(*) AS n FROM timings").rows() == [{"n": 0}]
        profile = lake.sql("SELECT author, body FROM analyses").rows()
        assert [one["author"] for one in profile] == ["Nsight Compute (ai-cuda-engineer)"]
        assert json.loads(profile[0]["body"])["metrics"]["Executed Ipc Active"]["value"] == 1.5
        features = lake.sql("SELECT language, has_device_code FROM kernel_features").rows()
        assert features == [{"language": "cuda", "has_device_code": True}]


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("changes", "status", "reason"),
    [
        ({"Correct": False, "Max_Diff": 3.5}, "incorrect", "incorrect_numerical"),
        ({"Correct": False, "Max_Diff": None}, "incorrect", "unspecified"),
        (
            {"Correct": None, "Max_Diff": None, "Error": "RuntimeError: illegal memory access"},
            "crash",
            "unspecified",
        ),
        (
            {"Correct": None, "Max_Diff": None, "Error": "Error building extension 'x'"},
            "compile_error",
            "build_failed",
        ),
    ],
)
def test_verdicts_keep_their_origin(
    tmp_path: Path, changes: dict[str, Any], status: str, reason: str
) -> None:
    # A row that is whole beside it, so that every column has a type.
    other = row(CUDA_Code=CUDA.replace("{n}", "2"), Error="", Kernel_Name="other")
    source = archive(tmp_path / "archive", row(**changes), other)
    import_source(tmp_path / "lake", source)
    with store.open(str(tmp_path / "lake")) as lake:
        found = lake.sql("SELECT status, reason FROM evaluations WHERE status <> 'correct'").rows()
    assert found == [{"status": status, "reason": reason}]


@pytest.mark.slow
def test_an_import_that_is_repeated_adds_nothing(tmp_path: Path) -> None:
    source = archive(tmp_path / "archive", row(), row(Kernel_Name="again"))
    archive(source, row(Task_ID=20), name="level_2.parquet")
    first = import_source(tmp_path / "lake", source)
    assert (first.files, first.skipped) == (2, 0)
    again = import_source(tmp_path / "lake", source)
    assert (again.files, again.skipped, again.rows) == (0, 2, {})
    # Said to be of another license it is another bundle, whose verdicts are known.
    other = import_source(tmp_path / "lake", source, license="CC0-1.0")
    assert other.rows.get("evaluations", 0) == 0


@pytest.mark.slow
def test_missing_columns_and_numbers_with_gaps_are_read(tmp_path: Path) -> None:
    few = {
        "PyTorch_Code_Module": RELU,
        "CUDA_Code": CUDA,
        "Level_ID": 1.0,
        "Task_ID": 19.0,
        "CUDA_Runtime": float("nan"),
    }
    source = archive(tmp_path / "archive", few, few | {"CUDA_Code": "None"})
    assert import_source(tmp_path / "lake", source).rows["kernels"] == 1
    with store.open(str(tmp_path / "lake")) as lake:
        assert lake.sql("SELECT name FROM task_labels").rows() == [{"name": "level1/19"}]
        assert lake.sql("FROM claims").rows() == []


def test_profiles_are_read_as_literals_alone(tmp_path: Path) -> None:
    hostile = "__import__('os').system('touch stolen')"
    deep = "[" * 5_000 + "]" * 5_000
    source = archive(
        tmp_path / "archive",
        row(NCU_Profile=hostile, Torch_Profile=deep, Clang_Tidy="{'stderr': '\\x1b[31m'}"),
    )
    import_source(tmp_path / "lake", source)
    with store.open(str(tmp_path / "lake")) as lake:
        bodies = [one["body"] for one in lake.sql("SELECT body FROM analyses").rows()]
    assert hostile in bodies
    assert deep in bodies
    assert not Path("stolen").exists()


@pytest.mark.slow
def test_what_is_malformed_is_refused_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/level_1.parquet").write_bytes(b"PAR1 and nothing")
    with pytest.raises(ImportFailed, match=r"level_1\.parquet: it cannot be read as Parquet"):
        import_source(tmp_path / "lake", tmp_path / "broken")
    with pytest.raises(ImportFailed, match="has no column CUDA_Code"):
        import_source(tmp_path / "lake", archive(tmp_path / "few", {"PyTorch_Code_Module": RELU}))
    no_task = archive(tmp_path / "no_task", row(PyTorch_Code_Module="x = 1"))
    with pytest.raises(ImportFailed, match="PyTorch_Code_Module is no task"):
        import_source(tmp_path / "lake", no_task)
    said = archive(tmp_path / "maybe", row(Correct="maybe"))
    with pytest.raises(ImportFailed, match=r"level_1\.parquet, row 0: Correct is str 'maybe'"):
        import_source(tmp_path / "lake", said)
    with pytest.raises(ImportFailed, match=r"holds no \*\.parquet"):
        import_source(tmp_path / "lake", tmp_path / "lake")
    with store.open(str(tmp_path / "lake")) as lake:
        assert lake.sql("SELECT count(*) AS n FROM kernels").rows() == [{"n": 0}]
