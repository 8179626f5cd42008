"""KernelBench's tasks and runs, in the documented formats, become rows."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import store
from store import ids
from store.errors import ImportFailed
from store.importers import kernelbench, kernelbench_run
from store.importers.reading.pieces import ImportSummary, run_import

TASK = '''import torch
import torch.nn as nn

class Model(nn.Module):
    """{doc}"""
    def forward(self, x):
        return {body}

def get_inputs():
    return [torch.randn(16, 16)]

def get_init_inputs():
    return []
'''
RELU = TASK.format(doc="Regular \\d text", body="torch.relu(x)")
SOFTMAX = TASK.format(doc="Softmax.", body="torch.softmax(x, dim=1)")
POOL = TASK.format(doc="Pool.", body="torch.max_pool1d(x, 2)")
HEAD = "423217d9fda91e0c2d67e4a43bf62f96f6d104f1"
H100 = "NVIDIA H100 80GB HBM3"

KERNEL = """import torch
import torch.nn as nn

class ModelNew(nn.Module):
    def forward(self, x):
        return x.clamp(min={floor})
"""


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, "utf-8")
    return file


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with three tasks on two levels, standing at HEAD."""
    return make_checkout(tmp_path / "checkout")


@pytest.fixture(scope="module")
def no_rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a lake without rows, for sources that are refused before anything is stored."""
    url = str(tmp_path_factory.mktemp("empty") / "lake")
    store.writer(url, author="tests").close()
    with store.open(url) as lake:
        yield lake


def make_checkout(root: Path) -> Path:
    """Write a checkout with three tasks on two levels, standing at HEAD."""
    write(root / "KernelBench/level1/19_ReLU.py", RELU)
    write(root / "KernelBench/level1/23_Softmax_over_rows_.py", SOFTMAX)
    write(root / "KernelBench/level1/readme_helper.py", "not a task")
    write(root / "KernelBench/level2/7_Pool.py", POOL)
    write(root / ".git/HEAD", "ref: refs/heads/main\n")
    write(root / ".git/packed-refs", f"# pack-refs with: peeled\n{HEAD} refs/heads/main\n")
    return root


@pytest.fixture(scope="module")
def prepared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake that holds the tasks of the checkout, to be copied."""
    folder = tmp_path_factory.mktemp("prepared")
    with store.writer(str(folder / "lake"), author="tests") as opened:
        import_tasks(opened, make_checkout(folder / "checkout"))
    return folder / "lake"


@pytest.fixture
def task_writer(prepared_folder: Path, tmp_path: Path) -> Iterator[store.Writer]:
    """Return a writer of a lake of its own that holds the tasks of the checkout."""
    shutil.copytree(prepared_folder, tmp_path / "tasked")
    with store.writer(str(tmp_path / "tasked"), author="tests") as opened:
        yield opened


def import_tasks(writer: store.Writer, root: Path, revision: str = "v0.1") -> ImportSummary:
    return run_import(writer, kernelbench, root, kernelbench.Config(revision=revision))


def rows(writer: store.Writer, query: str) -> list[dict[str, Any]]:
    with writer.reader() as lake:
        return lake.sql(query).rows()


def test_a_checkout_becomes_labelled_tasks(writer: store.Writer, checkout: Path) -> None:
    summary = import_tasks(writer, checkout)
    assert summary.files == 2
    assert summary.rows["tasks"] == 3
    found = rows(
        writer,
        "SELECT l.name, l.level, l.problem_id, l.title, l.family, l.suite, l.suite_revision, "
        "l.source_revision, l.license, t.code, w.workload_id, w.axes, s.split "
        "FROM task_labels l JOIN tasks t USING (task_id) JOIN workloads w USING (task_id) "
        "JOIN splits s USING (suite, family) ORDER BY l.name",
    )
    assert [row["name"] for row in found] == ["level1/19", "level1/23", "level2/7"]
    assert found[1] | {"split": None} == {
        "name": "level1/23",
        "level": 1,
        "problem_id": 23,
        "title": "Softmax over rows",
        "family": "softmax",
        "suite": "kernelbench",
        "suite_revision": "v0.1",
        "source_revision": HEAD,
        "license": "MIT",
        "code": SOFTMAX,
        "workload_id": ids.workload_id(ids.task_id(SOFTMAX)),
        "axes": "{}",
        "split": None,
    }
    assert [(row["family"], row["split"]) for row in found] == [
        ("elementwise", "train"),
        ("softmax", "train"),
        ("pooling", "test"),
    ]


