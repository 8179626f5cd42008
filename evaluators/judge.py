"""Is it right, and how fast is it: correctness on secret inputs, then time against eager.

The candidate runs in a process of its own, gets inputs, and gives outputs; everything that decides
happens outside of it. A kernel that passes is timed against the eager baseline by turns, with all
raw samples kept, and then called on inputs that raise flags and decide nothing.
"""

from __future__ import annotations

import contextlib
import json
import math
import secrets
import statistics
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from evaluators.judging.case import Evidence, Kernels, Policy
from evaluators.judging.flags import UNRANKED
from store.errors import SandboxFailed
from store.ids import content_id, uuid7

if TYPE_CHECKING:
    from evaluators.judging.bench import Bench
    from evaluators.judging.case import Case
    from evaluators.references.task import Reference
    from evaluators.sandbox.launcher import Ended, Limits
    from evaluators.timing.session import Plan, Session
    from evaluators.worker.handle import Arm, Patience

VERSION = 7
"""Version of the rules; rows of an older one do not count in verdicts."""
_LOG_LIMIT = 32 * 1024
_MESSAGE_LIMIT = 500
_FEWEST_BLOCKS = 20
_FEW_CALLS = 5
_COMPARED = ("correct", "incorrect", "rejected")
"""Statuses for which the answers were looked at."""

Baseline: TypeAlias = Literal["eager", "compile", "compile_reduce_overhead", "cuda_graph", "cudnn"]
"""A way of running the reference."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """How long to look, and what a candidate may use."""

    policy: Policy = "fp32_strict"
    """allow_tf32 lets kernel and baselines compute float32 in TF32, and judges by its tolerance."""
    kernels: Kernels = "any"
    """custom_required ranks no kernel that spends all of its time in those of torch's libraries."""
    calls: int = 22
    """Calls whose answers decide; five where one takes more than a second."""
    robustness: bool = True
    """Look for flags on inputs and weights that the task does not promise."""
    diagnosis: bool = True
    """Profile a call of a correct kernel: its own share of the time, and the bottleneck."""
    timing_s: float | None = None
    """Stop timing a kernel after this, once it has 20 blocks, though its interval is still too wide
    (default: 1 on a processor, 2 on a GPU)."""
    timing_limit_s: float = 6.0
    """Stop timing a kernel past this whatever has been measured."""
    blocks: int = 160
    """Most blocks of a session, 20 at the least."""
    half_width: float | None = None
    """Half-width of the speedups' intervals that is narrow enough to stop at, as a log ratio
    (default: 0.03 on a processor, 0.01 on a GPU)."""
    baselines: tuple[Baseline, ...] | None = None
    """What to hold a kernel against besides eager (default: nothing on a processor, which could
    have compile; all of them on a GPU)."""
    rank_unfrozen: bool = False
    """Rank kernels of other authors also where workers can only be stopped by signals, so that a
    process that forks at that moment may go on unseen (`evaluators doctor`)."""
    import_s: float = 30.0
    """Longest time to import or construct a candidate in which no compiler is at work."""
    build_s: float = 180.0
    """Longest time to import or construct a candidate in all."""
    first_call_s: float = 60.0
    """Longest first call, unless a compiler is at work."""
    call_s: float = 5.0
    """Longest further call; fifty times the eager baseline where that is more."""
    total_s: float = 600.0
    """Longest evaluation of a candidate."""
    memory_gb: float = 8.0
    """Address space of a candidate on the processor, beyond what torch itself takes."""
    file_mb: float = 256.0
    """Largest file that a candidate may write, its printed output included."""


