"""A small release of kernels with verdicts on two GPUs, for the queries of docs/audit and h200.

Numbers are chosen so that every answer can be worked out by hand.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import builders as b

import store

PRECISION = "policy"
VERSION = 1
COMMON: dict[str, Any] = {"source": "cuda-l1", "policy_id": "cuda-l1"}


def write_lake(folder: Path) -> str:
    """Write the lake; return its path.

    Three tasks: level1/1, level3/35 and level3/41. The release has a kernel for each task on the
    H100: `fast`, which is also the A100's, `rename` and `rounds`. For level3/35 the A100 has
    another kernel, `older`. A score of the L40 has no code.
    """
    tasks = [b.task(name) for name in ("square", "cube", "root")]
    places = [("level1/1", 1, 1), ("level3/35", 3, 35), ("level3/41", 3, 41)]
    labels = [
        b.label(
            task, name, level=level, problem_id=number, suite="kernelbench", suite_revision="v0"
        )
        for task, (name, level, number) in zip(tasks, places, strict=True)
    ]
    sizes = [b.workload(task) for task in tasks]
    fast, rename, rounds, older = (b.kernel(n) for n in ("fast", "rename", "rounds", "older"))
    h200, h100 = (b.device(name, kind="cuda") for name in ("H200", "H100"))
    author = b.policy("author", policy_id="cuda-l1")
    claims = [
        b.claim(tasks[0], fast, 8.0, gpu="H100", **COMMON),
        b.claim(tasks[1], rename, 4.0, gpu="H100", **COMMON),
        b.claim(tasks[2], rounds, 2.0, gpu="H100", **COMMON),
        b.claim(tasks[0], fast, 6.0, gpu="A100", **COMMON),
        b.claim(tasks[1], older, 2.0, gpu="A100", **COMMON),
        b.claim(tasks[2], None, 64.0, gpu="L40", **COMMON),
        b.claim(
            metric="mean_speedup",
            value=9.5,
            speedup=None,
            gpu="H100",
            source="CUDA-L1 README",
            source_revision="51e8356",
        ),
    ]
    features = [
        b.features(fast, ["fusion"], language="cuda", has_device_code=True, global_functions=1),
        b.features(rename, uses_cuda_graphs=True),
        b.features(rounds, sets_cudnn_flags=True),
        b.features(older, parsed=False),
    ]
    runs = [b.run(name, "evaluation") for name in ("on H200", "on H100")]
    wrong: dict[str, Any] = {
        "status": "incorrect", "reason": "incorrect_numerical", "precision_class": "tf32",
        "equivalent": None,
    }  # fmt: skip
    evaluations: list[b.Row] = []
    timings: list[b.Row] = []

    def judge(
        place: int,
        kernel: b.Row,
        device: b.Row,
        speedup: float | None = None,
        *,
        by: str = "torch_default",
        minute: float = 0,
        compiled: float | None = None,
        disturbed: bool = False,
        parts: dict[str, float] | None = None,
        **columns: Any,
    ) -> None:
        status = columns.pop("status", "correct")
        row = b.evaluation(
            kernel, tasks[place], sizes[place], device, status, evaluator="judge",
            version=VERSION, minute=minute, wall_s=10.0,
            run_id=runs[device is h100]["run_id"], parts_s=json.dumps(parts or {"timing": 4.0}),
            **{PRECISION: by}, **{"flags": [], "equivalent": True, **columns},
        )  # fmt: skip
        evaluations.append(row)
        if speedup is not None:
            others = {} if compiled is None else {"compile": [compiled]}
            timings.extend(b.session(row, [1.0], eager=[speedup], disturbed=disturbed, **others))

    # fast: measured twice on the H200, and wrong on the H100 under fp32_strict alone.
    judge(0, fast, h200, 4.0, compiled=2.0, parts={"timing": 4.0, "waiting": 2.0})
    judge(0, fast, h200, 5.0, compiled=2.0, minute=1, parts={"timing": 6.0, "robustness": 1.0})
    judge(0, fast, h100, 2.0, compiled=4.0)
    judge(0, fast, h200, 4.0, by="fp32_strict", minute=2, compiled=2.0, parts={"flags": 0.5})
    judge(0, fast, h100, by="fp32_strict", minute=1, **wrong, max_abs_error=0.5)
    # rename: correct and not equivalent.
    unlike = {"flags": ["parameters_renamed"], "equivalent": False}
    judge(1, rename, h200, 3.0, **unlike)
    judge(1, rename, h100, 3.0, **unlike)
    # rounds: wrong with the size of TF32's errors, and right if TF32 is allowed. Its win on the
    # H100 is not confirmed.
    judge(2, rounds, h200, **wrong, max_abs_error=0.005)
    judge(2, rounds, h100, **wrong, max_abs_error=0.005)
    judge(2, rounds, h200, 1.5, by="allow_tf32", minute=3)
    judge(
        2, rounds, h100, 30.0, by="allow_tf32", minute=3, disturbed=True, flags=["unconfirmed_win"]
    )
    # older: released for the A100.
    judge(1, older, h200, 2.0)
    rows: dict[str, Sequence[b.Row]] = {
        "tasks": tasks, "task_labels": labels, "workloads": sizes, "devices": [h200, h100],
        "policies": [author], "kernels": [fast, rename, rounds, older],
        "generations": [
            b.generation(author, task, kernel)
            for task, kernel in zip((*tasks, tasks[1]), (fast, rename, rounds, older), strict=True)
        ],
        "kernel_features": features, "claims": claims, "runs": runs, "evaluations": evaluations,
        "timings": timings,
    }  # fmt: skip
    with store.writer(str(folder), author="tests") as writer:
        writer.append(rows, "an audited release")
    return str(folder)
