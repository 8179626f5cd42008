"""Views about versions of the judge, costs, first solutions and repairs; figures are by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import builders as b
import pytest

import store

TASK, OTHER = b.task("square"), b.task("cube")
GPU = b.device("H200", kind="cuda")
WRITER, SCRIPT = b.policy("writer"), b.policy("script", kind="script")
BROKEN, CLOSE, FAR, CHEAT, FLAKY = (
    b.kernel(name) for name in ("broken", "close", "far", "cheat", "flaky")
)


def judge(
    kernel: b.Row, task: b.Row, status: str = "correct", version: int = 1, minute: float = 0
) -> b.Row:
    reason = {"correct": None, "rejected": "timer_mismatch"}.get(status, "incorrect_numerical")
    return b.evaluation(
        kernel, task, b.workload(task), GPU, status, evaluator="judge", version=version,
        minute=minute, reason=reason, wall_s=10.0, parts_s=json.dumps({"waiting": 4.0}),
    )  # fmt: skip


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a lake in which a writer fails twice, is right twice, and cheats once."""
    url = str(tmp_path_factory.mktemp("answers") / "lake")
    attempts = [(BROKEN, 0), (CHEAT, 1), (None, 2), (FAR, 3), (CLOSE, 4)]
    tokens: dict[str, Any] = {"prompt_tokens": 100, "completion_tokens": 50, "cost_usd": 0.5}
    with store.writer(url, author="tests") as writer:
        writer.append(
            {
                "tasks": [TASK, OTHER],
                "task_labels": [b.label(TASK), b.label(OTHER, "level1/2")],
                "workloads": [b.workload(TASK), b.workload(OTHER)],
                "devices": [GPU],
                "kernels": [BROKEN, CLOSE, FAR, CHEAT, FLAKY],
                "kernel_features": [
                    b.features(BROKEN, minhash_bands=[1, 2, 3, 4]),
                    b.features(CHEAT, minhash_bands=[1, 2, 3, 9]),
                    b.features(FAR, minhash_bands=[1, 6, 7, 8]),
                    b.features(CLOSE, minhash_bands=[1, 2, 3, 5]),
                    b.features(FLAKY, minhash_bands=[1, 2, 3, 4]),
                ],
                "policies": [WRITER, SCRIPT],
                "generations": [
                    *(
                        b.generation(WRITER, TASK, kernel, minute=minute, **tokens)
                        for kernel, minute in attempts
                    ),
                    b.generation(WRITER, TASK, minute=0.5, finish_reason="error", **tokens),
                    b.generation(SCRIPT, OTHER, FLAKY),
                ],
                "evaluations": [
                    judge(BROKEN, TASK, "incorrect"),
                    judge(CHEAT, TASK, "rejected"),
                    judge(FAR, TASK),
                    judge(CLOSE, TASK),
                    judge(FLAKY, OTHER, version=1, minute=1),
                    judge(FLAKY, OTHER, "incorrect", version=1, minute=0),
                    judge(FLAKY, OTHER, version=2, minute=2),
                    judge(FLAKY, OTHER, version=3, minute=3),
                    judge(FLAKY, OTHER, "incorrect", version=3, minute=4),
                ],
            },
            "rows",
        )
    with store.open(url) as opened:
        yield opened


def test_a_regression_is_between_two_versions(lake: store.Lake) -> None:
    # Version 1 failed once, so that version 2 is no change for the worse.
    [row] = lake.sql("FROM regressions").rows()
    assert (row["kernel_id"], row["task"], row["device"]) == (
        FLAKY["kernel_id"],
        "level1/2",
        "H200",
    )
    assert (row["previous_version"], row["evaluator_version"]) == (2, 3)
    assert (row["status"], row["reason"]) == ("incorrect", "incorrect_numerical")
    assert row["regressed_at"] == b.at(4)


def test_costs_are_those_of_all_attempts_for_each_correct_kernel(lake: store.Lake) -> None:
    script, writer = lake.sql("FROM author_costs").rows()
    # Six attempts, of which one failed at its endpoint and one has no kernel.
    assert (writer["policy"], writer["attempts"], writer["kernels"]) == ("writer", 6, 4)
    assert (writer["judged"], writer["correct"]) == (4, 2)
    assert writer["tokens_per_correct"] == 6 * 150 / 2
    assert writer["cost_usd_per_correct"] == 6 * 0.5 / 2
    assert writer["device_s_per_correct"] == 4 * (10 - 4) / 2
    assert (script["policy"], script["judged"], script["correct"]) == ("script", 1, 0)
    assert script["tokens_per_correct"] is script["device_s_per_correct"] is None
    assert script["device_s"] == 5 * 6


def test_attempts_count_until_the_first_correct_one(lake: store.Lake) -> None:
    script, writer = lake.sql("FROM first_correct").rows()
    # The attempt that its endpoint failed is none; the one without a kernel counts.
    assert (writer["policy"], writer["task"], writer["attempts"]) == ("writer", "level1/1", 5)
    assert (writer["judged"], writer["correct"], writer["attempts_until_correct"]) == (4, 2, 4)
    assert writer["kernel_id"] == FAR["kernel_id"]
    assert (script["attempts"], script["correct"], script["attempts_until_correct"]) == (1, 0, None)


def test_the_nearest_later_repair_stands_beside_a_wrong_answer(lake: store.Lake) -> None:
    # A cheat is neither a wrong answer nor a repair, and the far kernel shares one band of four.
    [row] = lake.sql("FROM repairs").rows()
    assert (row["kernel_id"], row["status"]) == (BROKEN["kernel_id"], "incorrect")
    assert (row["repair_kernel_id"], row["similarity"]) == (CLOSE["kernel_id"], 0.75)
    assert (row["policy"], row["repair_policy"]) == ("writer", "writer")
    assert (row["written_at"], row["repaired_at"]) == (b.at(0), b.at(4))