@pytest.mark.slow
def test_a_repeated_import_adds_nothing(writer: store.Writer, checkout: Path) -> None:
    first = import_tasks(writer, checkout)
    again = import_tasks(writer, checkout)
    assert (again.files, again.skipped, again.rows) == (0, 2, {})
    assert again.snapshot == first.snapshot


@pytest.mark.slow
def test_an_interrupted_import_goes_on(
    writer: store.Writer, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.importers.reading.pieces.GROUP_BUNDLES", 1)

    class Stop(Exception):
        pass

    def stop(message: str, fresh: bool) -> None:
        raise Stop

    config = kernelbench.Config(revision="v0.1")
    with pytest.raises(Stop):
        run_import(writer, kernelbench, checkout, config, stop)
    rest = import_tasks(writer, checkout)
    assert (rest.files, rest.skipped, rest.rows["tasks"]) == (1, 1, 1)


@pytest.mark.slow
def test_two_revisions_share_a_text_under_two_labels(writer: store.Writer, checkout: Path) -> None:
    import_tasks(writer, checkout, "v0")
    summary = import_tasks(writer, checkout, "v0.1")
    assert "tasks" not in summary.rows
    assert summary.rows["task_labels"] == 3


@pytest.mark.slow
def test_the_hub_parquet_gives_the_same_tasks_as_the_checkout(
    writer: store.Writer, checkout: Path, tmp_path: Path
) -> None:
    import_tasks(writer, checkout)
    hub = tmp_path / "hub"
    (hub / "data").mkdir(parents=True)
    table = pa.table(
        {
            "code": [RELU.replace("\n", "\r\n"), SOFTMAX],
            "level": [1, 1],
            "name": ["19_ReLU", "23_Softmax_over_rows_"],
            "problem_id": [19, 23],
        }
    )
    pq.write_table(table, hub / "data/level_1-00000-of-00001.parquet")
    summary = run_import(writer, kernelbench, hub, kernelbench.Config(revision="hub"))
    assert "tasks" not in summary.rows
    titles = rows(writer, "SELECT title FROM task_labels WHERE suite_revision = 'hub' ORDER BY 1")
    assert [row["title"] for row in titles] == ["ReLU", "Softmax over rows"]
    one = run_import(
        writer,
        kernelbench,
        hub / "data/level_1-00000-of-00001.parquet",
        kernelbench.Config(revision="hub"),
    )
    assert one.skipped == 1


def test_a_broken_task_costs_itself_and_is_named_with_its_line(
    writer: store.Writer, checkout: Path, caplog: pytest.LogCaptureFixture
) -> None:
    level = checkout / "KernelBench/level2"
    write(level / "8_Broken.py", "import torch\nclass Model(:\n")
    write(level / "9_Other.py", POOL.replace("class Model", "class Net") + "\nModel = Net\n")
    (level / "10_Latin.py").write_bytes(b"x = '\xff'\n")
    assert import_tasks(writer, checkout).left_out == 2
    assert [record.getMessage() for record in caplog.records if "left out" in record.message] == [
        f"left out: {level}/10_Latin.py is not UTF-8: byte 5 (invalid start byte)",
        f"{level}/8_Broken.py, line 2 is left out: invalid syntax",
        "2 of 6 rows are left out",
    ]
    names = rows(writer, "SELECT name FROM task_labels WHERE level = 2 ORDER BY problem_id")
    assert [row["name"] for row in names] == ["level2/7", "level2/9"]
    (level / "9_Other.py").unlink()
    (level / "7_Pool.py").unlink()
    assert import_tasks(writer, checkout).left_out == 2


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        (lambda file: file.write_bytes(b"x = 1\n\xff"), "not UTF-8: byte 6"),
        (lambda file: file.write_bytes(b"x\0"), "byte 1 is zero"),
        (lambda file: file.write_bytes(b"#" * (20 << 20) + b"##"), "larger than 20 MiB"),
        (lambda file: file.symlink_to("/etc/hostname"), "a link to /etc/hostname"),
        (lambda file: file.symlink_to("nowhere"), "nowhere does not exist"),
        (lambda file: os.mkfifo(file), "not a regular file"),
        (lambda file: file.write_text("(" * 100_000), "line 1|cannot be parsed"),
        (lambda file: file.write_text("class Model: pass"), "get_inputs, get_init_inputs"),
    ],
)
def test_hostile_files_are_refused(
    no_rows: store.Lake, checkout: Path, prepare: Any, message: str
) -> None:
    prepare(checkout / "KernelBench/level1/99_Hostile.py")
    with pytest.raises(ImportFailed, match=message):
        list(kernelbench.read(checkout, kernelbench.Config(revision="v0.1"), no_rows))


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"code": [RELU], "level": [1], "name": ["19_ReLU"]}, "no column problem_id"),
        (
            {"code": [None], "level": [1], "name": ["a"], "problem_id": [1]},
            "row 0: code is missing",
        ),
        (
            {"code": [RELU], "level": ["one"], "name": ["a"], "problem_id": [1]},
            "level is str 'one', not a number",
        ),
        ({"code": [RELU], "level": [1], "name": ["a"], "problem_id": [2**40]}, "problem_id is int"),
    ],
)
def test_parquet_that_is_something_else_is_refused(
    no_rows: store.Lake, tmp_path: Path, columns: dict[str, list[Any]], message: str
) -> None:
    file, config = tmp_path / "level_1.parquet", kernelbench.Config(revision="v0.1")
    pq.write_table(pa.table(columns), file)
    with pytest.raises(ImportFailed, match=message):
        list(kernelbench.read(file, config, no_rows))
    file.write_bytes(b"PAR1 but no more")
    with pytest.raises(ImportFailed, match="cannot be read as Parquet"):
        list(kernelbench.read(file, config, no_rows))


