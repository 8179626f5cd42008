"""One process of a candidate: its answers, its timing session, its flags and its profile."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import secrets
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from evaluators.device.roofline import Floor
from evaluators.diagnosis.bottleneck import analysis, share
from evaluators.judging.bench import BaselineTask, Bench
from evaluators.judging.calls import CorrectnessProtocol, SeedProbe, draw_probe, repeat_probe
from evaluators.judging.case import Case, Precision
from evaluators.judging.case_result import CaseResult, build_shared_columns
from evaluators.judging.host import count_oom_kills
from evaluators.judging.tolerance import measure_algorithms, widen
from evaluators.limits.kinds import refuse_limit
from evaluators.memory.tensors import has_same_bits, is_inexact, tensors_of
from evaluators.references.imported_file import WEIGHT_SEED
from evaluators.references.operations import flatten
from evaluators.references.task import Reference, ReferenceFailed, SizesExceeded
from evaluators.sandbox.failures import Failed, lacks_memory
from evaluators.sandbox.folders import find_outside_files
from evaluators.sandbox.launcher import Limits
from evaluators.timing.checks import KeptAnswers, check_floor
from evaluators.timing.measurement import (
    Measurement,
    check_eager_alone,
    prepare_eager_alone,
    prepare_pool,
)
from evaluators.timing.session import (
    Plan,
    Session,
    Sources,
    iterate_timing_rows,
    mark_disturbed,
    spare_memory,
)
from evaluators.worker.handle import Deadlines, Sizes, WorkerHandle

_ANSWERS = 50
"""A call may take as long as this many answers of the reference, double precision included."""
_COLD_S = 3.0
"""Most seconds that a process spends on loading libraries for its first answer."""
_COMPARED = 1 << 22
"""Elements of two answers to the same inputs that are compared, at most."""
_MOST_UNLIKE = 0.1
"""Norm of the difference of two answers to the same inputs, as a share of their norm, at most."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options for judging one process of a candidate."""

    precision: Precision
    calls: int
    """Verdict calls, at most."""
    robustness: bool
    """Make the calls that raise flags."""
    profile: bool
    """Profile a call, which gives the kernel's own share of the time."""
    baselines: Sequence[str]
    """Baselines to time, eager first."""
    plan: Plan
    limits: Limits
    deadlines: Deadlines
    """Deadlines, before what a slow reference adds to them."""


_MOST_SIZES = 12
"""Processes of a candidate that are started with ever more memory, for a task of varying sizes."""


class BaselinesTooLarge(Exception):
    """The memory does not hold all baselines beside the candidate."""


def measure_candidate(
    case: Case, bench: Bench, options: Options, evidence: CaseResult
) -> list[dict[str, Any]]:
    """Judge the answers of one process of the candidate, then time it.

    If the memory does not hold all baselines, another process of the candidate is judged and timed
    against eager alone, and does not rank.

    Returns the rows of its session, without evaluation_id. Raises Failed, ReferenceFailed,
    SandboxFailed; `evidence` then keeps what was seen before.
    """
    before = copy.deepcopy(evidence)
    try:
        return _measure_process_with_room(case, bench, options, evidence)
    except BaselinesTooLarge as large:
        why = str(large)
    # Not in the handler: the error keeps the tensors of its frames.
    bench.end_baselines()
    vars(evidence).update(vars(before))
    evidence.flags.add("fewer_baselines")
    evidence.notes.append(f"baselines other than eager: none, {why}")
    eager = replace(options, baselines=("eager",))
    rows = _measure_process_with_room(case, bench, eager, evidence)
    # Otherwise a candidate could take the memory itself to avoid the hardest baseline.
    return mark_disturbed(rows)


def _measure_process_with_room(
    case: Case, bench: Bench, options: Options, evidence: CaseResult
) -> list[dict[str, Any]]:
    """Judge and time a process, another one where its memory is too small for a later call."""
    before = copy.deepcopy(evidence)
    for _ in range(_MOST_SIZES - 1):
        try:
            return _measure_process(case, bench, options, evidence)
        except SizesExceeded as exceeded:
            reference = bench.open_reference(case.task_code, json.loads(case.axes))
            inputs, answer = reference.least_bytes
            reference.least_bytes = (
                max(inputs, 2 * exceeded.input_bytes),
                max(answer, 2 * exceeded.answer_bytes),
            )
            vars(evidence).update(vars(copy.deepcopy(before)))
    return _measure_process(case, bench, options, evidence)


