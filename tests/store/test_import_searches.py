"""Programs of OpenEvolve, K-Search, AccelOpt and KernelAgent: lineage, prompts and claims."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from import_sources import count, import_source, kernel, query, write_json, write_lines

from store.errors import ImportFailed
from store.importers import accelopt, k_search, kernelagent, openevolve
from store.importers.reading import sources

LINEAGE = (
    "SELECT child.turn, kernels.code, before.code AS parent FROM generations AS child "
    "JOIN kernels USING (kernel_id) LEFT JOIN generations AS parent "
    "ON parent.generation_id = child.parent_generation_id "
    "LEFT JOIN kernels AS before ON before.kernel_id = parent.kernel_id ORDER BY ALL"
)


def step(child: str, parent: str, number: int, **fields: Any) -> dict[str, Any]:
    """Return one line of OpenEvolve's trace."""
    return {
        "iteration": number,
        "timestamp": 1_750_000_000.0 + number,
        "parent_id": parent,
        "child_id": child,
        "parent_metrics": {"combined_score": 0.5},
        "child_metrics": {"combined_score": 0.5 + number, "time_ms": 2.0, "error": "none"},
        "prompt": {"system": "You write kernels.", "user": f"Improve it, {number}."},
        "llm_response": f"Answer {number}.",
        "generation": number,
    } | fields


def program(name: str, parent: str | None, number: int) -> dict[str, Any]:
    """Return one program of OpenEvolve's checkpoint."""
    return {
        "id": name,
        "code": kernel(number),
        "changes_description": "empty",
        "language": "python",
        "parent_id": parent,
        "generation": number,
        "timestamp": 1_750_000_000.0 + number,
        "iteration_found": number,
        "metrics": {"combined_score": 0.5 + number},
        "prompts": None,
    }


def write_openevolve(root: Path) -> Path:
    """Write two checkpoints of three programs and a trace without code."""
    for name, parent, number in (("p0", None, 0), ("p1", "p0", 1), ("p2", "p1", 2)):
        folders = ("checkpoint_10", "checkpoint_9") if number < 2 else ("checkpoint_10",)
        for folder in folders:
            file = root / "checkpoints" / folder / f"programs/{name}.json"
            write_json(file, program(name, parent, number))
    write_lines(root / "evolution_trace.jsonl", [step("p1", "p0", 1), step("p2", "p1", 2)])
    return root


@pytest.mark.slow
def test_openevolve_traces_take_their_code_from_checkpoints(tmp_path: Path) -> None:
    lake, root = tmp_path / "lake", write_openevolve(tmp_path / "openevolve_output")
    import_source(lake, openevolve, root, license="MIT")
    codes = [kernel(number) for number in range(3)]
    assert query(lake, LINEAGE) == [
        (0, codes[0], None),
        (1, codes[1], codes[0]),
        (2, codes[2], codes[1]),
    ]
    told = query(
        lake,
        "SELECT completion, messages::JSON ->> '$[1].content', problem, generations.license "
        "FROM generations JOIN prompts USING (prompt_id) ORDER BY turn",
    )
    assert told == [
        ("Answer 1.", "Improve it, 1.", "openevolve_output", "MIT"),
        ("Answer 2.", "Improve it, 2.", "openevolve_output", "MIT"),
    ]
    claims = query(lake, "SELECT metric, value FROM claims ORDER BY ALL")
    assert claims == [
        ("combined_score", 0.5),
        ("combined_score", 1.5),
        ("combined_score", 2.5),
        ("reported_time_ms", 2.0),
        ("reported_time_ms", 2.0),
    ]
    assert count(lake, "timings") == 0
    assert import_source(lake, openevolve, root, license="MIT").rows == {}
    assert list(sources.detect(root)) == ["openevolve"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", ["trace.jsonl.gz", pytest.param("trace.json", marks=pytest.mark.slow)]
)
def test_openevolve_traces_alone_and_in_other_forms(tmp_path: Path, form: str) -> None:
    lines = [
        step("p1", "p0", 1, parent_code=kernel(0), child_code=kernel(1)),
        step("p2", "p1", 2),
    ]
    lake, file = tmp_path / "lake", tmp_path / form
    if form.endswith(".gz"):
        file.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    else:
        write_json(file, {"metadata": {}, "traces": lines})
    import_source(lake, openevolve, file)
    assert query(lake, LINEAGE) == [(1, kernel(1), kernel(0)), (None, kernel(0), None)]
    assert count(lake, "generations") == 3
    assert list(sources.detect(file)) == ["openevolve"]
    # A checkpoint that comes later brings the code that the trace lacks.
    import_source(lake, openevolve, write_openevolve(tmp_path / "openevolve_output"))
    assert count(lake, "kernels") == 3