def test_what_is_missing_is_said_with_the_next_step(writer: store.Writer, tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match=r"absent does not exist"):
        import_tasks(writer, tmp_path / "absent")
    with pytest.raises(ImportFailed, match="holds no KernelBench tasks\nName a checkout"):
        import_tasks(writer, tmp_path)
    with pytest.raises(ImportFailed, match="--revision"):
        run_import(writer, kernelbench, tmp_path, kernelbench.Config())
    with pytest.raises(ImportFailed, match="no path given"):
        run_import(writer, kernelbench, None, kernelbench.Config())


def verdict(sample: int, correct: bool, **more: Any) -> dict[str, Any]:
    base = {
        "sample_id": sample,
        "compiled": True,
        "correctness": correct,
        "metadata": {"hardware": H100, "device": "cuda:0", "correctness_trials": "(5 / 5)"},
        "runtime": 2.0 if correct else -1.0,
        "runtime_stats": {"mean": 2.0, "std": 0.1, "min": 1.9, "max": 2.2, "num_trials": 100}
        if correct
        else {},
    }
    return base | more


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """Return a run of five samples on two problems: correct, four ways of failing, unjudged."""
    folder = tmp_path / "runs" / "sonnet_greedy"
    for problem, sample in ((19, 0), (19, 1), (19, 2), (19, 3), (23, 0), (23, 1)):
        stem = f"level_1_problem_{problem}_sample_{sample}"
        write(folder / f"{stem}_kernel.py", KERNEL.format(floor=problem * 10 + sample))
    write(folder / "level_1_problem_19_sample_0_prompt.txt", "Write a faster ReLU.")
    write(folder / "generation_config.yaml", "level: 1\n")
    device = {"hardware": H100, "device": "cuda:0"}
    shapes = "Output shape mismatch: Expected torch.Size([16]), got torch.Size([1])"
    verdicts = {
        "19": [
            verdict(0, True),
            verdict(
                1, False, compiled=False, metadata={**device, "compilation_error": "nvcc said no"}
            ),
            verdict(2, False, metadata={**device, "correctness_issue": shapes}),
            verdict(
                3,
                False,
                metadata={
                    **device,
                    "correctness_issue": "Output mismatch",
                    "max_difference": ["0.5", "1.5"],
                },
            ),
        ],
        # KernelBench's own patch() leaves an object in place of a list.
        "23": verdict(
            0,
            False,
            compiled=False,
            metadata={
                **device,
                "cuda_error": "CUDA Error: an illegal memory\naccess \ud800",
                "cuda_error_name": "torch.AcceleratorError",
            },
        ),
        "24": [verdict(0, False)],
    }
    write(folder / "eval_results.json", json.dumps(verdicts))
    return folder