@dataclass(kw_only=True)
class _Outcome(Evidence):
    """What is known so far; becomes one row of evaluations."""

    status: str = "correct"
    reason: str | None = None
    message: str | None = None
    detail: str = ""
    timings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Rows of every session, without evaluation_id."""
    custom_kernel_share: float | None = None
    analyses: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What a profile shows; rows without kernel_id and author."""
    build_s: float | None = None
    ended: Ended | None = None
    parts_s: dict[str, float] = field(default_factory=dict[str, float])
    """Seconds by part of the judgement."""
    findings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """What the text and the calls show of a hack; rows without evaluation_id."""

    @contextlib.contextmanager
    def part(self, name: str) -> Generator[None]:
        """Add the time inside to a part, also where it fails."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - begin
            self.parts_s[name] = round(self.parts_s.get(name, 0.0) + spent, 4)


def judge(case: Case, bench: Bench, config: Config) -> dict[str, list[dict[str, Any]]]:
    """Judge one candidate; rows of the tables that it concerns, without their run_id.

    A failing candidate is a row. So is a fault of our own, with the status evaluator_error.
    """
    from evaluators.references.task import ReferenceFailed
    from evaluators.worker.handle import Failed

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
        outcome.timings, outcome.analyses, outcome.custom_kernel_share = [], [], None
    return _rows(case, bench, config, outcome, time.perf_counter() - began)


def _try(case: Case, bench: Bench, config: Config, outcome: _Outcome) -> None:
    from evaluators.audit import detect
    from evaluators.timing.surprising_wins import confirmed, rank, surprising
    from evaluators.worker.handle import Failed

    files = [{"path": path, "code": code} for path, code in case.other_files]
    outcome.findings = detect.search_kernel(case.code, files, case.kernel_id)
    hostile = detect.select_refused(outcome.findings)
    if hostile:
        message = f"line {hostile[0]['line']} is not run: {hostile[0]['quote']}"
        raise Failed("rejected", "forbidden_code", message[:_MESSAGE_LIMIT])
    if case.build is not None:
        outcome.build_s = case.build["seconds"]
        if case.build["failure"]:
            raise Failed(**case.build["failure"])
    first = _measured(case, bench, config, outcome, config.calls)
    outcome.timings = first
    own_work = config.kernels == "any" or outcome.custom_kernel_share
    if not own_work or outcome.flags & UNRANKED:
        for row in first:
            row["noisy"] = True
        return
    if not (bench.freezes or case.trusted or config.rank_unfrozen):
        outcome.flags.add("not_frozen")
        outcome.timings = [{**row, "noisy": True} for row in first]
        return
    if not surprising(first, case.best_speedup):
        return
    second: list[dict[str, Any]] = []
    if not case.elsewhere:
        with outcome.part("second_session"):
            second = remeasure(case, bench, config)
    flag = "confirmed_win" if confirmed(first, second) else "unconfirmed_win"
    outcome.flags.add(flag)
    outcome.timings = rank(first, second)


def settle(
    tables: Mapping[str, list[dict[str, Any]]],
    second: Sequence[dict[str, Any]],
    failed: Mapping[str, Any] | None,
) -> dict[str, list[dict[str, Any]]]:
    """The rows of a case that was judged with `elsewhere`, once its second session is there.

    Args:
        tables: What `judge` gave.
        second: What `remeasure` gave in another place; nothing where our own machinery failed.
        failed: Status, reason, message and detail where the kernel failed there.
    """
    from evaluators.timing.surprising_wins import confirmed, rank

    [evaluation] = tables["evaluations"]
    key = {"evaluation_id": evaluation["evaluation_id"]}
    if failed is not None:
        why = {name: failed[name] for name in ("status", "reason", "message")}
        log = "\n".join(part for part in (failed["detail"], evaluation.get("log") or "") if part)
        figures = ("max_abs_error", "max_scaled_error", "rel_l2_error", "precision_class")
        figures = () if failed["status"] in _COMPARED else figures
        row = {
            **evaluation,
            **why,
            "log": log[:_LOG_LIMIT] or None,
            **dict.fromkeys(("custom_kernel_share", "equivalent", *figures)),
        }
        found = [*tables.get("findings", [])]
        if failed["status"] == "rejected":
            found.append(
                _rejection(evaluation["kernel_id"], failed["reason"], failed["message"]) | key
            )
        return {**tables, "evaluations": [row], "timings": [], "findings": found, "analyses": []}
    ranking = tables["timings"][0]["clock"] if tables["timings"] else None
    first = [{**row, "noisy": row["clock"] != ranking} for row in tables["timings"]]
    flag = "confirmed_win" if confirmed(first, second) else "unconfirmed_win"
    flags = sorted({*evaluation["flags"], flag} - ({"unconfirmed_win"} - {flag}))
    return {
        **tables,
        "evaluations": [{**evaluation, "flags": flags}],
        "timings": [row | key for row in rank(first, second)],
    }


def remeasure(case: Case, bench: Bench, config: Config) -> list[dict[str, Any]]:
    """Time a kernel in a fresh process; rows of `timings` without evaluation_id.

    Raises Failed where it fails there: what a kernel shows once it has to show again.
    """
    # What the flags of a further process would say has been said.
    again = replace(config, robustness=False, diagnosis=False, kernels="any")
    return _measured(case, bench, again, _Outcome(), _FEW_CALLS)


def _measured(
    case: Case, bench: Bench, config: Config, outcome: _Outcome, calls: int
) -> list[dict[str, Any]]:
    """Judge the answers of one process of the candidate, then time it; rows of its session."""
    from evaluators.device.roofline import Floor
    from evaluators.judging.bench import Sizes
    from evaluators.judging.calls import Checks, question
    from evaluators.memory.tensors import layout
    from evaluators.references.module import WEIGHT_SEED
    from evaluators.timing.session import (
        Sources,
        hold_against_eager_alone,
        hold_against_floor,
        measure,
    )

    axes = json.loads(case.axes)
    names, plan = _baselines(config, bench.device), _plan(config, bench.device)
    bench.use(config.policy)
    with outcome.part("reference"), bench.lock.shared():
        reference = bench.reference(case.task_code, axes)
        reference.reset()
        begin = time.perf_counter()
        first = question(reference, outcome)
        answer_s = time.perf_counter() - begin
    answer_bytes = layout(first.expected.value)[1]
    sizes = Sizes.of(layout(first.inputs)[1], max(layout(first.inputs)[1], answer_bytes))
    limits = _limits(config, bench.device)
    patience = _patience(config, answer_s)
    with outcome.part("start"):
        bench.expect(case.task_code, axes, sizes, limits, patience, names)
        arm = bench.candidate(_files(case), sizes, limits, patience)
    try:
        begin = time.perf_counter()
        with outcome.part("build"):
            arm.load(case.path, case.entry_point, {})
            parameters = arm.construct(WEIGHT_SEED, reference.arguments)
        outcome.build_s = (outcome.build_s or 0.0) + time.perf_counter() - begin
        with outcome.part("verdict"), bench.lock.shared() as waited_s:
            arm.excuse(waited_s)
            checks = Checks(arm, reference, outcome, config.policy)
            checks.adopt(parameters)
            checks.verdict(first, calls)
        begin = time.perf_counter()
        with outcome.part("baselines"), bench.lock.shared():
            baselines = bench.baselines(case.task_code, axes, sizes, limits, patience, names)
            # No bandwidth is known of a processor; what a diagnosis counts is counted there.
            floor = bench.floor() if bench.device == "cuda" else Floor()
        arm.excuse(time.perf_counter() - begin)
        sources = Sources(
            reference.inputs,
            checks.check_timed,
            bench.clocks.read,
            bench.flush,
            keeps_inputs=not reference.mutates,
        )
        with outcome.part("timing"), bench.lock.exclusive() as waited_s:
            arm.excuse(waited_s)
            session = measure(arm, baselines, sources, plan)
            hold_against_floor(session, floor)
            arm.check_clocks()
        with outcome.part("robustness"), bench.lock.shared() as waited_s:
            arm.excuse(waited_s)
            if config.robustness and not checks.robustness(baselines.arm):
                bench.end_baselines()
                baselines = bench.baselines(case.task_code, axes, sizes, limits, patience)
        with outcome.part("diagnosis"), bench.lock.shared() as waited_s:
            arm.excuse(waited_s)
            if config.diagnosis or config.kernels == "custom_required":
                _diagnose(arm, reference, bench, session, outcome)
    finally:
        with outcome.part("end"):
            outcome.ended = arm.end()
    with outcome.part("eager_alone"), bench.lock.exclusive():
        hold_against_eager_alone(session, baselines, sources, plan)
    outcome.flags |= session.flags
    outcome.notes += [
        *(f"baseline {n}: prepared in {s:.1f} s" for n, s in baselines.prepared.items() if s),
        *(f"baseline {n}: none, {why}" for n, why in bench.unavailable.items() if n in names),
    ]
    return list(_timing_rows(session, case, bench))


def _diagnose(
    arm: Arm, reference: Reference, bench: Bench, session: Session, outcome: _Outcome
) -> None:
    """Ask for a profile, the last that is asked of a worker, and note what it shows."""
    from evaluators.diagnosis.bottleneck import analysis, share
    from evaluators.worker.handle import Failed

    try:
        arm.fill(0, reference.inputs(secrets.randbits(48)))
        profile = arm.profile(0)
    except Failed as failed:
        outcome.notes.append(f"profile: none, {failed.message}")
        return
    if bench.device == "cuda" and not profile.kernels:
        outcome.notes.append("profile: none, it saw no kernel")
        return
    outcome.custom_kernel_share = share(profile, bench.device)
    if outcome.custom_kernel_share == 0:
        outcome.flags.add("no_custom_kernel")
    time_ms = statistics.median(session.samples_ms["kernel"])
    row = analysis(profile, time_ms, bench.floor(), bench.peaks(), device=bench.device)
    outcome.analyses.append(row)


def _plan(config: Config, device: str) -> Plan:
    from evaluators.timing.session import Plan

    on_gpu = device == "cuda"
    most = max(config.blocks, _FEWEST_BLOCKS)
    return Plan(
        looks=[*(look for look in Plan.looks if look < most), most],
        half_width=config.half_width or (0.01 if on_gpu else 0.03),
        budget_s=config.timing_s if config.timing_s is not None else 2.0 if on_gpu else 1.0,
        limit_s=config.timing_limit_s,
        sample_ms=5.0 if on_gpu else 3.0,
    )


def _rows(
    case: Case, bench: Bench, config: Config, outcome: _Outcome, wall_s: float
) -> dict[str, list[dict[str, Any]]]:
    ended, found = outcome.ended, outcome.comparison
    compared = outcome.status in _COMPARED and found is not None
    if ended is not None and ended.strays:
        outcome.flags.add("left_processes")
    if case.weak:
        outcome.flags.add("weak_task")
    parts = (outcome.detail, *outcome.notes, ended.log if ended else "")
    log = "\n".join(part for part in parts if part)
    evaluation_id = uuid7()
    evaluation = _shared(case, bench) | {
        "evaluation_id": evaluation_id,
        "evaluator": "judge",
        "evaluator_version": VERSION,
        "status": outcome.status,
        "reason": outcome.reason,
        "message": outcome.message,
        "log": log[:_LOG_LIMIT] or None,
        "policy": config.policy + " custom_required" * (config.kernels == "custom_required"),
        "flags": sorted(outcome.flags),
        "equivalent": outcome.equivalent() if outcome.status == "correct" else None,
        "seeds": outcome.seeds,
        "max_abs_error": _finite(found.max_abs_error) if found and compared else None,
        "max_scaled_error": _finite(found.max_scaled_error) if found and compared else None,
        "rel_l2_error": _finite(found.rel_l2_error) if found and compared else None,
        "precision_class": found.precision_class if found and compared else None,
        "custom_kernel_share": outcome.custom_kernel_share,
        "sandbox_level": bench.sandbox_level,
        "sandbox_missing": bench.sandbox_missing,
        "build_s": outcome.build_s,
        "wall_s": wall_s,
        "parts_s": json.dumps(outcome.parts_s),
        "peak_memory_bytes": ended.peak_memory_bytes if ended else None,
    }
    return {
        "evaluations": [evaluation],
        "timings": [{**row, "evaluation_id": evaluation_id} for row in outcome.timings],
        "findings": [{**row, "evaluation_id": evaluation_id} for row in _findings(case, outcome)],
        "analyses": [
            {**row, "kernel_id": case.kernel_id, "author": f"torch.profiler {bench.row['torch']}"}
            for row in outcome.analyses
        ],
    }


def _findings(case: Case, outcome: _Outcome) -> Iterator[dict[str, Any]]:
    """What the text shows, and a rejection, which is what the calls have shown."""
    now = datetime.now(UTC).isoformat()
    for row in outcome.findings:
        yield {**row, "created_at": now}
    if outcome.status == "rejected" and outcome.reason != "forbidden_code":
        yield _rejection(case.kernel_id, outcome.reason, outcome.message)


def _rejection(kernel_id: str, reason: str | None, message: str | None) -> dict[str, Any]:
    return {
        "finding_id": content_id("finding", kernel_id, "judge", str(VERSION), reason),
        "kernel_id": kernel_id,
        "detector": "judge",
        "detector_version": VERSION,
        "class": reason,
        "quote": message,
        "confidence": 1.0,
        "created_at": datetime.now(UTC).isoformat(),
    }


def _shared(case: Case, bench: Bench) -> dict[str, Any]:
    return {
        "kernel_id": case.kernel_id,
        "task_id": case.task_id,
        "workload_id": case.workload_id,
        "device_id": bench.row["device_id"],
        "created_at": datetime.now(UTC).isoformat(),
    }


def _timing_rows(session: Session, case: Case, bench: Bench) -> Iterator[dict[str, Any]]:
    """One row for every clock and arm, those of the clock that ranks first."""
    session_id = uuid7()
    for one in (session, *session.further):
        kept = one.kept()
        readings = [one.readings[block] for block in kept]
        clocks = [reading for reading in readings if reading is not None]
        told = clocks if len(clocks) == len(kept) else []
        cold = one.clock != "throughput" or bench.device == "cpu"
        for arm in ("kernel", *one.baselines):
            yield {
                **_shared(case, bench),
                "session_id": session_id,
                "clock": one.clock,
                "inner_loops": one.inner_loops,
                "noisy": one.noisy,
                "overhead_ms": one.overhead_ms,
                "resolution_ms": one.resolution_ms,
                "timing_id": uuid7(),
                "arm": arm,
                "samples_ms": [one.samples_ms[arm][block] for block in kept],
                "blocks": kept,
                "positions": [one.positions[arm][block] for block in kept],
                "cache": "cold" if cold else "warm",
                "sm_clock_mhz": [reading.sm_mhz for reading in told] or None,
                "temperature_c": [reading.temperature_c for reading in told] or None,
                "control_ratios": one.control() if arm == "kernel" else None,
            }


def _files(case: Case) -> dict[str, str]:
    """Every file of the kernel by its path; raises Failed where one lies outside its folder."""
    from evaluators.sandbox.launcher import strays
    from evaluators.worker.handle import Failed

    files = {case.path: case.code, **dict(case.other_files)}
    outside = strays(files)
    if outside:
        message = f"a file of the kernel is called {outside[0]!r:.200}"
        raise Failed("rejected", "forbidden_code", message)
    return files


def _limits(config: Config, device: str) -> Limits:
    from evaluators.sandbox.launcher import Limits

    return Limits(
        memory_bytes=None if device == "cuda" else int(config.memory_gb * 2**30),
        file_bytes=int(config.file_mb * 2**20),
        open_files=1024,
        cpu_s=int(config.total_s * 4),
    )


def _patience(config: Config, answer_s: float) -> Patience:
    from evaluators.worker.handle import Patience

    return Patience(
        import_s=config.import_s,
        build_s=config.build_s,
        first_call_s=config.first_call_s + 50 * answer_s,
        call_s=max(config.call_s, 50 * answer_s),
        total_s=config.total_s,
    )


def _baselines(config: Config, device: str) -> Sequence[str]:
    """The baselines asked for, eager among them."""
    from evaluators.worker.baselines import names

    chosen = config.baselines
    if chosen is None:
        chosen = names(device) if device == "cuda" else ()
    return ["eager", *(name for name in chosen if name != "eager")]


def _finite(figure: float | None) -> float | None:
    return figure if figure is not None and math.isfinite(figure) else None
