"""Prompts of a training step: what each arm shows, and that a step can be rendered again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import builders
import pytest
from pipeline_lakes import Known, Rows, add_small_rows

import store
import trainers
from pipelines import Strategy
from store.errors import LeakageFound
from trainers.rollouts.prompts import (
    Draw,
    derive_step_seed,
    render_bare_prompts,
    render_prompts,
)

DRAW = Draw(
    arm="bucket",
    exemplars=2,
    temperature=1.0,
    bucket_width=0.25,
    islands=3,
    baseline="eager",
    device="H200",
)


@pytest.fixture(scope="module")
def lake_and_known(
    empty_lake: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[store.Lake, Known]]:
    """Return the small lake of the pipelines' tests, and its ids by role."""
    url = tmp_path_factory.mktemp("exemplars") / "lake"
    shutil.copytree(empty_lake, url)
    rows = Rows()
    rows.device()
    rows.policy("writer")
    known = add_small_rows(rows)
    run = rows.add("runs", builders.run("contrastive", "training"))
    shown = [(rows.known[known.kernels["relu.a"]], 1.42)]
    for minute in (0, 10_000):
        attempt = builders.generation(
            rows.known["writer"],
            rows.known[known.relu],
            exemplars=shown,
            minute=minute,
            run_id=run["run_id"],
            group_id=str(minute),
        )
        rows.add("generations", attempt)
    with store.writer(str(url), author="tests") as writer:
        writer.append(rows.tables, "tests")
    with store.open(str(url)) as lake:
        yield lake, known


@pytest.fixture
def lake(lake_and_known: tuple[store.Lake, Known]) -> store.Lake:
    """Return the lake."""
    return lake_and_known[0]


@pytest.fixture
def known_ids(lake_and_known: tuple[store.Lake, Known]) -> Known:
    """Return the ids by role."""
    return lake_and_known[1]


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("arm", ["bucket", "random", "island", "top", "shuffled"])
def test_an_arm_shows_kernels_of_the_task_with_scores(
    lake: store.Lake, known_ids: Known, arm: Strategy
) -> None:
    draw = replace(DRAW, arm=arm)
    wanted = [known_ids.relu, known_ids.lonely, known_ids.sigmoid, known_ids.relu]
    asked = render_prompts(lake, draw, 1, wanted)
    assert [one.task_id for one in asked] == wanted
    speeds = {known_ids.kernels[name]: speed for name, speed in SPEEDS.items()}
    for one in (asked[0], asked[2], asked[3]):
        assert 1 <= len(one.exemplar_kernel_ids) == len(set(one.exemplar_kernel_ids)) <= 2
        true = [speeds[kernel] for kernel in one.exemplar_kernel_ids]
        assert sorted(one.exemplar_scores) == pytest.approx(sorted(true))
        if arm != "shuffled":
            assert one.exemplar_scores == pytest.approx(true)
        for place, score in enumerate(one.exemplar_scores, start=1):
            assert f"### Kernel {place}: {score:.2f}x" in one.messages[0]["content"]
        assert (one.lake_id, one.snapshot_id) == (lake.lake_id, lake.snapshot)
        assert one.purpose == "train"
    assert asked[1].exemplar_kernel_ids == []
    assert "### Kernel 1" not in asked[1].messages[0]["content"]


SPEEDS = {
    "relu.a": 1.42, "relu.b": 1.46, "relu.c": 2.8, "relu.d": 4.1, "relu.e": 0.62,
    "sigmoid.a": 1.1, "sigmoid.b": 1.6, "sigmoid.c": 3.0,
}  # fmt: skip


@pytest.mark.slow
def test_the_same_seed_gives_the_same_prompts_and_another_step_others(
    lake: store.Lake, known_ids: Known
) -> None:
    wanted = [known_ids.relu, known_ids.sigmoid]
    first = render_prompts(lake, DRAW, derive_step_seed(7, 0), wanted)
    assert render_prompts(lake, DRAW, derive_step_seed(7, 0), wanted) == first
    # Which tasks go along decides nothing about a task.
    assert render_prompts(lake, DRAW, derive_step_seed(7, 0), wanted[::-1]) == first[::-1]
    others = [
        render_prompts(lake, DRAW, derive_step_seed(7, step), [known_ids.relu] * 4)
        for step in (1, 2)
    ]
    assert others[0] != others[1]
    assert len({tuple(one.exemplar_kernel_ids) for step in others for one in step}) > 2


@pytest.mark.slow
def test_shuffled_shows_the_same_kernels_with_scores_dealt_out_anew(
    lake: store.Lake, known_ids: Known
) -> None:
    wanted = [known_ids.relu] * 8 + [known_ids.sigmoid] * 4
    true = render_prompts(lake, DRAW, 3, wanted)
    shuffled = render_prompts(lake, replace(DRAW, arm="shuffled"), 3, wanted)
    dealt = set[bool]()
    for one, other in zip(true, shuffled, strict=True):
        assert other.exemplar_kernel_ids == one.exemplar_kernel_ids
        assert sorted(other.exemplar_scores) == sorted(one.exemplar_scores)
        dealt.add(other.exemplar_scores != one.exemplar_scores)
    assert dealt == {True, False}


def test_without_exemplars_nothing_is_shown(lake: store.Lake, known_ids: Known) -> None:
    none = render_prompts(lake, replace(DRAW, arm="none"), 0, [known_ids.relu])
    assert none == render_bare_prompts(lake, DRAW, [known_ids.relu])
    assert (none[0].exemplar_kernel_ids, none[0].exemplar_scores) == ([], [])
    # A device on which nothing was measured has nothing to show.
    assert render_prompts(lake, replace(DRAW, device="A100"), 0, [known_ids.relu])[0].messages


def test_tasks_of_the_test_split_are_refused_in_every_arm(
    lake: store.Lake, known_ids: Known
) -> None:
    for arm, foreign in (
        ("bucket", known_ids.held_out),
        ("none", known_ids.constant),
        ("none", "0" * 64),
    ):
        with pytest.raises(LeakageFound, match=foreign[:12]):
            render_prompts(lake, replace(DRAW, arm=arm), 0, [known_ids.relu, foreign])


def test_kernels_that_cheat_or_are_wrong_are_never_shown(
    lake: store.Lake, known_ids: Known
) -> None:
    shown = {
        kernel
        for one in render_prompts(
            lake, replace(DRAW, arm="random", exemplars=5), 0, [known_ids.relu] * 6
        )
        for kernel in one.exemplar_kernel_ids
    }
    assert shown == {known_ids.kernels[f"relu.{name}"] for name in "abcde"}


def test_the_query_tells_what_was_shown_before_it_was_measured(
    lake: store.Lake, known_ids: Known
) -> None:
    file = Path(trainers.__file__).parent / "training" / "sql" / "exemplars_before.sql"
    rows = lake.sql(file.read_text("utf-8")).rows()
    assert [(row["group_id"], row["shown_late"]) for row in rows] == [("0", True), ("10000", False)]
    assert {row["kernel_id"] for row in rows} == {known_ids.kernels["relu.a"]}
    assert {row["score"] for row in rows} == {1.42}
