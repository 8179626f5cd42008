"""Claims count once: the last revision of a source, held against measurements on its own GPU."""

from __future__ import annotations

import datetime
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders as b
import panels
import pytest

import store
from store.headlines import story
from store.importers import cuda_l1, published
from store.importers.reading.pieces import run_import

TASK = """import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.{name}(x)

def get_inputs():
    return [torch.randn(8)]

def get_init_inputs():
    return []
"""
NAMES = ("relu", "sum", "tanh")
LATER = b.START + datetime.timedelta(days=1)


def make_released(problem: int, score: float, **changes: Any) -> dict[str, Any]:
    """Return one row of a file of the release."""
    return {
        "level_id": 1,
        "task_id": problem + 1,
        "ref_code": TASK.format(name=NAMES[problem]),
        "custom_code": f"class ModelNew:\n    kernel = {problem}\n",
        "cuda_graph_code": f"class Model:\n    graph = {problem}\n",
        "score_default": score,
        "score_cuda_graph": score / 2,
    } | changes


def load(
    writer: store.Writer,
    folder: Path,
    rows: list[dict[str, Any]],
    gpu: str = "a100",
    **options: Any,
) -> None:
    """Import one file of the release."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{gpu}.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run_import(writer, cuda_l1, file, cuda_l1.Config(**options))


def ask(writer: store.Writer, query: str) -> list[dict[str, Any]]:
    with writer.reader() as lake:
        return lake.sql(query).rows()


def eager(writer: store.Writer) -> list[tuple[str, int, float, str]]:
    """Return the eager speedups that views count: GPU, problem from 0, speedup, revision."""
    found = ask(writer, "FROM claimed_speedups WHERE baseline = 'eager' ORDER BY gpu, problem_id")
    return [
        (row["gpu"], row["problem_id"] - 1, row["speedup"], row["source_revision"]) for row in found
    ]


@pytest.mark.slow
def test_the_same_release_under_another_revision_counts_once(
    writer: store.Writer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [make_released(0, 2.0), make_released(1, 4.0), make_released(2, 9.0, custom_code=None)]
    load(writer, tmp_path, rows, source_revision="first")
    with writer.reader() as lake:
        before = story.read_story(lake).steps[2].rows.to_pylist()
    with caplog.at_level(logging.WARNING):
        load(writer, tmp_path, rows, source_revision="second")
    assert "a100.json: views now take revision second; the figures of revision first" in caplog.text
    with writer.reader() as lake:
        after = story.read_story(lake).steps[2].rows.to_pylist()
    assert [row | {"revision": "first"} for row in after] == before
    assert (after[0]["revision"], after[0]["scored"], after[0]["mean_scored"]) == ("second", 3, 5.0)
    assert len(eager(writer)) == 3
    # Nothing is lost: who said it, and when, stays in the table.
    assert ask(writer, "SELECT count(*) AS n FROM claims") == [{"n": 12}]
    assert ask(writer, "SELECT count(*) AS n FROM claimed_kernels WHERE implied") == [{"n": 3}]


@pytest.mark.slow
def test_figures_and_kernels_that_a_revision_changes_or_withdraws(
    writer: store.Writer, tmp_path: Path
) -> None:
    load(writer, tmp_path, [make_released(p, 2.0) for p in range(3)], source_revision="first")
    changed = [make_released(0, 3.0), make_released(1, 5.0, custom_code="class ModelNew: pass\n")]
    load(writer, tmp_path, changed, source_revision="second")
    # The third task is withdrawn: an old figure among new ones would be of neither revision.
    assert eager(writer) == [("A100", 0, 3.0, "second"), ("A100", 1, 5.0, "second")]
    # What is stored already is not imported again, and does not come last by that.
    load(writer, tmp_path, [make_released(p, 2.0) for p in range(3)], source_revision="first")
    assert {row[3] for row in eager(writer)} == {"second"}


@pytest.mark.slow
def test_a_revision_of_one_file_leaves_the_others(writer: store.Writer, tmp_path: Path) -> None:
    for gpu in ("a100", "h100"):
        load(writer, tmp_path, [make_released(0, 2.0)], gpu, source_revision="first")
    load(writer, tmp_path, [make_released(0, 7.0)], "h100", source_revision="second")
    assert eager(writer) == [("A100", 0, 2.0, "first"), ("H100", 0, 7.0, "second")]


@pytest.mark.slow
def test_the_older_form_of_the_release_counts_only_without_the_newer_one(lake_url: str) -> None:
    task, kernel = b.task(), b.kernel()
    claims = [
        b.claim(task, kernel, speedup, gpu=gpu, source=source, source_revision="july", quote=source)
        for gpu, source, speedup in (
            ("A100", "cuda-l1", 2.0), ("A100", "cuda-l1/codes", 3.0), ("L40", "cuda-l1/codes", 4.0),
        )
    ]  # fmt: skip
    rows = {"tasks": [task], "kernels": [kernel], "task_labels": [b.label(task)]}
    with store.writer(lake_url, author="tests") as writer:
        writer.append(rows | {"claims": claims[:1]}, "newer form")
        writer.append({"claims": claims[1:]}, "older form, imported later")
        found = ask(writer, "SELECT gpu, speedup FROM claimed_speedups ORDER BY gpu")
    assert found == [{"gpu": "A100", "speedup": 2.0}, {"gpu": "L40", "speedup": 4.0}]


@pytest.mark.slow
def test_another_license_or_content_under_the_same_revision_counts_once(
    writer: store.Writer, tmp_path: Path
) -> None:
    rows = [make_released(0, 2.0), make_released(1, 4.0)]
    load(writer, tmp_path, rows, license="GPL-3.0")
    load(writer, tmp_path, rows)
    load(writer, tmp_path, [make_released(0, 2.5, custom_code="class ModelNew: ..."), rows[1]])
    assert eager(writer) == [("A100", 0, 2.5, "unknown"), ("A100", 1, 4.0, "unknown")]


@pytest.mark.slow
def test_a_lake_that_holds_claims_twice_reads_them_once(lake_url: str) -> None:
    """An older or pulled lake: rows of two revisions, whose imports are not here."""
    task, kernel, other = b.task("square"), b.kernel("k"), b.kernel("other")

    def claim(kernel: b.Row, speedup: float, source: str, revision: str, **more: Any) -> b.Row:
        return b.claim(
            task, kernel, speedup, source=source, source_revision=revision, **more
        )  # fmt: skip

    claims = [
        claim(kernel, 2.0, "cuda-l1", "b", created_at=b.START),
        claim(kernel, 3.0, "cuda-l1", "a", created_at=LATER),
        # Of equal age, one is taken all the same.
        claim(kernel, 4.0, "cuda-l1", "1", gpu="H100"),
        claim(kernel, 5.0, "cuda-l1", "2", gpu="H100"),
        # Other sources may add kernels in a later import without restating the earlier ones.
        claim(kernel, 6.0, "a release", "1"),
        claim(kernel, 6.5, "a release", "2", created_at=LATER),
        claim(other, 7.0, "a release", "1"),
    ]
    rows = {"tasks": [task], "kernels": [kernel, other], "claims": claims}
    with store.writer(lake_url, author="tests") as writer:
        writer.append(rows, message="an older lake")
        found = ask(writer, "SELECT speedup FROM claimed_speedups ORDER BY ALL")
        assert [row["speedup"] for row in found] == [3.0, 5.0, 6.5, 7.0]


def test_aggregates_stay_what_their_revision_says(lake_url: str) -> None:
    figures = [
        b.claim(None, None, None, metric="mean_speedup", value=value, source="paper",
                source_revision=revision, created_at=when)
        for value, revision, when in (
            (17.7, "v1", b.START), (3.12, "v8", b.START), (3.13, "v8", LATER)
        )
    ]  # fmt: skip
    with store.writer(lake_url, author="tests") as writer:
        writer.append({"claims": figures}, message="figures of a paper, one of them mended")
        found = ask(
            writer, "SELECT source_revision AS r, value AS v FROM current_claims ORDER BY r"
        )
        assert found == [{"r": "v1", "v": 17.7}, {"r": "v8", "v": 3.13}]


@pytest.mark.slow
def test_the_codes_of_baselines_have_the_quotient_of_two_figures(
    writer: store.Writer, tmp_path: Path
) -> None:
    graph = make_released(
        0, 6.0, score_cuda_graph=4.0, cudnn_code="class Model: ...", score_cudnn=8.0
    )
    load(writer, tmp_path, [graph, make_released(1, 3.0, score_cuda_graph=None)])
    found = ask(
        writer,
        "SELECT baseline, speedup, entry_point FROM claimed_kernels JOIN kernels USING (kernel_id) "
        "JOIN task_names USING (task_id) WHERE problem_id = 1 ORDER BY baseline, speedup",
    )
    assert [(row["baseline"], row["speedup"], row["entry_point"]) for row in found] == [
        ("cuda_graph", 0.5, "Model"),  # the cuDNN text: 4 / 8
        ("cuda_graph", 4.0, "ModelNew"),
        ("cudnn", 2.0, "Model"),  # the graph's text: 8 / 4
        ("cudnn", 8.0, "ModelNew"),
        ("eager", 0.75, "Model"),
        ("eager", 1.5, "Model"),
        ("eager", 6.0, "ModelNew"),
    ]


@pytest.fixture(scope="module")
def measured_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a lake whose A100 measured claims for two GPUs: 2x, a disturbed session, a failure."""
    tasks = {name: b.task(name) for name in ("level3/35", "level3/41", "level3/42", "other")}
    labels = [
        b.label(task, name, level=3, problem_id=number, suite="kernelbench", suite_revision="v0")
        for number, (name, task) in enumerate(tasks.items())
    ]
    gpu = b.device("A100", kind="cuda")
    alike = b.device("A100", kind="cuda", device_id="another A100", gpu_uuid="another")
    sizes = {name: b.workload(task) for name, task in tasks.items()}
    kernels = {name: b.kernel(name) for name in tasks}
    policies = [b.policy("CUDA-L1", policy_id="cuda-l1", stage="contrastive", kind="released")]
    judged = {
        name: b.evaluation(
            kernels[name], tasks[name], sizes[name], gpu,
            "incorrect" if name == "level3/42" else "correct",
        )
        for name in tasks
    }  # fmt: skip
    again = b.evaluation(kernels["level3/35"], tasks["level3/35"], sizes["level3/35"], alike)
    claims = (
        [
            b.claim(
                tasks[name],
                kernels[name],
                speedup,
                gpu=where,
                source="cuda-l1",
                policy_id="cuda-l1",
            )
            for name in tasks
            for where, speedup in (("A100", 2.05), ("H100", 8.0))
        ]
        + [
            b.claim(tasks["other"], kernels["other"], speedup, gpu="A100", source="others")
            for speedup in (1.0, 4.0)
        ]
        + [b.claim(tasks["other"], kernels["other"], 1.0, gpu="H100", source="others")]
    )
    timings = [
        *b.session(judged["level3/35"], [1.0] * 8, eager=[2.0] * 8),
        *[
            row | {"disturbed": True}
            for row in b.session(judged["level3/41"], [1.0] * 8, eager=[9.0] * 8)
        ],
        *b.session(judged["other"], [1.0] * 8, eager=[2.0] * 8),
    ]
    with store.writer(str(tmp_path_factory.mktemp("measured") / "lake"), author="tests") as writer:
        writer.append(
            {
                "tasks": list(tasks.values()), "task_labels": labels, "policies": policies,
                "kernels": list(kernels.values()), "workloads": list(sizes.values()),
                "devices": [gpu, alike], "evaluations": [*judged.values(), again],
                "timings": timings,
                "generations": [
                    b.generation(policies[0], tasks[name], kernels[name], minute=at)
                    for at, name in enumerate(tasks)
                ],
                "claims": claims,
            },
            message="claims and measurements",
        )  # fmt: skip
        run_import(writer, published, None, published.Config())
        with writer.reader() as lake:
            yield lake


