"""Is it right, and how fast is it: correctness on secret inputs, then time against eager.

The candidate runs in a process of its own, gets inputs, and gives outputs; everything that decides
happens outside of it. A kernel that passes is timed against the eager baseline by turns, with all
raw samples kept. Evaluations carry the policy `fp32_strict`: no precision below the task's own.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from store.errors import SandboxFailed
from store.ids import uuid7

if TYPE_CHECKING:
    from evaluators._arm import Arm, Failed, Patience
    from evaluators._bench import Bench
    from evaluators._case import Case
    from evaluators._compare import Comparison
    from evaluators._reference import Reference
    from evaluators._sandbox import Ended, Limits
    from evaluators._timing import Session

VERSION = 1
"""Version of the rules; rows of an older one do not count in verdicts."""
POLICY = "fp32_strict"
# Slots of the calls whose outputs are checked; a slot used again has its storage refilled.
_SLOTS = (0, 0, 1, 1, 0, 2)
_SLOW_CALL_S = 1.0
_LOG_LIMIT = 32 * 1024


@dataclass(frozen=True, kw_only=True)
class Config:
    """How long to look, and what a candidate may use."""

    timing_s: float | None = None
    """Stop timing a kernel after this, once it has 20 blocks, though its interval is still too wide
    (default: 0.7 on a processor, 2 on a GPU)."""
    timing_limit_s: float = 6.0
    """Stop timing a kernel past this whatever has been measured."""
    half_width: float = 0.03
    """Half-width of the speedup's interval that is narrow enough to stop at, as a log ratio."""
    import_s: float = 30.0
    """Longest time to import or construct a candidate in which no compiler is at work."""
    build_s: float = 180.0
    """Longest time to import or construct a candidate in all."""
    first_call_s: float = 10.0
    """Longest first call, unless a compiler is at work."""
    call_s: float = 5.0
    """Longest further call; fifty times the eager baseline where that is more."""
    total_s: float = 600.0
    """Longest evaluation of a candidate."""
    memory_gb: float = 8.0
    """Address space of a candidate on the processor, beyond what torch itself takes."""
    file_mb: float = 256.0
    """Largest file that a candidate may write, its printed output included."""


@dataclass
class _Outcome:
    """What is known so far; becomes one row of evaluations."""

    status: str = "correct"
    reason: str | None = None
    message: str | None = None
    detail: str = ""
    seeds: list[int] = field(default_factory=list)
    flags: set[str] = field(default_factory=set)
    comparison: Comparison | None = None
    session: Session | None = None
    build_s: float | None = None
    ended: Ended | None = None


def judge(case: Case, bench: Bench, config: Config) -> dict[str, list[dict[str, Any]]]:
    """Judge one candidate; returns rows of `evaluations` and `timings`, without their run_id.

    A failing candidate is a row. So is a fault of our own, with the status evaluator_error.
    """
    from evaluators._arm import Failed
    from evaluators._reference import ReferenceFailed

    began = time.perf_counter()
    outcome = _Outcome()
    try:
        _try(case, bench, config, outcome)
    except Failed as failed:
        outcome.status, outcome.reason = failed.status, failed.reason
        outcome.message, outcome.detail = failed.message, failed.detail
    except ReferenceFailed as failed:
        outcome.status, outcome.reason = "evaluator_error", "reference_failed"
        outcome.message = str(failed)
        bench.end_baselines()
    except SandboxFailed as failed:
        outcome.status, outcome.reason = "evaluator_error", "sandbox_failed"
        outcome.message = failed.message
    if outcome.status != "correct":
        outcome.session = None
    return _rows(case, bench, outcome, time.perf_counter() - began)