def write_k_search(root: Path) -> Path:
    """Write a solution of Triton and one of CUDA, with their world model."""
    cuda = (
        '<header_file name="kernel.h">\nvoid run();\n</header_file>\n\n'
        '<cuda_file name="kernel.cu">\n__global__ void f() {}\n</cuda_file>\n\n'
        '<cpp_file name="main.cpp">\nvoid run() {}\n</cpp_file>'
    )
    result = {
        "status": "passed",
        "latency_ms": 0.5,
        "reference_latency_ms": 1.5,
        "mean_vs_baseline_factor": 1.1,
        "speedup_factor": 3.0,
        "log_excerpt": "",
        "metrics": {"score": 1.1, "score_name": "vs_baseline"},
    }
    record = {"definition": "gqa_decode", "parent_solution_id": None, "code_excerpt": ""}
    lines = [
        record | {"solution_id": "s1", "solution_name": "seed", "code": kernel(1)}
        | {"eval_result": {"status": "seeded"}},
        record | {"solution_id": "s2", "solution_name": "cuda", "code": cuda}
        | {"eval_result": result},
    ]  # fmt: skip
    folder = root / "gqa_decode/world_model"
    write_lines(folder / "solution_db.jsonl", lines)
    nodes = [
        {"node_id": "root", "parent_id": None, "solution_ref": {"solution_id": "s1"}},
        {"node_id": "a", "parent_id": "root", "action": {"title": "Split the keys."}},
        {
            "node_id": "b",
            "parent_id": "a",
            "solution_ref": {"solution_id": "s2"},
            "action": {"title": "Use tensor cores.", "description": "With mma."},
        },
    ]
    write_json(folder / "world_model.json", {"decision_tree": {"nodes": nodes}})
    return root


@pytest.mark.slow
def test_k_search_solutions_follow_the_world_model(tmp_path: Path) -> None:
    lake, root = tmp_path / "lake", write_k_search(tmp_path / ".ksearch")
    import_source(lake, k_search, root, gpu="NVIDIA H100")
    chain = query(
        lake,
        "SELECT kernels.path, len(other_files), design, parent_generation_id IS NULL, problem "
        "FROM generations JOIN kernels USING (kernel_id) ORDER BY ALL",
    )
    assert chain == [
        ("kernel.py", None, None, True, "gqa_decode"),
        ("main.cpp", 2, "Use tensor cores.\n\nWith mma.", False, "gqa_decode"),
    ]
    claims = query(
        lake, "SELECT metric, baseline, coalesce(speedup, value), gpu FROM claims ORDER BY ALL"
    )
    assert claims == [
        ("baseline_latency_ms", "eager", 1.5, "H100"),
        ("correct", None, 1.0, "H100"),
        ("latency_ms", None, 0.5, "H100"),
        ("reported_score", None, 1.1, "H100"),
        ("reported_vs_baseline_solution", None, 1.1, "H100"),
        ("speedup", "eager", 3.0, "H100"),
    ]
    assert import_source(lake, k_search, root, gpu="NVIDIA H100").rows == {}
    assert list(sources.detect(root)) == ["k-search"]


