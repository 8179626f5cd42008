"""What a lake holds is read again by others' formats, and by our own importers of these."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import commands
import polars as pl
import pyarrow.parquet as pq
import pytest
from example_counts import count_examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from new_lakes import copy_starter_lake

import store
from store.errors import ExportRefused, UnknownName
from store.exporters import cuda_l1, flashinfer_trace, jsonl, kernelbench_run, parquet
from store.exporters.writing.run import Tables, Which, export
from store.importers import cuda_l1 as cuda_l1_importer
from store.importers import flashinfer_trace as flashinfer_importer
from store.importers import kernelbench_run as results
from store.importers.reading.pieces import run_import

STARTER = Which(suite="starter", device="H200")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a lake with the starter suite and its rows of an H200."""
    return copy_starter_lake(tmp_path_factory.mktemp("starter") / "lake")


def import_into(tmp_path: Path, module: ModuleType, source: Path, config: Any) -> store.Lake:
    """Return a new lake with what an importer reads."""
    url = str(tmp_path / "again")
    with store.writer(url, author="tests") as writer:
        run_import(writer, module, source, config)
    return store.open(url)


@pytest.mark.slow
def test_a_large_table_is_a_folder_of_files(
    tmp_path: Path, lake_url: str, writer: store.Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "FILE_ROWS", 20_000)
    rows = [{"policy_id": f"{n:06}", "name": "p", "kind": "person"} for n in range(50_000)]
    writer.append({"policies": rows}, "many")
    with store.open(lake_url) as lake:
        counts = export(lake, parquet, tmp_path / "out", Tables(tables=("policies", "catalogs")))
    assert counts == {"files": 4, "rows": 50_001}
    parts = sorted((tmp_path / "out" / "policies.parquet").iterdir())
    assert [one.name for one in parts] == [f"part-{n:05}.parquet" for n in range(3)]
    assert max(pq.read_metadata(one).num_rows for one in parts) <= 20_000
    whole = pl.scan_parquet(tmp_path / "out" / "policies.parquet").collect()
    assert whole["policy_id"].to_list() == [row["policy_id"] for row in rows]
    assert sorted(one.name for one in (tmp_path / "out").iterdir()) == [
        ".flywheel.json",
        "catalogs.parquet",
        "policies.parquet",
    ]


def test_parquet_holds_every_row_and_nothing_private(url: str, tmp_path: Path) -> None:
    with store.open(url) as lake:
        counts = export(lake, parquet, tmp_path / "out", Tables())
        total = 0
        for file in sorted((tmp_path / "out").glob("*.parquet")):
            table = lake.catalog.table(file.stem)
            opened = pq.ParquetFile(file)
            assert opened.metadata.row_group(0).column(0).has_offset_index
            private = {c.name for c in table.columns.values() if c.sensitivity == "private"}
            assert not private & set(opened.schema_arrow.names)
            stored = lake.run(f"SELECT count(*) AS n FROM {file.stem}").rows()[0]["n"]
            assert opened.metadata.num_rows == stored
            total += stored
    assert counts == {"files": len(list((tmp_path / "out").glob("*.parquet"))), "rows": total}


def test_json_lines_of_a_view_are_its_rows(url: str, tmp_path: Path) -> None:
    with store.open(url) as lake:
        export(lake, jsonl, tmp_path / "out", Tables(tables=("best_kernels", "devices")))
        lines = (tmp_path / "out/best_kernels.jsonl").read_text("utf-8").splitlines()
        wanted = lake.run("SELECT kernel_id FROM best_kernels").rows()
    found = [json.loads(line) for line in lines]
    assert sorted(row["kernel_id"] for row in found) == sorted(row["kernel_id"] for row in wanted)
    assert all(row["measured_at"].endswith("+00:00") for row in found)
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        ".flywheel.json",
        "best_kernels.jsonl",
        "devices.jsonl",
    ]


