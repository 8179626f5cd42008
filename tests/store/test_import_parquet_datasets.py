"""Datasets of tasks and kernels in Parquet, and the results of robust-kbench."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from import_sources import RELU, count, import_source, kernel, query

from store.errors import ImportFailed
from store.importers import drkernel, kernelbook, robust_kbench, triton_gpu_latency
from store.importers.reading import sources


def write_rows(file: Path, *rows: dict[str, Any]) -> Path:
    """Write rows as Parquet."""
    pq.write_table(pa.Table.from_pylist(list(rows)), file)
    return file


@pytest.mark.slow
def test_kernelbook_rows_are_tasks_under_their_own_license(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    module = RELU.replace("class Model", "class GetMask")
    row = {
        "entry_point": "GetMask",
        "python_code": module,
        "triton_code": kernel().replace("ModelNew", "GetMaskNew"),
        "repo_name": "someone/some-repository",
        "module_name": "GetMask",
        "uuid": 7,
        "licenses": ["MIT", "Apache-2.0"],
    }
    broken = row | {"python_code": "def (", "uuid": 8, "licenses": []}
    file = write_rows(tmp_path / "k.parquet", row, broken)
    import_source(lake, kernelbook, file)
    [(code, license)] = query(lake, "SELECT code, license FROM tasks")
    assert code.startswith(module.rstrip())
    assert "class Model(_GetMask):" in code
    assert license == "Apache-2.0 AND MIT"
    attempts = query(
        lake, "SELECT license, task_id IS NULL FROM generations ORDER BY license NULLS LAST"
    )
    assert attempts == [("Apache-2.0 AND MIT", False), (None, True)]
    assert query(lake, "SELECT entry_point FROM kernels") == [("GetMaskNew",)]
    assert count(lake, "splits") == 1
    assert import_source(lake, kernelbook, file).rows == {}
    assert list(sources.detect(file)) == ["kernelbook"]


OWN_MODEL = """
class Model:
    def __init__(self, factor):
        super(Model, self).__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


class Shifted(Model):
    def forward(self, x):
        return super(Shifted, self).forward(x) + 1


def get_init_inputs():
    return [[], {"factor": 3}]
