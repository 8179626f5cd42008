"""Completions as rows: what refers to what, and that a lake takes them."""

from __future__ import annotations

from typing import Any

import builders
import pytest

import store
from store import ids
from trainers.policies.interface import FAILED, Completion, Sampling
from trainers.rollouts.attempts import ShownPrompt, format_completion, make_attempt_rows

CODE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
WHOLE = (
    "### Performance Analysis\nFastest: Kernel 2. Loads are coalesced.\n\n"
    f"### Algorithm Design\nUnroll.\n\n### Code\n```python\n{CODE}```"
)


def completion(text: str = WHOLE, finish_reason: str = "stop", **more: Any) -> Completion:
    given = {"prompt_tokens": 100, "completion_tokens": 40} | more
    return Completion(text=text, finish_reason=finish_reason, **given)


def make_prompt(task: builders.Row, *shown: builders.Row, **more: Any) -> ShownPrompt:
    given: dict[str, Any] = {
        "task_id": task["task_id"],
        "messages": [{"role": "user", "content": "Make it fast: naïve"}],
        "template_hash": "t" * 64,
        "purpose": "train",
        "exemplar_kernel_ids": [one["kernel_id"] for one in shown],
        "exemplar_scores": [1.5 + place for place in range(len(shown))],
        "lake_id": "a lake",
        "snapshot_id": 7,
    }
    return ShownPrompt(**given | more)


@pytest.fixture
def known_rows(writer: store.Writer) -> dict[str, builders.Row]:
    rows = {
        "task": builders.task(), "slow": builders.kernel("slow"), "fast": builders.kernel("fast"),
        "policy": builders.policy(), "run": builders.run("rollout", "rollout"),
    }  # fmt: skip
    tables = {
        "tasks": ["task"],
        "kernels": ["slow", "fast"],
        "policies": ["policy"],
        "runs": ["run"],
    }
    writer.append({name: [rows[one] for one in of] for name, of in tables.items()}, "known")
    return rows


def test_a_lake_takes_every_kind_of_attempt(
    writer: store.Writer, known_rows: dict[str, builders.Row]
) -> None:
    shown = make_prompt(known_rows["task"], known_rows["slow"], known_rows["fast"])
    came = [
        completion(cost_usd=0.25),
        completion(),  # the same kernel again
        completion("I cannot.", completion_tokens=2),
        completion("```python\nclass ModelNew", "length"),
        completion("", FAILED, error="status 500: sorry"),
        completion("nul \0 and \ud800"),
        completion("```python\nx = '\0'\nclass ModelNew: ...\n```"),
    ]
    sampling = Sampling(temperature=0.5, seed=3)
    tables = make_attempt_rows(
        known_rows["run"]["run_id"],
        known_rows["policy"]["policy_id"],
        "g",
        shown,
        came,
        sampling,
        first=4,
    )
    writer.append(tables, "attempts")
    with writer.reader() as lake:
        rows = lake.run("SELECT * FROM generations ORDER BY sample_index").rows()
        features = lake.run("SELECT kernel_id, parsed FROM kernel_features").rows()
        analysis = lake.run("SELECT * FROM analyses").rows()
        prompt = lake.run("SELECT * FROM prompts").one()
    assert [row["sample_index"] for row in rows] == list(range(4, 11))
    kernel_id = ids.kernel_id({"kernel.py": CODE}, "kernel.py")
    assert [row["kernel_id"] for row in rows[:5]] == [kernel_id, kernel_id, None, None, None]
    assert [row["parse_error"] for row in rows] == [
        None, None, "no code", "truncated", "status 500: sorry", "no code", None,
    ]  # fmt: skip
    assert [row["finish_reason"] for row in rows][3:5] == ["length", "error"]
    assert rows[4]["completion"] is None
    assert rows[5]["completion"] == "nul \ufffd and ?"
    assert {row["group_id"] for row in rows} == {"g"}
    assert rows[0]["cost_usd"] == 0.25
    assert rows[0]["design"] == "Unroll."
    assert rows[0]["exemplar_kernel_ids"] == [
        known_rows["slow"]["kernel_id"],
        known_rows["fast"]["kernel_id"],
    ]
    assert (rows[0]["exemplar_scores"], rows[0]["snapshot_id"]) == ([1.5, 2.5], 7)
    assert '"temperature": 0.5' in rows[0]["sampling"]
    assert {row["kernel_id"] for row in features} == {rows[0]["kernel_id"], rows[6]["kernel_id"]}
    assert [row["fastest_kernel_id"] for row in analysis] == [known_rows["fast"]["kernel_id"]] * 2
    assert analysis[0]["techniques"] == ["coalesced_access", "unrolling"]
    assert {row["generation_id"] for row in analysis} == {row["generation_id"] for row in rows[:2]}
    assert prompt is not None
    assert (prompt["prompt_id"], prompt["purpose"]) == (rows[0]["prompt_id"], "train")
    assert "naïve" in prompt["messages"]


def test_a_prompt_has_the_id_that_datasets_give_it() -> None:
    import pipelines

    one = make_prompt(builders.task())
    assert one.prompt_id == pipelines.prompt_id(one.messages)


@pytest.mark.parametrize(("named", "of"), [(1, 2), (2, 2), (3, 2), (0, 2), (1, 0)])
def test_only_an_exemplar_of_the_prompt_can_be_the_fastest(named: int, of: int) -> None:
    shown = [builders.kernel(f"shown {place}") for place in range(of)]
    text = f"### Analysis\nFastest: Kernel {named}\n\n```python\n{CODE}```"
    tables = make_attempt_rows(
        "r", "p", "g", make_prompt(builders.task(), *shown), [completion(text)], Sampling()
    )
    expected = shown[named - 1]["kernel_id"] if 1 <= named <= of else None
    assert tables["analyses"][0]["fastest_kernel_id"] == expected


def test_reasoning_given_apart_is_kept_and_not_searched_for_code() -> None:
    one = completion("I give up.", reasoning=f"First\n```python\n{CODE}```")
    row = make_attempt_rows("r", "p", "g", make_prompt(builders.task()), [one], Sampling())[
        "generations"
    ][0]
    assert (row["kernel_id"], row["parse_error"]) == (None, "no code")
    assert row["completion"] == format_completion(one)
    assert format_completion(one).startswith("<think>\nFirst\n```python")


def test_files_that_belong_together_are_one_kernel() -> None:
    text = (
        f"File `m.py`:\n```python\n{CODE}```\nFile `k.cu`:\n```cuda\n__global__ void f() {{}}\n```"
    )
    tables = make_attempt_rows(
        "r", "p", "g", make_prompt(builders.task()), [completion(text)], Sampling()
    )
    kernel, features = tables["kernels"][0], tables["kernel_features"][0]
    assert (kernel["path"], kernel["other_files"]) == (
        "m.py", [{"path": "k.cu", "code": "__global__ void f() {}\n"}],
    )  # fmt: skip
    assert features["global_functions"] == 1