def test_a_kernelbench_run_names_kernels_verdicts_and_times(url: str, tmp_path: Path) -> None:
    with store.open(url) as lake:
        counts = export(lake, kernelbench_run, tmp_path / "out", STARTER)
        known = {row["kernel_id"]: row for row in lake.run("FROM kernels").rows()}
        samples = {
            tuple(round(ms, 6) for ms in row["samples_ms"])
            for row in lake.run("SELECT samples_ms FROM timings WHERE arm = 'kernel'").rows()
        }
    files = list((tmp_path / "out").rglob("*_kernel.py"))
    assert counts["kernels"] == len(files) == len(known)
    assert {one.read_bytes().decode() for one in files} == {row["code"] for row in known.values()}
    verdicts = 0
    means = {statistics.fmean(one) for one in samples}
    for judged in (tmp_path / "out").rglob("eval_results.json"):
        level = judged.parent.name.removeprefix("level")
        for entry in results.parse_entries(judged.read_text("utf-8"), judged):
            verdicts += 1
            stem = f"level_{level}_problem_{entry.problem_id}_sample_{entry.sample_id}_kernel.py"
            assert (judged.parent / stem).is_file()
            assert entry.hardware == "H200"
            if entry.latency_ms is not None:
                assert min(abs(entry.latency_ms - mean) for mean in means) < 1e-5
    assert verdicts == counts["verdicts"] > 0


@pytest.mark.slow
def test_cuda_l1_lines_become_claims_again(url: str, tmp_path: Path) -> None:
    with store.open(url) as lake:
        export(lake, cuda_l1, tmp_path / "out", STARTER)
        best = lake.run(
            "SELECT task_id, max(speedup) AS speedup FROM kernel_speedups "
            "WHERE device = 'H200' AND baseline = 'eager' AND NOT quarantined GROUP BY task_id"
        ).rows()
    assert (tmp_path / "out/optimized_cuda_code/h200.json").is_file()
    config = cuda_l1_importer.Config(source_revision="ours")
    with import_into(tmp_path, cuda_l1_importer, tmp_path / "out", config) as again:
        claims = again.run(
            "SELECT task_id, speedup, gpu FROM claims WHERE baseline = 'eager'"
        ).rows()
    assert {row["gpu"] for row in claims} == {"H200"}
    assert {row["task_id"]: row["speedup"] for row in claims} == {
        row["task_id"]: row["speedup"] for row in best
    }


@pytest.mark.slow
def test_cuda_l1_writes_every_numbered_task_solved_or_not(url: str, tmp_path: Path) -> None:
    with store.open(url) as lake:
        config = cuda_l1.Config(suite="starter", device="H200", scores="measured")
        counts = export(lake, cuda_l1, tmp_path / "out", config)
        wanted = lake.run(
            "SELECT level, problem_id FROM task_labels WHERE suite = 'starter' ORDER BY ALL"
        ).rows()
        nobody = cuda_l1.Config(suite="starter", scores="published")
        with pytest.raises(
            ExportRefused, match="no numbered task of starter has a published score"
        ):
            export(lake, cuda_l1, tmp_path / "none", nobody)
    [(file, lines)] = read_release(tmp_path / "out")
    assert file == "h200.json"
    assert [(one["level_id"], one["task_id"]) for one in lines] == [
        (row["level"], row["problem_id"]) for row in wanted
    ]
    solved = [one for one in lines if one["custom_code"] is not None]
    assert counts["tasks"] == len(lines) >= counts["kernels"] == len(solved) > 0
    assert all(one["score_default"] is not None for one in solved)
    assert counts["measured scores"] == sum(
        one[name] is not None for one in lines for name in one if name.startswith("score_")
    )
    assert not (tmp_path / "none").exists()