def _try(case: Case, bench: Bench, config: Config, outcome: _Outcome) -> None:
    from evaluators._bench import Sizes
    from evaluators._reference import WEIGHT_SEED
    from evaluators._tensors import layout

    axes = json.loads(case.axes)
    reference = bench.reference(case.task_code, axes)
    inputs, begin = reference.inputs(_seed(outcome)), time.perf_counter()
    expected = reference.answer(inputs)
    answer_s = time.perf_counter() - begin
    sizes = Sizes(layout(inputs)[1], max(layout(inputs)[1], layout(expected.value)[1]))
    limits = _limits(config, bench.device)
    patience = _patience(config, answer_s)
    arm = bench.candidate(_files(case), sizes, limits, patience)
    try:
        begin = time.perf_counter()
        arm.load(case.path, case.entry_point, {})
        arm.construct(WEIGHT_SEED, reference.arguments)
        outcome.build_s = time.perf_counter() - begin
        _check_outputs(arm, reference, (inputs, expected), outcome)
        baselines = bench.baselines(case.task_code, axes, sizes, limits, _endless(patience))
        outcome.session = _timed(arm, baselines, bench, reference, config)
        arm.check_clocks()
    finally:
        outcome.ended = arm.end()


def _check_outputs(arm: Arm, reference: Reference, first: Any, outcome: _Outcome) -> None:
    """Call the candidate on secret inputs and compare each output; raises Failed."""
    import torch

    from evaluators._compare import Comparison, compare, worse
    from evaluators._tensors import tensors_of

    outcome.comparison = Comparison()
    previous: Any = None
    slots = list(_SLOTS)
    while slots:
        slot, began = slots.pop(0), time.perf_counter()
        inputs = first[0] if previous is None else reference.inputs(_seed(outcome))
        expected = first[1] if previous is None else reference.answer(inputs)
        arm.fill(slot, inputs)
        output = arm.call(slot, first=previous is None)
        found = compare(expected, output)
        if found.reason is not None:
            outcome.comparison = found
            raise _wrong(found)
        outcome.comparison = worse(outcome.comparison, found)
        if previous is None:
            pairs = zip(tensors_of(inputs), tensors_of(arm.inputs(slot)), strict=False)
            if not all(torch.equal(_bits(sent), _bits(now)) for sent, now in pairs):
                raise _wrong(Comparison("input_mutated", "the call has changed its inputs"))
        elif not _same(previous, arm.output(1)):
            outcome.flags.add("reuses_output_buffer")
        previous = output
        if time.perf_counter() - began > _SLOW_CALL_S:
            slots = slots[:2]


def _timed(
    arm: Arm, baselines: tuple[Arm, Arm], bench: Bench, reference: Reference, config: Config
) -> Session:
    from evaluators._arm import Failed
    from evaluators._compare import compare
    from evaluators._timing import Plan, Sources, measure

    def check(inputs: list[Any], output: Any) -> None:
        found = compare(reference.answer(inputs), output)
        if found.reason is not None:
            message = f"a timed call gave a wrong answer: {found.message}"
            raise Failed("rejected", "memorised_output", message)

    on_gpu = bench.device == "cuda"
    plan = Plan(
        looks=(20, 40, 80),
        half_width=config.half_width,
        budget_s=config.timing_s if config.timing_s is not None else 2.0 if on_gpu else 0.7,
        limit_s=config.timing_limit_s,
        sample_ms=0.2 if on_gpu else 1.0,
        noise=1.03,
    )
    return measure(arm, *baselines, Sources(reference.inputs, check, bench.clocks.read), plan)