def import_run(writer: store.Writer, folder: Path, **options: Any) -> ImportSummary:
    config = kernelbench_run.Config(**({"suite_revision": "v0.1"} | options))
    return run_import(writer, kernelbench_run, folder, config)


def test_a_run_becomes_generations_verdicts_and_claims(
    task_writer: store.Writer, run_folder: Path
) -> None:
    summary = import_run(task_writer, run_folder)
    assert summary.rows["generations"] == 6
    assert summary.rows["kernels"] == summary.rows["kernel_features"] == 6
    assert rows(task_writer, "SELECT * FROM timings") == []
    judged = rows(
        task_writer,
        "SELECT l.name, g.sample_index, e.status, e.reason, e.message, e.max_abs_error, d.name AS "
        "gpu, d.kind, d.model, e.evaluator, e.evaluator_version FROM evaluations e "
        "JOIN generations g USING (kernel_id) JOIN devices d USING (device_id) "
        "JOIN task_labels l ON l.task_id = e.task_id ORDER BY l.name, g.sample_index",
    )
    assert [(row["sample_index"], row["status"], row["reason"]) for row in judged] == [
        (0, "correct", None),
        (1, "compile_error", "unspecified"),
        (2, "incorrect", "incorrect_shape"),
        (3, "incorrect", "incorrect_numerical"),
        (0, "crash", "exception"),
    ]
    assert [row["max_abs_error"] for row in judged] == [None, None, None, 1.5, None]
    assert judged[1]["message"] == "nvcc said no"
    assert judged[4]["message"] == "CUDA Error: an illegal memory access ?"
    assert {(row["gpu"], row["kind"], row["model"]) for row in judged} == {("H100", "cuda", H100)}
    assert {(row["evaluator"], row["evaluator_version"]) for row in judged} == {("kernelbench", 0)}
    claims = rows(task_writer, "SELECT metric, value, speedup, gpu, policy_id, quote FROM claims")
    assert [(c["metric"], c["value"], c["speedup"], c["gpu"]) for c in claims] == [
        ("latency_ms", 2.0, None, "H100")
    ]
    assert claims[0]["policy_id"] == "sonnet_greedy"
    prompts = rows(
        task_writer,
        "SELECT p.messages, g.sample_index FROM generations g JOIN prompts p USING (prompt_id)",
    )
    assert [row["sample_index"] for row in prompts] == [0]
    assert json.loads(prompts[0]["messages"])[0]["content"] == "Write a faster ReLU."


