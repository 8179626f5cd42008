"""Requests for some tasks: the rows of a request for all tasks, from the rows of these alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import builders
import pytest
from lake_places import LakePlaces
from pipeline_lakes import Known, Rows, add_small_rows, code_of

import store
from pipelines import (
    contrastive_batch,
    improvement_pairs,
    preference_pairs,
    query,
    repair_pairs,
    rl_prompts,
    self_supervised,
    sft,
)
from pipelines.contract import Purpose, Request
from pipelines.datasets.job import Job
from pipelines.datasets.materialize import select_rows
from store.errors import DatasetError, EmptyDataset

PURPOSES: tuple[Purpose, ...] = ("train", "eval")
SELECTIONS: list[tuple[ModuleType, dict[str, Any]]] = [
    *((contrastive_batch, {"strategy": arm, "per_task": 3}) for arm in ("bucket", "random", "top")),
    (contrastive_batch, {"strategy": "island", "per_task": 4, "exemplars": 1, "islands": 2}),
    (contrastive_batch, {"strategy": "shuffled"}),
    (contrastive_batch, {"strategy": "none"}),
    (contrastive_batch, {"evidence": "claimed", "exemplars": 3}),
    (contrastive_batch, {"namespace": "mine", "per_task": 3}),
    (improvement_pairs, {}),
    (preference_pairs, {}),
    (repair_pairs, {}),
    (rl_prompts, {}),
    (self_supervised, {}),
    (self_supervised, {"select": "successes", "per_policy": 9}),
    (sft, {"per_policy": 9}),
]


@pytest.fixture(scope="module")
def crossed_lake(
    places: LakePlaces, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[store.Lake, Known]]:
    """Return a lake in which other tasks decide whether a kernel may be shown, and its ids."""
    rows = Rows()
    rows.device()
    rows.policy("writer", stage="base", round=0)
    known = add_small_rows(rows)
    rows.policy("student", stage="self-supervised", round=1)
    # A kernel of a training task that also answers a test task, and a near copy of a test kernel.
    rows.add_attempt(known.kernels["relu.c"], known.held_out)
    for task, bands, name in (
        (known.held_out, range(900, 916), "shape"),
        (known.sigmoid, [*range(900, 912), 1, 2, 3, 4], "near"),
        # A kernel that only another task shows to be a cheat, and a copy of it for a third task.
        (known.tanh, range(500, 516), "cheat"),
        (known.relu, range(500, 516), "copy"),
        (known.tanh, range(700, 716), "plain"),
        (known.sigmoid, [*range(700, 714), 8, 9], "plain"),
    ):
        kernel = rows.kernel(task, code_of(name, task[:6]), bands=list(bands))
        rows.add_session(task, kernel, 3.3, reason=None)
        rows.claim(task, kernel, 2.5)
        if name == "cheat":
            rows.quarantine(kernel)
    both = rows.kernel(known.relu, code_of("relu", "both"))
    rows.add_attempt(both, known.tanh, "student")
    rows.add_session(known.relu, both, 1.9)
    rows.add_session(known.tanh, both, 2.9, flags=["another_function"], equivalent=False)
    rows.add_verdict(known.sigmoid, both, "incorrect", reason="incorrect_numerical")
    url = places.choose_url(tmp_path_factory.mktemp("crossed") / "lake")
    with store.writer(url, author="tests") as writer:
        writer.append(rows.tables, "tests")
    with store.open(url) as lake:
        yield lake, known


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(("module", "options"), SELECTIONS)
def test_rows_of_some_tasks_are_those_of_a_request_for_all(
    crossed_lake: tuple[store.Lake, Known],
    make_job: Callable[..., Job],
    module: ModuleType,
    options: dict[str, Any],
) -> None:
    lake, known = crossed_lake
    tasks = [known.relu, known.sigmoid, known.tanh, known.lonely, known.held_out, known.constant]

    def select(purpose: Purpose, wanted: tuple[str, ...] | None) -> list[dict[str, Any]]:
        request = Request(purpose=purpose, seed=5, tasks=wanted)
        try:
            return select_rows(make_job(lake, module, request=request, **options)).rows.to_pylist()
        except EmptyDataset:
            return []

    every = {purpose: select(purpose, None) for purpose in PURPOSES}
    subsets = [*itertools.combinations(tasks, 1), tuple(tasks[:2]), tuple(tasks[2:])]
    for wanted in subsets:
        kept = [row for row in every["train"] if row["task_id"] in wanted]
        assert select("train", wanted) == kept
    assert select("eval", subsets[-1]) == [
        row for row in every["eval"] if row["task_id"] in subsets[-1]
    ]
    assert select("train", ()) == []


@pytest.mark.slow
def test_a_share_of_all_rows_is_refused_for_some_tasks(
    crossed_lake: tuple[store.Lake, Known], make_job: Callable[..., Job]
) -> None:
    lake, known = crossed_lake
    request = Request(tasks=(known.relu,))
    with pytest.raises(DatasetError, match="cannot have an improvement share"):
        select_rows(make_job(lake, sft, request=request, improvement_share=0.2))


def test_only_kernels_of_the_wanted_tasks_are_scored_and_all_tasks_decide_what_is_shown(
    crossed_lake: tuple[store.Lake, Known], make_job: Callable[..., Job]
) -> None:
    lake, known = crossed_lake
    left_out = {
        known.relu: {known.kernels["relu.c"], text_id("copy", known.relu)},
        known.sigmoid: {text_id("near", known.sigmoid)},
    }
    for task, kernels in left_out.items():
        request = Request(tasks=(task,))
        options = {"strategy": "top", "exemplars": 1, "per_task": 20}
        shown = select_rows(make_job(lake, request=request, **options)).rows["kernel_ids"]
        assert len(shown) > 2
        assert not kernels & {kernel for row in shown.to_pylist() for kernel in row or []}
        scored = query(lake, "SELECT task_id, kernel_id FROM scored").to_pylist()
        assert {row["task_id"] for row in scored} == {task}
        assert kernels <= {row["kernel_id"] for row in scored}


def text_id(name: str, task: str) -> str:
    """Return the id of a kernel of the fixture."""
    return str(builders.kernel(code=code_of(name, task[:6]))["kernel_id"])