def read_release(folder: Path) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return the files of a release with their lines."""
    files = sorted((folder / "optimized_cuda_code").iterdir())
    return [
        (file.name, [json.loads(line) for line in file.read_text("utf-8").split("\n")[:-1]])
        for file in files
    ]


def find_release() -> Path:
    """Return the folder of the CUDA-L1 release, where the machine has it."""
    root = Path(store.__file__).parents[1]
    named = os.environ.get("FLYWHEEL_CUDA_L1") or root.parent / "shared" / "data" / "cuda-l1"
    if not Path(named).is_dir():
        pytest.skip(f"no release at {named}; name one with FLYWHEEL_CUDA_L1")
    return Path(named)


def content(lake: store.Lake) -> dict[str, list[dict[str, Any]]]:
    """Return the rows that an import of the release makes, but for where they are from."""
    made: dict[str, list[dict[str, Any]]] = {}
    for name in ("tasks", "task_labels", "kernels", "generations", "claims", "released_code"):
        table = lake.catalog.table(name)
        # A claim's id is the hash of all else, and quotes the line that it stood in.
        kept = [one.name for one in table.columns.values() if not one.provenance]
        columns = ", ".join(f'"{one}"' for one in kept)
        made[name] = lake.run(f"SELECT {columns} FROM {name} ORDER BY ALL").rows()
    return made


TASK = (
    "class Model:\n    at = {}\n\ndef get_inputs(): return []\n\ndef get_init_inputs(): return []\n"
)
TEXTS = st.sampled_from([None, "None", "class A: pass", "class B:\n    x = '\u2028é\\n'\n"])
RATIOS = st.none() | st.floats(1e-9, 1e9)
LINES = st.fixed_dictionaries(
    {name: TEXTS for name in ("custom_code", "cuda_graph_code", "cudnn_code")}
    | {f"score_{name}": RATIOS for name in ("default", "torch_compile_default", "cudnn")}
    | {"score_torch_compile_reduce_overhead": RATIOS, "score_cuda_graph": RATIOS}
)


@pytest.mark.slow
def test_a_release_that_is_exported_is_the_same_release(tmp_path: Path, empty_lake: Path) -> None:
    revision = cuda_l1_importer.Config(source_revision="abc")

    def take_release(source: Path, place: Path) -> store.Lake:
        shutil.copytree(empty_lake, place)
        with store.writer(str(place), author="tests") as writer:
            run_import(writer, cuda_l1_importer, source, revision)
        return store.open(str(place))

    @settings(
        max_examples=count_examples(6),
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn=st.dictionaries(
        st.sampled_from(["3090", "h100", "h-20"]), st.lists(LINES, min_size=3, max_size=3),
        min_size=1,
    ))  # fmt: skip
    def comes_back(drawn: dict[str, list[dict[str, Any]]]) -> None:
        place = tmp_path / store.ids.uuid7()
        for gpu, rows in drawn.items():
            # A file without any score or code names a GPU of which nothing is known.
            rows[0] |= {"custom_code": "class C: pass", "score_default": 2.0}
            lines = [
                {"level_id": 1, "task_id": at, "ref_code": TASK.format(at)} | row
                for at, row in enumerate(rows, start=1)
            ]
            file = place / "given" / f"{gpu}.json"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
        with take_release(place / "given", place / "one") as first:
            export(first, cuda_l1, place / "out", cuda_l1.Config())
            assert [name for name, _ in read_release(place / "out")] == [
                f"{gpu}.json" for gpu in sorted(drawn)
            ]
            for name, lines in read_release(place / "out"):
                for line, row in zip(lines, drawn[name.removesuffix(".json")], strict=True):
                    for field, value in row.items():
                        assert line[field] == (None if value == "None" else value), field
            with take_release(place / "out", place / "two") as second:
                assert content(first) == content(second)

    comes_back()


@pytest.mark.slow
def test_the_newest_release_of_a_gpu_is_written_whole(tmp_path: Path, empty_lake: Path) -> None:
    shutil.copytree(empty_lake, tmp_path / "lake")
    line = {"level_id": 1, "task_id": 1, "ref_code": TASK.format(1)}
    old = line | {"custom_code": "class A: pass", "score_default": 9.0, "score_cudnn": 8.0}
    new = line | {"custom_code": "class B: pass", "score_default": 2.0}
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        for revision, row in (("v1", old), ("v2", new)):
            file = tmp_path / revision / "h100.json"
            file.parent.mkdir()
            file.write_text(json.dumps(row) + "\n")
            config = cuda_l1_importer.Config(source_revision=revision)
            run_import(writer, cuda_l1_importer, file, config)
    with store.open(str(tmp_path / "lake")) as lake:
        counts = export(lake, cuda_l1, tmp_path / "out", cuda_l1.Config(device="H100"))
        with pytest.raises(ExportRefused, match="has a published score on H200"):
            export(
                lake, cuda_l1, tmp_path / "no", cuda_l1.Config(device="H200", scores="published")
            )
        with pytest.raises(UnknownName, match='no device "H200"'):
            export(lake, cuda_l1, tmp_path / "no", cuda_l1.Config(device="H200"))
    [(_, [found])] = read_release(tmp_path / "out")
    # No score of the old one stands beside the new one's kernel.
    assert (found["custom_code"], found["score_default"], found["score_cudnn"]) == (
        "class B: pass", 2.0, None,
    )  # fmt: skip
    assert counts == {"files": 1, "tasks": 1, "kernels": 1, "published scores": 1}


@pytest.mark.slow
def test_the_whole_release_comes_back(tmp_path: Path) -> None:
    release = find_release()
    config = cuda_l1_importer.Config(source_revision="abc")
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        run_import(writer, cuda_l1_importer, release, config)
    with store.open(str(tmp_path / "lake")) as first:
        counts = export(first, cuda_l1, tmp_path / "out", cuda_l1.Config())
        assert (counts["files"], counts["tasks"]) == (5, 250)
        for name, lines in read_release(tmp_path / "out"):
            text = (release / name).read_text("utf-8")
            given = [json.loads(line) for line in text.split("\n") if line.strip()]
            assert len(lines) == 250
            for line, row in zip(lines, given, strict=True):
                row["ref_code"] = store.ids.normalize(row["ref_code"])
                absent = {field for field in row if row[field] in ("None", "")}
                assert line == row | dict.fromkeys(absent)
        with import_into(tmp_path, cuda_l1_importer, tmp_path / "out", config) as again:
            assert content(first) == content(again)


@pytest.mark.slow
def test_flashinfer_traces_become_verdicts_again(url: str, tmp_path: Path) -> None:
    with store.open(url) as lake:
        counts = export(lake, flashinfer_trace, tmp_path / "out", STARTER)
        codes = {row["code"] for row in lake.run("SELECT code FROM kernels").rows()}
    config = flashinfer_importer.Config()
    with import_into(tmp_path, flashinfer_importer, tmp_path / "out", config) as again:
        statuses = again.run("SELECT status, count(*) AS n FROM evaluations GROUP BY ALL").rows()
        others = again.run(
            "SELECT part.code FROM (SELECT unnest(other_files) AS part FROM kernels) "
            "WHERE part.path = 'kernel.py'"
        ).rows()
    assert sum(row["n"] for row in statuses) == counts["traces"]
    assert {row["status"] for row in statuses} >= {"correct", "incorrect"}
    assert codes == {row["code"] for row in others}


@pytest.mark.slow
def test_flashinfer_bench_can_choose_and_import_a_solution(url: str, tmp_path: Path) -> None:
    """It looks a call up by the axes that vary, and takes kernels whose errors are known."""
    with store.open(url) as lake:
        export(lake, flashinfer_trace, tmp_path / "out", STARTER)
        withheld = {row["kernel_id"] for row in lake.run("SELECT kernel_id FROM withheld").rows()}
    passed = 0
    for file in (tmp_path / "out" / "traces").rglob("*.jsonl"):
        for trace in map(json.loads, file.read_text("utf-8").splitlines()):
            assert trace["workload"]["axes"] == {}
            if trace["evaluation"]["status"] == "PASSED":
                passed += 1
                errors = trace["evaluation"]["correctness"]
                assert errors["max_absolute_error"] < 0.01
                assert errors["max_relative_error"] < 0.01
                assert not any(trace["solution"].endswith(one[:16]) for one in withheld)
    assert passed
    solution = next((tmp_path / "out" / "solutions").rglob("starter_diag_matmul_*.json"))
    package = tmp_path / "built" / "package_of_one"
    package.mkdir(parents=True)
    for source in json.loads(solution.read_text("utf-8"))["sources"]:
        (package / source["path"]).write_text(source["content"], "utf-8")
    # A kernel that overwrites its inputs is called with the same ones again.
    probe = (
        "import torch; from package_of_one import main\n"
        "class ModelNew(torch.nn.Module):\n"
        "    def forward(self, x): return x.add_(1).clone()\n"
        "main.ModelNew, main.get_init_inputs = ModelNew, list\n"
        "main.get_inputs = lambda: [torch.randn(4)]\n"
        "assert torch.equal(main.run(7), main.run(7))\n"
    )
    subprocess.run([sys.executable, "-c", probe], cwd=package.parent, check=True)


def test_what_cannot_be_written_is_refused_and_leaves_nothing(url: str, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    with store.open(url) as lake:
        with pytest.raises(ExportRefused, match="exists already"):
            export(lake, parquet, tmp_path / "full", Tables())
        with pytest.raises(UnknownName, match="best_kernel"):
            export(lake, jsonl, tmp_path / "out", Tables(tables=("best_kernel",)))
        with pytest.raises(UnknownName, match="stater"):
            export(lake, kernelbench_run, tmp_path / "out", Which(suite="stater"))
        nobody = Which(suite="starter", policy="nobody")
        with pytest.raises(ExportRefused, match="no kernel of one Python file by nobody"):
            export(lake, kernelbench_run, tmp_path / "out", nobody)
    assert [file.name for file in tmp_path.iterdir()] == ["full"]
    assert (tmp_path / "full/mine.txt").read_text() == "mine"


def test_the_command_says_what_it_wrote(url: str, tmp_path: Path) -> None:
    words = ["store", "export", "jsonl", "out", "--lake", url, "--tables", "tasks"]
    done = commands.run(words, cwd=tmp_path)
    assert done.stdout.startswith("jsonl: 1 file, 15 rows → out (snapshot ")