@pytest.mark.slow
def test_what_is_exceeded_or_for_another_gpu_does_not_fall(measured_lake: store.Lake) -> None:
    found = measured_lake.sql(
        "SELECT task, gpu, claimed, holds, exceeded, falls FROM claims_vs_measured "
        "ORDER BY task, gpu, claimed"
    ).rows()
    assert [tuple(row.values()) for row in found] == [
        ("level3/35", "A100", 2.05, True, False, False),
        ("level3/35", "H100", 8.0, False, False, None),  # 2x on the A100 says nothing of an H100
        ("level3/41", "A100", 2.05, None, False, None),  # no quiet session
        ("level3/41", "H100", 8.0, None, False, None),
        ("level3/42", "A100", 2.05, False, False, True),  # a wrong kernel
        ("level3/42", "H100", 8.0, False, False, None),
        ("other", "A100", 1.0, False, True, False),
        ("other", "A100", 2.05, True, False, False),
        ("other", "A100", 4.0, False, False, True),
        ("other", "H100", 1.0, False, True, None),
        ("other", "H100", 8.0, False, False, None),
    ]


@pytest.mark.slow
def test_the_report_counts_as_the_view_does(measured_lake: store.Lake) -> None:
    answers = {
        name: panels.ask(measured_lake, f"report/{name}")
        for name in (
            "claims_checked", "claims_fallen", "claims_points", "published_stages", "case_studies"
        )
    }  # fmt: skip
    checked = {(row["source"], row["gpu"]): row for row in answers["claims_checked"]}
    ours = checked["others", "A100"]
    assert (ours["judged"], ours["holds"], ours["exceeded"], ours["falls"]) == (2, 0, 1, 1)
    elsewhere = checked["cuda-l1", "H100"]
    assert (elsewhere["falls"], elsewhere["wrong"]) == (None, 1)
    fallen = answers["claims_fallen"]
    assert [(row["task"], row["gpu"], row["claimed"]) for row in fallen] == [
        ("other", "A100", 4.0),
        ("level3/42", "A100", 2.05),
    ]
    points = {(row["gpu"], row["claimed"]): row["outcome"] for row in answers["claims_points"]}
    assert points == {
        ("A100", 2.05): "holds",
        ("A100", 1.0): "exceeded",
        ("A100", 4.0): "falls",
        ("H100", 1.0): "faster here",
        ("H100", 8.0): "slower here",
    }
    assert len(answers["published_stages"]) == 13
    assert len(answers["case_studies"]) == 6


