"""Stage 2 in the form of reinforcement learning: what is asked, and what is learnt from it."""

from __future__ import annotations

import pytest

from pipelines import rl_prompts, self_supervised
from store.code.completion import parse_completion


@pytest.mark.slow
def test_a_success_is_learnt_as_the_answer_to_the_prompt_that_was_asked(
    rows_and_ids, lake_of, make_job, rows_of
) -> None:
    made, known = rows_and_ids
    spoken = known.kernels["relu.a"]
    [attempt] = [row for row in made.tables["generations"] if row["kernel_id"] == spoken]
    attempt |= {"analysis": "It waits for memory.", "design": "One pass."}
    lake = lake_of(made)
    prompts = rows_of(make_job(lake, self_supervised, form="protocol"))
    asked = {row["task"]: row["prompt"] for row in prompts}
    assert asked == {row["task"]: row["prompt"] for row in rows_of(make_job(lake, rl_prompts))}
    plain = {row["task"]: row["prompt"] for row in rows_of(make_job(lake, self_supervised))}
    assert plain.keys() == asked.keys()
    assert all(plain[task] != asked[task] for task in asked)
    job = make_job(lake, self_supervised, select="successes", form="protocol", per_policy=9)
    [row] = rows_of(job)
    assert (row["kernel_id"], row["prompt"]) == (spoken, asked["relu"])
    parsed = parse_completion(row["completion"][0]["content"])
    assert (parsed.analysis, parsed.design) == ("It waits for memory.", "One pass.")
    assert parsed.parse_error is None
