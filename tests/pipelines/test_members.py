"""sft, self-supervised, preference-pairs and rl-prompts on small lakes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import builders
import pytest
from pipeline_lakes import Known, Rows, code_of

from pipelines import preference_pairs, repair_pairs, rl_prompts, self_supervised, sft
from pipelines.contract import Request
from pipelines.datasets import materialize
from store.code.completion import parse_completion
from store.errors import DatasetError, EmptyDataset

GOLDEN = Path(__file__).parent / "golden"


def test_golden_question_and_answer(lake, make_job, rows_of, known_ids: Known) -> None:
    found = rows_of(make_job(lake, sft, per_policy=9))
    [row] = [row for row in found if row["kernel_id"] == known_ids.kernels["sigmoid.a"]]
    text = "\n".join(turn["content"] for turn in [*row["prompt"], *row["completion"]])
    assert text + "\n" == (GOLDEN / "sft.txt").read_text("utf-8")


def test_golden_rl_prompt(lake, make_job, rows_of) -> None:
    [row] = [row for row in rows_of(make_job(lake, rl_prompts)) if row["task"] == "relu"]
    assert row["prompt"][0]["content"] + "\n" == (GOLDEN / "no_exemplars.txt").read_text("utf-8")


def test_sft_answers_are_correct_kernels_of_the_task(
    lake, make_job, rows_of, known_ids: Known
) -> None:
    names = {kernel: name for name, kernel in known_ids.kernels.items()}
    found = rows_of(make_job(lake, sft, per_policy=9))
    assert {names[row["kernel_id"]] for row in found} == {
        *(f"relu.{name}" for name in "abcde"),
        *(f"sigmoid.{name}" for name in "abc"),
        "tanh.a",
    }
    for row in found:
        task, _, name = names[row["kernel_id"]].partition(".")
        assert row["task"] == task
        assert f"# {task} {name}\n" in row["completion"][0]["content"]
        assert f"# {task} {name}\n" not in row["prompt"][0]["content"]


@pytest.mark.slow
def test_sft_keeps_so_many_per_task_and_policy(rows_and_ids, lake_of, make_job, rows_of) -> None:
    made, known = rows_and_ids
    for name in "xyz":
        kernel = made.kernel(known.relu, code_of("relu", name), policy="student")
        made.add_verdict(known.relu, kernel)
    lake = lake_of(made)
    found = rows_of(make_job(lake, sft, per_policy=2))
    counts: dict[tuple[str, str], int] = {}
    for row in found:
        key = (row["task"], row["policy_id"])
        counts[key] = counts.get(key, 0) + 1
    assert counts == {
        ("relu", "policy-writer"): 2,
        ("relu", "policy-student"): 2,
        ("sigmoid", "policy-writer"): 2,
        ("tanh", "policy-writer"): 1,
    }
    dropped = materialize.preview_dataset(make_job(lake, sft, per_policy=2)).dropped
    assert dropped["kernel: more than asked for"] == 3 + 1 + 1
    assert dropped["kernel: quarantined"] == 1
    assert {row["policy_id"] for row in rows_of(make_job(lake, sft, policy="student"))} == {
        "policy-student"
    }


def say(made: Rows, kernel_id: str, analysis: str | None, design: str | None, **more: Any) -> None:
    """Put words into the attempt that gave a kernel."""
    [attempt] = [row for row in made.tables["generations"] if row["kernel_id"] == kernel_id]
    attempt |= {"analysis": analysis, "design": design, **more}


@pytest.mark.slow
def test_sft_in_the_protocol_is_read_as_answers_of_the_policy_are(
    rows_and_ids, lake_of, make_job, rows_of
) -> None:
    made, known = rows_and_ids
    names = {kernel: name for name, kernel in known.kernels.items()}
    for kernel, name in names.items():
        say(made, kernel, f" It waits for memory.\n\n- {name}\n", "One pass. {{ it }}")
    lake = lake_of(made)
    found = rows_of(make_job(lake, sft, form="protocol", per_policy=9))
    plain = rows_of(make_job(lake, sft, per_policy=9))
    assert {row["kernel_id"] for row in found} == {row["kernel_id"] for row in plain}
    asked = {row["task"]: row["prompt"] for row in rows_of(make_job(lake, rl_prompts))}
    for row in found:
        parsed = parse_completion(row["completion"][0]["content"])
        assert parsed.parse_error is None
        assert parsed.analysis == f"It waits for memory.\n\n- {names[row['kernel_id']]}"
        assert parsed.design == "One pass. {{ it }}"
        task, _, name = names[row["kernel_id"]].partition(".")
        assert parsed.code == code_of(task, name)
        assert row["prompt"] == asked[row["task"]]
    kept = {row["kernel_id"]: row["completion"] for row in plain}
    assert all("### Perf" not in answer[0]["content"] for answer in kept.values())


@pytest.mark.slow
def test_sft_in_the_protocol_leaves_out_words_that_are_missing_or_break_it(
    rows_and_ids, lake_of, make_job, rows_of
) -> None:
    made, known = rows_and_ids
    kernels = known.kernels
    good = "It waits for memory."
    say(made, kernels["relu.a"], good, None)
    say(made, kernels["relu.b"], " \n", good)
    say(made, kernels["relu.c"], good, "Like this:\n```python\nclass ModelNew: pass")
    say(made, kernels["relu.d"], f"{good}\n### Code Implementation\nnone", good)
    # What it says is about kernels that the question does not show.
    shown = {"exemplar_kernel_ids": [kernels["relu.a"]], "exemplar_scores": [1.4]}
    say(made, kernels["relu.e"], good, good, **shown)
    say(made, kernels["tanh.a"], good, good)
    lake = lake_of(made)
    job = make_job(lake, sft, form="protocol", per_policy=9)
    assert [row["kernel_id"] for row in rows_of(job)] == [kernels["tanh.a"]]
    assert (
        materialize.preview_dataset(job).dropped["kernel: no analysis and design of its own"] == 8
    )
    with pytest.raises(EmptyDataset, match="with an analysis and a design"):
        rows_of(make_job(lake, sft, form="protocol", policy="student"))
    with pytest.raises(EmptyDataset) as caught:
        rows_of(make_job(lake, sft, form="protocol", request=Request(tasks=(known.relu,))))
    assert "--form code" in str(caught.value.hint)


@pytest.mark.slow
def test_a_near_duplicate_without_words_does_not_keep_out_one_with_them(
    rows: Rows, lake_of, make_job, rows_of
) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    made = [rows.kernel(relu, code_of("relu", one), bands=range(16)) for one in "abcd"]
    for kernel in made:
        rows.add_verdict(relu, kernel)
    say(rows, made[3], "It waits.", "It does not.")
    found = rows_of(make_job(lake_of(rows), sft, form="protocol"))
    assert [row["kernel_id"] for row in found] == [made[3]]


@pytest.mark.slow
def test_of_several_attempts_at_one_kernel_one_speaks(
    rows: Rows, lake_of, make_job, rows_of
) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    kernel = rows.kernel(relu, code_of("relu", "a"))
    rows.add_verdict(relu, kernel)
    for _ in range(3):
        rows.add_attempt(kernel, relu)
    for name, attempt in zip("dba", rows.tables["generations"][1:], strict=True):
        attempt |= {"generation_id": name, "analysis": f"It is {name}.", "design": f"Not {name}."}
    [row] = rows_of(make_job(lake_of(rows), sft, form="protocol"))
    parsed = parse_completion(row["completion"][0]["content"])
    assert (parsed.analysis, parsed.design) == ("It is a.", "Not a.")


@pytest.mark.slow
@pytest.mark.parametrize(("shared", "kept"), [(8, 1), (7, 2)])
def test_sft_leaves_near_duplicates_of_a_task_out(
    rows: Rows, lake_of, make_job, rows_of, shared, kept
) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    for number, bands in enumerate(([*range(16)], [*range(shared), *range(50, 66 - shared)])):
        rows.add_verdict(relu, rows.kernel(relu, code_of("relu", str(number)), bands=bands))
    job = make_job(lake_of(rows), sft, per_policy=9)
    assert len(rows_of(job)) == kept
    assert materialize.preview_dataset(job).dropped.get("kernel: near-duplicate", 0) == 2 - kept


@pytest.mark.slow
def test_sft_without_verdicts_names_the_way_out(rows: Rows, lake_of, make_job, rows_of) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    rows.claim(relu, rows.kernel(relu, code_of("relu", "a")), 2.0)
    lake = lake_of(rows)
    with pytest.raises(EmptyDataset, match="--evidence claimed"):
        rows_of(make_job(lake, sft))
    [row] = rows_of(make_job(lake, sft, evidence="claimed"))
    assert row["evidence"] == "claimed"


def test_self_supervised_prompts_are_one_per_task(lake, make_job, rows_of) -> None:
    found = rows_of(make_job(lake, self_supervised))
    assert sorted(row["task"] for row in found) == ["exp", "relu", "sigmoid", "tanh"]
    assert {row["device_kind"] for row in found} == {"cuda"}


@pytest.mark.slow
def test_self_supervised_successes_are_those_of_the_policy_and_round(
    rows_and_ids, lake_of, make_job, rows_of
) -> None:
    made, known = rows_and_ids
    good = made.kernel(known.tanh, code_of("tanh", "student"), policy="student")
    made.add_verdict(known.tanh, good)
    bad = made.kernel(known.tanh, code_of("tanh", "broken"), policy="student")
    made.add_verdict(known.tanh, bad, "compile_error")
    lake = lake_of(made)
    for options in ({"policy": "student"}, {"round": 1}, {"policy": "policy-student", "round": 1}):
        job = make_job(lake, self_supervised, select="successes", **options)
        assert [row["kernel_id"] for row in rows_of(job)] == [good]
        assert materialize.preview_dataset(job).dataset_type == "prompt-completion"
    with pytest.raises(EmptyDataset, match="of round 7"):
        rows_of(make_job(lake, self_supervised, select="successes", round=7))


def test_preference_pairs_keep_the_margin(lake, make_job, rows_of, known_ids: Known) -> None:
    names = {kernel: name for name, kernel in known_ids.kernels.items()}
    found = rows_of(make_job(lake, preference_pairs, per_task=60, margin=1.5))
    kinds = {row["kind"] for row in found}
    assert kinds == {"slower", "wrong"}
    pairs = {(names[row["chosen_kernel_id"]], names[row["rejected_kernel_id"]]) for row in found}
    assert {pair for pair in pairs if pair[0].startswith("sigmoid")} == {
        ("sigmoid.c", "sigmoid.a"),
        ("sigmoid.c", "sigmoid.b"),
    }
    for row in found:
        chosen, rejected = names[row["chosen_kernel_id"]], names[row["rejected_kernel_id"]]
        assert chosen != "wrong"
        assert "cheat" not in (chosen, rejected)
        assert f"# {chosen.replace('.', ' ')}\n" in row["chosen"][0]["content"]
        if row["kind"] == "slower":
            assert row["chosen_score"] >= 1.5 * row["rejected_score"]
            assert chosen.partition(".")[0] == rejected.partition(".")[0] == row["task"]
        else:
            assert (rejected, row["rejected_status"]) == ("wrong", "incorrect")
            assert row["rejected_score"] is None


@pytest.mark.parametrize("kind", ["slower", "wrong"])
def test_preference_pairs_of_one_kind(lake, make_job, rows_of, kind) -> None:
    found = rows_of(make_job(lake, preference_pairs, per_task=9, rejected=kind))
    assert {row["kind"] for row in found} == {kind}


def test_every_pair_that_keeps_the_margin_can_be_drawn(lake, make_job, rows_of) -> None:
    found = rows_of(make_job(lake, preference_pairs, per_task=500, margin=1.2, rejected="slower"))
    scores = {"relu": [0.62, 1.42, 1.46, 2.8, 4.1], "sigmoid": [1.1, 1.6, 3.0], "tanh": [2.25]}
    expected = {
        (task, fast, slow)
        for task, values in scores.items()
        for fast in values
        for slow in values
        if fast >= 1.2 * slow
    }
    drawn = {
        (row["task"], round(row["chosen_score"], 2), round(row["rejected_score"], 2))
        for row in found
    }
    assert drawn == expected


def test_a_margin_that_is_none_is_refused(lake, make_job, rows_of) -> None:
    with pytest.raises(DatasetError, match="--margin"):
        rows_of(make_job(lake, preference_pairs, margin=0.9))
    with pytest.raises(EmptyDataset, match="Lower --margin"):
        rows_of(make_job(lake, preference_pairs, margin=100.0, rejected="slower"))


def add_answer(
    rows: Rows, task: str, name: str, minute: int, bands: Sequence[int], status: str = "correct",
    device: str = "H200", **verdict: Any,
) -> str:  # fmt: skip
    """Add a kernel that was written at a minute, and its verdict."""
    kernel = rows.kernel(task, code_of("relu", name), bands=bands)
    rows.tables["generations"][-1]["created_at"] = builders.at(minute)
    rows.add_verdict(task, kernel, status, device=device, **verdict)
    return kernel


def test_repairs_are_the_nearest_later_kernels_that_may_be_shown(
    rows: Rows, lake_of, make_job, rows_of
) -> None:
    rows.device("EPYC", kind="cpu")
    relu = rows.task("relu", family="pointwise", split="train")
    other = rows.task("sigmoid", family="pointwise", split="train")
    message = "maximum error 3.2 at ```[0, 1]```"
    wrong = add_answer(
        rows, relu, "wrong", 5, range(16), "incorrect",
        reason="incorrect_numerical", message=message,
    )  # fmt: skip
    add_answer(rows, relu, "earlier", 1, range(16))
    add_answer(rows, relu, "far", 6, [*range(2), *range(100, 114)])
    near = add_answer(rows, relu, "near", 9, [*range(9), *range(200, 207)])
    add_answer(rows, relu, "as near and later", 11, [*range(9), *range(300, 307)])
    cheat = add_answer(rows, relu, "cheat", 7, [*range(12), *range(700, 704)])
    rows.quarantine(cheat)
    unread = add_answer(rows, relu, "unread", 8, [*range(15), 400])
    rows.tables["scans"] = [row for row in rows.tables["scans"] if row["kernel_id"] != unread]
    add_answer(rows, relu, "on a processor", 7, [*range(14), 500, 501], device="EPYC")
    add_answer(rows, other, "of another task", 7, [*range(13), *range(800, 803)])
    add_answer(rows, relu, "rejected", 2, range(9), "rejected", reason="lazy_output")
    # Nothing resembles it.
    add_answer(rows, relu, "alone", 3, range(600, 616), "timeout", reason="call_timeout")
    job = make_job(lake_of(rows), repair_pairs)
    [row] = rows_of(job)
    assert (row["wrong_kernel_id"], row["repair_kernel_id"]) == (wrong, near)
    assert (row["similarity"], row["status"], row["device"]) == (9 / 16, "incorrect", "H200")
    text = "\n".join(turn["content"] for turn in [*row["prompt"], *row["completion"]])
    assert text + "\n" == (GOLDEN / "repair.txt").read_text("utf-8")
    dropped = materialize.preview_dataset(job).dropped
    assert {why: count for why, count in dropped.items() if why.startswith("kernel")} == {
        "kernel: not audited": 1,
        "kernel: quarantined": 1,
        "kernel: rejected": 1,
    }


@pytest.mark.slow
def test_wrong_kernels_of_a_task_are_drawn(rows: Rows, lake_of, make_job, rows_of) -> None:
    relu = rows.task("relu", family="pointwise", split="train")
    for name in "abcde":
        add_answer(rows, relu, name, 1, range(16), "crash", reason="exception")
    add_answer(rows, relu, "good", 2, range(16))
    lake = lake_of(rows)
    drawn = {
        tuple(row["wrong_kernel_id"] for row in rows_of(make_job(lake, repair_pairs, per_task=2)))
        for _ in range(2)
    }
    assert [len(set(ids)) for ids in drawn] == [2]
    assert len(rows_of(make_job(lake, repair_pairs))) == 4
    with pytest.raises(DatasetError, match="--per-task"):
        rows_of(make_job(lake, repair_pairs, per_task=0))


def test_without_a_repair_the_view_is_named(lake, make_job, rows_of) -> None:
    with pytest.raises(EmptyDataset, match="resembles it"):
        rows_of(make_job(lake, repair_pairs))


def test_eval_purpose_asks_for_test_tasks_in_every_pipeline(lake, make_job, rows_of) -> None:
    for module in (rl_prompts, self_supervised, sft):
        found = rows_of(make_job(lake, module, request=Request(purpose="eval")))
        assert {(row["task"], row["purpose"]) for row in found} == {("cumsum", "eval")}


def test_a_degenerate_task_takes_part_when_asked(lake, make_job, rows_of) -> None:
    found = rows_of(make_job(lake, rl_prompts, request=Request(include_trivial=True)))
    assert "zeros_like" in {row["task"] for row in found}
