"""Claims on weak tasks, and of kernels that compute another function, are counted alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders as b
import pytest
from panels import ask

import store
from store.explore.report import answer_section, list_sections
from store.headlines import story

HONEST, RENAMED, CONSTANT, WRONG, WEAK_AND_WRONG = (
    "level3/35", "level1/12", "level2/83", "level3/41", "level3/42",
)  # fmt: skip
TASKS = (HONEST, RENAMED, CONSTANT, WRONG, WEAK_AND_WRONG)


@pytest.fixture(scope="module")
def lake_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a lake with five claims of 2x for the A100, each on a kernel of another kind.

    Three kernels are correct and reach 2x on the A100 and 4x on the H100: the honest one, one that
    is not equivalent, and one on a weak task. Two fail, one of them on a weak task.
    """
    tasks = {name: b.task(name) for name in TASKS}
    kernels = {name: b.kernel(name) for name in TASKS}
    sizes = {name: b.workload(task) for name, task in tasks.items()}
    devices = [b.device("A100", kind="cuda"), b.device("H100", kind="cuda")]
    speedups = {
        device["device_id"]: speedup for device, speedup in zip(devices, (2.0, 4.0), strict=True)
    }
    verdicts = [
        b.evaluation(kernels[name], tasks[name], sizes[name], device, "incorrect")
        if name in (WRONG, WEAK_AND_WRONG)
        else b.evaluation(
            kernels[name], tasks[name], sizes[name], device, equivalent=name != RENAMED
        )
        for device in devices
        for name in TASKS
    ]
    timings = [
        row
        for made in verdicts
        if made["status"] == "correct"
        for row in b.session(made, [1.0] * 8, eager=[speedups[made["device_id"]]] * 8)
    ]
    policy = b.policy("CUDA-L1", policy_id="cuda-l1", kind="released")
    url = str(tmp_path_factory.mktemp("claims") / "lake")
    with store.writer(url, author="tests") as writer:
        writer.append(
            {
                "tasks": list(tasks.values()),
                "task_labels": [
                    b.label(task, name, degenerate=name in (CONSTANT, WEAK_AND_WRONG))
                    for name, task in tasks.items()
                ],
                "policies": [policy],
                "kernels": list(kernels.values()),
                "workloads": list(sizes.values()),
                "devices": devices,
                "evaluations": verdicts,
                "timings": timings,
                "claims": [
                    b.claim(tasks[name], kernels[name], 2.0, source="cuda-l1", policy_id="cuda-l1")
                    for name in TASKS
                ],
            },
            message="claims of every kind",
        )
    return url


@pytest.fixture(scope="module")
def lake(lake_url: str) -> Iterator[store.Lake]:
    with store.open(lake_url) as opened:
        yield opened


def compare(lake: store.Lake, device: str = "A100") -> dict[str, tuple[Any, ...]]:
    """Return by task: equivalent, weak, and what the measurement on a device says of the claim."""
    found = lake.sql(
        "SELECT task, equivalent, weak, measured, holds, exceeded, falls FROM claims_vs_measured "
        f"WHERE device = '{device}'"
    ).rows()
    return {row.pop("task"): tuple(row.values()) for row in found}


def test_another_function_and_weak_tasks_neither_confirm_nor_refute_a_claim(
    lake: store.Lake,
) -> None:
    assert compare(lake) == {
        HONEST: (True, False, 2.0, True, False, False),
        RENAMED: (False, False, None, None, None, None),
        CONSTANT: (True, True, None, None, None, None),
        WRONG: (True, False, None, False, False, True),
        WEAK_AND_WRONG: (True, True, None, None, None, None),
    }
    # On a GPU of another kind, a claim that is faster by half is exceeded and does not fall.
    elsewhere = compare(lake, "H100")
    assert elsewhere[HONEST] == (True, False, 4.0, False, True, None)
    assert elsewhere[RENAMED] == (False, False, None, None, None, None)


@pytest.mark.slow
def test_options_compare_these_claims(lake_url: str) -> None:
    with store.open(lake_url, include=("nonequivalent",)) as opened:
        found = compare(opened)
        assert found[RENAMED] == (True, False, 2.0, True, False, False)
        assert found[CONSTANT] == (True, True, None, None, None, None)
    with store.open(lake_url, include=("weak_tasks",)) as opened:
        found = compare(opened)
        assert found[CONSTANT] == (True, False, 2.0, True, False, False)
        assert found[WEAK_AND_WRONG] == (True, False, None, False, False, True)


