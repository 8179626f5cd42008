"""Trainings and judges of one GPU: who samples shares it, who trains has it alone."""

from __future__ import annotations

import fcntl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed")

from evaluators import DeviceLock
from trainers.models import loading
from trainers.runs.gpu_turns import GpuTurns, open_lock

# transformers 5.17 has the old name alone, and 5.23 tells of the new one.
pytestmark = pytest.mark.filterwarnings("ignore:`.*gradient_checkpointing:FutureWarning")


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the locks of this machine out of it."""
    monkeypatch.setenv("FLYWHEEL_LOCKS", str(tmp_path / "flywheel-locks"))
    return tmp_path / "flywheel-locks"


@pytest.fixture
def turns() -> Iterator[GpuTurns]:
    lock = DeviceLock.of(["gpu-a"])
    turns = GpuTurns("cpu", lock)
    yield turns
    turns.close()


def tell_hold(locks: Path) -> str:
    """Return how the device is held, asked by another file descriptor."""
    with (locks / "gpu-a.lock").open() as file:
        for how, told in ((fcntl.LOCK_EX, "free"), (fcntl.LOCK_SH, "shared")):
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            return told
    return "alone"


def test_each_turn_ends_the_one_before(turns: GpuTurns, locks: Path) -> None:
    assert tell_hold(locks) == "free"
    turns.share()
    assert tell_hold(locks) == "shared"
    turns.take()
    assert tell_hold(locks) == "alone"
    with turns.sharing():
        assert tell_hold(locks) == "shared"
    assert tell_hold(locks) == "free"


def test_sampling_lets_a_judge_that_waits_have_the_gpu(turns: GpuTurns) -> None:
    import torch

    model = torch.nn.Linear(2, 2)
    turns.watch(model)
    timed = threading.Event()

    def time_kernel() -> None:
        judge = DeviceLock.of(["gpu-a"])
        with judge.hold_exclusive():
            timed.set()
        judge.close()

    with turns.sharing():
        model(torch.zeros(2))
        judging = threading.Thread(target=time_kernel)
        judging.start()
        stop = time.monotonic() + 120
        while not timed.is_set():
            assert time.monotonic() < stop, "the judge never had it"
            model(torch.zeros(2))
        judging.join()


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("lora", [None, 4])
def test_a_step_holds_the_gpu_except_while_it_is_judged(
    locks: Path, tmp_path: Path, lora: int | None
) -> None:
    import datasets
    from transformers import TrainerCallback
    from trl.trainer.grpo_config import GRPOConfig

    from trainers.training.grpo import Rewarded, StoreGRPOTrainer

    seen: list[tuple[str, str]] = []
    ways: list[str] = []

    class Watched(GpuTurns):
        def give_way(self) -> None:
            ways.append(tell_hold(locks))
            super().give_way()

    class Feed:
        def render_prompts(self, step: int, batch: int, tasks: list[str]) -> list[Any]:
            seen.append(("prompts", tell_hold(locks)))
            return [[{"role": "user", "content": task}] for task in tasks]

        def reward(self, sampled: list[Any]) -> Rewarded:
            seen.append(("rewards", tell_hold(locks)))
            assert set(ways) == {"shared"}
            ids = [str(at) for at in range(len(sampled))]
            return Rewarded(rewards=[1.0, 0.0], generation_ids=ids, figures={})

        def keep_tokens(self, rollouts: list[Any]) -> None:
            assert [one["generation_id"] for one in rollouts] == ["0", "1"]
            seen.append(("tokens", tell_hold(locks)))

    class Watch(TrainerCallback):
        def on_step_end(self, *given: Any, **more: Any) -> None:
            seen.append(("updated", tell_hold(locks)))

    turns = Watched("cpu", DeviceLock.of(["gpu-a"]))
    start = loading.write_tiny_model(tmp_path / "model", 0)
    model = loading.load_model(start)
    model.register_forward_pre_hook(lambda *_: seen.append(("forward", tell_hold(locks))))
    rows = {"task_id": ["a", "b"], "prompt": [[{"role": "user", "content": ""}]] * 2}
    trainer = StoreGRPOTrainer(
        feed=Feed(),  # type: ignore[arg-type]
        turns=turns,
        model=model,
        peft_config=loading.make_adapter_config(start, lora),
        args=GRPOConfig(
            output_dir=str(tmp_path / "out"),
            max_steps=2,
            num_iterations=2,
            num_generations=2,
            per_device_train_batch_size=2,
            max_completion_length=2,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
            **loading.choose_precision(),
        ),
        train_dataset=datasets.Dataset.from_dict(rows),
        processing_class=loading.load_tokenizer(tmp_path / "model"),
        callbacks=[Watch()],
    )
    trainer.train()
    assert list(dict.fromkeys(seen)) == [
        ("prompts", "free"),
        ("forward", "shared"),
        ("rewards", "free"),
        ("tokens", "alone"),
        ("forward", "alone"),
        ("updated", "alone"),
    ]
    trainer.save_model(str(tmp_path / "saved"))
    turns.close()
    assert tell_hold(locks) == "free"


def test_a_cpu_and_one_process_of_several_have_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    assert open_lock("cpu").fds == []
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert open_lock("cuda:0").fds == []
    monkeypatch.setenv("WORLD_SIZE", "1")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7,GPU-9")
    lock = open_lock("cuda:1")
    assert len(lock.fds) == 1
    lock.close()