def test_case_studies_show_quiet_sessions_alone(measured_lake: store.Lake) -> None:
    rows = story.read_story(measured_lake).steps[9].rows.to_pylist()
    assert [(row["task"], row["gpu"], row["measured"], row["ours"]) for row in rows] == [
        ("level3/35", "A100", 2.0, "holds"),
        ("level3/35", "H100", 2.0, "slower here"),
        ("level3/41", "A100", None, "correct, no quiet session"),
        ("level3/41", "H100", None, "correct, no quiet session"),
        ("level3/42", "A100", None, "incorrect"),
        ("level3/42", "H100", None, "incorrect"),
    ]
    assert (rows[0]["paper"], rows[2]["paper"]) == (3.42, None)


def test_the_headline_has_a_row_for_each_precision_and_clock(measured_lake: store.Lake) -> None:
    [row] = story.read_story(measured_lake).steps[7].rows.to_pylist()
    # The claims for the A100 alone, each with the outcome of its kernel.
    assert (row["device"], row["clock"], row["judged"], row["correct"]) == ("A100", "gpu", 4, 3)
    assert (row["quiet"], row["exceeded"], row["slower"], row["median_measured"]) == (2, 0, 0, 2.0)


def test_the_stage_table_stands_beside_our_rows(measured_lake: store.Lake) -> None:
    rows = story.read_story(measured_lake).steps[8].rows.to_pylist()
    paper = [(row["policy"], row["mean"], row["faster"]) for row in rows if row["n"] is None]
    assert paper[:9] == [
        ("Llama-3.1-405B", 0.23, None),
        ("DeepSeek-R1", 0.88, 18),
        ("DeepSeek-R1 evolve", 1.41, 162),
        ("CUDA-L1 stage 1", 1.14, 50),
        ("CUDA-L1 stages 1 + 2", 1.36, 175),
        ("CUDA-L1 GRPO without exemplars", 2.41, 207),
        ("CUDA-L1, random exemplars", 2.14, 186),
        ("CUDA-L1, island exemplars", 3.21, 223),
        ("CUDA-L1", 3.12, 226),
    ]
    ours = [row for row in rows if row["stated_by"] == "this lake"]
    assert [row["stages"] for row in ours] == [
        "base", "stage 1", "stages 1 + 2", "stages 1 + 2 + 3",
    ]  # fmt: skip
    assert {row["policy"] for row in ours[:3]} == {"no kernel of this stage was judged here"}
    last = ours[3]
    assert (last["policy"], last["device"], last["tasks"], last["success"], last["n"]) == (
        "CUDA-L1", "A100", 4, 3, 2,
    )  # fmt: skip
    assert (last["mean"], last["mean_missing_as_1"]) == (2.0, 1.5)