def _measure_process(
    case: Case, bench: Bench, options: Options, evidence: CaseResult
) -> list[dict[str, Any]]:
    """Start a process of the candidate, build it, check its answers and time it, in this order."""
    files = case.files
    outside = find_outside_files(files)
    if outside:
        message = f"a file of the kernel is called {outside[0]!r:.200}"
        raise Failed("rejected", "forbidden_code", message)
    axes, oom_kills = json.loads(case.axes), count_oom_kills()
    with contextlib.ExitStack() as starts:
        # No other judge times while a worker of this one starts: that uses the device as well.
        starts.enter_context(evidence.hold(bench.lock.hold_shared()))
        starts.callback(bench.await_starts)
        bench.set_precision(options.precision)

        # The reference answers its first question, which sets sizes and deadlines.
        expect = functools.partial(
            bench.expect_candidate, case.task_code, axes, files, options.limits
        )
        try:
            with evidence.time_part("reference", bench.lock.hold_shared()):
                expect()
                reference = bench.open_reference(case.task_code, axes)
                bench.step_aside(expect)
                try:
                    measure_algorithms(reference, options.precision)
                except ReferenceFailed:
                    # The first answer tells whether the task fails. If not, eager's own errors
                    # count alone.
                    reference = bench.open_reference(case.task_code, axes)
                    reference.leave_out_algorithms()
                bench.step_aside(expect)
                reference.reset()
                first, answer_s = _ask_reference(reference, evidence)
                first_seed = evidence.seeds[-1]
            sizes = Sizes.of(first.inputs, first.expected.value, reference.least_bytes)
        except BaseException:
            bench.end_expected()
            raise
        deadlines = replace(
            options.deadlines,
            first_call_s=options.deadlines.first_call_s + _ANSWERS * answer_s,
            call_s=max(options.deadlines.call_s, _ANSWERS * answer_s),
        )
        task = BaselineTask(case.task_code, axes, sizes, deadlines)

        with evidence.time_part("start"):
            if case.shape != "answers":
                bench.require_memory(task, options.baselines)
                bench.expect_baselines(task, options.baselines)
            arm = bench.start_candidate(files, sizes, options.limits, deadlines)
        try:
            # A constructor may use the GPU.
            with evidence.time_part("build", bench.lock.hold_shared()) as held:
                arm.excuse(held.waited_s)
                begin = time.perf_counter()
                arm.load(case.path, case.entry_point, {})
                places = reference.places_tensors
                parameters = arm.construct(WEIGHT_SEED, reference.arguments, places=places)
                seconds = time.perf_counter() - begin - held.aside_s
            evidence.build_s = (evidence.build_s or 0.0) + seconds

            with evidence.time_part("verdict", bench.lock.hold_shared()) as held:
                arm.excuse(held.waited_s)
                protocol = CorrectnessProtocol(
                    *(arm, reference, evidence, options.precision),
                    lambda failed: bench.shares_memory and bench.lacks_memory(failed, oom_kills),
                )
                protocol.adopt_weights(parameters)
                protocol.make_verdict_calls(first, options.calls)
            if case.shape == "answers":
                return []
            starts.close()

            begin = time.perf_counter()
            time_part = functools.partial(evidence.time_part, "baselines")
            baselines = bench.start_baselines(task, options.baselines, time_part)
            arm.excuse(time.perf_counter() - begin)
            answers = KeptAnswers(protocol.check_timed_output, spare_memory(bench.device))
            sources = Sources(
                reference.input_sets, answers.keep, bench.clocks.read, protocol.follow_state
            )
            try:
                with evidence.time_part("warm_up", bench.lock.hold_shared()) as held:
                    arm.excuse(held.waited_s)
                    # The bandwidth of a processor is unknown; a diagnosis counts the work there.
                    floor = bench.compute_floor() if bench.device == "cuda" else Floor()
                    pool = prepare_pool(arm, baselines, sources, options.plan)
                measurement = Measurement(
                    arm, baselines, sources, options.plan, pool, bench.timing_cores
                )
                try:
                    with evidence.time_part("timing", bench.lock.hold_exclusive()) as held:
                        arm.excuse(held.waited_s)
                        measurement.time()
                    if measurement.has_further:
                        with evidence.time_part("warm_up", bench.lock.hold_shared()) as held:
                            arm.excuse(held.waited_s)
                            measurement.prepare_further()
                        with evidence.time_part("timing", bench.lock.hold_exclusive()) as held:
                            arm.excuse(held.waited_s)
                            measurement.time_further()
                    session = measurement.end()
                    check_floor(session, floor)
                    arm.check_clocks()
                except Failed:
                    with evidence.time_part("timed_answers", bench.lock.hold_shared()):
                        answers.compare()  # a wrong answer before it says more
                    raise
                with evidence.time_part("timed_answers", bench.lock.hold_shared()) as held:
                    arm.excuse(held.waited_s)
                    answers.compare()
            except Exception as error:
                if bench.has_memory_alone and len(baselines.prepared) > 1 and lacks_memory(error):
                    raise BaselinesTooLarge(f"the memory does not hold them: {error}") from error
                raise

            with evidence.time_part("robustness", bench.lock.hold_shared()) as held:
                arm.excuse(held.waited_s)
                if options.robustness and not protocol.make_robustness_calls(baselines.main):
                    bench.end_baselines()
                    baselines = bench.start_baselines(task)
            with evidence.time_part("diagnosis", bench.lock.hold_shared()) as held:
                arm.excuse(held.waited_s)
                if options.profile:
                    _diagnose(arm, reference, bench, session, evidence)
            del pool  # its tensors take memory
        except Failed as failed:
            if failed.status in ("incorrect", "rejected"):
                # A verdict against a kernel needs to know whether the task answers its first
                # question alike when asked again. A slow task, or a fast one on a busy host, has
                # answered it only once.
                with evidence.time_part("reference", bench.lock.hold_shared()):
                    if reference.is_unseeded is None:
                        reference.reset()
                        again = repeat_probe(reference, first_seed)
                        reference.is_unseeded = _is_other_answer(first, again)
                    if reference.is_unseeded:
                        _refuse_unseeded()
            raise
        finally:
            is_over = isinstance(sys.exception(), SystemExit)  # of the judge, which waits no more
            with evidence.time_part("end", None if is_over else bench.lock.hold_shared()):
                evidence.ended = arm.end()

    if not session.disturbed and case.shape is None:
        with evidence.time_part("warm_up", bench.lock.hold_shared()):
            pool = prepare_eager_alone(session, baselines, sources)
        with evidence.time_part("eager_alone", bench.lock.hold_exclusive()):
            check_eager_alone(session, baselines, sources, options.plan, pool, bench.timing_cores)
    evidence.flags |= session.flags
    prepared = [(name, seconds) for name, seconds in baselines.prepared.items() if seconds]
    missing = [(n, why) for n, why in bench.task.unavailable.items() if n in options.baselines]
    evidence.lacks_baseline = bool(missing)
    evidence.notes += [
        *(f"baseline {name}: prepared in {seconds:.1f} s" for name, seconds in prepared),
        *(f"baseline {name}: none, {why}" for name, why in missing),
    ]
    shared = build_shared_columns(case, bench.row["device_id"])
    return list(iterate_timing_rows(session, shared))


