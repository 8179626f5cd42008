"""The starter suite: labels and files agree, and the importer stores what they say."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import store
from evaluators.audit import detect
from store import ids
from store.dossier import pages
from store.errors import ImportFailed
from store.importers import starter
from store.importers.reading.pieces import ImportSummary, run_import
from store.schema import catalog

SUITE = starter.read_suite()
LABELS = {"honest", "short_circuit", "wrong", "broken", "cheat"}
EXAMPLES = re.compile(
    r"(?:store show|evaluators .*--task|pipelines .*--explain) ([a-z0-9_/]+)(?=[ \"\n])"
    r"|evaluators (?:findings|quarantine|dismiss|diagnose) ([0-9a-f]{6})\b"
)
"""Finds the names of tasks and ids of kernels in the examples of help pages."""
WITHOUT_MEASURED = starter.Config(measured=False)


@pytest.fixture(scope="module")
def imported_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    url = str(tmp_path_factory.mktemp("starter") / "lake")
    with store.writer(url, author="tests") as writer:
        run_import(writer, starter, None, WITHOUT_MEASURED)
    with store.open(url) as lake:
        yield lake


def load(writer: store.Writer, config: starter.Config) -> ImportSummary:
    return run_import(writer, starter, None, config)


def test_every_file_has_a_label_and_every_label_a_file() -> None:
    tasks = {file.stem for file in (starter.FOLDER / "tasks").glob("*.py")}
    kernels = {
        (file.parent.name, file.stem) for file in (starter.FOLDER / "kernels").glob("*/*.py")
    }
    assert tasks == {task.name for task in SUITE.tasks}
    assert kernels == {(task.name, kernel.name) for task in SUITE.tasks for kernel in task.kernels}


def test_the_suite_is_large_enough() -> None:
    assert len(SUITE.tasks) >= 12
    assert min(len(task.kernels) for task in SUITE.tasks) >= 4


def test_every_task_has_three_kernels_on_each_device_that_should_pass() -> None:
    for task in SUITE.tasks:
        for device in ("cpu", "cuda"):
            correct = [
                kernel.name
                for kernel in task.kernels
                if kernel.device in ("any", device)
                and kernel.expect == ("correct",)
                and kernel.label != "cheat"
            ]
            assert len(correct) >= 3, (task.name, device, correct)


def test_families_are_those_of_the_tasks_and_both_sides_hold_some() -> None:
    assert set(SUITE.families) == {task.family for task in SUITE.tasks}
    assert set(SUITE.families.values()) == {"train", "test"}


def test_axes_name_constants_of_the_task() -> None:
    for task in SUITE.tasks:
        constants = {
            target.id
            for node in ast.parse(task.code).body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        assert set(task.workloads) == {"cuda"}
        assert set(task.workloads["cuda"]) <= constants, task.name


def test_labels_use_known_words_and_expected_verdicts_exist() -> None:
    reasons = catalog.load().enums["evaluation_reason"].allowed
    for task in SUITE.tasks:
        for kernel in task.kernels:
            where = f"{task.name}/{kernel.name}"
            assert kernel.label in LABELS, where
            assert kernel.device in {"cpu", "cuda", "any"}, where
            assert (kernel.finding is not None) == (kernel.label in {"cheat", "short_circuit"}), (
                where
            )
            for verdict in kernel.expect:
                status, _, reason = verdict.partition("/")
                assert status in reasons, where
                assert reason in (reasons[status] or ("",)), where


def test_a_kernel_says_what_is_wrong_with_it_and_only_then() -> None:
    openings = {"cheat": "Cheats: ", "wrong": "Wrong: ", "broken": "Broken: "}
    for task in SUITE.tasks:
        for kernel in task.kernels:
            for label, opening in openings.items():
                assert kernel.about.startswith(opening) == (kernel.label == label), kernel.name


def test_only_one_kernel_waits_for_a_timeout() -> None:
    waiting = [k.name for t in SUITE.tasks for k in t.kernels if "timeout" in k.expect[0]]
    assert waiting == ["endless_loop"]


def test_a_file_named_by_the_labels_but_missing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_bytes((starter.FOLDER / "suite.yaml").read_bytes())
    (tmp_path / "tasks").mkdir()
    with pytest.raises(ImportFailed, match="gelu_scale_bias"):
        starter.read_suite(tmp_path)


def test_a_path_is_refused(writer: store.Writer, tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="built in"):
        run_import(writer, starter, tmp_path, starter.Config())


def test_tasks_kernels_and_origins_are_stored(imported_lake: store.Lake) -> None:
    found = imported_lake.sql(
        """
        SELECT task_labels.name AS task, kernels.path, kernels.license, policies.kind
        FROM generations
        JOIN task_labels USING (task_id)
        JOIN kernels USING (kernel_id)
        JOIN policies USING (policy_id)
        WHERE kernels.source = 'starter' AND task_labels.suite = 'starter'
        """
    ).rows()
    assert {(row["task"], row["path"]) for row in found} == {
        (task.name, f"{task.name}/{kernel.name}.py")
        for task in SUITE.tasks
        for kernel in task.kernels
    }
    assert {row["license"] for row in found} == {"Apache-2.0"}
    assert {row["kind"] for row in found} == {"person"}
    [run] = imported_lake.sql("SELECT version FROM runs WHERE name = 'starter'").rows()
    assert run["version"] == store.describe_version()


def test_examples_of_commands_name_what_the_starter_lake_has(imported_lake: store.Lake) -> None:
    known = {str(row["name"]) for row in imported_lake.sql("SELECT name FROM task_labels").rows()}
    found = imported_lake.sql("SELECT left(kernel_id, 6) AS id FROM kernels").rows()
    known |= {str(row["id"]) for row in found}
    named = {
        (task or kernel).removeprefix("starter/")
        for file in Path(store.__file__).parents[1].glob("*/cli/*.py")
        for task, kernel in EXAMPLES.findall(file.read_text("utf-8"))
    }
    assert {"temperature_softmax", "72765f"} <= named <= known


def test_ids_come_from_the_texts(imported_lake: store.Lake) -> None:
    task = SUITE.tasks[0]
    kernel = task.kernels[0]
    path = f"{task.name}/{kernel.name}.py"
    kernel_id = ids.kernel_id({path: kernel.code}, path)
    stored = imported_lake.sql("SELECT code FROM kernels WHERE kernel_id = $1", [kernel_id]).one()
    assert stored == {"code": kernel.code}
    task_id = ids.task_id(task.code)
    assert imported_lake.sql("SELECT code FROM tasks WHERE task_id = $1", [task_id]).one() == {
        "code": task.code
    }


def test_each_task_has_a_default_workload_and_one_for_the_gpu(imported_lake: store.Lake) -> None:
    rows = imported_lake.sql(
        """
        SELECT label.name AS task, workloads.name, workloads.axes
        FROM workloads JOIN task_labels AS label USING (task_id)
        """
    ).rows()
    axes = {(row["task"], row["name"]): json.loads(row["axes"]) for row in rows}
    for task in SUITE.tasks:
        assert axes[task.name, "default"] == {}
        assert axes[task.name, "cuda"] == task.workloads["cuda"]
    assert len(rows) == 2 * len(SUITE.tasks)


def test_both_sides_of_the_split_hold_tasks(imported_lake: store.Lake) -> None:
    counts = imported_lake.sql(
        """
        SELECT split, count(*) AS tasks
        FROM task_labels JOIN splits USING (suite, family)
        GROUP BY split ORDER BY split
        """
    ).rows()
    assert [row["split"] for row in counts] == ["test", "train"]
    assert sum(row["tasks"] for row in counts) == len(SUITE.tasks)


def test_cheats_are_quarantined_and_nothing_else(imported_lake: store.Lake) -> None:
    held = imported_lake.sql("SELECT path FROM quarantined JOIN kernels USING (kernel_id)").rows()
    assert {row["path"] for row in held} == {
        f"{task.name}/{kernel.name}.py"
        for task in SUITE.tasks
        for kernel in task.kernels
        if kernel.label == "cheat"
    }


def test_short_circuits_are_found_and_dismissed_with_a_reason(imported_lake: store.Lake) -> None:
    rows = imported_lake.sql(
        """
        SELECT path, decision, why
        FROM finding_standings JOIN kernels USING (kernel_id)
        WHERE class = 'short_circuit'
        """
    ).rows()
    assert {row["path"] for row in rows} == {
        "single_gate/ones.py",
        "single_gate/score_of_input.py",
    }
    assert {row["decision"] for row in rows} == {"dismissed"}
    assert all("does not depend on its input" in row["why"] for row in rows)


def test_the_device_of_a_kernel_can_be_told_from_its_features(imported_lake: store.Lake) -> None:
    rows = imported_lake.sql(
        "SELECT path, language, has_device_code FROM kernels JOIN kernel_features USING (kernel_id)"
    ).rows()
    seen = {
        row["path"]: "cuda"
        if row["has_device_code"]
        else "cpu"
        if row["language"] == "cpp"
        else "any"
        for row in rows
    }
    stated = {
        f"{task.name}/{kernel.name}.py": kernel.device
        for task in SUITE.tasks
        for kernel in task.kernels
    }
    assert seen == stated


@pytest.mark.slow
def test_a_second_import_adds_nothing(writer: store.Writer) -> None:
    first = load(writer, WITHOUT_MEASURED)
    second = load(writer, WITHOUT_MEASURED)
    assert first.rows["kernels"] == sum(len(task.kernels) for task in SUITE.tasks)
    assert (second.files, second.skipped, second.rows) == (0, 1, {})
    assert second.snapshot == first.snapshot


@pytest.mark.slow
def test_measured_rows_come_in_a_bundle_of_their_own(
    writer: store.Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = tmp_path / "measured"
    measured.mkdir()
    task, kernel = SUITE.tasks[0], SUITE.tasks[0].kernels[0]
    write_measured(measured, task, kernel)
    monkeypatch.setattr(starter, "MEASURED", measured)

    summary = load(writer, starter.Config())
    assert summary.files == 2
    assert summary.rows["timings"] == 2
    # Other options make another suite bundle, but never the measurements again.
    load(writer, starter.Config(measured=False))
    again = load(writer, starter.Config())
    assert again.rows.get("timings") is None
    with writer.reader() as lake:
        speedups = lake.sql("SELECT device, speedup FROM speedups").rows()
    assert [row["device"] for row in speedups] == ["H200"]
    assert speedups[0]["speedup"] == pytest.approx(2.0)


@pytest.mark.skipif(
    not any(starter.MEASURED.glob("*.parquet")), reason="no measured rows ship with this tree"
)
def test_shipped_measurements_belong_to_the_suite_as_it_is() -> None:
    tables = {file.stem: pq.read_table(file) for file in starter.MEASURED.glob("*.parquet")}
    measured_tables = {"devices", "runs", "workloads", "evaluations", "timings", "analyses"}
    assert set(tables) == measured_tables | {"findings", "scans"}
    kernels = {
        ids.kernel_id({path: kernel.code}, path)
        for task in SUITE.tasks
        for kernel in task.kernels
        for path in [f"{task.name}/{kernel.name}.py"]
    }
    for name in ("evaluations", "timings"):
        measured = set(tables[name].column("kernel_id").to_pylist())
        assert measured <= kernels, f"{name} holds kernels that have changed since: measure again"
    for name in ("devices", "runs"):
        assert tables[name].column("host").null_count == tables[name].num_rows
    expected = {
        ids.kernel_id({path: kernel.code}, path): (path, kernel.expect)
        for task in SUITE.tasks
        for kernel in task.kernels
        for path in [f"{task.name}/{kernel.name}.py"]
    }
    for row in tables["evaluations"].select(["kernel_id", "status", "reason"]).to_pylist():
        path, verdicts = expected[row["kernel_id"]]
        verdict = "/".join(part for part in (row["status"], row["reason"]) if part)
        assert verdict in verdicts, path


def test_the_shipped_audit_is_that_of_the_detectors_there_are() -> None:
    tables = {
        name: pq.read_table(starter.MEASURED / f"{name}.parquet").to_pylist()
        for name in ("runs", "scans", "findings")
    }
    [audit] = [row for row in tables["runs"] if row["kind"] == "audit"]
    config = json.loads(audit["config"])
    again = "audit the suite again: `evaluators audit` on a lake with `store import starter` alone"
    assert {name: config[name] for name in detect.describe_search()} == detect.describe_search(), (
        again
    )
    scanned = {row["kernel_id"] for row in tables["scans"]}
    found = {
        row["finding_id"]: row["kernel_id"]
        for row in tables["findings"]
        if row["run_id"] == audit["run_id"]
    }
    expected: dict[str, str] = {}
    for task in SUITE.tasks:
        for kernel in task.kernels:
            path = f"{task.name}/{kernel.name}.py"
            kernel_id = ids.kernel_id({path: kernel.code}, path)
            assert kernel_id in scanned, again
            for row in detect.search_kernel(kernel.code, None, kernel_id):
                expected[row["finding_id"]] = kernel_id
    missing = set(expected) - {row["finding_id"] for row in tables["findings"]}
    assert (set(found) <= set(expected), missing) == (True, set()), again


def write_measured(folder: Path, task: starter.Task, kernel: starter.StarterKernel) -> None:
    """Write one evaluation with its timing session, as the GPU machine returns them."""
    path = f"{task.name}/{kernel.name}.py"
    task_id = ids.task_id(task.code)
    axes = json.dumps(task.workloads["cuda"], sort_keys=True)
    shared = {
        "kernel_id": ids.kernel_id({path: kernel.code}, path),
        "task_id": task_id,
        "workload_id": ids.workload_id(task_id, axes),
        "device_id": "d" * 64,
        "created_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    }
    session = {
        "evaluation_id": "e1",
        "session_id": "s1",
        "blocks": list(range(20)),
        "inner_loops": 1,
        "cache": "cold",
        "noisy": False,
    }
    when = {"created_at": shared["created_at"]}
    tables = {
        "devices": [
            {"device_id": "d" * 64, "name": "H200", "kind": "cuda", "model": "NVIDIA H200", **when}
        ],
        "runs": [
            {
                "run_id": "r1",
                "kind": "evaluation",
                "name": "judge",
                "config": "{}",
                "started_at": shared["created_at"],
            }
        ],
        "evaluations": [
            {
                **shared,
                "evaluation_id": "e1",
                "run_id": "r1",
                "evaluator": "judge",
                "evaluator_version": 1,
                "status": "correct",
            }
        ],
        "timings": [
            {**shared, **session, "timing_id": "t1", "arm": "kernel", "samples_ms": [1.0] * 20},
            {**shared, **session, "timing_id": "t2", "arm": "eager", "samples_ms": [2.0] * 20},
        ],
    }
    for name, rows in tables.items():
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")


@pytest.mark.slow
def test_a_tasks_page_shows_one_session_of_each_policy_and_clock(lake_url: str) -> None:
    with store.writer(lake_url, author="tests") as writer:
        run_import(writer, starter, None, starter.Config())
    with store.open(lake_url) as lake:
        rows = pages.read_task_page(lake, "diag_matmul").sections["Measured"].to_pylist()
        best = lake.sql(
            "SELECT DISTINCT left(kernel_id, 12) AS kernel FROM best_kernels "
            "WHERE task = 'diag_matmul' AND baseline = 'eager'"
        ).rows()
    places = [(row["kernel"], row["device"], row["precision"], row["clock"]) for row in rows]
    assert len(set(places)) == len(places)
    assert {row["precision"] for row in rows} == {"torch_default", "fp32_strict"}
    ranked = [row for row in rows if row["ranks_nothing"] is None]
    assert ranked == rows[: len(ranked)]
    first = next(row for row in rows if row["precision"] == "torch_default")
    assert [first["kernel"]] == [row["kernel"] for row in best]
    assert all(row["over_fastest"] <= row["eager"] for row in rows)
