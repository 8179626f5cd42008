"""`store import detect` names the importer of a path, and says so where none or several fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from store.errors import ImportFailed
from store.importers.reading import sources

LINE = {"level_id": 1, "task_id": 1, "ref_code": "class Model: pass", "custom_code": "None"}
DEFINITION = {"name": "gemm", "op_type": "gemm", "axes": {}, "reference": "def run(): pass"}


def write_text(file: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text, "utf-8")

    return write


def write_columns(file: str, *names: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        pq.write_table(pa.table({name: ["x"] for name in names}), folder / file)

    return write


LAYOUTS: dict[str, tuple[Callable[[Path], None], ...]] = {
    "cuda-l1": (write_text("optimized_cuda_code/h100.json", json.dumps(LINE)),),
    "kernelbench": (write_text("KernelBench/level1/12_Diagonal.py", "class Model: pass"),),
    "kernelbench-run": (write_text("level_1_problem_12_sample_0_kernel.py", "class ModelNew: 0"),),
    "kernels": (
        write_text("tasks/square.py", "class Model: pass"),
        write_text("kernels/square/mine.py", "class ModelNew: pass"),
    ),
    "measured": (
        write_columns("evaluations.parquet", "evaluation_id", "evaluator_version", "kernel_id"),
    ),
    "sakana": (write_columns("level_1.parquet", "PyTorch_Code_Module", "CUDA_Code", "Op_Name"),),
    "flashinfer-trace": (write_text("definitions/gemm/gemm.json", json.dumps(DEFINITION)),),
    "trl-completions": (
        write_columns("completions_00001.parquet", "step", "prompt", "completion", "advantage"),
    ),
}


@pytest.mark.repeats(run=4)
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_is_that_of_its_importer_alone(name: str, tmp_path: Path) -> None:
    for write in LAYOUTS[name]:
        write(tmp_path)
    assert list(sources.detect(tmp_path)) == [name]


def test_a_path_of_no_format_or_of_two_is_refused(tmp_path: Path) -> None:
    write_text("notes.txt", "nothing")(tmp_path)
    with pytest.raises(ImportFailed, match="no importer recognizes"):
        sources.choose(tmp_path, sources.detect(tmp_path))
    for name in ("kernels", "kernelbench-run"):
        for write in LAYOUTS[name]:
            write(tmp_path)
    with pytest.raises(ImportFailed, match="2 importers recognize") as told:
        sources.choose(tmp_path, sources.detect(tmp_path))
    assert "kernelbench-run: level_1" in str(told.value)
    with pytest.raises(ImportFailed, match="does not exist"):
        sources.detect(tmp_path / "nowhere")