@pytest.fixture(scope="module")
def published_steps(tmp_path_factory: pytest.TempPathFactory) -> list[story.Step]:
    """Return the steps of the story over a lake with the published figures alone."""
    url = str(tmp_path_factory.mktemp("published") / "lake")
    with store.writer(url, author="tests") as writer:
        run_import(writer, published, None, published.Config())
        with writer.reader() as lake:
            return list(story.read_story(lake).steps)


@pytest.mark.slow
def test_a_lake_without_our_rows_says_so(published_steps: list[story.Step]) -> None:
    steps = published_steps
    ours = [row for row in steps[8].rows.to_pylist() if row["stated_by"] == "this lake"]
    assert len(ours) == 4
    assert {row["policy"] for row in ours} == {"no kernel of this stage was judged here"}
    assert "run: store import cuda-l1 PATH" in steps[9].sentence


@pytest.mark.slow
def test_the_first_versions_means_are_known_for_every_gpu(
    published_steps: list[story.Step],
) -> None:
    first = published_steps[0].rows.to_pylist()
    assert {row["gpu"]: row["mean"] for row in first} == {
        "A100": 17.7, "H100": 17.8, "RTX 3090": 19.0, "L40": 16.5, "H800": 14.7, "H20": 13.9,
    }  # fmt: skip