def write_accelopt(root: Path) -> Path:
    """Write two iterations: the second rewrites the result of the first."""
    for number in (1, 2):
        good = {
            "body": kernel(number),
            "baseline": kernel(number - 1),
            "spec_code": "import numpy",
            "problem": "swiglu",
            "baseline_latency": 4.0,
            "latency": 4.0 / (number + 1),
            "speedup": number + 1.0,
            "kernel_metadata": "{}",
        }
        bad = {name: good[name] for name in ("baseline", "spec_code", "problem")}
        bad |= {"body": kernel(10 + number), "error": "Hard timeout after 180s"}
        service = {
            "service_name": f"swiglu_ID{number}",
            "case_name": "swiglu_M4096",
            "plan_0_0": good,
            "plan_0_1": bad,
            "plan_1_0": {"error": "No implementation found"},
        }
        results = {
            "exp_date": f"11-11-0{number}",
            "executor_start_timestamp": f"2025-11-11T0{number}:00:00.0Z",
            "executor_results": [service],
        }
        # The later iteration sorts first by its name.
        folder = root / ("b" if number == 1 else "a")
        write_json(folder / "executor_results.json", results)
        plans = [{"service_name": f"swiglu_ID{number}", "plans": ["Tile it.", "Fuse it."]}]
        write_json(folder / "planner_results.json", plans)
    return root


def test_accelopt_candidates_continue_the_kernel_with_their_baseline(tmp_path: Path) -> None:
    lake, root = tmp_path / "lake", write_accelopt(tmp_path / "experiment")
    import_source(lake, accelopt, root, gpu="Trainium 1")
    pairs = [(child, parent) for _, child, parent in query(lake, LINEAGE)]
    assert sorted(pairs, key=str) == sorted(
        [
            (kernel(0), None),
            (kernel(1), kernel(0)),
            (kernel(11), kernel(0)),
            (kernel(2), kernel(1)),
            (kernel(12), kernel(1)),
        ],
        key=str,
    )
    assert query(lake, "SELECT design, count(*) FROM generations GROUP BY ALL ORDER BY ALL") == [
        ("Fuse it.", 2),
        ("Tile it.", 4),
        (None, 1),
    ]
    claims = query(lake, "SELECT metric, value FROM claims ORDER BY ALL")
    assert claims == [
        ("correct", 0.0),
        ("correct", 0.0),
        ("correct", 1.0),
        ("correct", 1.0),
        ("latency_ms", 4.0 / 3),
        ("latency_ms", 2.0),
        ("speedup_over_parent", 2.0),
        ("speedup_over_parent", 3.0),
    ]
    assert import_source(lake, accelopt, root, gpu="Trainium 1").rows == {}
    assert list(sources.detect(root)) == ["accelopt"]


@pytest.mark.slow
def test_accelopt_candidates_of_flashinfer_bench_are_files(tmp_path: Path) -> None:
    lake, root = tmp_path / "lake", tmp_path / "experiment"
    for name in ("base", "fast"):
        solution = {
            "name": name,
            "definition": "rmsnorm_h128",
            "author": "AccelOpt",
            "spec": {"language": "triton", "entry_point": "main.py::run"},
            "sources": [{"path": "main.py", "content": f"# {name}\n"}],
        }
        write_json(root / f"checkpoints/solutions/rmsnorm/{name}.json", solution)
    candidate = {
        "workload_path": "/home/someone/workloads/rmsnorm_h128_f28.json",
        "baseline_solution_path": "/home/someone/solutions/base.json",
        "solution_path": "/home/someone/solutions/fast.json",
        "baseline_latency": 0.4,
        "latency": 0.2,
        "speedup": 2.0,
    }
    service = {
        "baseline_solution_path": candidate["baseline_solution_path"],
        "workload_path": candidate["workload_path"],
        "plan_0_0": candidate,
        "plan_0_1": candidate | {"solution_path": "/home/someone/solutions/lost.json"},
    }
    write_json(root / "executor_results.json", {"executor_results": [service]})
    import_source(lake, accelopt, root)
    assert query(lake, LINEAGE) == [
        (None, "# base\n", None),
        (None, "# fast\n", "# base\n"),
    ]
    assert query(lake, "SELECT DISTINCT problem FROM generations") == [("rmsnorm_h128_f28",)]
    assert query(lake, "SELECT parse_error FROM generations WHERE kernel_id IS NULL") == [
        ("its solution is not there",)
    ]
    # Paths of the author's machine stay out.
    assert query(lake, "SELECT count(*) FROM claims WHERE contains(quote, 'someone')") == [(0,)]


