"""What kernels do at other shapes is counted, ranks nothing, and can be asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders as b
import commands
import pytest

import store
from store.lake.sql_files import list_views

TASK = b.task()
GPU = b.device("H200", kind="cuda")
OWN = b.workload(TASK)
ONE = b.workload(TASK, "ROWS=1", '{"ROWS": 1}')
ODD = b.workload(TASK, "ROWS=31", '{"ROWS": 31}')
HOLDS, WRONG, RAISES, UNTRIED = (b.kernel(name) for name in ("holds", "wrong", "raises", "untried"))
SPEEDUPS = {"holds": 1.25, "wrong": 8.0, "raises": 4.0, "untried": 2.0}
KNOWS_SHAPES = {
    "shape_verdicts", "shapes", "standing_evaluations", "commits",
    "session_speedups", "session_arms", "clocked_timings", "paired_samples", "unranked_sessions",
    "speedups_cuda_l1", "speedups_kernelbench",
}  # fmt: skip


def verdict(
    kernel: b.Row, workload: b.Row, speedup: float | None, **options: Any
) -> dict[str, Any]:
    """Return a verdict with a session that shows this speedup over eager."""
    row = b.evaluation(kernel, TASK, workload, GPU, evaluator="judge", **options)
    columns = {"disturbed": False, "unresolved": False}
    timings = [] if speedup is None else b.session(row, [1.0] * 9, eager=[speedup] * 9)
    return {"evaluations": [row], "timings": [one | columns for one in timings]}


def at_shape(kernel: b.Row, workload: b.Row, speedup: float | None = None, **o: Any) -> Any:
    options: dict[str, Any] = {"protocol": "shape", "version": 2}
    return verdict(kernel, workload, speedup, **options | o)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a lake with a kernel that holds, a wrong one, one that raises, and an untried one."""
    url = str(tmp_path_factory.mktemp("shapes") / "lake")
    kernels = [HOLDS, WRONG, RAISES, UNTRIED]
    author = b.policy("writer")
    with store.writer(url, author="tests") as writer:
        writer.append(
            {
                "tasks": [TASK],
                "task_labels": [b.label(TASK)],
                "workloads": [OWN, ONE, ODD],
                "devices": [GPU],
                "kernels": kernels,
                "policies": [author],
                "generations": [b.generation(author, TASK, kernel) for kernel in kernels],
            },
            "kernels",
        )
        failed: dict[str, Any] = {"status": "incorrect", "reason": "incorrect_numerical"}
        raised: dict[str, Any] = {
            "status": "crash",
            "reason": "exception",
            "message": "AssertionError: 32 rows",
        }
        for number, rows in enumerate(
            [
                *(verdict(one, OWN, SPEEDUPS[name], minute=1) for one, name in zip(
                    kernels, SPEEDUPS, strict=True
                )),
                at_shape(HOLDS, ONE, minute=2),
                at_shape(HOLDS, ODD, 77.0, minute=3),
                at_shape(HOLDS, ODD, 66.0, minute=4, flags=["contended"]),
                at_shape(WRONG, ONE, minute=2),
                at_shape(WRONG, ODD, minute=3, **failed),
                at_shape(WRONG, ODD, minute=4),
                at_shape(RAISES, ONE, minute=2, **raised),
                at_shape(RAISES, ODD, 55.0, minute=3),
                # A version before, and a fault of the judge, count for nothing.
                at_shape(HOLDS, ONE, minute=0, version=1, **failed),
                at_shape(HOLDS, ONE, minute=5, status="evaluator_error", reason="internal"),
            ]
        ):  # fmt: skip
            writer.append(rows, f"verdict {number}")
    return url


@pytest.fixture
def lake(url: str) -> Iterator[store.Lake]:
    """Return the lake."""
    with store.open(url) as opened:
        yield opened


@pytest.mark.slow
def test_views_count_what_holds_and_the_worst_speedup(lake: store.Lake) -> None:
    rows = lake.sql("SELECT * EXCLUDE (task_id, device) FROM shapes").rows()
    found = {row.pop("kernel_id"): row for row in rows}
    assert found == {
        HOLDS["kernel_id"]: {
            "tried": 2, "held": 2, "wrong": 0, "raises": 0, "worst": pytest.approx(77.0),
            "holds": True, "shapes": "2 of 2, worst 77.00x",
        },
        WRONG["kernel_id"]: {
            "tried": 2, "held": 1, "wrong": 1, "raises": 0, "worst": None,
            "holds": False, "shapes": "1 of 2, 1 wrong",
        },
        RAISES["kernel_id"]: {
            "tried": 2, "held": 1, "wrong": 0, "raises": 1, "worst": pytest.approx(55.0),
            "holds": False, "shapes": "1 of 2, 1 raising, worst 55.00x",
        },
    }  # fmt: skip


@pytest.mark.slow
def test_no_view_that_ranks_shows_a_shape(lake: store.Lake) -> None:
    evaluations = "SELECT evaluation_id FROM evaluations WHERE protocol = 'shape'"
    ids = [row["evaluation_id"] for row in lake.run(evaluations).rows()]
    hidden = [*ids, ONE["workload_id"], ODD["workload_id"]]
    for name in set(list_views()) - KNOWS_SHAPES:
        text = str(lake.run(f'FROM "{name}"').rows())
        assert not any(one in text for one in hidden), name
    ranked = lake.sql("SELECT kernel_id, speedup FROM kernel_speedups WHERE ranked").rows()
    assert len(ranked) == 4
    [best] = lake.sql("SELECT kernel_id FROM best_kernels").rows()
    assert best["kernel_id"] == WRONG["kernel_id"]


@pytest.mark.slow
def test_a_ranking_of_kernels_that_hold_is_asked_for(url: str, lake: store.Lake) -> None:
    best = "SELECT kernel_id FROM best_kernels"
    with store.open(url, include=["unheld"]) as held:
        assert held.sql(best).rows() == [{"kernel_id": HOLDS["kernel_id"]}]
        assert held.count_left_out(best)["unheld"] == 3
        [row] = held.sql("SELECT n FROM leaderboard WHERE level IS NULL AND policy = 'any'").rows()
        assert row["n"] == 1
        [row] = held.sql("SELECT count(*) AS n FROM kernel_speedups WHERE ranked").rows()
        assert row["n"] == 1
    assert lake.count_left_out(best) == {"nonequivalent": 0, "weak_tasks": 0}


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("option", "kernel", "note"),
    [([], WRONG, ""), (["--shapes", "held"], HOLDS, "3 kernels that fail at another shape")],
)
def test_the_option_of_a_query(
    url: str, tmp_path: Path, option: list[str], kernel: b.Row, note: str
) -> None:
    line = ["store", "query", "SELECT kernel_id FROM best_kernels", "--lake", url, *option]
    answer = commands.run([*line, "--format", "csv"], cwd=tmp_path)
    assert answer.stdout.split() == ["kernel_id", kernel["kernel_id"]]
    assert note in answer.stderr