@pytest.mark.slow
def test_one_more_sample_adds_only_its_rows(task_writer: store.Writer, run_folder: Path) -> None:
    import_run(task_writer, run_folder)
    assert import_run(task_writer, run_folder).skipped == 1
    write(run_folder / "level_1_problem_23_sample_2_kernel.py", KERNEL.format(floor=7))
    verdicts = json.loads((run_folder / "eval_results.json").read_text())
    verdicts["23"] = [verdicts["23"], verdict(2, True, runtime=4.0)]
    write(run_folder / "eval_results.json", json.dumps(verdicts))
    summary = import_run(task_writer, run_folder)
    assert summary.rows == {
        "generations": 1,
        "kernels": 1,
        "kernel_features": 1,
        "evaluations": 1,
        "claims": 1,
        "runs": 1,
        "run_ends": 1,
    }


@pytest.mark.slow
def test_speedups_are_claimed_from_the_same_gpu_only(
    task_writer: store.Writer, run_folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    verdicts = json.loads((run_folder / "eval_results.json").read_text())
    verdicts["23"] = [verdict(1, True, runtime=0.5)]
    write(run_folder / "eval_results.json", json.dumps(verdicts))
    timing = {"std": 0.01, "min": 1, "max": 9, "num_trials": 100, "device": "cuda:0"}
    file = write(
        tmp_path / "H100/baseline_time_torch_compile_inductor_default.json",
        json.dumps(
            {
                "level1": {
                    "19_ReLU.py": {"mean": 5.0, "hardware": H100, **timing},
                    "23_Softmax_over_rows_.py": {"mean": 1.0, "hardware": "NVIDIA H200", **timing},
                }
            }
        ),
    )
    import_run(task_writer, run_folder, baseline=file)
    assert "1 of 2 timed kernels have no speedup" in caplog.text
    claims = rows(task_writer, "SELECT * FROM claims WHERE metric = 'speedup'")
    assert [(c["speedup"], c["baseline"], c["value"]) for c in claims] == [(2.5, "compile", None)]
    assert claims[0]["quote"] == (
        "level1/19_ReLU.py in baseline_time_torch_compile_inductor_default.json: mean 5.0 ms, "
        f"unpaired / problem 19, sample 0 in eval_results.json: runtime 2.0 ms on {H100}"
    )


@pytest.mark.slow
def test_a_timing_file_of_unknown_kind_needs_the_option(
    task_writer: store.Writer, run_folder: Path, tmp_path: Path
) -> None:
    file = write(tmp_path / "baseline_time_torch_compile_inductor_max-autotune.json", "{}")
    with pytest.raises(ImportFailed, match="--baseline-kind"):
        import_run(task_writer, run_folder, baseline=file)
    assert import_run(task_writer, run_folder, baseline=file, baseline_kind="compile").files == 1


@pytest.mark.slow
def test_a_run_without_verdicts_or_with_an_empty_kernel_is_stored(
    task_writer: store.Writer, run_folder: Path
) -> None:
    (run_folder / "eval_results.json").unlink()
    write(run_folder / "level_1_problem_19_sample_1_kernel.py", "\n")
    summary = import_run(task_writer, run_folder, policy="model-x")
    assert summary.rows["generations"] == 6
    assert summary.rows["kernels"] == 5
    assert "evaluations" not in summary.rows
    empty = rows(
        task_writer, "SELECT policy_id, parse_error FROM generations WHERE kernel_id IS NULL"
    )
    assert empty == [{"policy_id": "model-x", "parse_error": "the kernel file is empty"}]


@pytest.mark.slow
def test_equal_kernels_of_two_samples_are_one_kernel_judged_twice(
    task_writer: store.Writer, run_folder: Path
) -> None:
    same = (run_folder / "level_1_problem_19_sample_0_kernel.py").read_text()
    write(run_folder / "level_1_problem_19_sample_1_kernel.py", same)
    summary = import_run(task_writer, run_folder)
    assert summary.rows["kernels"] == 5
    assert summary.rows["generations"] == 6
    assert summary.rows["evaluations"] == 5


def test_a_run_needs_its_tasks_in_the_lake(
    no_rows: store.Lake, task_writer: store.Writer, run_folder: Path
) -> None:
    options = kernelbench_run.Config(suite_revision="v0.1")
    with pytest.raises(ImportFailed, match=r"The lake has none.*store import kernelbench"):
        list(kernelbench_run.read(run_folder, options, no_rows))
    with pytest.raises(ImportFailed, match=r"KernelBench v9\nThe lake has v0\.1"):
        import_run(task_writer, run_folder, suite_revision="v9")
    with pytest.raises(ImportFailed, match="is missing"):
        import_run(task_writer, run_folder, suite_revision=None)
    write(run_folder / "level_4_problem_3_sample_0_kernel.py", KERNEL.format(floor=1))
    with pytest.raises(ImportFailed, match=r"level 4 problem 3 .* is not in the lake"):
        import_run(task_writer, run_folder)
    assert rows(task_writer, "SELECT count(*) AS n FROM kernels") == [{"n": 0}]


@pytest.mark.slow
def test_a_name_with_two_texts_is_not_guessed(
    task_writer: store.Writer, checkout: Path, run_folder: Path
) -> None:
    write(checkout / "KernelBench/level1/19_ReLU.py", RELU.replace("16", "32"))
    import_tasks(task_writer, checkout)
    with pytest.raises(ImportFailed, match=r"problem 19 .* has 2 texts"):
        import_run(task_writer, run_folder)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"19": [\n{"sample_id": 0,}]}', "line 2"),
        ("[]", "an object is expected"),
        ('{"nineteen": []}', "is no number"),
        ('{"19": [{"sample_id": 0}]}', "says no correctness"),
        ('{"19": [{"sample_id": 0, "correct": "maybe"}]}', "not true or false"),
        ('{"19": [{"sample_id": -1, "correct": true}]}', "a whole number from 0"),
        ('{"19": [{"correct": true, "metadata": 3}]}', "metadata is int"),
        ("[" * 100_000, "is nested too deeply"),
        (f'{{"19": {"9" * 5000}}}', "Exceeds the limit"),
    ],
)
def test_malformed_verdicts_are_refused(text: str, message: str) -> None:
    with pytest.raises(ImportFailed, match=message):
        kernelbench_run.parse_entries(text, Path("eval_results.json"))


