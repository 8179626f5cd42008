"""A headline is told from the lake: what is not there is said, what is there is added up in SQL."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders as b
import commands
import pytest

import store
from store.errors import UnknownName
from store.headlines import story
from store.importers import cuda_l1, published
from store.importers.reading.pieces import run_import

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def small_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a lake with two claims of the release, one of them measured, and one orphan score."""
    tasks = [b.task(name) for name in ("square", "cube", "sum")]
    told = [b.kernel("fast"), b.kernel("slow")]
    policy = b.policy("author", policy_id="cuda-l1")
    names = [f"level1/{number}" for number in (1, 2, 3)]
    labels = [b.label(t, name) for t, name in zip(tasks, names, strict=True)]
    claims = [
        b.claim(t, k, speedup, source="cuda-l1", policy_id="cuda-l1")
        for t, k, speedup in zip(tasks, [*told, None], (4.0, 2.0, 9.0), strict=True)
    ]
    gpu, sizes = b.device("A100", kind="cuda"), b.workload(tasks[0])
    judged = b.evaluation(told[0], tasks[0], sizes, gpu)
    with store.writer(str(tmp_path_factory.mktemp("small") / "lake"), author="tests") as writer:
        writer.append(
            {
                "tasks": tasks,
                "task_labels": labels,
                "policies": [policy],
                "kernels": told,
                "kernel_features": [b.features(k, parsed=k is told[0]) for k in told],
                "claims": claims,
                "devices": [gpu],
                "workloads": [sizes],
                "evaluations": [judged],
                "timings": b.session(judged, [1.0] * 8, eager=[1.5] * 8),
            },
            message="a small release",
        )
        with writer.reader() as lake:
            yield lake


def rows(told: story.Story, start: str) -> list[dict[str, Any]]:
    (step,) = [step for step in told.steps if step.title.startswith(start)]
    return step.rows.to_pylist()


def test_three_readings_of_a_missing_kernel(small_lake: store.Lake) -> None:
    (recomputed,) = rows(story.read_story(small_lake), "Recomputed")
    assert recomputed["mean_with_code"] == 3.0
    assert recomputed["mean_scored"] == 5.0
    assert recomputed["mean_missing_as_1"] == 5.0  # three tasks, all of them scored
    assert (recomputed["with_code"], recomputed["scored"], recomputed["tasks"]) == (2, 3, 3)
    assert recomputed["published"] is None


def test_rows_that_do_not_hold_are_named_and_left_out(small_lake: store.Lake) -> None:
    told = story.read_story(small_lake)
    assert [(row["reason"], row["rows"]) for row in rows(told, "Rows that")] == [
        ("a score without code", 1),
        ("the released text is cut off and is not valid Python", 1),
    ]
    (left,) = rows(told, "Without")
    assert (left["mean"], left["n"], left["left_out"]) == (4.0, 1, 2)


def test_measured_rows_stand_beside_their_claims(small_lake: store.Lake) -> None:
    (measured,) = rows(story.read_story(small_lake), "Measured")
    assert (measured["judged"], measured["correct"], measured["timed"]) == (1, 1, 1)
    assert (measured["median_claimed"], measured["median_measured"]) == (4.0, 1.5)
    assert (measured["claims_that_hold"], measured["exceeded"], measured["falls"]) == (0, 0, 1)


def test_a_step_is_known_by_its_text_and_the_story_by_its_snapshot(small_lake: store.Lake) -> None:
    told = story.read_story(small_lake)
    assert (told.lake_id, told.snapshot) == (small_lake.lake_id, small_lake.snapshot)
    files = sorted((story.FOLDER / "cuda_l1").glob("*.sql"))
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    assert [step.sql_sha256 for step in told.steps] == hashes


def test_an_empty_lake_says_what_to_run(lake_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    store.writer(lake_url, author="tests").close()
    with store.open(lake_url) as lake:
        story.print_story(story.read_story(lake))
    text = capsys.readouterr().out
    assert "run: store import published" in text
    assert "run: store import cuda-l1 PATH" in text
    assert "Nothing measured yet" in text


def test_an_unknown_headline_is_refused_with_a_suggestion(small_lake: store.Lake) -> None:
    with pytest.raises(UnknownName, match="cuda-l1"):
        story.read_story(small_lake, "cuda-l2")


@pytest.mark.slow
def test_the_command_prints_text_with_sql_and_json(small_lake: store.Lake) -> None:
    def run(*options: str) -> str:
        words = ["store", "headline", "--lake", small_lake.url, *options]
        done = commands.run(words, cwd=ROOT)
        assert done.returncode == 0, done.stderr
        return done.stdout

    text = run()
    assert "3. Recomputed from the released rows" in text
    assert "| FROM scores CROSS JOIN suite" in text
    told = json.loads(run("--format", "json"))
    assert told["snapshot"] == small_lake.snapshot
    assert told["steps"][6]["rows"][0]["median_measured"] == 1.5


@pytest.mark.slow
def test_the_story_of_the_real_release(tmp_path: Path) -> None:
    named = os.environ.get("FLYWHEEL_CUDA_L1")
    folder = Path(named) if named else ROOT.parent / "shared" / "data" / "cuda-l1"
    if not folder.is_dir():
        pytest.skip("the CUDA-L1 release is not on disk; name its folder in FLYWHEEL_CUDA_L1")
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        run_import(writer, cuda_l1, folder, cuda_l1.Config(source_revision="51e8356"))
        run_import(writer, published, None, published.Config())
        with writer.reader() as lake:
            told = story.read_story(lake)
            between = {row["gpu"]: row for row in rows(told, "One row, between")}
            h100 = between["H100"]
            assert (h100["july"], h100["november"], h100["recomputed"]) == (2.39, 3.85, 3.855)
            assert (h100["highest_row"], h100["without_it"]) == ("level2/96", 2.386)
    assert [(row["gpu"], row["mean"], row["highest"]) for row in rows(told, "Published,")] == [
        ("A100", 17.7, 449),
        ("H100", 17.8, None),
        ("H20", 13.9, None),
        ("H800", 14.7, None),
        ("L40", 16.5, None),
        ("RTX 3090", 19.0, None),
    ]
    again = rows(told, "Published again")[0]
    assert (again["gpu"], again["mean"], again["highest"]) == ("A100", 3.12, 120)
    assert (again["median"], again["faster"]) == (1.42, 226)
    recomputed = rows(told, "Recomputed")[0]
    means = ("published", "mean_with_code", "mean_scored", "mean_missing_as_1")
    assert [recomputed[name] for name in means] == [3.12, 3.14, 3.05, 2.97]
    without = {row["gpu"]: row for row in rows(told, "Without")}
    assert (without["A100"]["mean"], without["A100"]["geomean"]) == (2.09, 1.65)
    assert (without["H100"]["mean"], without["H100"]["highest"]) == (1.85, 15.926)
    # Both tables leave out the same rows.
    doubted = sum(row["rows"] for row in rows(told, "Rows that"))
    assert doubted == sum(row["left_out"] for row in without.values()) == 109
    assert rows(told, "Measured") == []
