"""Verdicts by the protocol training: rewards read them, and nothing that ranks or shows does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import builders as b
import pytest
from lake_places import LakePlaces

import store
from store.lake.sql_files import list_views
from trainers.rewarding.scoring import read_inputs
from trainers.rewards import success

TASK = b.task()
GPU = b.device("H200", kind="cuda")
SIZES = b.workload(TASK)
HONEST, FAST, CHEAT, LATER, OTHER, UNCHECKED = (
    b.kernel(name) for name in ("honest", "fast", "cheat", "later", "another function", "unchecked")
)
READS_TRAINING = {
    "training_evaluations", "training_outcomes", "training_speedups",
    # Views of timing sessions by any protocol. Rankings do not read them.
    "session_speedups", "speedups_cuda_l1", "speedups_kernelbench", "paired_samples",
    "session_arms", "clocked_timings", "timed_arms", "timed_places",
    "unranked_sessions",
    # All evaluations but withdrawn ones, for readers that choose by the protocol themselves.
    "standing_evaluations",
}  # fmt: skip
"""Views in which a kernel that only training has judged may be seen as such."""
KNOWS_ATTEMPTS = {
    "attempted_kernels", "attempted_tasks", "authors", "features", "techniques", "lineage",
    "commits",
}  # fmt: skip
"""Views that tell of kernels whether or not they were judged."""


def judge(
    kernel: b.Row,
    speedup: float | None = None,
    protocol: str | None = "training",
    **options: Any,
) -> dict[str, list[b.Row]]:
    """Return a verdict with a session that shows this speedup over eager."""
    row = b.evaluation(kernel, TASK, SIZES, GPU, protocol=protocol, evaluator="judge", **options)
    timings = [] if speedup is None else b.session(row, [1.0] * 9, eager=[speedup] * 9)
    return {"evaluations": [row], "timings": timings}


@pytest.fixture(scope="module")
def lake(
    places: LakePlaces, empty_url: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[store.Lake]:
    """Return a lake whose fastest kernels only training has judged."""
    url = places.choose_url(tmp_path_factory.mktemp("training") / "lake")
    places.copy(empty_url, url)
    kernels = [HONEST, FAST, CHEAT, LATER, OTHER, UNCHECKED]
    author = b.policy("writer")
    with store.writer(url, author="tests") as writer:
        writer.append(
            {
                "tasks": [TASK],
                "task_labels": [b.label(TASK)],
                "workloads": [SIZES],
                "devices": [GPU],
                "kernels": kernels,
                "policies": [author],
                "generations": [b.generation(author, TASK, kernel) for kernel in kernels],
            },
            "kernels",
        )
        for number, rows in enumerate(
            [
                judge(HONEST, 1.25, None, minute=1),
                judge(FAST, 90.0, minute=2),
                judge(FAST, 95.0, version=99, minute=3),
                judge(CHEAT, 400.0, minute=4, flags=["confirmed_win"], equivalent=True),
                judge(CHEAT, status="rejected", minute=5),
                judge(OTHER, 30.0, minute=6, equivalent=False, flags=["state_differs"]),
                judge(LATER, 50.0, minute=6),
                judge(UNCHECKED, 60.0, minute=6, flags=["timed_outputs_unverified"]),
                judge(LATER, 2.0, "full", minute=7),
            ]
        ):
            writer.append(rows, f"verdict {number}")
    with store.open(url) as opened:
        yield opened


@pytest.mark.slow
def test_no_view_that_ranks_shows_what_training_has_judged(lake: store.Lake) -> None:
    for name in list_views():
        if name in READS_TRAINING | KNOWS_ATTEMPTS:
            continue
        text = str(lake.run(f'FROM "{name}"').rows())
        for kernel in (FAST, CHEAT, OTHER):
            evaluations = [row["evaluation_id"] for row in lake.run(
                "SELECT evaluation_id FROM evaluations WHERE kernel_id = $1", [kernel["kernel_id"]]
            ).rows()]  # fmt: skip
            assert not any(one in text for one in evaluations), name
        assert not any(figure in text for figure in ("30.0", "90.0", "95.0", "400.0", "50.0")), name


def test_the_full_protocol_alone_ranks(lake: store.Lake) -> None:
    ranked = {row["kernel_id"]: row["speedup"] for row in lake.sql("FROM kernel_speedups").rows()}
    assert ranked == {HONEST["kernel_id"]: 1.25, LATER["kernel_id"]: 2.0}
    [best] = lake.sql("SELECT kernel_id, speedup FROM best_kernels").rows()
    assert best == {"kernel_id": LATER["kernel_id"], "speedup": 2.0}
    [row] = lake.sql("SELECT max FROM leaderboard WHERE level IS NULL AND policy = 'any'").rows()
    assert row["max"] == 2.0


def test_training_says_what_the_full_protocol_does_not(lake: store.Lake) -> None:
    found = {row["kernel_id"]: row["status"] for row in lake.sql("FROM training_outcomes").rows()}
    assert found == {
        FAST["kernel_id"]: "correct", OTHER["kernel_id"]: "correct", CHEAT["kernel_id"]: "rejected",
        UNCHECKED["kernel_id"]: "correct",
    }  # fmt: skip
    rows = lake.sql("SELECT kernel_id, speedup FROM training_speedups ORDER BY speedup").rows()
    assert [(row["kernel_id"], row["speedup"]) for row in rows] == [
        (OTHER["kernel_id"], 30.0),
        (FAST["kernel_id"], 95.0),
    ]
    # A cheat that training shows is kept from datasets all the same.
    assert lake.sql("SELECT kernel_id FROM withheld").rows() == [{"kernel_id": CHEAT["kernel_id"]}]


def test_rewards_are_those_of_training_until_the_full_protocol_has_judged(
    lake: store.Lake,
) -> None:
    kernels = {
        "honest": HONEST, "fast": FAST, "cheat": CHEAT, "later": LATER, "other": OTHER,
        "unchecked": UNCHECKED,
    }  # fmt: skip
    author = b.policy("writer")
    attempts = [b.generation(author, TASK, kernel)["generation_id"] for kernel in kernels.values()]
    rows = read_inputs(lake, success.Config(), attempts).to_pylist()
    facts = {n: (r["correct"], r["eager_speedup"]) for n, r in zip(kernels, rows, strict=True)}
    assert facts == {
        "honest": (True, 1.25), "fast": (True, 95.0), "cheat": (False, None), "later": (True, 2.0),
        "other": (False, 30.0), "unchecked": (True, None),
    }  # fmt: skip