def test_a_run_with_malformed_verdicts_stores_nothing(
    task_writer: store.Writer, run_folder: Path
) -> None:
    write(run_folder / "eval_results.json", '{"19": [\n{"sample_id": 0,}]}')
    with pytest.raises(ImportFailed, match=r"eval_results\.json, line 2"):
        import_run(task_writer, run_folder)
    assert rows(task_writer, "SELECT count(*) AS n FROM kernels") == [{"n": 0}]


@pytest.mark.parametrize("runtime", [-1.0, 0, float("nan"), float("inf"), None, "fast", True])
def test_a_runtime_that_was_not_measured_is_null(runtime: object) -> None:
    text = json.dumps({"19": {"sample_id": 0, "correct": True, "runtime": runtime}})
    (entry,) = kernelbench_run.parse_entries(text, Path("eval_results.json"))
    assert entry.correct
    assert entry.latency_ms is None


@pytest.mark.slow
def test_a_correct_kernel_without_runtime_is_judged_and_claims_nothing(
    task_writer: store.Writer, run_folder: Path
) -> None:
    verdicts = {"19": {"sample_id": 0, "correct": True, "runtime": -1.0, "runtime_stats": {}}}
    write(run_folder / "eval_results.json", json.dumps(verdicts))
    summary = import_run(task_writer, run_folder)
    assert summary.rows["evaluations"] == 1
    assert "claims" not in summary.rows
    assert rows(task_writer, "SELECT name FROM devices") == [{"name": "unknown"}]