def _ask_reference(reference: Reference, evidence: CaseResult) -> tuple[SeedProbe, float]:
    """Return the first question, and the seconds of its answer.

    A new process answers twice and the second answer counts, unless the first took so long that
    loading libraries cannot explain it. Raises ReferenceFailed if both have little in common.
    """
    is_new = reference.changed is None  # known after the first answer
    begin = time.perf_counter()
    first = draw_probe(reference, evidence)
    answer_s = time.perf_counter() - begin
    if is_new and answer_s < _COLD_S:
        reference.reset()
        begin = time.perf_counter()
        before, first = first, repeat_probe(reference, evidence.seeds[-1])
        answer_s = time.perf_counter() - begin
        reference.is_unseeded = _is_other_answer(before, first)
    if reference.is_unseeded:
        _refuse_unseeded()
    return first, answer_s


def _refuse_unseeded() -> NoReturn:
    detail = "the task answers the same inputs differently under the same seed"
    raise ReferenceFailed(refuse_limit("entropy", detail))


def _is_other_answer(one: SeedProbe, other: SeedProbe) -> bool:
    """Whether two answers to the same inputs differ by far more than the order of sums explains."""
    inputs = zip(tensors_of(one.inputs), tensors_of(other.inputs), strict=False)
    if not all(has_same_bits(a, b) for a, b in inputs):
        return False
    values = zip(tensors_of(one.expected.value), tensors_of(other.expected.value), strict=False)
    for first, second in values:
        if not is_inexact(first.dtype) or first.shape != second.shape:
            continue
        a, b = (widen(flatten(t)[:_COMPARED]).nan_to_num() for t in (first, second))
        if float((a - b).norm()) > _MOST_UNLIKE * float(a.norm()):
            return True
    return False


def _diagnose(
    arm: WorkerHandle, reference: Reference, bench: Bench, session: Session, evidence: CaseResult
) -> None:
    """Profile a call, the last one of a worker, and store the results."""

    try:
        arm.fill(0, reference.inputs(secrets.randbits(48)))
        profile = arm.profile(0)
    except Failed as failed:
        evidence.notes.append(f"profile: none, {failed.message}")
        return
    if bench.device == "cuda" and not profile.kernels:
        evidence.notes.append("profile: none, it saw no kernel")
        return
    evidence.custom_kernel_share = share(profile, bench.device)
    if evidence.custom_kernel_share == 0:
        evidence.flags.add("no_custom_kernel")
    time_ms = statistics.median(session.samples_ms["kernel"])
    floor, peaks = bench.compute_floor(), bench.compute_peaks()
    evidence.analyses.append(analysis(profile, time_ms, floor, peaks, device=bench.device))