def write_kernelagent(root: Path) -> Path:
    """Write a database of three programs, and a session of two workers."""
    programs = [
        {
            "program_id": name,
            "kernel_code": kernel(number),
            "metrics": {"time_ms": time_ms},
            "problem_id": "/home/someone/examples/optimize_01/problem.py",
            "parent_id": parent,
            "generation": number,
            "created_at": f"2026-05-0{number + 1}T10:00:00.5",
        }
        for name, number, time_ms, parent in (
            ("initial", 0, float("inf"), None),
            ("r1_w0", 1, 2.0, "initial"),
            ("r2_w1", 2, 1.0, "r1_w0"),
        )
    ]
    write_json(root / "opt/program_database.json", {"programs": programs})
    session = root / "session_20260504_101010_1"
    for number in (1, 2):
        outcome = {
            "round": number,
            "timestamp": "2026-05-04T10:10:10",
            "success": number == 2,
            "kernel_code": kernel(20 + number),
            "stdout": "",
            "stderr": "",
        }
        write_json(session / f"workers/worker_0/round_{number}.json", outcome)
    figures = {"pytorch_time_ms": 0.5, "triton_time_ms": 0.25, "speedup": 2.0}
    result = {"success": True, "kernel_code": kernel(22), "worker_id": 0, "rounds": 2}
    write_json(session / "result.json", result | {"performance": figures})
    (session / "problem.txt").write_text("Write a ReLU.\n")
    for number in (0, 1):
        (session / f"seed_{number}.py").write_text(kernel(21 + number * 9))
    return root


@pytest.mark.slow
def test_kernelagent_programs_and_sessions(tmp_path: Path) -> None:
    lake, root = tmp_path / "lake", write_kernelagent(tmp_path / "logs")
    import_source(lake, kernelagent, root)
    assert query(lake, LINEAGE) == [
        (0, kernel(0), None),
        (0, kernel(30), None),
        (1, kernel(1), kernel(0)),
        (1, kernel(21), None),
        (2, kernel(2), kernel(1)),
        (2, kernel(22), kernel(21)),
    ]
    claims = query(
        lake, "SELECT metric, coalesce(value, speedup), problem FROM claims ORDER BY ALL"
    )
    assert claims == [
        ("correct", 0.0, "session_20260504_101010_1"),
        ("correct", 1.0, "session_20260504_101010_1"),
        ("latency_ms", 0.25, "session_20260504_101010_1"),
        ("latency_ms", 1.0, "optimize_01/problem.py"),
        ("latency_ms", 2.0, "optimize_01/problem.py"),
        ("speedup", 2.0, "session_20260504_101010_1"),
    ]
    assert query(lake, "SELECT messages::JSON ->> '$[0].content' FROM prompts") == [
        ("Write a ReLU.\n",)
    ]
    assert import_source(lake, kernelagent, root).rows == {}
    for part in ("opt", "session_20260504_101010_1"):
        assert list(sources.detect(root / part)) == ["kernelagent"]


@pytest.mark.slow
def test_an_empty_folder_is_told_what_it_lacks(tmp_path: Path) -> None:
    for importer in (openevolve, k_search, accelopt, kernelagent):
        with pytest.raises(ImportFailed, match="holds no"):
            import_source(tmp_path / "lake", importer, tmp_path)
