"""Improvement pairs: slower kernels in the prompt, and as the answer one that measured faster."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import builders
import commands
import pytest
from pipeline_lakes import Known, Rows, code_of

import store
from pipelines import improvement_pairs, self_supervised, sft
from pipelines.contract import Request
from pipelines.datasets import materialize
from store.code.completion import parse_completion
from store.errors import DatasetError, EmptyDataset

GOLDEN = Path(__file__).parent / "golden"


def add_timed(
    rows: Rows, task_id: str, code: str, times: Sequence[float], *, policy: str = "writer"
) -> str:
    """Add a kernel of a task with these times (ms) in a session whose eager takes 2 ms."""
    kernel = rows.kernel(task_id, code, policy=policy)
    evaluation = rows.add_verdict(task_id, kernel)
    for row in builders.session(evaluation, times, eager=[2.0] * len(times)):
        rows.add("timings", row)
    return kernel


def describe(rows: Rows, kernel: str, techniques: Sequence[str], bottleneck: str) -> None:
    """Put techniques and the bottleneck of a profile beside a kernel, by its last verdict."""
    [features] = [row for row in rows.tables["kernel_features"] if row["kernel_id"] == kernel]
    features |= {"techniques": list(techniques), "language": "triton"}
    [attempt] = [row for row in rows.tables["generations"] if row["kernel_id"] == kernel]
    rows.add(
        "analyses",
        builders.analysis(
            attempt, kind="profiler", author="profiler", bottleneck=bottleneck, confidence=0.8,
            evaluation_id=rows.tables["evaluations"][-1]["evaluation_id"],
        ),
    )  # fmt: skip


def test_golden_answer_states_what_the_store_knows(rows: Rows, lake_of, make_job, rows_of) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    rows.device("H100")
    for place, (block, ms) in enumerate(((64, 1.6), (256, 0.8), (1024, 0.4))):
        code = f"BLOCK = {block}\n" + code_of("relu", "abc"[place])
        kernel = add_timed(rows, relu, code, [ms] * 9)
        describe(rows, kernel, ["coalesced_access"] * (place == 2), "memory_bandwidth")
        profile = rows.tables["analyses"][-1]
        pulled = {"analysis_id": f"pulled-{place}", "origin": "lab/kernels"}
        later = {"bottleneck": "tensor_cores", "created_at": builders.at(60 * 24)}
        unsure = {"analysis_id": f"unsure-{place}", "confidence": 0.2}
        rows.add("analyses", profile | pulled | later)
        rows.add("analyses", profile | unsure | later)
        elsewhere = rows.add_verdict(relu, kernel, device="H100")
        there = {"analysis_id": f"there-{place}", "evaluation_id": elsewhere["evaluation_id"]}
        rows.add("analyses", profile | there | later)
    [row] = rows_of(make_job(lake_of(rows), improvement_pairs))
    text = "\n".join(turn["content"] for turn in [*row["prompt"], *row["completion"]])
    assert text + "\n" == (GOLDEN / "improvement.txt").read_text("utf-8")
    parsed = parse_completion(row["completion"][0]["content"])
    assert parsed.parse_error is None
    assert parsed.code == "BLOCK = 1024\n" + code_of("relu", "c")
    shown = row["exemplar_scores"]
    assert parsed.fastest == 1 + shown.index(max(shown))
    assert (sorted(shown), row["score"]) == ([1.25, 2.5], 5.0)
    # Between the bounds of 5 and 2.5, each with the spread of sessions by the clock gpu.
    assert row["gain"] == pytest.approx(2 * math.exp(-2 * 1.96 * 0.017), abs=1e-4)


def test_the_answer_is_faster_than_all_shown_by_the_margin_between_bounds(
    lake, make_job, rows_of, known_ids: Known
) -> None:
    bounds = {
        row["kernel_id"]: (row["speedup_low"], row["speedup_high"])
        for row in lake.sql("SELECT * FROM scored_speedups WHERE baseline = 'eager'").rows()
    }
    found = rows_of(make_job(lake, improvement_pairs, margin=1.2, per_task=9, strategy="random"))
    names = {kernel: name for name, kernel in known_ids.kernels.items()}
    assert {names[row["kernel_id"]] for row in found} == {"relu.d", "sigmoid.c"}
    shown = [frozenset(row["exemplar_kernel_ids"]) for row in found]
    assert len({*shown}) == len(shown) > 2
    for row in found:
        assert len(row["exemplar_kernel_ids"]) == 2
        assert row["kernel_id"] not in row["exemplar_kernel_ids"]
        for kernel in row["exemplar_kernel_ids"]:
            assert bounds[row["kernel_id"]][0] >= 1.2 * bounds[kernel][1]


@pytest.mark.slow
def test_an_overlap_of_intervals_is_no_improvement(rows: Rows, lake_of, make_job, rows_of) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    wide = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3]
    for name, times in (("a", wide), ("b", [0.85] * 9), ("c", [one / 1.5 for one in wide])):
        add_timed(rows, relu, code_of("relu", name), times)
    with pytest.raises(EmptyDataset, match=r"is 1\.1 times faster than 2 others"):
        rows_of(make_job(lake_of(rows), improvement_pairs))


@pytest.mark.slow
def test_the_same_snapshot_gives_the_same_bytes(lake, make_job) -> None:
    hashes = [
        materialize.preview_dataset(
            make_job(lake, improvement_pairs, request=Request(seed=seed))
        ).content_hash
        for seed in (0, 0, 1)
    ]
    assert hashes[0] == hashes[1] != hashes[2]


@pytest.mark.slow
def test_the_answer_is_the_fastest_kernel_or_that_of_the_policy(
    rows: Rows, lake_of, make_job, rows_of
) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    for name, ms in (("a", 1.6), ("b", 0.8), ("c", 0.4)):
        add_timed(rows, relu, code_of("relu", name), [ms] * 9, policy="student")
    best = add_timed(rows, relu, code_of("relu", "d"), [0.2] * 9)
    own = rows.tables["kernels"][-2]["kernel_id"]
    lake = lake_of(rows)
    assert {row["kernel_id"] for row in rows_of(make_job(lake, improvement_pairs))} == {best}
    for who in ({"policy": "student"}, {"round": 1}):
        [row] = rows_of(make_job(lake, improvement_pairs, **who))
        assert row["kernel_id"] == own


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"margin": 0.9}, "--margin 0.9 is below 1"),
        ({"per_task": 0}, "--per-task 0"),
        ({"exemplars": 0}, "--exemplars 0"),
    ],
)
def test_options_out_of_range_are_refused(lake, make_job, rows_of, options, words) -> None:
    with pytest.raises(DatasetError, match=words):
        rows_of(make_job(lake, improvement_pairs, **options))


@pytest.mark.slow
def test_the_command_previews_writes_and_records_lineage(
    lake_of: Callable[[Rows], store.Lake], rows_and_ids: tuple[Rows, Known], tmp_path: Path
) -> None:
    rows, known_ids = rows_and_ids
    lake_url = lake_of(rows).location.url
    words = ["pipelines", "run", "improvement-pairs", "--lake", lake_url]
    dry = commands.run([*words, "--dry-run"], cwd=tmp_path)
    assert (dry.returncode, not (tmp_path / "datasets").exists()) == (0, True)
    assert "1.1 between interval bounds" in dry.stderr + dry.stdout
    done = commands.run(words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [folder] = (tmp_path / "datasets" / "improvement-pairs").iterdir()
    assert "margin | 1.1 between interval bounds" in (folder / "README.md").read_text("utf-8")
    with store.open(lake_url) as opened:
        held = opened.sql("SELECT task_id, kernel_ids FROM dataset_rows").rows()
    assert len(held) == 4
    assert {row["task_id"] for row in held} <= {known_ids.relu, known_ids.sigmoid}
    kernels = known_ids.kernels
    never = {kernels["cheat"], kernels["wrong"], kernels["cumsum.c"], kernels["zeros_like.a"]}
    assert not never & {kernel for row in held for kernel in row["kernel_ids"]}
    assert json.loads((folder / "recipe.json").read_text("utf-8"))


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("limit", [None, 5])
def test_sft_mixes_a_share_of_improvements_evenly(lake, make_job, rows_of, limit) -> None:
    request = Request(limit=limit)
    options = {"per_policy": 9, "improvement_share": 0.2}
    found = rows_of(make_job(lake, sft, request=request, **options))
    kinds = [row["gain"] is not None for row in found]
    assert (len(kinds), sum(kinds)) == ((11, 2) if limit is None else (5, 1))
    for row in found:
        assert ("### Kernel 2: " in row["prompt"][0]["content"]) == (row["gain"] is not None)
    singles = rows_of(make_job(lake, sft, per_policy=9))
    assert [row["kernel_id"] for row in found if row["gain"] is None] == [
        row["kernel_id"] for row in singles[: len(kinds) - sum(kinds)]
    ]


@pytest.mark.slow
def test_successes_mix_improvements_and_a_lack_of_them_is_noted(
    rows: Rows, lake_of, make_job, rows_of, caplog: pytest.LogCaptureFixture
) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    for name, ms in (("a", 1.6), ("b", 0.8)):
        add_timed(rows, relu, code_of("relu", name), [ms] * 9)
    add_timed(rows, relu, code_of("relu", "d"), [0.2] * 9, policy="student")
    lake = lake_of(rows)
    options = {"select": "successes", "policy": "student", "improvement_share": 0.5}
    found = rows_of(make_job(lake, self_supervised, **options))
    assert [row["gain"] is not None for row in found] == [False, True]
    options["policy"] = "writer"
    lacking = make_job(lake, self_supervised, **options)

    with caplog.at_level(logging.WARNING):
        dataset = materialize.preview_dataset(lacking)
    assert dataset.rows == 2
    assert dataset.notes["improvements"] == (
        "0 of 2 rows (0.0%); --improvement-share 0.5 needs 2 improvements for 2 other rows, "
        "and there are 0"
    )
    assert "the dataset has 0 of 2 rows (0.0%)" in caplog.text


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("module", [sft, self_supervised])
def test_the_share_holds_after_duplicates_are_left_out(
    rows: Rows, lake_of, make_job, rows_of, module
) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    for name, ms in (("a", 1.6), ("b", 0.8), ("c", 0.4), ("d", 0.2)):
        code = code_of("relu", name)
        for policy in ("writer", "student"):
            # A kernel of another path has another id and the same text.
            kernel = rows.kernel(relu, code, policy=policy, path=f"{policy}.py")
            for row in builders.session(rows.add_verdict(relu, kernel), [ms] * 9, eager=[2.0] * 9):
                rows.add("timings", row)
    select = {"select": "successes"} if module is self_supervised else {}
    job = make_job(lake_of(rows), module, improvement_share=0.2, per_policy=9, **select)
    dataset = materialize.preview_dataset(job)
    kinds = [row["gain"] is not None for row in rows_of(job)]
    assert dataset.dropped["row: duplicate"] > 0
    assert (len(kinds), sum(kinds), dataset.rows) == (5, 1, 5)
    assert dataset.notes["improvements"] == "1 of 5 rows (20.0%)"


def test_a_share_of_one_is_refused(lake, make_job, rows_of) -> None:
    with pytest.raises(DatasetError, match="--improvement-share 1 is not a share"):
        rows_of(make_job(lake, sft, improvement_share=1))
