"""Complete, valid rows for every table that tests fill: one small function a table.

Rows are dictionaries. Functions take the rows they refer to, so that references hold, and any
column as a keyword. Ids are content hashes of the arguments: the same call gives the same row, and
rows that would otherwise be the same are told apart by `minute` (minutes after START) or a name.

    task, fast, laptop = builders.task(), builders.kernel("fast"), builders.device("laptop")
    sizes = builders.workload(task)
    judged = builders.evaluation(fast, task, sizes, laptop)
    arms = builders.session(judged, [1.0, 1.0], eager=[2.0, 2.0])
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

from store import ids

# A row reads as a row, not as a column of keys.
# fmt: off

Row: TypeAlias = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)
PROCESSORS: set[str] = set()
"""Ids of the processors among the devices of verdicts."""

TASK = '''"""{name}"""
import torch

N = 4


class Model(torch.nn.Module):
    def forward(self, x):
        return x * x


def get_inputs():
    return [torch.rand(N)]


def get_init_inputs():
    return []
'''
KERNEL = '''"""{name}"""
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.square()
'''


def at(minute: float) -> datetime:
    """Return the time so many minutes after START."""
    return START + timedelta(minutes=minute)


def task(name: str = "square", **columns: Any) -> Row:
    """Return a task whose text differs by its name."""
    code = ids.normalize(TASK.format(name=name))
    return {
        "task_id": ids.task_id(code), "code": code, "source": "tests", "created_at": START,
    } | columns


def task_audit(workload: Row, device: Row, passes: Sequence[str], **columns: Any) -> Row:
    """Return what passes a task without work at one of its settings."""
    return {
        "task_id": workload["task_id"], "workload_id": workload["workload_id"],
        "auditor_version": 1, "device_id": device["device_id"], "passes": list(passes),
        "weak": bool(passes), "repeatable": True, "created_at": START,
    } | columns


def label(task: Row, name: str = "level1/1", **columns: Any) -> Row:
    """Return a label in suite kernelbench v0."""
    return {
        "suite": "kernelbench", "suite_revision": "v0", "name": name, "task_id": task["task_id"],
        "level": 1, "problem_id": 1, "title": name, "family": "elementwise", "degenerate": False,
        "source": "tests", "created_at": START,
    } | columns


def split(family: str = "elementwise", split: str = "train", **columns: Any) -> Row:
    """Return the split of a family of suite kernelbench."""
    return {
        "suite": "kernelbench", "family": family, "split": split, "rule": "by hand",
        "created_at": START,
    } | columns


def workload(task: Row, name: str = "default", axes: str = "{}", **columns: Any) -> Row:
    """Return a workload of a task; axes is a JSON object."""
    return {
        "workload_id": ids.workload_id(task["task_id"], axes, columns.get("dtype")),
        "task_id": task["task_id"], "name": name, "axes": axes, "generator": "get_inputs",
        "created_at": START,
    } | columns


def kernel(name: str = "fast", code: str | None = None, **columns: Any) -> Row:
    """Return a kernel whose text differs by its name, or is given."""
    text = KERNEL.format(name=name) if code is None else code
    row = {
        "code": text, "path": "kernel.py", "entry_point": "ModelNew", "source": "tests",
        "created_at": START,
    } | columns
    names = ("code", "path", "entry_point", "other_files", "build_flags")
    identity = ids.compute_row_id("kernel", None, [row.get(name) for name in names])
    return {"kernel_id": identity} | row


def features(
    kernel: Row, techniques: Sequence[str] = (), version: int = 1, **columns: Any
) -> Row:
    """Return what one extractor version sees in a kernel."""
    return {
        "kernel_id": kernel["kernel_id"], "extractor_version": version, "parsed": True,
        "language": "pytorch", "has_device_code": False, "global_functions": 0,
        "triton_kernels": 0, "uses_cuda_graphs": False, "uses_torch_compile": False,
        "uses_torch_jit": False, "sets_cudnn_flags": False, "uses_streams": False,
        "techniques": sorted(techniques), "code_bytes": len(kernel["code"].encode()),
        "code_lines": kernel["code"].count("\n"),
        "minhash_bands": [int(kernel["kernel_id"][:8], 16)], "created_at": START,
    } | columns


def policy(name: str = "model", **columns: Any) -> Row:
    """Return a policy; give stage and round for one of training."""
    return {
        "policy_id": f"policy-{name}", "name": name, "kind": "model", "created_at": START,
    } | columns


def generation(
    policy: Row,
    task: Row,
    kernel: Row | None = None,
    *,
    exemplars: Sequence[tuple[Row, float]] | None = None,
    parent: Row | None = None,
    minute: float = 0,
    **columns: Any,
) -> Row:
    """Return an attempt of a policy at a task; exemplars are (kernel, score as shown)."""
    kernel_id = None if kernel is None else kernel["kernel_id"]
    identity = ids.content_id(
        "generation", policy["policy_id"], task["task_id"], kernel_id, str(minute)
    )
    return {
        "generation_id": identity, "task_id": task["task_id"], "policy_id": policy["policy_id"],
        "kernel_id": kernel_id,
        "parent_generation_id": None if parent is None else parent["generation_id"],
        "exemplar_kernel_ids": exemplars and [shown["kernel_id"] for shown, _ in exemplars],
        "exemplar_scores": exemplars and [score for _, score in exemplars],
        "created_at": at(minute),
    } | columns


def rollout_tokens(generation: Row, completion_ids: Sequence[int], **columns: Any) -> Row:
    """Return the tokens of an attempt of a run."""
    return {
        "generation_id": generation["generation_id"], "run_id": generation["run_id"],
        "step": generation.get("step"), "completion_ids": list(completion_ids),
        "created_at": START,
    } | columns


def reward(generation: Row, raw: float, rule: str = "speed", **columns: Any) -> Row:
    """Return the reward of an attempt of a run; of several terms, `rule` is the name of one."""
    return {
        "run_id": generation["run_id"], "generation_id": generation["generation_id"], "rule": rule,
        "rule_version": 0, "step": generation.get("step"), "raw": raw, "created_at": START,
    } | columns


def device(name: str = "laptop", **columns: Any) -> Row:
    """Return a device."""
    return {
        "device_id": ids.content_id("device", name), "name": name, "kind": "cpu", "model": name,
        "created_at": START,
    } | columns


def run(name: str = "tests", kind: str = "evaluation", **columns: Any) -> Row:
    """Return a run."""
    return {
        "run_id": ids.content_id("run", kind, name), "kind": kind, "name": name, "config": "{}",
        "started_at": START,
    } | columns


def audit(**columns: Any) -> Row:
    """Return a run that searched kernels with all detectors."""
    config = json.dumps({"detectors": [], "every_detector": True})
    return run("detectors", "audit", config=config, **columns)


def scan(kernel: Row, **columns: Any) -> Row:
    """Return the record that `audit` has read a kernel."""
    return {"kernel_id": kernel["kernel_id"], "run_id": audit()["run_id"]} | columns


def evaluation(
    kernel: Row,
    task: Row,
    workload: Row,
    device: Row,
    status: str = "correct",
    *,
    evaluator: str = "starter",
    version: int = 1,
    minute: float = 0,
    **columns: Any,
) -> Row:
    """Return a verdict; a failure without a given reason is unspecified."""
    # Tests of one process give one name to devices of both kinds.
    (PROCESSORS.add if device["kind"] == "cpu" else PROCESSORS.discard)(device["device_id"])
    keys = [
        kernel["kernel_id"], task["task_id"], workload["workload_id"], device["device_id"],
        evaluator,
    ]
    return {
        "evaluation_id": ids.content_id("evaluation", *keys, str(version), status, str(minute)),
        "kernel_id": keys[0], "task_id": keys[1], "workload_id": keys[2], "device_id": keys[3],
        "evaluator": evaluator, "evaluator_version": version, "status": status,
        "reason": None if status == "correct" else "unspecified", "created_at": at(minute),
    } | columns


def session(
    evaluation: Row,
    kernel: Sequence[float],
    *,
    clock: str | None = "first",
    cache: str = "cold",
    disturbed: bool = False,
    blocks: Mapping[str, Sequence[int]] | None = None,
    minute: float | None = None,
    **baselines: Sequence[float],
) -> list[Row]:
    """Return the timings rows of one session: samples (ms) of the kernel and of each baseline.

    Fewer than 7 samples are repeated, because a session with so few pairs ranks nothing; medians
    and intervals stay the same. clock: None for a row of a judge without that column; by default
    the one that ranks first on the device. blocks: block indices by arm, where they are not
    0, 1, 2 …; these samples are not repeated. minute: when it was measured, by default when the
    kernel was judged.
    """
    times = 1 if blocks else -(-7 // len(kernel))
    made = evaluation["created_at"] if minute is None else at(minute)
    if clock == "first":
        clock = "throughput" if evaluation["device_id"] in PROCESSORS else "gpu"
    keys = (evaluation["evaluation_id"], clock or cache, made.isoformat())
    identity = ids.content_id("session", *keys)
    about = {
        name: evaluation[name]
        for name in ("evaluation_id", "kernel_id", "task_id", "workload_id", "device_id")
    }
    return [
        {
            "timing_id": ids.content_id("timing", identity, arm), "session_id": identity,
            "arm": arm, "samples_ms": list(samples) * times,
            "blocks": list((blocks or {}).get(arm, range(len(samples) * times))), "inner_loops": 1,
            "clock": clock, "cache": cache, "noisy": disturbed, "confirmed": False,
            "disturbed": disturbed, "unresolved": False, "created_at": made,
        } | about
        for arm, samples in {"kernel": kernel, **baselines}.items()
    ]


def session_spread(device: Row, tau: float, minute: float = 0, **columns: Any) -> Row:
    """Return an estimate of the spread of sessions, by the clock that ranks first on the device."""
    clock = "gpu" if device["kind"] == "cuda" else "throughput"
    return {
        "spread_id": ids.content_id("spread", device["name"], str(minute), str(tau)),
        "device": device["name"], "clock": clock, "evaluator": "starter", "evaluator_version": 1,
        "tau": tau, "kernels": 10, "sessions": 20, "pairs": 10, "snapshot_id": 1,
        "created_at": at(minute),
    } | columns


def claim(
    task: Row | None = None,
    kernel: Row | None = None,
    speedup: float | None = 2.0,
    **columns: Any,
) -> Row:
    """Return a published speedup over eager on an A100; for other metrics give metric and value."""
    row = {
        "task_id": None if task is None else task["task_id"],
        "kernel_id": None if kernel is None else kernel["kernel_id"], "gpu": "A100",
        "baseline": "eager", "metric": "speedup", "speedup": speedup, "source": "a release",
        "source_revision": "1", "created_at": START,
    } | columns
    return {"claim_id": ids.content_id("claim", json.dumps(row, default=str))} | row


def finding(kernel: Row, kind: str = "result_caching", **columns: Any) -> Row:
    """Return a finding of detector ast, whose class is `kind`."""
    row = {
        "kernel_id": kernel["kernel_id"], "detector": "ast", "detector_version": 1, "class": kind,
        "line": 1, "created_at": START,
    } | columns
    return {"finding_id": ids.content_id("finding", json.dumps(row, default=str))} | row


def standing(
    finding: Row, decision: str = "confirmed", minute: float = 0, **columns: Any
) -> Row:
    """Return a decision on a finding."""
    identity = ids.content_id("standing", finding["finding_id"], decision, str(minute))
    return {
        "standing_id": identity, "finding_id": finding["finding_id"], "decision": decision,
        "author": "reviewer", "why": f"{decision} by hand", "created_at": at(minute),
    } | columns


def analysis(
    generation: Row, fastest: Row | None = None, minute: float = 0, **columns: Any
) -> Row:
    """Return an analysis written in an attempt, which may name the fastest exemplar."""
    return {
        "analysis_id": ids.content_id("analysis", generation["generation_id"], str(minute)),
        "kernel_id": generation["kernel_id"], "generation_id": generation["generation_id"],
        "kind": "model", "author": generation["policy_id"], "body": "memory bound",
        "fastest_kernel_id": None if fastest is None else fastest["kernel_id"],
        "created_at": at(minute),
    } | columns


def dataset(run: Row, name: str = "contrastive-batch", rows: int = 1, **columns: Any) -> Row:
    """Return a materialised dataset of a pipeline run."""
    row = {
        "run_id": run["run_id"],
        "name": name, "pipeline": "contrastive-batch", "dataset_type": "prompt-only",
        "purpose": "train", "lake_id": "lake", "snapshot_id": 1, "recipe": "{}", "seed": 0,
        "content_hash": ids.content_id(name, run["run_id"]), "rows": rows, "created_at": START,
    } | columns
    parts = (row["name"], row["recipe"], row["lake_id"], str(row["snapshot_id"]))
    return {"dataset_id": ids.content_id("dataset", *parts, row["content_hash"])} | row


def dataset_row(
    dataset: Row, task: Row, kernels: Sequence[Row], row_index: int = 0, **columns: Any
) -> Row:
    """Return which task and kernels went into one row of a dataset."""
    return {
        "dataset_id": dataset["dataset_id"], "row_index": row_index, "split": "train",
        "task_id": task["task_id"], "kernel_ids": [kernel["kernel_id"] for kernel in kernels],
    } | columns