def _rows(
    case: Case, bench: Bench, outcome: _Outcome, wall_s: float
) -> dict[str, list[dict[str, Any]]]:
    now = datetime.now(UTC).isoformat()
    shared = {
        "kernel_id": case.kernel_id,
        "task_id": case.task_id,
        "workload_id": case.workload_id,
        "device_id": bench.row["device_id"],
        "created_at": now,
    }
    ended, found = outcome.ended, outcome.comparison
    compared = outcome.status in ("correct", "incorrect", "rejected") and found is not None
    if ended is not None and ended.strays:
        outcome.flags.add("left_processes")
    log = "\n".join(part for part in (outcome.detail, ended.log if ended else "") if part)
    evaluation_id = uuid7()
    evaluation = shared | {
        "evaluation_id": evaluation_id,
        "evaluator": "judge",
        "evaluator_version": VERSION,
        "status": outcome.status,
        "reason": outcome.reason,
        "message": outcome.message,
        "log": log[:_LOG_LIMIT] or None,
        "policy": POLICY,
        "flags": sorted(outcome.flags),
        "seeds": outcome.seeds,
        "max_abs_error": _finite(found.max_abs_error) if found and compared else None,
        "max_scaled_error": _finite(found.max_scaled_error) if found and compared else None,
        "precision_class": found.precision_class if found and compared else None,
        "sandbox_level": bench.sandbox_level,
        "build_s": outcome.build_s,
        "wall_s": wall_s,
        "peak_memory_bytes": ended.peak_memory_bytes if ended else None,
    }
    timings = list(_timing_rows(outcome.session, shared, evaluation_id))
    return {"evaluations": [evaluation], "timings": timings}


def _timing_rows(
    session: Session | None, shared: Mapping[str, Any], evaluation_id: str
) -> Iterator[dict[str, Any]]:
    if session is None:
        return
    session_id = uuid7()
    clocks = session.clocks if len(session.clocks) == len(session.kernel_ms) else []
    for arm, samples_ms in (("kernel", session.kernel_ms), ("eager", session.eager_ms)):
        yield {
            **shared,
            "timing_id": uuid7(),
            "evaluation_id": evaluation_id,
            "session_id": session_id,
            "arm": arm,
            "samples_ms": samples_ms,
            "blocks": list(range(len(samples_ms))),
            "positions": session.positions[arm],
            "inner_loops": session.inner_loops,
            "cache": "cold",
            "noisy": session.noisy,
            "sm_clock_mhz": [clock for clock, _ in clocks] or None,
            "temperature_c": [temperature for _, temperature in clocks] or None,
        }


def _files(case: Case) -> dict[str, str]:
    """Every file of the kernel by its path; raises Failed where one lies outside its folder."""
    from evaluators._arm import Failed

    files = {case.path: case.code, **dict(case.other_files)}
    for name in files:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.name or "\x00" in name:
            message = f"a file of the kernel is called {name!r:.200}"
            raise Failed("rejected", "forbidden_code", message)
    return files


def _limits(config: Config, device: str) -> Limits:
    from evaluators._sandbox import Limits

    return Limits(
        memory_bytes=None if device == "cuda" else int(config.memory_gb * 2**30),
        file_bytes=int(config.file_mb * 2**20),
        open_files=1024,
        cpu_s=int(config.total_s * 4),
    )


def _patience(config: Config, answer_s: float) -> Patience:
    from evaluators._arm import Patience

    return Patience(
        import_s=config.import_s,
        build_s=config.build_s,
        first_call_s=config.first_call_s + 50 * answer_s,
        call_s=max(config.call_s, 50 * answer_s),
        total_s=config.total_s,
    )


def _endless(patience: Patience) -> Patience:
    """The same for a worker that outlives one evaluation."""
    from dataclasses import replace

    return replace(patience, total_s=math.inf)


def _seed(outcome: _Outcome) -> int:
    """A secret seed, noted in the row."""
    outcome.seeds.append(secrets.randbits(48))
    return outcome.seeds[-1]


def _wrong(found: Comparison) -> Failed:
    from evaluators._arm import Failed

    return Failed("incorrect", found.reason or "unspecified", found.message or "")


def _same(one: Any, other: Any) -> bool:
    import torch

    from evaluators._tensors import tensors_of

    pairs = zip(tensors_of(one), tensors_of(other), strict=False)
    return all(a.shape == b.shape and torch.equal(_bits(a), _bits(b)) for a, b in pairs)


def _bits(tensor: Any) -> Any:
    """The tensor's bytes, so that NaN equals itself."""
    import torch

    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _finite(figure: float | None) -> float | None:
    return figure if figure is not None and math.isfinite(figure) else None
