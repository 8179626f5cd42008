"""The sizes of the experiment."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lab.three_stages.sizes import Sizes

ARMS = ("none", "random", "top", "bucket", "shuffled")
TRAIN = ("tuned_rows", "tuned_columns", "tuned_transpose")
TEST = ("tuned_window",)


@dataclass(frozen=True, kw_only=True)
class ArmSizes(Sizes):
    """The sizes of an experiment with arms."""

    held_out_tasks: int
    """Held-out tasks of the families that train; test_tasks are those of held-out families."""
    held_out_options: tuple[str, ...] = ()
    """Options of the import of held-out tasks."""
    search: tuple[str, ...] = ()
    """Options of each search: rounds, attempts, batch; none leaves searches out."""
    history: bool = False
    """Whether searches find the teacher's kernels for held-out tasks, with scores, in the lake."""
    workers: int = 1
    """Judges on each device, of all commands that run side by side."""
    jobs: int = 1
    """Arms and seeds of stage 3 that run side by side."""
    seeds: int = 3
    first_seed: int = 0
    """First seed of searches and of stage 3."""
    teacher: tuple[str, ...] = ("--where", "path LIKE '%_tuned_%'")


# With some settings of the knobs, Triton compiles for minutes, and all judges of the GPU wait.
_CHEAP = (
    "calls=4", "robustness=false", "diagnosis=false", "timing_s=0.2", "timing_limit_s=1.5",
    "baselines=eager", "first_call_s=20", "build_s=40",
)  # fmt: skip

_SAMPLING = ("--max-tokens", "832", "--batch", "512", "--temperature", "0.8")
_MODEL = ArmSizes(
    model="",
    device="cuda:0",
    train_tasks=24,
    held_out_tasks=12,
    held_out_options=("--steps", "1"),
    test_tasks=1,
    kernels="cuda",
    teacher=("--where", "path LIKE '%/triton_tuned_%'"),
    judge=_CHEAP,
    # Kernels of a task differ in their knobs alone, so about one of them is no near-duplicate.
    rows=("--per-author", "6", "--improvement-share", "0.66"),
    sft=(
        *("--max-length", "4096", "--over-length", "drop", "--save-steps", "100"),
        *("--trl", "num_train_epochs=16", "--trl", "per_device_train_batch_size=16"),
        *("--trl", "learning_rate=2e-4", "--trl", "gradient_checkpointing=false"),
    ),
    workers=4,
    arms=ARMS,
    seeds=3,
    budget_s=3600.0,
)

PRESETS = {
    "cpu-turner": ArmSizes(
        model="turner",
        device="cpu",
        train_tasks=3,
        held_out_tasks=3,
        test_tasks=1,
        kernels="cpu",
        judge=(
            "calls=3",
            "robustness=false",
            "diagnosis=false",
            "timing_s=0.3",
            "timing_limit_s=2",
            "blocks=20",
            "baselines=eager",
        ),
        search=("--rounds", "4", "--attempts", "8"),
        arms=ARMS,
        budget_s=3600.0,
    ),
    "gpu-turner": ArmSizes(
        model="turner",
        device="cuda:0",
        train_tasks=3,
        held_out_tasks=6,
        test_tasks=2,
        kernels="cuda",
        judge=_CHEAP,
        search=("--rounds", "8", "--attempts", "24", "--concurrency", "8"),
        workers=4,
        arms=ARMS,
        seeds=3,
        budget_s=1800.0,
    ),
    "gpu-model": replace(_MODEL, search=("--rounds", "4", "--attempts", "4", *_SAMPLING), seeds=6),
    "gpu-history": replace(
        _MODEL, search=("--rounds", "1", "--attempts", "2", *_SAMPLING), history=True, seeds=6
    ),
    "gpu-stage3": replace(
        _MODEL,
        contrastive=(
            # 64 answers a step, sampled together.
            *("--steps", "2", "--prompts-per-step", "8", "--group-size", "8", "--batch", "4"),
            *("--max-length", "5120", "--max-completion", "832", "--save-steps", "1"),
            *("--reward-rule", "milestone", "--no-mask-truncated"),
            *("--trl", "learning_rate=2e-5", "--trl", "gradient_checkpointing=false"),
        ),
        rollout=("--rounds", "2", "--attempts", "8", *_SAMPLING),
    ),
}
