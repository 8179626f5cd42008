"""Rollouts with token ids in the columns of TRL and verl, and which of them stay in the lake."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import builders as b
import pyarrow.parquet as pq
import pytest

import store
from store.errors import ExportRefused
from store.exporters import trl, verl
from store.exporters.writing.run import OfRun, export

TRAIN, RUN, POLICY = b.task("square"), b.run("ours", "training"), b.policy()
CUBE = store.ids.normalize(TRAIN["code"].replace("x * x", "x * x * x"))
TEST = b.task("cube", code=CUBE, task_id=store.ids.task_id(CUBE))
CHEAT = b.kernel("cheat")
PROMPT = {
    "prompt_id": store.ids.prompt_id([{"role": "user", "content": "Square it."}]),
    "messages": store.ids.messages_json([{"role": "user", "content": "Square it."}]),
    "created_at": b.START,
}


def attempt(minute: int, task: b.Row = TRAIN, kernel: b.Row | None = None, **more: Any) -> b.Row:
    columns: dict[str, Any] = {
        "run_id": RUN["run_id"], "step": 0, "completion": str(minute), "group_id": "g",
        "prompt_id": PROMPT["prompt_id"],
    }  # fmt: skip
    return b.generation(POLICY, task, kernel, minute=minute, **(columns | more))


FIRST, SECOND = attempt(0, sample_index=0), attempt(1, sample_index=1)
KEPT_BACK = [
    attempt(2, task=TEST),
    attempt(3, kernel=CHEAT),
    attempt(4, exemplars=[(CHEAT, 2.0)]),
    # Another turn of it has a kernel that no dataset may contain.
    attempt(5, trajectory_id="t", turn=1),
    attempt(6, kernel=CHEAT, trajectory_id="t", turn=0),
]
TOKENS = [
    b.rollout_tokens(
        FIRST, [5, 6, 7], prompt_ids=[1, 2], loss_mask=[True, False, True], advantage=0.5,
        sampler_logprobs=[-0.5, 0.0, -0.25], old_logprobs=[-0.5, -4.0, -0.5],
    ),
    b.rollout_tokens(SECOND, [8], prompt_ids=[1, 2]),
    *(b.rollout_tokens(one, [9], prompt_ids=[1, 2]) for one in KEPT_BACK),
]  # fmt: skip
NO_PROMPT = attempt(7)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[store.Lake]:
    """Return a run with two rollouts that may leave, and one for each reason to stay."""
    url = str(tmp_path_factory.mktemp("rollouts") / "lake")
    labels = [b.label(TRAIN, family="train"), b.label(TEST, "level2/2", level=2, problem_id=2)]
    found = b.finding(CHEAT)
    with store.writer(url, author="tests") as writer:
        rows = {
            "tasks": [TRAIN, TEST], "policies": [POLICY], "runs": [RUN], "kernels": [CHEAT],
            "prompts": [PROMPT], "generations": [FIRST, SECOND, *KEPT_BACK, NO_PROMPT],
            "rollout_tokens": [*TOKENS, b.rollout_tokens(NO_PROMPT, [9])],
            "rewards": [b.reward(FIRST, 1.0, "right"), b.reward(FIRST, -0.25, "short"),
                        b.reward(SECOND, 0.5, rule_version=1),
                        b.reward(SECOND, 2.0, rule_version=2)],
            "task_labels": labels, "splits": [b.split(split="test", family=labels[1]["family"])],
            "findings": [found], "standings": [b.standing(found)],
        }  # fmt: skip
        writer.append(rows, "rollouts")
    with store.open(url) as opened:
        yield opened


def read(lake: store.Lake, module: Any, folder: Path) -> list[dict[str, Any]]:
    """Return the rows that an exporter writes."""
    assert export(lake, module, folder, OfRun(run="ours")) == {"rollouts": 2, "left out": 6}
    return pq.read_table(folder / "train.parquet").to_pylist()


def test_trl_gets_ids_labels_and_log_probabilities(lake: store.Lake, tmp_path: Path) -> None:
    first, second = read(lake, trl, tmp_path / "out")
    assert first["prompt"] == [{"role": "user", "content": "Square it."}]
    assert first["completion"] == [{"role": "assistant", "content": "0"}]
    assert first["input_ids"] == [1, 2, 5, 6, 7]
    assert first["labels"] == [-100, -100, 5, -100, 7]
    assert (first["prompt_ids"], first["completion_ids"]) == ([1, 2], [5, 6, 7])
    assert (first["logprobs"], first["env_mask"]) == ([-0.5, 0, -0.25], [1, 0, 1])
    assert (first["reward"], first["advantage"]) == (0.75, 0.5)
    assert first["rewards"] == [{"name": "right", "value": 1}, {"name": "short", "value": -0.25}]
    assert (second["labels"], second["env_mask"], second["reward"]) == ([-100, -100, 8], None, 2)


def test_verl_gets_what_its_agent_loop_returns(lake: store.Lake, tmp_path: Path) -> None:
    first, second = read(lake, verl, tmp_path / "out")
    assert first["data_source"] == "kernelbench"
    assert first["reward_model"] == {"style": "rule", "ground_truth": "level1/1"}
    assert first["extra_info"]["generation_id"] == FIRST["generation_id"]
    assert (first["prompt_ids"], first["response_ids"]) == ([1, 2], [5, 6, 7])
    assert (first["response_mask"], second["response_mask"]) == ([1, 0, 1], [1])
    assert first["response_logprobs"] == [-0.5, 0, -0.25]
    assert (first["reward_score"], second["reward_score"]) == (0.75, 2)


@pytest.mark.slow
def test_a_run_whose_rollouts_all_stay_is_refused(lake: store.Lake, tmp_path: Path) -> None:
    other = b.run("evaluated", "training")
    answer = b.generation(POLICY, TEST, minute=9, run_id=other["run_id"], step=0)
    with store.writer(lake.url, author="tests") as writer:
        rows = {"runs": [other], "generations": [answer]}
        writer.append(
            {**rows, "rollout_tokens": [b.rollout_tokens(answer, [1], prompt_ids=[1])]}, ""
        )
    with (
        store.open(lake.url) as opened,
        pytest.raises(ExportRefused, match="none of 1 rollouts with tokens may leave"),
    ):
        export(opened, trl, tmp_path / "out", OfRun(run="evaluated"))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`.*gradient_checkpointing:FutureWarning")
def test_load_dataset_opens_the_folder_and_sft_trains_on_it(
    lake: store.Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    training = pytest.importorskip("trl")
    transformers = pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    read(lake, trl, tmp_path / "out")
    rows = datasets.load_dataset(str(tmp_path / "out"), split="train")
    assert rows[0]["input_ids"] == [1, 2, 5, 6, 7]
    from tokenizers import Tokenizer, models

    words = {f"w{at}": at for at in range(10)}
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, "w0")), eos_token="w0", pad_token="w0"
    )
    config = transformers.LlamaConfig(
        vocab_size=10, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
        num_attention_heads=1,
    )  # fmt: skip
    trainer = training.SFTTrainer(
        model=transformers.LlamaForCausalLM(config),
        args=training.SFTConfig(
            output_dir=str(tmp_path / "model"), max_steps=1, report_to=[], use_cpu=True, bf16=False
        ),
        train_dataset=rows,
        processing_class=tokenizer,
    )
    trainer.train()
    batch = next(iter(trainer.get_train_dataloader()))
    assert sorted(batch["labels"][:, :3].tolist()) == [[-100, -100, 5], [-100, -100, 8]]
