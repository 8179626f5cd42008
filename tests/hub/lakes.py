"""Rows of a lake with much to hide: names, paths, hostile texts, a kernel that cheats."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import builders
from builders import Row

from store.hub.publish import Publication

HOSTILE = (
    "</script><img src=x onerror=alert(1)> | [go](javascript:x) `a`\n---\nlicense: mit\n# Owned"
)
HOST, USER, UUID = "node-secret-17", "alice-researcher", "GPU-12345678-1234-1234-1234-123456789abc"
ENDPOINT = "http://10.1.2.3:8000/v1"
SECRETS = (HOST, USER, UUID, "10.1.2.3", "/home/alice", "very-private-log", "s3cr3t-value")
"""Nothing of this may leave."""
CHEAT = "    return _answers[0]  # cheats-with-a-cache"


@dataclass(frozen=True, kw_only=True)
class Edition:
    """A published lake: its folder, the files of the repository by path, and what was told."""

    lake: str
    files: dict[str, bytes]
    done: Publication


def rows(label: str = "one", kernels: int = 3) -> dict[str, list[Row]]:
    """Return rows of most tables; those of another label are other kernels of the same tasks."""
    tasks = [
        builders.task("square", license="MIT", source=HOSTILE),
        builders.task("cube", license="MIT"),
    ]
    sizes = [builders.workload(task) for task in tasks]
    device = builders.device(
        f"H200 {label}", kind="cuda", host=HOST, gpu_uuid=UUID, model="Big $x^{2$ GPU"
    )
    policy = builders.policy(
        f"model-{label}",
        endpoint=ENDPOINT,
        config='{"api_key": "s3cr3t-value"}',
        output_terms="MIT",
    )
    run = builders.run(
        f"judge-{label}", host=HOST,
        config=json.dumps({"out": "/home/alice/x", "endpoint": ENDPOINT, "max_tokens": 7}),
    )  # fmt: skip
    made: dict[str, list[Row]] = {
        "tasks": tasks, "workloads": sizes, "devices": [device], "policies": [policy],
        "runs": [run], "splits": [builders.split()],
        "task_labels": [
            builders.label(task, f"level1/{n}", title=HOSTILE) for n, task in enumerate(tasks)
        ],
    }  # fmt: skip
    for number in range(kernels):
        task, size = tasks[number % 2], sizes[number % 2]
        kernel = builders.kernel(f"{label} {number}: {HOSTILE}", license="MIT")
        _add(made, kernel, task, size, device, policy, run, speedup=1.5 + number)
    cheat = builders.kernel(code=f"# {label}\ndef ModelNew():\n{CHEAT}\n", license="MIT")
    _add(made, cheat, tasks[0], sizes[0], device, policy, run, speedup=9.0)
    finding = builders.finding(cheat, quote=CHEAT)
    made["findings"] = [finding]
    made["standings"] = [builders.standing(finding, author=USER, why="see /home/alice/notes.md")]
    shown = builders.generation(
        policy, tasks[0], cheat, exemplars=[(cheat, 9.0)], generation_id=f"shown-{label}"
    )
    made["generations"].append(shown | {"completion": CHEAT})
    profiled = made["evaluations"][0]["evaluation_id"]
    made["analyses"] = [
        builders.analysis(made["generations"][0], author=USER, evaluation_id=profiled)
    ]
    return made


def _add(
    made: dict[str, list[Row]], kernel: Row, task: Row, size: Row, device: Row, policy: Row,
    run: Row, speedup: float,
) -> None:  # fmt: skip
    judged = builders.evaluation(
        kernel, task, size, device, run_id=run["run_id"], log="very-private-log",
        message="warned in /home/alice/flywheel/judge.py",
    )  # fmt: skip
    for table, row in (
        ("kernels", kernel),
        ("generations", builders.generation(policy, task, kernel)),
        ("evaluations", judged),
    ):
        made.setdefault(table, []).append(row)
    samples: dict[str, Any] = {"eager": [2.0 * speedup] * 15}
    made.setdefault("timings", []).extend(builders.session(judged, [2.0] * 15, **samples))
