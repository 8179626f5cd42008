"""Judges the kernel of a receipt again on this machine, and compares both figures."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

import store
from evaluators.judging.case import Case
from evaluators.scheduling import contract
from store.errors import FlywheelError, LakeNotFound
from store.receipts import check, figures

_OWN = frozenset(
    {"precision", "protocol", "draw_shapes", "axes", "rank_unfrozen", "import_s", "build_s"}
    | {"first_call_s", "call_s", "total_s", "memory_gb", "file_mb"}
)
"""Options that a receipt does not decide: those of the case, and what a candidate may use here."""
_CLOCKS = ("gpu", "throughput", "latency")
"""The first of them that was measured ranks."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A speedup of a receipt, the same one here, and how many times larger this one is."""

    baseline: str
    clock: str
    precision: str
    receipt: Mapping[str, Any]
    here: Mapping[str, Any]
    ratio: float
    low: float
    high: float
    agrees: bool
    """Whether the interval of the ratio, of 95 %, has 1 in it."""


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """The verdicts and speedups of a receipt, and those here."""

    device: str
    """Device model of the receipt."""
    here: str
    """Device model of this machine."""
    version: int
    """Version of the evaluator that judged for the receipt."""
    verdicts: list[tuple[str, str, str]]
    """Precision, status in the receipt, status here."""
    differences: list[Difference]

    @property
    def agrees(self) -> bool:
        """Whether this machine agrees: about the verdicts, and on the same device model about the
        speedups over eager by the clock that ranks."""
        if any(before != now for _, before, now in self.verdicts):
            return False
        if self.device != self.here:
            return True
        eager = [one for one in self.differences if one.baseline == "eager"]
        clock = next((one for one in _CLOCKS if one in {each.clock for each in eager}), None)
        return all(one.agrees for one in eager if one.clock == clock)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What to judge again: the texts of a receipt's kernel and task, and its verdicts."""

    receipt: Mapping[str, Any]
    evaluator: str
    config: Any
    task: Mapping[str, Any]
    task_code: str
    files: Mapping[str, str]

    def list_verdicts(self, device: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the verdicts to compare with: those of one device model and workload.

        It is this machine's device model if the receipt has it, or else one of the same kind.
        """
        kinds = {row["name"]: row.get("kind") for row in self.receipt["rows"]["devices"]}
        timed = {row.get("evaluation_id") for row in self.receipt["figures"]["speedups"]}
        verdicts = [
            row
            for row in self.receipt["figures"]["verdicts"]
            if row["evaluator"] == self.evaluator and row["task_id"] == self.task["task_id"]
        ]
        verdicts.sort(
            key=lambda row: (
                row.get("device") != device["name"],
                kinds.get(row.get("device")) != device["kind"],
                row["evaluation_id"] not in timed,
            )
        )
        first = verdicts[0]
        same = ("device", "workload_id")
        return [row for row in verdicts if all(row.get(one) == first.get(one) for one in same)]

    def make_case(self, verdict: Mapping[str, Any]) -> Case:
        """Return the case of a verdict."""
        kernel = self.receipt["kernel"]
        files = dict(self.files)
        axes = {row["workload_id"]: row["axes"] for row in self.receipt["rows"]["workloads"]}
        return Case(
            kernel_id=kernel["kernel_id"],
            task_id=self.task["task_id"],
            workload_id=verdict["workload_id"],
            code=files.pop(kernel["path"]),
            path=kernel["path"],
            entry_point=kernel["entry_point"],
            other_files=tuple(files.items()),
            task_code=self.task_code,
            axes=axes[verdict["workload_id"]],
            precision=verdict["precision"] if hasattr(self.config, "precision") else None,
        )


def read_subject(
    data: bytes, code: Path | None, task: Path | None, lake_url: str | None
) -> Subject:
    """Return what a receipt says to judge, with texts from files or from a lake.

    Raises:
        ReceiptRefused: the receipt does not hold, or the texts are not its texts.
        FlywheelError: a text is not given and not in the lake, or no evaluator here judged it.
    """
    receipt = check.verify(data, code=code, tasks=[] if task is None else [task]).receipt
    chosen = receipt["tasks"][0] if task is None else check.find_task(receipt, task)
    files = {} if code is None else check.check_code(receipt, code)
    task_code = "" if task is None else store.ids.normalize(task.read_text("utf-8"))
    if not files or not task_code:
        wanted = {"kernel": receipt["kernel"]["kernel_id"], "task": chosen["task_id"]}
        try:
            opened = store.open(lake_url)
        except LakeNotFound as error:
            lacking = " and ".join(
                option for option, text in (("--code", files), ("--task", task_code)) if not text
            )
            raise FlywheelError(
                "a receipt knows its kernel and task by their hashes, and there is no lake with"
                f" their texts: {error.message}",
                f"Give {lacking} FILE, or name a lake that has them with --lake.",
            ) from error
        with opened as lake:
            kernel = lake.run(
                "SELECT code, path, other_files FROM kernels WHERE kernel_id = $1",
                [wanted["kernel"]],
            ).one()
            text = lake.run("SELECT code FROM tasks WHERE task_id = $1", [wanted["task"]]).one()
        if not files and kernel is not None:
            others = {other["path"]: other["code"] for other in kernel["other_files"] or ()}
            files = {**others, kernel["path"]: kernel["code"]}
        if not task_code and text is not None:
            task_code = text["code"]
        for name, found in (("kernel", files), ("task", task_code)):
            if not found:
                option = {"kernel": "--code", "task": "--task"}[name]
                raise FlywheelError(
                    f"the lake has no {name} {wanted[name][:12]}, and {option} gives none",
                    f"Give its text with {option} FILE, or name a lake that has it with --lake.",
                )
    known = {row["evaluation_id"]: row for row in receipt["rows"]["evaluations"]}
    options = {row["run_id"]: row.get("config") for row in receipt["rows"]["runs"]}
    verdicts = [
        row for row in receipt["figures"]["verdicts"] if row["task_id"] == chosen["task_id"]
    ]
    names = sorted({row["evaluator"] for row in verdicts}, key=lambda one: one != contract.DEFAULT)
    if not names:
        raise FlywheelError(
            "the receipt has no verdict that counts on this task",
            "Give another task of the receipt with --task.",
        )
    module = contract.load(names[0])
    first = next(row for row in verdicts if row["evaluator"] == names[0])
    config = options.get(known[first["evaluation_id"]].get("run_id"))
    return Subject(
        receipt=receipt,
        evaluator=names[0],
        config=make_config(module, config or "{}"),
        task=chosen,
        task_code=task_code,
        files=files,
    )


def make_config(module: contract.Evaluator, options: str) -> Any:
    """Return the Config of a run's options, as far as they measure and do not limit.

    Raises FlywheelError if the evaluator here cannot have them.
    """
    config = module.Config()
    values = dataclasses.asdict(config)
    try:
        stated = json.loads(options).get("evaluator") or {}
        values |= {name: stated[name] for name in stated.keys() & values.keys() - _OWN}
        if "draw_shapes" in values:
            values["draw_shapes"] = 0
        return msgspec.convert(values, type(config))
    except (AttributeError, ValueError) as error:
        raise FlywheelError(
            f"the evaluator here cannot have the options of the receipt: {error}",
            "Judge with the version of kernel-flywheel that the receipt names.",
        ) from error


def compare(
    subject: Subject,
    device: Mapping[str, Any],
    verdicts: Sequence[Mapping[str, Any]],
    answers: Sequence[contract.Tables],
) -> Reproduction:
    """Compare the verdicts of a receipt with the rows of the same cases on this machine."""
    receipt = subject.receipt
    rows = {
        "devices": [dict(device)],
        "workloads": receipt["rows"]["workloads"],
        "session_spreads": receipt["rows"]["session_spreads"],
        "evaluations": [row for tables in answers for row in tables["evaluations"]],
        "timings": [row for tables in answers for row in tables.get("timings", [])],
    }
    here = figures.compute_figures(rows, receipt["kernel"]["kernel_id"], None, None)
    first = verdicts[0]
    differences: list[Difference] = []
    for before in receipt["figures"]["pooled_speedups"]:
        if any(before.get(one) != first.get(one) for one in ("task_id", "workload_id", "device")):
            continue
        same = ("baseline", "clock", "precision")
        for now in here["pooled_speedups"]:
            if all(before.get(one) == now.get(one) for one in same):
                differences.append(compare_speedups(before, now))
    done = Reproduction(
        device=first["device"],
        here=device["name"],
        version=first["evaluator_version"],
        verdicts=[
            (
                str(verdict.get("precision")),
                verdict["status"],
                tables["evaluations"][0]["status"],
            )
            for verdict, tables in zip(verdicts, answers, strict=True)
        ],
        differences=differences,
    )
    if done.agrees and not differences and any(row["status"] == "correct" for row in verdicts):
        flags = {flag for row in rows["evaluations"] for flag in row.get("flags") or ()}
        clocks = [
            ", ".join(sorted({row["clock"] for row in side["pooled_speedups"]})) or "no clock"
            for side in (receipt["figures"], here)
        ]
        why = "" if here["pooled_speedups"] else f" ({', '.join(sorted(flags)) or 'disturbed'})"
        raise FlywheelError(
            "the kernel is correct here, too, and no speedup can be compared: sessions count by "
            f"{clocks[0]} in the receipt, and by {clocks[1]} here{why}",
            "Try again on a quiet machine of the receipt's device model.",
        )
    return done


def compare_speedups(before: Mapping[str, Any], now: Mapping[str, Any]) -> Difference:
    """Return how many times larger a speedup is here, with the interval that both errors give.

    >>> before = {"baseline": "eager", "clock": "gpu", "precision": "torch_default"}
    >>> before |= {"speedup": 2.0, "speedup_low": 1.9, "speedup_high": 2.1}
    >>> same = compare_speedups(before, before | {"speedup": 2.05, "speedup_high": 2.2})
    >>> round(same.ratio, 3), round(same.low, 3), round(same.high, 3), same.agrees
    (1.025, 0.936, 1.118, True)
    """
    logs = [
        [math.log(row[name]) for name in ("speedup_low", "speedup", "speedup_high")]
        for row in (before, now)
    ]
    (low, middle, high), (low_now, middle_now, high_now) = logs
    difference = middle_now - middle
    least = difference - math.hypot(middle_now - low_now, high - middle)
    most = difference + math.hypot(high_now - middle_now, middle - low)
    return Difference(
        baseline=now["baseline"],
        clock=now["clock"],
        precision=now["precision"],
        receipt=before,
        here=now,
        ratio=math.exp(difference),
        low=math.exp(least),
        high=math.exp(most),
        agrees=least <= 0 <= most,
    )


def format_lines(done: Reproduction) -> list[str]:
    """Return what was compared, in lines; the last one says whether this machine agrees."""
    lines = [
        f"verdict by {precision}: {before} in the receipt, {now} here"
        for precision, before, now in done.verdicts
    ]
    for one in done.differences:
        ratios = (one.low, one.ratio, one.high)
        low, middle, high = (f"{100 * (ratio - 1):+.1f} %" for ratio in ratios)
        lines.append(
            f"over {one.baseline}, clock {one.clock}, {one.precision}: "
            f"{check.describe_speedup(one.receipt)} in the receipt, "
            f"{check.describe_speedup(one.here)} here, difference {middle} ({low} to {high})"
            f"{'' if one.agrees else ', differs'}"
        )
    if done.device != done.here:
        lines.append(
            f"the receipt is of {done.device} and this machine is {done.here}: a difference of "
            "speedups says nothing against it"
        )
    lines.append(f"this machine {'agrees' if done.agrees else 'differs'}")
    return lines
