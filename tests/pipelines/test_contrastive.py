"""contrastive-batch: what a prompt shows, what it never shows, and what is refused."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Any

import builders
import pytest
from pipeline_lakes import Known, Rows, code_of

import store
from pipelines import contrastive_batch, improvement_pairs, preference_pairs
from pipelines.contract import Request
from pipelines.datasets import materialize
from pipelines.selection.scores import find_device_kind
from store.errors import DatasetError, EmptyDataset, UnknownName
from store.lake import view_cache
from store.lake.location import Location

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parents[2]


def text_of(row: dict[str, Any]) -> str:
    """Return the text of a prompt of one turn."""
    [turn] = row["prompt"]
    return turn["content"]


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize(
    ("golden", "task", "options"),
    [
        ("two_exemplars", "relu", {}),
        ("one_exemplar_and_reference", "tanh", {}),
        ("no_exemplars", "relu", {"strategy": "none"}),
        ("three_exemplars_top", "sigmoid", {"strategy": "top", "exemplars": 3}),
        ("evaluation", "cumsum", {"request": Request(purpose="eval")}),
    ],
)
def test_golden_prompt(lake, make_job, rows_of, golden, task, options) -> None:
    [row] = [row for row in rows_of(make_job(lake, **options)) if row["task"] == task]
    assert text_of(row) + "\n" == (GOLDEN / f"{golden}.txt").read_text("utf-8")


@pytest.mark.slow
def test_golden_prompt_of_claims(rows: Rows, lake_of, make_job, rows_of) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    for name, speedup in (("a", 1.5), ("b", 3.25)):
        rows.claim(relu, rows.kernel(relu, code_of("relu", name)), speedup)
    [row] = rows_of(make_job(lake_of(rows), evidence="claimed"))
    assert row["evidence"] == "claimed"
    assert text_of(row) + "\n" == (GOLDEN / "claimed.txt").read_text("utf-8")


@pytest.mark.slow
def test_a_clock_can_be_chosen_and_is_named(rows: Rows, lake_of, make_job, rows_of) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    device = rows.device()
    for name, gpu, latency in (("a", 4.0, 1.25), ("b", 2.0, 2.75)):
        verdict = rows.add_verdict(relu, rows.kernel(relu, code_of("relu", name)), device=device)
        for clock, speedup in (("gpu", gpu), ("latency", latency)):
            for row in builders.session(verdict, [1.0] * 7, clock=clock, eager=[speedup] * 7):
                rows.add("timings", row)
    lake = lake_of(rows)
    [plain] = rows_of(make_job(lake))
    assert sorted(plain["exemplar_scores"]) == [2.0, 4.0]
    assert "both measured on H200. Above" in text_of(plain)
    [isolated] = rows_of(make_job(lake, clock="latency"))
    assert sorted(isolated["exemplar_scores"]) == [1.25, 2.75]
    words = "both measured on H200, one call at a time, launches included. Above"
    assert words in text_of(isolated)
    # The kernel that is faster by one clock is slower by the other.
    for clock, fastest in (("gpu", 4.0), ("latency", 2.75)):
        pair = make_job(lake, improvement_pairs, clock=clock, exemplars=1)
        [improvement] = rows_of(pair)
        assert improvement["score"] == fastest
        [preference] = rows_of(make_job(lake, preference_pairs, clock=clock))
        assert preference["chosen_score"] == fastest
    with pytest.raises(EmptyDataset, match="on H200 by the clock throughput"):
        rows_of(make_job(lake, clock="throughput"))
    with pytest.raises(DatasetError, match="published speedups have no clock"):
        rows_of(make_job(lake, evidence="claimed", clock="latency"))


@pytest.mark.repeats(run=3)
@pytest.mark.parametrize("strategy", ["bucket", "island", "random", "top"])
@pytest.mark.parametrize("purpose", ["train", "eval"])
def test_only_good_kernels_of_the_same_task_are_shown(
    lake, known_ids: Known, make_job, rows_of, strategy, purpose
) -> None:
    request = Request(purpose=purpose, include_trivial=True)
    job = make_job(lake, strategy=strategy, per_task=30, exemplars=3, request=request)
    names = {kernel: name for name, kernel in known_ids.kernels.items()}
    found = rows_of(job)
    assert found
    for row in found:
        shown = [names[kernel] for kernel in row["exemplar_kernel_ids"]]
        assert {name.partition(".")[0] for name in shown} == {row["task"]}
        assert len(set(shown)) == len(shown)
        assert (row["task"] == "cumsum") == (purpose == "eval")
        assert row["purpose"] == purpose
        for name, kernel in known_ids.kernels.items():
            marker = f"# {name.replace('.', ' ')}\n"
            assert (marker in text_of(row)) == (kernel in row["exemplar_kernel_ids"])
        assert "cheat" not in text_of(row)
        assert "wrong" not in shown


def test_scores_and_order_are_those_of_the_columns(lake, make_job, rows_of) -> None:
    for row in rows_of(make_job(lake, per_task=20)):
        for number, score in enumerate(row["exemplar_scores"], 1):
            assert f"### Kernel {number}: {score:.2f}x\n" in text_of(row)


def test_the_place_in_the_prompt_says_nothing_about_the_speed(lake, make_job, rows_of) -> None:
    found = rows_of(make_job(lake, per_task=60, temperature=5.0))
    faster = [row["exemplar_scores"] for row in found if len(row["exemplar_scores"]) == 2]
    first = sum(scores[0] > scores[1] for scores in faster)
    assert 0.25 < first / len(faster) < 0.75


def test_tasks_with_too_little_to_show_are_counted(lake, make_job) -> None:
    dataset = materialize.preview_dataset(make_job(lake))
    assert dataset.rows == 3
    assert dataset.dropped == {
        "task: trivial": 1,
        "task: test split": 1,
        "kernel: quarantined": 1,
        "task: no kernel to show": 1,
    }
    assert dataset.notes["reference shown as 1.00x"].startswith("1 rows")


@pytest.mark.slow
def test_a_kernel_that_is_wrong_on_another_device_is_not_shown(
    rows_and_ids, lake_of, make_job, rows_of
) -> None:
    made, known = rows_and_ids
    made.device("L40")
    bad = known.kernels["relu.d"]
    made.add_verdict(known.relu, bad, "incorrect", device="L40")
    job = make_job(lake_of(made), per_task=50, strategy="random")
    assert all(bad not in row["exemplar_kernel_ids"] for row in rows_of(job))
    assert materialize.preview_dataset(job).dropped["kernel: wrong elsewhere"] == 1


@pytest.mark.slow
def test_a_kernel_that_is_wrong_by_a_precision_that_does_not_rank_is_shown(
    rows_and_ids, lake_of, make_job, rows_of
) -> None:
    made, known = rows_and_ids
    made.device("L40")
    kernel = known.kernels["relu.d"]
    for status, precision in (("correct", "torch_default"), ("incorrect", "fp32_strict")):
        made.add_verdict(known.relu, kernel, status, device="L40", precision=precision)
    found = rows_of(make_job(lake_of(made), per_task=50, strategy="random"))
    assert any(kernel in row["exemplar_kernel_ids"] for row in found)


@pytest.mark.slow
def test_a_newer_evaluator_may_clear_a_kernel(rows_and_ids, lake_of, make_job, rows_of) -> None:
    made, known = rows_and_ids
    made.device("L40")
    cleared = known.kernels["relu.d"]
    made.add_verdict(known.relu, cleared, "incorrect", device="L40", version=1)
    made.add_verdict(known.relu, cleared, "correct", device="L40", version=2)
    found = rows_of(make_job(lake_of(made), per_task=50, strategy="random"))
    assert any(cleared in row["exemplar_kernel_ids"] for row in found)


@pytest.mark.slow
def test_a_kernel_that_also_answers_a_test_task_is_contaminated(
    rows_and_ids, lake_of, make_job, rows_of
) -> None:
    made, known = rows_and_ids
    shared = known.kernels["sigmoid.c"]
    made.add_attempt(shared, known.held_out)
    job = make_job(lake_of(made), per_task=30)
    assert all(shared not in row["exemplar_kernel_ids"] for row in rows_of(job))
    assert materialize.preview_dataset(job).dropped["kernel: contaminated"] == 1


@pytest.mark.slow
def test_a_pulled_attempt_at_a_test_task_counts_only_without_an_own_attempt(
    rows_and_ids, lake_of, make_job, rows_of
) -> None:
    made, known = rows_and_ids
    own, pulled = known.kernels["sigmoid.c"], known.kernels["sigmoid.b"]
    for kernel in (own, pulled):
        made.add_attempt(kernel, known.held_out)
        made.tables["generations"][-1]["origin"] = "lab/kernels"
    for attempt in made.tables["generations"]:
        if attempt["kernel_id"] == pulled:
            attempt["origin"] = "lab/kernels"
    job = make_job(lake_of(made), per_task=30)
    shown = {kernel for row in rows_of(job) for kernel in row["exemplar_kernel_ids"]}
    assert own in shown
    assert pulled not in shown


@pytest.mark.slow
def test_the_device_with_most_measurements_is_the_default(
    rows_and_ids, lake_of, make_job, rows_of
) -> None:
    made, known = rows_and_ids
    made.device("L40")
    for name in ("a", "b"):
        made.add_session(known.relu, known.kernels[f"relu.{name}"], 9.0, device="L40")
    lake = lake_of(made)
    assert {row["device"] for row in rows_of(make_job(lake))} == {"H200"}
    [row] = rows_of(make_job(lake, device="L40"))
    assert row["exemplar_scores"] == [9.0]
    assert "both measured on L40" in text_of(row)


@pytest.mark.slow
def test_sizes_of_the_scored_workload_are_said(rows: Rows, lake_of, make_job, rows_of) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    big = rows.workload(relu, "big", '{"N": 1048576}')
    rows.add_session(relu, rows.kernel(relu, code_of("relu", "a")), 2.0, workload_id=big)
    [row] = rows_of(make_job(lake_of(rows)))
    assert "Sizes are set to: N = 1048576." in text_of(row)
    assert row["workload_id"] == big


@pytest.mark.slow
def test_no_measurement_names_the_way_out(rows: Rows, lake_of, make_job, rows_of) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    kernel = rows.kernel(relu, code_of("relu", "a"))
    with pytest.raises(EmptyDataset, match="Measure kernels first: `evaluators run`"):
        rows_of(make_job(lake_of(rows)))
    rows.claim(relu, kernel, 2.0)
    with pytest.raises(EmptyDataset, match="--evidence claimed"):
        rows_of(make_job(lake_of(rows)))


def test_claims_never_stand_in_unasked(rows_and_ids, lake_of, make_job, rows_of) -> None:
    made, known = rows_and_ids
    claimed = made.kernel(known.lonely, code_of("exp", "claimed"))
    made.claim(known.lonely, claimed, 7.0)
    lake = lake_of(made)
    measured = rows_of(make_job(lake, per_task=9))
    assert {row["evidence"] for row in measured} == {"measured"}
    assert all(claimed not in row["exemplar_kernel_ids"] for row in measured)
    assert {row["evidence"] for row in rows_of(make_job(lake, evidence="claimed"))} == {"claimed"}


@pytest.mark.slow
def test_a_claim_of_a_kernel_that_we_found_wrong_is_not_shown(
    rows: Rows, lake_of, make_job, rows_of
) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    for name, speedup in (("good", 1.5), ("crash", 8.0), ("incorrect", 9.0), ("cheat", 99.0)):
        kernel = rows.kernel(relu, code_of("relu", name))
        rows.claim(relu, kernel, speedup)
        if name == "cheat":
            rows.quarantine(kernel)
        elif name != "good":
            rows.add_verdict(relu, kernel, name)
    found = rows_of(make_job(lake_of(rows), evidence="claimed", per_task=20))
    assert {tuple(row["exemplar_scores"]) for row in found} == {(1.5,)}


@pytest.mark.slow
def test_of_several_claims_the_lowest_counts(rows: Rows, lake_of, make_job, rows_of) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    kernel = rows.kernel(relu, code_of("relu", "a"))
    rows.claim(relu, kernel, 449.0, source="v1")
    rows.claim(relu, kernel, 3.12, source="v8")
    rows.claim(relu, None, 1.01, source="no code")
    [row] = rows_of(make_job(lake_of(rows), evidence="claimed"))
    assert row["exemplar_scores"] == [3.12]


@pytest.mark.slow
def test_limit_gives_that_many_prompts_over_all_tasks(lake, make_job, rows_of) -> None:
    two = rows_of(make_job(lake, request=Request(limit=2)))
    assert len({row["task_id"] for row in two}) == 2
    many = rows_of(make_job(lake, request=Request(limit=30)))
    assert {row["task"] for row in many} == {"relu", "sigmoid", "tanh"}
    # tanh has one prompt to give: its repeats are left out.
    assert sum(row["task"] == "tanh" for row in many) == 1


@pytest.mark.slow
def test_another_seed_draws_otherwise(lake, make_job, rows_of) -> None:
    first, second = (
        [row["exemplar_kernel_ids"] for row in rows_of(job)]
        for job in (
            make_job(lake, per_task=9),
            make_job(lake, per_task=9, request=Request(seed=1)),
        )
    )
    assert first != second


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("temperature", 0.0),
        ("bucket_width", -1.0),
        ("bucket_width", 1e-18),
        ("exemplars", 0),
        ("islands", 0),
    ],
)
def test_options_out_of_range_are_refused(lake, make_job, rows_of, option, value) -> None:
    with pytest.raises(DatasetError, match="--" + option.replace("_", "-")):
        rows_of(make_job(lake, **{option: value}))


@pytest.mark.slow
def test_explain_draws_the_buckets_and_marks_what_was_drawn(
    lake, known_ids: Known, make_job, rows_of
) -> None:
    from rich.console import Console

    config = contrastive_batch.Config()
    [row] = [row for row in rows_of(make_job(lake)) if row["task"] == "relu"]
    for wanted in ("relu", known_ids.relu[:8]):
        console = Console(width=100, file=io.StringIO(), record=True)
        console.print(contrastive_batch.explain(lake, config, Request(), wanted))
        text = console.export_text()
        assert "4.00x to 4.25x" in text
        assert "0.632" in text
        for kernel, score in zip(row["exemplar_kernel_ids"], row["exemplar_scores"], strict=True):
            assert f"{kernel[:8]} {score:.2f}x" in text


def test_explain_of_a_task_that_is_not_there_suggests_one(lake) -> None:
    config = contrastive_batch.Config()
    with pytest.raises(UnknownName, match='Did you mean "relu"'):
        contrastive_batch.explain(lake, config, Request(), "rellu")
    with pytest.raises(EmptyDataset, match="exp"):
        contrastive_batch.explain(lake, config, Request(), "exp")


@pytest.mark.slow
def test_explain_of_a_name_of_several_tasks_asks_for_the_id(rows_and_ids, lake_of) -> None:
    made, known = rows_and_ids
    label = made.tables["task_labels"][0]
    made.add("task_labels", label | {"task_id": known.tanh, "suite_revision": "v0.1"})
    with pytest.raises(UnknownName, match=known.tanh[:12]):
        contrastive_batch.explain(lake_of(made), contrastive_batch.Config(), Request(), "relu")


@pytest.mark.slow
def test_the_claimed_device_is_the_one_with_most_claims(
    rows: Rows, lake_of, make_job, rows_of
) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    for number, gpu in enumerate(("H100", "H100", "A100", "L40")):
        kernel = rows.kernel(relu, code_of("relu", str(number)))
        rows.claim(relu, kernel, 2.0 + number)
        rows.tables["claims"][-1] |= {"gpu": gpu}
    [row] = rows_of(make_job(lake_of(rows), evidence="claimed"))
    assert row["device"] == "H100"
    assert sorted(row["exemplar_scores"]) == [2.0, 3.0]


def release(rows: Rows, task: str, scores: dict[str, dict[str, float]]) -> dict[str, str]:
    """Add a task as a release has it: GPU to speedups over eager, and over a graph's code.

    `scores` maps GPU to `eager` and `cuda_graph`; returns the ids of the graph's code and of the
    candidates by GPU.
    """
    task_id = rows.task(task, family="pointwise", split="train")
    graph = rows.kernel(task_id, code_of(task, "graph").replace("ModelNew", "Model"))
    rows.tables["generations"].pop()
    made = {"graph": graph}
    for gpu, known in scores.items():
        made[gpu] = rows.kernel(task_id, code_of(task, gpu))
        for baseline, speedup in known.items():
            rows.claim(task_id, made[gpu], speedup)
            rows.tables["claims"][-1] |= {"gpu": gpu, "baseline": baseline}
            if baseline == "cuda_graph":
                rows.tables["claims"][-1] |= {"baseline_kernel_id": graph}
    return made


@pytest.mark.slow
def test_the_code_of_a_baseline_is_the_second_exemplar(
    rows: Rows, lake_of, make_job, rows_of
) -> None:
    made = release(rows, "relu", {"A100": {"eager": 3.0, "cuda_graph": 2.5}})
    lake = lake_of(rows)
    [row] = rows_of(make_job(lake, evidence="claimed"))
    assert (row["exemplar_kernel_ids"], row["reference_shown"]) == ([made["A100"]], True)
    [row] = rows_of(make_job(lake, evidence="claimed", baselines=True))
    shown = dict(zip(row["exemplar_kernel_ids"], row["exemplar_scores"], strict=True))
    # 3.0 over eager and 2.5 over the graph: the graph is 1.2 over eager.
    assert shown == {made["A100"]: 3.0, made["graph"]: 1.2}
    assert not row["reference_shown"]
    text = text_of(row)
    assert "the reference itself run in another way; its class is named `Model`" in text
    assert "as published for A100. Above" in text
    job = make_job(lake, evidence="claimed", baselines=True)
    assert materialize.preview_dataset(job).notes == {
        "strategy": "bucket",
        "evidence": "claimed",
        "baseline": "eager",
        "device": "A100",
        "scores": "differ from a ratio of 1.2 on, as published ones have no interval",
        "speedups implied by two": "1 exemplars, named as such in the prompts",
        "unaudited": "1 tasks (`evaluators tasks`)",
    }


@pytest.mark.slow
def test_texts_of_other_gpus_fill_up_where_a_device_has_too_few(
    rows: Rows, lake_of, make_job, rows_of
) -> None:
    relu = release(rows, "relu", {"A100": {"eager": 3.0}, "H100": {"eager": 4.0}})
    sigmoid = release(
        rows, "sigmoid", {"A100": {"eager": 3.0, "cuda_graph": 2.0}, "H100": {"eager": 4.0}}
    )
    # The text of the A100 on another GPU as well: its own figure counts.
    rows.claim(rows.tables["tasks"][0]["task_id"], relu["A100"], 1.01)
    rows.tables["claims"][-1] |= {"gpu": "L40"}
    lake = lake_of(rows)
    found = {row["task"]: row for row in rows_of(make_job(lake, evidence="claimed", device="A100"))}
    assert found["relu"]["exemplar_scores"] == [3.0]
    job = make_job(lake, evidence="claimed", baselines=True)
    found = {row["task"]: row for row in rows_of(job)}
    shown = found["relu"]
    assert shown["device"] == "A100"
    together = zip(
        shown["exemplar_kernel_ids"],
        shown["exemplar_devices"],
        shown["exemplar_scores"],
        strict=True,
    )
    assert sorted(together) == sorted([(relu["A100"], "A100", 3.0), (relu["H100"], "H100", 4.0)])
    assert re.search(r"### Kernel \d: 4\.00x on H100\n", text_of(shown))
    assert re.search(r"### Kernel \d: 3\.00x\n", text_of(shown))
    assert "as published for A100, or for the GPU that its heading names" in text_of(shown)
    # Where the device has two of its own, scores of two GPUs are not mixed.
    assert set(found["sigmoid"]["exemplar_kernel_ids"]) == {sigmoid["A100"], sigmoid["graph"]}


@pytest.mark.slow
def test_what_may_not_be_shown_fills_no_place(rows: Rows, lake_of, make_job, rows_of) -> None:
    relu = release(
        rows, "relu", {"A100": {"eager": 3.0, "cuda_graph": 2.0}, "H100": {"eager": 4.0}}
    )
    rows.quarantine(relu["graph"])
    [row] = rows_of(make_job(lake_of(rows), evidence="claimed"))
    assert set(row["exemplar_kernel_ids"]) == {relu["A100"], relu["H100"]}


@pytest.mark.slow
def test_the_code_of_a_test_tasks_baseline_is_contaminated(
    rows: Rows, lake_of, make_job, rows_of
) -> None:
    relu = release(rows, "relu", {"A100": {"eager": 3.0, "cuda_graph": 2.0}})
    held_out = rows.task("cumsum", family="scan", split="test")
    rows.claim(held_out, None, 2.0)
    rows.tables["claims"][-1] |= {"baseline": "cuda_graph", "baseline_kernel_id": relu["graph"]}
    [row] = rows_of(make_job(lake_of(rows), evidence="claimed"))
    assert row["exemplar_kernel_ids"] == [relu["A100"]]


@pytest.mark.slow
def test_preference_pairs_take_only_candidates_of_one_gpu(
    rows: Rows, lake_of, make_job, rows_of
) -> None:
    from pipelines import preference_pairs

    release(rows, "relu", {"A100": {"eager": 3.0, "cuda_graph": 2.0}, "H100": {"eager": 9.0}})
    with pytest.raises(EmptyDataset, match="no task has two kernels on A100"):
        rows_of(make_job(lake_of(rows), preference_pairs, evidence="claimed"))


@pytest.mark.slow
def test_scores_of_one_bucket_are_told_apart(rows: Rows, lake_of, make_job, rows_of) -> None:
    from rich.console import Console

    relu = rows.task("relu", family="pointwise", split="train")
    for name, speedup in (("a", 1.26), ("b", 1.92), ("c", 1.92)):
        rows.claim(relu, rows.kernel(relu, code_of("relu", name)), speedup)
    lake = lake_of(rows)
    found = rows_of(make_job(lake, evidence="claimed", per_task=40, bucket_width=1.0))
    assert {tuple(sorted(row["exemplar_scores"])) for row in found} == {(1.26, 1.92)}
    assert len({tuple(sorted(row["exemplar_kernel_ids"])) for row in found}) == 2
    config = contrastive_batch.Config(evidence="claimed", bucket_width=1.0)
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(contrastive_batch.explain(lake, config, Request(), "relu"))
    text = console.export_text()
    assert re.search(r"1\.26x +1 +1\.26x", text)
    assert re.search(r"1\.92x +2 +1\.92x", text)


@pytest.mark.slow
def test_a_release_beside_its_measurements_shows_kernels_that_differ_and_no_known_cheat(
    tmp_path: Path, make_job, rows_of
) -> None:
    from evaluators.audit import sweep
    from store.importers import cuda_l1, measured
    from store.importers.reading.pieces import run_import

    named = os.environ.get("FLYWHEEL_CUDA_L1")
    folder = Path(named) if named else ROOT.parent / "shared" / "data" / "cuda-l1"
    if not folder.is_dir():
        pytest.skip("the CUDA-L1 release is not on disk; name its folder in FLYWHEEL_CUDA_L1")
    url = str(tmp_path / "lake")
    with store.writer(url, author="tests") as writer:
        run_import(writer, cuda_l1, folder, cuda_l1.Config(source_revision="51e8356"))
        for name in ("weak-tasks", "h200"):
            run_import(writer, measured, ROOT / "docs" / name, measured.Config(own=True))
    with store.open(url) as lake, pytest.raises(EmptyDataset, match="not audited"):
        rows_of(make_job(lake))
    sweep.sweep(url, processes=2)
    with store.open(url) as lake:
        measured_rows = rows_of(make_job(lake))
        claimed_rows = rows_of(make_job(lake, evidence="claimed"))
        suspects = lake.sql(
            "SELECT DISTINCT kernel_id FROM finding_standings WHERE decision IS NULL "
            "AND coalesce(confidence, 1) >= 0.5"
        ).rows()
    assert (len(measured_rows), len(claimed_rows)) == (32, 25)
    for row in measured_rows:
        bounds = zip(row["exemplar_lows"], row["exemplar_highs"], strict=True)
        shown = sorted([*bounds] + [(1.0, 1.0)] * row["reference_shown"])
        assert len(shown) == 2
        assert shown[0][1] < shown[1][0]
    for row in claimed_rows:
        slower, faster = sorted(row["exemplar_scores"] + [1.0] * row["reference_shown"])
        assert faster / slower >= 1.19  # they are shown with two decimals
        assert not any(row["exemplar_implied"])
    cheats = {row["kernel_id"] for row in suspects}
    assert not any(cheats.intersection(row["exemplar_kernel_ids"]) for row in claimed_rows)
    named_cheats = {"level1/9", "level2/66", "level2/80"}
    assert not named_cheats.intersection(row["task"] for row in claimed_rows)


@pytest.mark.slow
def test_the_device_that_this_lake_measured_last_is_the_default(
    rows_and_ids, lake_of, make_job, rows_of
) -> None:
    made, known = rows_and_ids
    made.device("L40")
    for name in ("a", "b"):
        made.add_session(known.relu, known.kernels[f"relu.{name}"], 9.0, device="L40")
    lake = lake_of(made)
    local = builders.run(kind="evaluation", lake_id=lake.lake_id)
    judged = made.add_verdict(
        known.relu, known.kernels["relu.a"], device="L40", run_id=local["run_id"]
    )
    with store.writer(lake.url, author="tests") as writer:
        writer.append({"runs": [local], "evaluations": [judged]}, "a run of this lake")
    with store.open(lake.url) as later:
        job = make_job(later)
        assert {row["device"] for row in rows_of(job)} == {"L40"}
        notes = materialize.preview_dataset(job).notes
        assert notes["device"] == "L40"
        assert notes["other devices"] == "H200 (choose one with --device)"
        # What is asked for by name does not depend on the default.
        assert rows_of(make_job(later, device="H200")) != rows_of(job)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["cpu", "cuda"])
def test_a_device_name_of_both_kinds_is_a_gpu(rows: Rows, lake_of, first: str) -> None:
    for kind in (first, {"cpu": "cuda", "cuda": "cpu"}[first]):
        rows.add("devices", builders.device("GB10", kind=kind, device_id=f"GB10 {kind}"))
    assert find_device_kind(lake_of(rows), "GB10") == "cuda"


@pytest.mark.parametrize("form", ["{name}", "{suite}/{name}", "{start}"])
def test_explain_takes_the_names_that_store_show_takes(lake, known_ids: Known, form: str) -> None:
    [label] = lake.run(
        'SELECT suite, "name" FROM task_labels WHERE task_id = $1', [known_ids.relu]
    ).rows()
    wanted = form.format(**label, start=known_ids.relu[:8])
    assert store.find_task(lake, wanted)["task_id"] == known_ids.relu


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["bucket", "top"])
def test_prompts_from_cached_views_are_those_from_the_tables(
    rows_and_ids, lake_of, make_job, rows_of, monkeypatch, strategy
) -> None:
    made, known = rows_and_ids

    def draw(lake: store.Lake) -> list[dict[str, Any]]:
        return rows_of(make_job(lake, per_task=20, strategy=strategy))

    monkeypatch.setattr(view_cache, "LARGE_ROWS", 1)
    assert draw(lake_of(made))
    assert list(Location.of(lake_of(Rows()).url).derived.glob("pooled_speedups-*.parquet"))
    later = Rows(known=made.known, minute=made.minute)
    later.device("L40")
    later.add_session(known.relu, later.kernel(known.relu, code_of("relu", "new")), 6.5)
    later.add_session(known.relu, known.kernels["relu.a"], 0.9)
    later.add_verdict(known.sigmoid, known.kernels["sigmoid.b"], "incorrect", version=2)
    later.add_verdict(known.relu, known.kernels["relu.d"], "incorrect", device="L40")
    later.quarantine(known.kernels["relu.c"])
    cached = draw(lake_of(later))
    monkeypatch.setattr(view_cache, "LARGE_ROWS", 10**9)
    assert cached == draw(lake_of(Rows()))
    shown = {kernel for row in cached for kernel in row["exemplar_kernel_ids"]}
    gone = {"sigmoid.b", "relu.d", "relu.c"}
    assert shown.isdisjoint(known.kernels[name] for name in gone)


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_no_column_can_have_is_refused(seed: int) -> None:
    with pytest.raises(DatasetError, match=f"--seed {seed} is out of range"):
        Request(seed=seed)