def test_case_studies_say_why_a_claim_is_not_compared(lake: store.Lake) -> None:
    rows = lake.sql("SELECT task, measured, ours FROM case_studies WHERE device = 'A100'").rows()
    assert {row["task"]: (row["measured"], row["ours"]) for row in rows} == {
        HONEST: (2.0, "holds"),
        RENAMED: (None, "another function"),
        CONSTANT: (None, "trivial task"),
        WRONG: (None, "incorrect"),
        WEAK_AND_WRONG: (None, "trivial task"),
    }


def test_cross_gpu_and_its_chart_leave_both_out(lake: store.Lake, lake_url: str) -> None:
    names = "SELECT task, ratio FROM cross_gpu ORDER BY task"
    assert lake.sql(names).rows() == [{"task": HONEST, "ratio": 2.0}]
    points = ask(lake, "report/transfer_points")
    assert [(row["speedup_a"], row["speedup_b"]) for row in points] == [(2, 4)]
    assert [row["n"] for row in ask(lake, "report/transfer")] == [1]
    with store.open(lake_url, include=("nonequivalent", "weak_tasks")) as opened:
        assert [row["task"] for row in opened.sql(names).rows()] == [RENAMED, CONSTANT, HONEST]


def test_the_headline_counts_both_in_columns_of_their_own(lake: store.Lake) -> None:
    steps = story.read_story(lake).steps
    row = next(one for one in steps[6].rows.to_pylist() if one["device"] == "A100")
    assert (row["judged"], row["correct"]) == (5, 3)
    assert (row["weak"], row["another_function"], row["timed"]) == (2, 1, 1)
    assert (row["claims_that_hold"], row["exceeded"], row["falls"]) == (1, 0, 1)
    [clock] = steps[7].rows.to_pylist()
    assert (clock["judged"], clock["correct"], clock["quiet"]) == (5, 3, 1)
    assert (clock["weak"], clock["another_function"]) == (2, 1)


def test_the_report_counts_both_in_words_of_their_own(lake: store.Lake) -> None:
    row = next(one for one in ask(lake, "report/claims_checked") if one["device"] == "A100")
    assert (row["judged"], row["holds"], row["exceeded"], row["falls"]) == (5, 1, 0, 1)
    assert (row["wrong"], row["another function"], row["weak"]) == (1, 1, 2)
    assert (row["no quiet session"], row["n"]) == (0, 1)
    assert {one["outcome"] for one in ask(lake, "report/claims_points")} == {"holds", "faster here"}
    assert [one["task"] for one in ask(lake, "report/claims_fallen")] == [WRONG]


def test_the_report_says_how_many_weak_tasks_its_figures_leave_out(lake: store.Lake) -> None:
    for section in list_sections(lake):
        if section.title in ("Speedup", "Best kernels"):
            answer = answer_section(lake, section)
            assert "2 trivial tasks, which an answer without their inputs passes" in answer.about
            assert "1 kernel that computes a different function" in answer.about
    assert {row["n"] for row in ask(lake, "report/quantiles")} == {1}


@pytest.mark.slow
def test_a_suspect_has_no_speedup_from_another_function(tmp_path: Path) -> None:
    task, kernel, gpu = b.task(), b.kernel("suspect"), b.device("A100", kind="cuda")
    other = b.task("other")
    made = [
        b.evaluation(kernel, one, b.workload(one), gpu, equivalent=one is other)
        for one in (task, other)
    ]
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        writer.append(
            {
                "tasks": [task, other], "kernels": [kernel], "devices": [gpu],
                "workloads": [b.workload(task), b.workload(other)], "evaluations": made,
                "timings": [
                    *b.session(made[0], [1.0] * 8, eager=[9.0] * 8),
                    *b.session(made[1], [1.0] * 8, eager=[3.0] * 8),
                ],
                "findings": [b.finding(kernel)],
            },
            message="a suspect",
        )  # fmt: skip
        with writer.reader() as lake:
            assert [row["speedup"] for row in lake.sql("FROM suspects").rows()] == [3.0]
