"""Models of the experiment in lab/scores, and its pipeline on a lake."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import store
from lab.scores import (
    answer,
    answers,
    budget,
    grid,
    grpo,
    prompts,
    rehearse,
    score,
    search,
    tasks,
    train,
)
from lab.scores import model as models
from store.errors import FlywheelError

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    kernels = [kernel.code for kernel in grid.list_kernels(("train",))][::99]
    texts = [answer.write_answer(kernel, 1) for kernel in kernels]
    assert rehearse.write_model(folder, texts) < 1_000_000
    return folder


def load(folder: Path, scratch: Path) -> tuple[Any, Any]:
    return models.load(str(folder), scratch, "cpu")


@pytest.mark.slow
def test_a_trie_gives_the_probabilities_of_plain_passes(model_folder: Path, tmp_path: Path) -> None:
    import torch

    model, tokenizer = load(model_folder, tmp_path)
    model.eval()
    family = "tuned_rows"
    trie = score.build_trie(family, shows=True, tokenizer=tokenizer)
    assert len(trie.heads) == len(set(trie.heads)) == 2 * len(tasks.list_settings(family))
    texts = [
        [{"role": "user", "content": text}] for text in ("Kernel 1: 2.50x", "BLOCK_R = 4\n" * 9)
    ]
    asked = [
        score.Prompt(str(place), family, True, models.encode_prompt(tokenizer, text))
        for place, text in enumerate(texts)
    ]
    assert len(asked[0].tokens) != len(asked[1].tokens)
    with torch.inference_mode():
        found = score.score_batch(model, asked, trie, tokenizer.pad_token_id)
    for row, one in enumerate(asked):
        for column in (0, 17, 71):
            named, setting = trie.heads[column]
            head = answer.write_head(tasks.read_name(setting), named)
            tokens = [token for part in head for token in models.encode(tokenizer, part)]
            with torch.inference_mode():
                logits = model(torch.tensor([one.tokens + tokens])).logits[0].log_softmax(-1)
            plain = sum(
                float(logits[len(one.tokens) - 1 + place, token])
                for place, token in enumerate(tokens)
            )
            assert float(found[row, column]) == pytest.approx(plain, abs=1e-3)


@pytest.mark.slow
def test_the_gate_has_prompts_whose_scores_differ_enough(
    model_folder: Path, tmp_path: Path
) -> None:
    _, tokenizer = load(model_folder, tmp_path)
    kernels = {
        kernel.task.family: answer.write_answer(kernel.code, 1)
        for kernel in grid.list_kernels(("train",))
    }
    cases = [
        ("a", "right", [1.5, 1.0], "tuned_columns"),
        ("b", "right", [1.0, 1.49], "tuned_rows"),
        ("c", "no_scores", [9.0, 1.0], "tuned_rows"),
        ("d", "right", [1.0, 3.0], "tuned_rows"),
    ]
    rows = [
        {
            "prompt_id": name,
            "form": form,
            "right_scores": scores,
            "prompt": [{"role": "user", "content": name}],
            "completion": [{"role": "assistant", "content": kernels[family]}],
        }
        for name, form, scores, family in cases
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    found = score.read_gate_prompts(tmp_path / "rows.parquet", tokenizer)
    # Knobs of rows are among those of columns.
    assert [(one.prompt_id, one.family) for one in found] == [
        ("a", "tuned_columns"),
        ("d", "tuned_rows"),
    ]


@pytest.mark.slow
def test_a_training_that_is_stopped_ends_with_the_same_weights(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    kernels = [kernel.code for kernel in grid.list_kernels(("train",))][:6]

    def run(out: Path, seconds: float, epochs: int = 2) -> tuple[bool, Any]:
        model, tokenizer = load(model_folder, tmp_path)
        examples = [
            train.Example(
                models.encode(tokenizer, f"Kernel {place}"),
                models.encode_answer(tokenizer, answer.write_answer(kernel, 1)),
            )
            for place, kernel in enumerate(kernels)
        ]
        plan = train.Plan(epochs=epochs, batch=2)
        limit = budget.Budget(seconds)
        return train.train(model, examples, plan, out, limit, tokenizer.pad_token_id), model

    done, whole = run(tmp_path / "whole", 1000)
    assert done
    # Two are read to announce the cost, so the budget ends before the third of six steps.
    left = iter([1000.0, *[1000.0] * 3, 0.0])
    monkeypatch.setattr(budget.Budget, "left", property(lambda _: next(left, 1000.0)))
    stopped, _ = run(tmp_path / "parts", 1000)
    assert not stopped
    done, resumed = run(tmp_path / "parts", 1000)
    assert done
    for (name, one), (_, other) in zip(
        whole.named_parameters(), resumed.named_parameters(), strict=True
    ):
        assert (one - other).abs().max() < 1e-6, name
    # Killed in the fourth step, after the state was saved.
    loss, steps = train.compute_loss, iter(range(100))

    def lose(*words: Any) -> Any:
        if next(steps) == 3:
            raise KeyboardInterrupt
        return loss(*words)

    monkeypatch.setattr(train, "_SAVE_S", 0.0)
    monkeypatch.setattr(train, "compute_loss", lose)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed", 1000)
    monkeypatch.setattr(train, "compute_loss", loss)
    _, resumed = run(tmp_path / "killed", 1000)
    assert torch.load(tmp_path / "killed" / "state.pt", weights_only=True)["step"] == 5
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert (one - other).abs().max() < 1e-6
    with pytest.raises(FlywheelError, match="another plan"):
        run(tmp_path / "killed", 1000, epochs=4)


@pytest.mark.slow
def test_scores_that_were_cut_off_are_written_again(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = load(model_folder, tmp_path)
    tokens = models.encode_prompt(tokenizer, [{"role": "user", "content": "Kernel 1: 2.50x"}])
    asked = [score.Prompt("p", "tuned_rows", True, tokens)]
    write, file = pq.write_table, tmp_path / "prompts-0.parquet"

    def cut_off(table: Any, path: Path, **options: Any) -> None:
        write(table, path, **options)
        if options:
            path.write_bytes(path.read_bytes()[:100])
            raise KeyboardInterrupt

    monkeypatch.setattr(score, "LEAST", 0.0)  # a random model has no larger ones
    monkeypatch.setattr(pq, "write_table", cut_off)
    with pytest.raises(KeyboardInterrupt):
        score.score(model, tokenizer, asked, file, 1, budget.Budget(1000))
    monkeypatch.setattr(pq, "write_table", write)
    assert score.score(model, tokenizer, asked, file, 1, budget.Budget(1000))
    assert pq.read_table(file).num_rows == 72


@pytest.mark.slow
def test_grpo_makes_rewarded_settings_more_probable(model_folder: Path, tmp_path: Path) -> None:
    import torch

    model, tokenizer = load(model_folder, tmp_path)
    family = "tuned_rows"
    tokens = models.encode(tokenizer, "BLOCK_R = 4\n")
    questions = [
        grpo.Question(score.Prompt(str(place), family, True, tokens), "t") for place in range(2)
    ]
    settings = tasks.list_settings(family)
    outcomes = {("t", tasks.name_setting(one)): float(one["WARPS"] == 8) for one in settings}
    # A model that has learned what an answer looks like, so that some of its attempts are answers.
    heads = [
        [models.encode(tokenizer, part) for part in answer.write_head(one, 1)] for one in settings
    ]
    examples = [train.Example(tokens, [token for part in head for token in part]) for head in heads]
    learned = train.Plan(epochs=25, learning_rate=3e-3)
    train.train(model, examples, learned, tmp_path / "0", budget.Budget(1000), 0)
    trie = score.build_trie(family, shows=True, tokenizer=tokenizer)

    def sum_grid() -> float:
        with torch.no_grad():
            return float(score.score_batch(model, [questions[0].prompt], trie, 0).exp().sum())

    before = sum_grid()
    plan = grpo.Plan(steps=20, prompts=2, group=8, learning_rate=1e-3)
    grpo.train(model, tokenizer, questions, outcomes, plan, tmp_path)
    lines = (tmp_path / "rewards.jsonl").read_text("utf-8").splitlines()
    found = [json.loads(line)["outcome"] for line in lines]
    assert sum(found[-5:]) > sum(found[:5]) + 1
    assert sum_grid() > before


@pytest.mark.slow
def test_a_search_shows_the_fastest_kernels_so_far(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(search.__file__).parent)
    model, tokenizer = load(model_folder, tmp_path)
    task = next(task for task in tasks.list_tasks() if task.family == "tuned_rows")
    names = [tasks.name_setting(setting) for setting in tasks.list_settings("tuned_rows")]
    # Kernels with WARPS=1 fail; of the others, later ones are faster.
    surface = {
        (task.task_id, name): None if "WARPS=1" in name else 2.0 + place / 10
        for place, name in enumerate(names)
    }
    start = {names[1]: 1.0, names[2]: 1.5}
    chain = search.Chain(task, 1, dict(start))
    attempts = list(
        search.search(model, tokenizer, [chain], surface, arm="right", rounds=4, batch=2, seed=0)
    )
    assert [row["round"] for row in attempts] == [1, 2, 3, 4]
    scores = dict(start)
    for row in attempts:
        assert set(row["shown"]) == set(sorted(scores, key=lambda name: scores[name])[-2:])
        if (speedup := surface[task.task_id, row["setting"]]) is not None:
            scores[row["setting"]] = speedup
    assert chain.scores == scores


@pytest.mark.slow
def test_answers_are_sampled_and_their_kernels_read(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = load(model_folder, tmp_path)
    place = answers.Place("p", "s", "right", 1, models.encode(tokenizer, "Kernel 1"))
    monkeypatch.setattr(answers, "_MOST_TOKENS", 4)
    first, second = (answers.sample(model, tokenizer, [place] * 2, 3) for _ in range(2))
    assert first == second
    assert first[0]["kernel_id"] is None
    kernel = next(grid.list_kernels())
    assert answer.read_kernel(answer.write_answer(kernel.code, 1)) == kernel.code


def make_result(kernel: grid.GridKernel, speedup: float | None) -> dict[str, Any]:
    """Return a verdict as `judge` writes it."""
    shared = {
        "kernel_id": kernel.kernel_id,
        "task_id": kernel.task.task_id,
        "workload_id": kernel.make_case().workload_id,
        "device_id": "d",
        "evaluation_id": store.ids.content_id("evaluation", kernel.place),
        "created_at": NOW.isoformat(),
    }
    session = store.ids.content_id("session", kernel.place)
    status = (
        {"status": "timeout", "reason": "unspecified"} if speedup is None else {"status": "correct"}
    )
    timings = [
        shared
        | {"timing_id": session + arm, "session_id": session, "arm": arm, "samples_ms": [ms] * 8}
        | {"blocks": list(range(8)), "inner_loops": 1, "clock": "gpu", "cache": "cold"}
        | {"noisy": False, "confirmed": False, "disturbed": False, "unresolved": False}
        for arm, ms in (("kernel", 1.0 / (speedup or 1.0)), ("eager", 1.0))
    ]
    return {
        "case": kernel.make_case().write(),
        "device": {"device_id": "d", "name": "H100", "kind": "cuda", "model": "H100"},
        "tables": {
            "evaluations": [
                shared
                | status
                | {"evaluator": "judge", "evaluator_version": 10, "precision": "torch_default"}
            ],
            "timings": timings if speedup else [],
        },
    }


@pytest.mark.slow
def test_verdicts_become_rows_and_arms(tmp_path: Path) -> None:
    """A grid of four settings at two shapes goes into lakes, and its prompts hide the sizes."""
    speedups = {"8192 x 2048": (1.0, 2.0, 3.0, None), "65536 x 256": (3.0, 2.0, 1.0, 0.5)}
    for split, operations in (("train", ("square",)), ("test", ("ReLU", "scale"))):
        found = [
            kernel
            for kernel in grid.list_kernels((split,))  # pyright: ignore[reportArgumentType]
            if kernel.task.operation in operations
            and kernel.task.shape in speedups
            and tasks.list_settings("tuned_rows").index(kernel.setting) in range(0, 36, 9)
        ]
        results = [
            make_result(kernel, speedups[kernel.task.shape][place % 4])
            for place, kernel in enumerate(found)
        ]
        for _ in range(2):  # the second call stores nothing
            grid.fill_lake(tmp_path / "lakes" / split, split, results, found)  # pyright: ignore[reportArgumentType]
    surface = grid.read_surface(tmp_path).to_pylist()
    assert len(surface) == 3 * 2 * 4
    assert {row["judged"] for row in surface} == {1}
    for row in surface:
        failed = row["shape"] == "8192 x 2048" and row["status"] == "timeout"
        wanted = 1.0 if failed else row["speedup"]
        assert row["outcome"] == pytest.approx(math.log(wanted), abs=1e-6)

    options = ("--scored", "4", "--unscored", "2", "--bare", "3", "--draws", "2")
    counts = prompts.make_prompts(tmp_path, options)
    rows = pq.read_table(tmp_path / "rows.parquet").to_pylist()
    assert counts["rows"] == len(rows)
    assert sum(row["copies"] for row in rows) == 9
    best = {
        row["kernel_id"]
        for row in surface
        if row["split"] == "train" and row["speedup"] == pytest.approx(3.0)
    }
    for row in rows:
        prompt, completion = row["prompt"][0]["content"], row["completion"][0]["content"]
        assert "ROWS = ...\nCOLS = ...\n" in prompt
        kernel = answer.read_kernel(completion)
        assert kernel is not None
        assert store.ids.kernel_id({"kernel.py": kernel}, "kernel.py", "ModelNew") in best
        assert completion.startswith("Fastest: Kernel") == (row["form"] != "none")
        assert ("x as fast as the module" in prompt) == (row["form"] == "right")
    arms = pq.read_table(tmp_path / "arms.parquet").to_pylist()
    places = [place | row for row in arms for place in row["places"]]
    names = sorted({place["arm"] for place in places})
    assert names == ["no_scores", "none", "other_task", "reversed", "right"]
    shown = {
        (place["task_id"], place["draw"], place["arm"]): place["prompt"][0]["content"]
        for place in places
    }
    for (task, draw, arm), text in shown.items():
        if arm == "reversed":
            one, other = places_scores(text)
            assert places_scores(shown[task, draw, "right"]) == [other, one]


def places_scores(prompt: str) -> list[str]:
    """Return the scores that a prompt shows."""
    return [line.split()[2] for line in prompt.splitlines() if line.startswith("Kernel ")]