"""


@pytest.mark.parametrize(("entry_point", "answer"), [("Model", 6), ("Shifted", 7)])
def test_a_kernelbook_class_named_model_can_be_built(entry_point: str, answer: int) -> None:
    code = kernelbook.adapt_task(OWN_MODEL, entry_point)
    assert code is not None
    names: dict[str, Any] = {}
    exec(compile(code, "task.py", "exec"), names)
    assert names["Model"](*names["get_init_inputs"]()).forward(2) == answer


@pytest.mark.slow
def test_drkernel_dialogues_are_trajectories_and_prompts_are_for_training(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    answer = f"Fused.\n\n```python\n{kernel(1)}```\n"
    dialogue = {
        "messages": [
            {"role": "user", "content": "Optimize."},
            {"role": "assistant", "content": answer},
            {"role": "user", "content": "Faster."},
            {"role": "assistant", "content": answer.replace("# 1", "# 2")},
        ],
        "uuid": 1,
        "original_python_code": RELU,
        "final_speedup": 1.5,
        "num_rounds": 2,
        "best_round": 2,
        "timestamp": 1_760_530_230.6,
    }
    file = write_rows(tmp_path / "coldstart.parquet", dialogue)
    import_source(lake, drkernel, file)
    chain = query(
        lake,
        "SELECT turn, parent_generation_id IS NULL, prompt_id IS NULL AS unasked, code LIKE '%# 2%'"
        " AS second FROM generations JOIN kernels USING (kernel_id) ORDER BY turn",
    )
    assert chain == [(0, True, False, False), (1, False, False, True)]
    claims = query(
        lake,
        "SELECT speedup, baseline, code LIKE '%# 2%' FROM claims JOIN kernels USING (kernel_id)",
    )
    assert claims == [(1.5, "eager", True)]
    prompt = {
        "data_source": "kernel",
        "prompt": [{"role": "user", "content": "Write it."}],
        "reward_model": {"ground_truth": RELU, "style": "rule"},
        "extra_info": {"uuid": "u1", "entry_point": "Model", "level": 0, "module_name": "ReLU"},
    }
    import_source(lake, drkernel, write_rows(tmp_path / "rl.parquet", prompt))
    assert query(lake, "SELECT purpose FROM prompts WHERE contains(messages, 'Write it.')") == [
        ("train",)
    ]
    assert count(lake, "tasks") == 1
    assert list(sources.detect(file)) == ["drkernel"]


@pytest.mark.slow
def test_makora_programs_are_split_and_a_missing_latency_is_no_claim(tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    program = RELU + "\nimport torch\nimport triton\n\n" + kernel()
    file = write_rows(
        tmp_path / "test.parquet",
        {"x": program, "y": 250.0, "problem_id": "1_19", "holdout_group": "a"},
        {"x": program + "\n", "y": float("nan"), "problem_id": "1_19", "holdout_group": "a"},
    )
    import_source(lake, triton_gpu_latency, file)
    assert query(lake, "SELECT metric, value FROM claims") == [("runtime_unknown_unit", 250.0)]
    lake = tmp_path / "known"
    import_source(lake, triton_gpu_latency, file, unit="us")
    assert query(lake, "SELECT metric, value FROM claims") == [("latency_ms", 0.25)]
    assert query(lake, "SELECT status FROM evaluations ORDER BY ALL") == [
        ("correct",),
        ("incorrect",),
    ]
    [(code,)] = query(lake, "SELECT code FROM tasks")
    assert code == RELU
    assert list(sources.detect(file)) == ["triton-gpu-latency"]
    with pytest.raises(ImportFailed, match=r"test\.parquet, row 0: y is str"):
        import_source(lake, triton_gpu_latency, write_rows(file, {"x": "a", "y": "fast"}))


@pytest.mark.slow
def test_robust_kbench_results_are_claims_with_profiles(tmp_path: Path) -> None:
    lake, folder = tmp_path / "lake", tmp_path / "highlighted"
    folder.mkdir()
    row = {
        "Batch ID": 1,
        "Sample ID": 2,
        "Kernel Name": "layernorm",
        "Correct": True,
        "Runtime (ms)": 0.046,
        "Speedup": 165.7,
        "Speedup Compile": 2.05,
        "Thought": "Vectorized.",
        "Code": "__global__ void f() {}\n",
        "NCU Profile": "{}",
        "Torch Profile": "",
        "task_name": "layernorm",
        "forward": True,
    }
    with open(folder / "results.csv", "w", newline="") as handle:
        writer = csv.DictWriter(handle, list(row))
        writer.writeheader()
        writer.writerow(row)
    for place, code in (("forward", row["Code"]), ("backward", "__global__ void g() {}\n")):
        (folder / "layernorm" / place).mkdir(parents=True)
        (folder / "layernorm" / place / "kernel.cu").write_text(code)
    import_source(lake, robust_kbench, tmp_path)
    assert query(lake, "SELECT problem FROM generations ORDER BY 1") == [
        ("layernorm/backward",),
        ("layernorm/forward",),
    ]
    claims = query(
        lake, "SELECT metric, baseline, coalesce(speedup, value) AS f FROM claims ORDER BY ALL"
    )
    assert claims == [
        ("correct", None, 1.0),
        ("latency_ms", None, 0.046),
        ("speedup", "compile", 2.05),
        ("speedup", "eager", 165.7),
    ]
    assert query(lake, "SELECT author FROM analyses") == [("Nsight Compute (robust-kbench)",)]
    assert list(sources.detect(tmp_path)) == ["robust-kbench"]
