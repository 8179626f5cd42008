"""The sizes of an experiment."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of an experiment, in the terms of the commands' options."""

    model: str
    device: str
    """Where kernels are judged: cpu, cuda:0, or several GPUs, cuda:0,cuda:1."""
    train_tasks: int
    test_tasks: int
    kernels: str
    """Languages of the teacher, as in `store import generated --kernels`."""
    starter: bool = False
    """Whether the starter suite is there, for a model that is overfitted on its tasks."""
    teacher: tuple[str, ...] = ()
    judge: tuple[str, ...] = ()
    """KEY=VALUE, for every judge."""
    rows: tuple[str, ...] = ()
    sft: tuple[str, ...] = ()
    self_supervised: tuple[str, ...] = ()
    contrastive: tuple[str, ...] = ()
    rollout: tuple[str, ...] = ()
    arms: tuple[str, ...] = ("bucket", "none")
    repeats: int = 1
    """Trainings of each arm, with seeds of their own."""
    budget_s: float = 600.0


PRESETS = {
    # A random model of 3M parameters that has learnt short answers to two starter tasks by heart:
    # each step has work, and no figure says anything.
    "cpu-small": Sizes(
        model="tiny",
        device="cpu",
        train_tasks=2,
        test_tasks=3,
        kernels="cpu",
        starter=True,
        teacher=(
            "--where",
            "path LIKE '%torch%' OR regexp_matches(path, 'broadcast|row_loop|block_rows|halves')",
        ),
        judge=(
            "calls=3",
            "robustness=false",
            "diagnosis=false",
            "timing_s=1",
            "timing_limit_s=6",
            "blocks=20",
        ),
        rows=("--limit", "4"),
        sft=(
            *("--save-steps", "2", "--trl", "max_steps=2"),
            *("--trl", "per_device_train_batch_size=1", "--trl", "gradient_checkpointing=false"),
        ),
        self_supervised=(
            *("--overfit", "--rounds", "1", "--attempts", "12", "--max-tokens", "96"),
            *("--temperature", "0.7"),
            *("--trl", "per_device_train_batch_size=2", "--trl", "learning_rate=1e-4"),
            *("--trl", "gradient_checkpointing=false"),
        ),
        contrastive=(
            *("--tasks", "diag_matmul", "--tasks", "triangular_matmul"),
            *("--steps", "2", "--prompts-per-step", "2", "--group-size", "4", "--batch", "4"),
            *("--max-completion", "96", "--save-steps", "1", "--reward-rule", "milestone"),
            *("--sampling-temperature", "0.8"),
            # The weight decay alone changes the model if all rewards of every group are equal.
            *("--trl", "learning_rate=1e-4", "--trl", "weight_decay=0.1"),
            *("--trl", "gradient_checkpointing=false"),
        ),
        rollout=("--attempts", "2", "--wave", "2", "--max-tokens", "96"),
    ),
    "h200": Sizes(
        model="",
        device="cuda:0",
        train_tasks=40,
        test_tasks=6,
        kernels="cuda",
        # One language to learn, and the reference said in other words, slow ones among them; a loop
        # over single rows takes longer to judge than it teaches.
        teacher=(
            "--where",
            "path LIKE '%/cuda_%' OR path LIKE '%/torch_%' AND path NOT LIKE '%/torch_rows_1.py'",
        ),
        judge=(
            "calls=8",
            "robustness=false",
            "diagnosis=false",
            "timing_s=0.2",
            "timing_limit_s=1.5",
            "baselines=eager",
        ),
        rows=("--per-author", "2"),
        sft=(
            *("--max-length", "2560", "--over-length", "drop", "--save-steps", "40"),
            *("--trl", "num_train_epochs=8", "--trl", "per_device_train_batch_size=16"),
            *("--trl", "learning_rate=2e-4", "--trl", "gradient_checkpointing=false"),
        ),
        self_supervised=(
            *("--rounds", "1", "--attempts", "4", "--prompts", "32", "--max-tokens", "832"),
            *("--sampling-batch", "128", "--max-length", "2560", "--over-length", "drop"),
            *("--trl", "per_device_train_batch_size=16", "--trl", "learning_rate=5e-5"),
            *("--trl", "gradient_checkpointing=false"),
        ),
        contrastive=(
            *("--steps", "12", "--prompts-per-step", "4", "--group-size", "8", "--batch", "8"),
            *("--max-length", "5120", "--max-completion", "832", "--save-steps", "2"),
            # A short session gives a speedup more often than CUDA-L1's rule accepts one.
            *("--reward-rule", "milestone"),
            # If the loss excluded truncated answers, nothing would penalize them.
            "--no-mask-truncated",
            *("--trl", "learning_rate=2e-5", "--trl", "gradient_checkpointing=false"),
        ),
        # 64 attempts at each family of two tasks.
        rollout=(
            *("--attempts", "32", "--wave", "32", "--max-tokens", "832"),
            *("--temperature", "0.8", "--batch", "192"),
        ),
        repeats=2,
        budget_s=400.0,
    ),
}
