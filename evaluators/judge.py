"""Tests a kernel on secret inputs, then times it against baselines such as eager PyTorch.

The candidate runs in a separate process that only gets inputs and returns outputs; the verdict is
computed outside of it. A correct kernel is timed in alternation with the baselines, and all raw
samples are kept. Then it is called on further inputs, which can raise flags but do not change the
verdict.
"""

from __future__ import annotations

import copy
import json
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from evaluators.judging.case import Case, Config, Precision
from evaluators.judging.case_result import (
    SHORTAGE,
    CaseResult,
    KnownVerdict,
    build_shared_columns,
    build_tables,
    fail_evaluation,
)
from evaluators.judging.flags import UNRANKED
from evaluators.judging.host import count_oom_kills
from evaluators.judging.other_shapes import ShapeRows, judge_shapes
from evaluators.sandbox.failures import Failed
from evaluators.sandbox.launcher import Limits
from store.code.entry_points import DEFAULT
from store.errors import HostUnfit, SandboxFailed

if TYPE_CHECKING:
    from evaluators.judging.bench import Bench
    from evaluators.timing.candidate_process import Options
    from evaluators.timing.session import Plan
    from evaluators.worker.handle import Deadlines

VERSION = 13
"""Version of the rules; rows of an older one do not count in verdicts."""
READS_TEXTS = True
"""All detectors read the text of each kernel that is judged."""
_T = TypeVar("_T")
_MESSAGE_LIMIT = 500
_ALIKE: frozenset[Precision] = frozenset({"torch_default", "fp32_strict"})
"""Precisions that compare answers by the same rule where eager computes in full float32."""
_MOST_KNOWN = 512
_REPEATED = frozenset({"lazy_output", "memorised_output", "timer_mismatch"})
"""Reasons for a rejection that count only if a fresh process gives one of them again."""
_FEWEST_BLOCKS = 20
_FEW_CALLS = 5
_SECOND_SESSIONS = 3
_TRAINING_CALLS = 8
_SHAPE_CALLS = 4
_TRAINING_LIMIT_S = 2.0
_TRAINING_FIRST_CALL_S = 20.0
_TRAINING_BUILD_S = 90.0
"""A training waits for all verdicts of a step, so one kernel may not take long."""


def judge(case: Case, bench: Bench, config: Config) -> dict[str, list[dict[str, Any]]]:
    """Judge one candidate by one precision; returns rows by table, without their run_id.

    A failing candidate is a row. So is a fault of our own, with the status evaluator_error. The
    rows of an earlier verdict by another precision are taken over where its flags change nothing.
    Raises HostUnfit where this host is to blame: the kernel has no verdict then.
    """
    from evaluators.references.task import ReferenceFailed

    begin = time.perf_counter()
    config = _apply_protocol(config, case)
    result = CaseResult()
    if case.entry_point != DEFAULT:
        result.notes.append(f"entry point {case.entry_point}")
    bench.require_host(case)
    try:
        try:
            known = _find_known(case, bench, config)
            if known is not None:
                # Its rows with what is new; the caller gives them new ids.
                [evaluation] = known.tables["evaluations"]
                note = f"judged by {known.precision}, whose flags give the same answers"
                wall_s = time.perf_counter() - begin
                own = {
                    "precision": config.precision[0],
                    "log": "\n".join(part for part in (note, evaluation["log"]) if part),
                    "wall_s": wall_s,
                    "parts_s": json.dumps({"flags": round(wall_s, 4)}),
                }
                return {**known.tables, "evaluations": [evaluation | own]}
            if case.shape:
                options = _build_options(case, config, bench.device, config.calls)
                result.timings = _measure(case, bench, options, result)
            else:
                _judge_beside_others(case, bench, config, result)
        except Exception as failed:
            if unfit := bench.blame_host(case, failed):
                raise unfit from failed
            raise
    except HostUnfit:
        raise
    except Failed as failed:
        result.status, result.reason = failed.status, failed.reason
        result.message, result.detail = failed.message, failed.detail
    except ReferenceFailed as failed:
        result.status, result.reason = "evaluator_error", failed.reason
        result.message = str(failed)
        bench.end_baselines()
    except SandboxFailed as failed:
        result.status, result.reason = "evaluator_error", "sandbox_failed"
        result.message = failed.message
    except Exception as error:
        # A fault of the judge's own ends this case and no other one, which gets fresh workers.
        bench.end_workers()
        lines = str(error).strip().splitlines() or [""]
        result.status, result.reason = "evaluator_error", "internal"
        result.message = f"{type(error).__name__}: {lines[0]}"[:_MESSAGE_LIMIT]
        result.detail = traceback.format_exc()
    if result.status != "correct":
        result.timings, result.analyses, result.custom_kernel_share = [], [], None
    if result.ended is not None and result.ended.strays:
        result.flags.add("left_processes")
    if case.weak:
        result.flags.add("weak_task")
    wall_s = time.perf_counter() - begin
    others = ShapeRows()
    if result.status == "correct" and not case.shape and (config.draw_shapes or config.axes):
        try:
            others = judge_shapes(
                case, bench, config, result, judge, version=VERSION, wall_s=wall_s
            )
        except Exception as error:  # a fault of the judge's own does not cost the verdict
            bench.end_workers()
            others.notes.append(
                f"other shapes: none, {type(error).__name__}: {error}"[:_MESSAGE_LIMIT]
            )
        result.notes += others.notes
    evaluation = {
        "evaluator": "judge",
        "evaluator_version": VERSION,
        "precision": config.precision[0],
        "protocol": "shape" if case.shape else config.protocol,
        "sandbox_level": bench.sandbox_level,
        "sandbox_missing": bench.sandbox_missing,
        "wall_s": wall_s + result.parts_s.get("drawing", 0.0),
    }
    shared = build_shared_columns(case, bench.row["device_id"])
    tables = build_tables(result, evaluation, shared, f"torch.profiler {bench.row['torch']}")
    # It holds by another precision for equal bits where eager computes in full float32, no session
    # waits to be measured again, and no baseline failed or was wrong: one that is wrong in TF32 may
    # be right without it.
    if (
        result.status == "correct"
        and not result.lacks_baseline
        and result.answers
        and result.eager_class in (None, "fp32")
        and "unconfirmed_win" not in result.flags
    ):
        known_verdicts = bench.task.known
        if len(known_verdicts) >= _MOST_KNOWN:
            del known_verdicts[next(iter(known_verdicts))]  # the oldest one
        known_verdicts[_name_known(case)] = KnownVerdict(
            precision=config.precision[0],
            options=replace(config, precision=()),
            tables=tables,
            seeds=result.seeds,
            answers=result.answers,
        )
    at_shapes = {name: getattr(others, name) for name in ("workloads", "evaluations", "timings")}
    return tables | {name: [*tables.get(name, []), *r] for name, r in at_shapes.items() if r}


def _name_known(case: Case) -> tuple[str, ...]:
    return (*case.task_key, case.kernel_id, case.code)


def _judge_beside_others(case: Case, bench: Bench, config: Config, result: CaseResult) -> None:
    """Judge a case; where it lacks memory beside other judges, judge it again alone."""

    def attempt(shortage: str | None) -> None:
        if shortage is None:
            _judge_sessions(case, bench, config, result)
            return
        notes = [*notes_before, f"judged again alone: {shortage}"]
        lost = {SHORTAGE: round(time.perf_counter() - begin, 4)}
        vars(result).update(vars(CaseResult(notes=notes, parts_s=lost)))
        # The system may have ended a compiler of the builder, too.
        _judge_sessions(replace(case, build=None), bench, config, result)

    notes_before, begin = list(result.notes), time.perf_counter()
    _try_alone_if_short(bench, attempt)


def _try_alone_if_short(bench: Bench, attempt: Callable[[str | None], _T]) -> _T:
    """Return what `attempt` returns; call it again alone where it lacks memory beside other judges.

    Its argument is None, or what the first attempt lacked. Raises HostUnfit where processes other
    than judges hold the memory that it lacks in the end.
    """

    oom_kills = count_oom_kills()
    try:
        return attempt(None)
    except Exception as failed:
        if bench.has_memory_alone or not bench.lacks_memory(failed, oom_kills):
            raise
        shortage = str(failed)[:_MESSAGE_LIMIT]
    # Not in the handler: the error keeps the tensors of its frames.
    bench.take_memory_alone()
    oom_kills = count_oom_kills()
    try:
        return attempt(shortage)
    except Exception as failed:
        if not bench.lacks_memory(failed, oom_kills):
            raise
        if bench.foreign_bytes:
            raise HostUnfit(
                f"other processes hold {bench.foreign_bytes} bytes of the GPU's memory",
                "End them, or judge on another GPU.",
            ) from failed
        if isinstance(failed, Failed) and failed.reason == "signal":
            message = f"{failed.message}: the machine ran out of memory"
            raise Failed("crash", "out_of_memory", message, failed.detail) from failed
        raise


def _apply_protocol(config: Config, case: Case) -> Config:
    """Return the options as the protocol has them, or as another shape needs them."""
    if config.protocol == "full" and not case.shape:
        return config
    if case.shape:
        few = {"calls": _SHAPE_CALLS, "baselines": ("eager",), "kernels": "any"}
        config = replace(config, protocol="training", **few)
    return replace(
        config,
        draw_shapes=min(config.draw_shapes, 1),
        calls=min(config.calls, _TRAINING_CALLS),
        robustness=False,
        diagnosis=False,
        blocks=_FEWEST_BLOCKS,
        timing_limit_s=min(config.timing_limit_s, _TRAINING_LIMIT_S),
        first_call_s=min(config.first_call_s, _TRAINING_FIRST_CALL_S),
        build_s=min(config.build_s, _TRAINING_BUILD_S),
    )


def _find_known(case: Case, bench: Bench, config: Config) -> KnownVerdict | None:
    """Return the verdict on this candidate by another precision that holds for this one, or None.

    Precisions are alike if they compare answers by the same rule, as torch_default and fp32_strict
    do where eager computes in full float32. They then differ in one flag of a GPU, TF32 in
    convolutions. A verdict by one holds for the other if the flag changes neither the answers of
    eager nor those of the candidate, bit by bit.

    Eager tells in its own worker whether the flags of the precision change its answers, and the
    candidate in a fresh process under these flags, which answers the first probes again. Where
    either fails, judging it in full says how.
    """
    from evaluators.judging.calls import CorrectnessProtocol, repeat_probe
    from evaluators.memory.tensors import compute_fingerprint
    from evaluators.references.imported_file import WEIGHT_SEED
    from evaluators.references.task import ReferenceFailed
    from evaluators.worker.handle import Sizes

    [precision] = config.precision
    known = bench.task.known.get(_name_known(case))
    if (
        known is None
        or known.precision == precision
        or known.options != replace(config, precision=())
    ):
        return None
    if not {known.precision, precision} <= _ALIKE:
        return None
    limits = _build_limits(config, bench.device)
    deadlines = _build_deadlines(config)
    patient = replace(deadlines, first_call_s=deadlines.total_s, call_s=deadlines.total_s)
    try:
        with bench.lock.hold_shared():
            reference = bench.open_reference(case.task_code, json.loads(case.axes))
            if reference.depends_on_tf32():
                return None
            reference.reset()
            first, *others = known.seeds[: len(known.answers)]
            probe = repeat_probe(reference, first)
            sizes = Sizes.of(probe.inputs, probe.expected.value, reference.least_bytes)
            worker = bench.start_candidate(case.files, sizes, limits, patient, precision)
            try:
                candidate = CorrectnessProtocol(worker, reference, CaseResult(), precision)
                worker.load(case.path, case.entry_point, {})
                places = reference.places_tensors
                parameters = worker.construct(WEIGHT_SEED, reference.arguments, places=places)
                candidate.adopt_weights(parameters)
                answers = [compute_fingerprint(candidate.call(0, probe, first=True))]
                for seed in others:
                    probe = repeat_probe(reference, seed)
                    answers.append(compute_fingerprint(candidate.call(0, probe)))
            finally:
                worker.end()
    except (Failed, ReferenceFailed, SandboxFailed):
        return None
    return known if answers == known.answers else None


def confirm_win(
    tables: Mapping[str, list[dict[str, Any]]],
    second: Sequence[dict[str, Any]],
    failed: Mapping[str, Any] | None,
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of a surprising win after its second session, by another judge."""
    from evaluators.timing.surprising_wins import is_confirmed, rank_sessions

    if failed is not None:
        return fail_evaluation(tables, failed, VERSION)
    evaluation, *others = tables["evaluations"]
    key = {"evaluation_id": evaluation["evaluation_id"]}
    own = [row for row in tables["timings"] if row["evaluation_id"] == key["evaluation_id"]]
    ranking = own[0]["clock"] if own else None
    # Only what was undisturbed by the clock that ranks has a second session.
    first = [row | dict.fromkeys(("noisy", "disturbed"), row["clock"] != ranking) for row in own]
    flag = "confirmed_win" if is_confirmed(first, second) else "unconfirmed_win"
    flags = sorted({*evaluation["flags"], flag} - ({"unconfirmed_win"} - {flag}))
    at_shapes = [row for row in tables["timings"] if row not in own]
    return {
        **tables,
        "evaluations": [{**evaluation, "flags": flags}, *others],
        "timings": [*(row | key for row in rank_sessions(first, second)), *at_shapes],
    }


def remeasure(case: Case, bench: Bench, config: Config) -> list[dict[str, Any]]:
    """Time a kernel in a fresh process; returns rows of `timings` without evaluation_id.

    A session that ranks nothing is repeated up to twice. Raises Failed where the kernel fails
    there: what a kernel shows once it has to show again.
    """
    from evaluators.timing.surprising_wins import ranks_nothing

    # The flags of a further process would only repeat those of the first.
    brief = replace(_apply_protocol(config, case), robustness=False, diagnosis=False, kernels="any")
    options = _build_options(case, brief, bench.device, _FEW_CALLS)
    # Only the clock that ranks decides whether it is confirmed.
    options = replace(options, plan=replace(options.plan, further_blocks=0))
    rows: list[dict[str, Any]] = []
    for _ in range(_SECOND_SESSIONS):
        rows = _try_alone_if_short(bench, lambda _: _measure(case, bench, options, CaseResult()))
        if not ranks_nothing(rows):
            break
    return rows


def _judge_sessions(case: Case, bench: Bench, config: Config, result: CaseResult) -> None:
    """Read the candidate's text, measure it, and measure a surprising win once more."""
    from evaluators.audit import detect
    from evaluators.timing.session import mark_disturbed
    from evaluators.timing.surprising_wins import is_confirmed, is_surprising, rank_sessions

    files = [{"path": path, "code": code} for path, code in case.other_files]
    result.findings = detect.search_kernel(case.code, files, case.kernel_id)
    hostile = detect.select_refused(result.findings)
    if hostile:
        message = f"line {hostile[0]['line']} is not run: {hostile[0]['quote']}"
        raise Failed("rejected", "forbidden_code", message[:_MESSAGE_LIMIT])
    if case.build is not None:
        result.build_s = case.build["seconds"]
        if case.build["failure"]:
            raise Failed(**case.build["failure"])
    options = _build_options(case, config, bench.device, config.calls)
    first = _measure(case, bench, options, result)
    result.timings = first
    if config.kernels == "custom_required" and not result.custom_kernel_share:
        result.flags.add("custom_required")
    if result.flags & UNRANKED:
        result.timings = mark_disturbed(first)
        return
    if not (bench.freezes or case.trusted or config.rank_unfrozen):
        result.flags.add("not_frozen")
        result.timings = mark_disturbed(first)
        return
    if not is_surprising(first, case.best_speedup):
        return
    second: list[dict[str, Any]] = []
    if case.sessions == "both":
        with result.time_part("second_session"):
            second = remeasure(case, bench, config)
    flag = "confirmed_win" if is_confirmed(first, second) else "unconfirmed_win"
    result.flags.add(flag)
    result.timings = rank_sessions(first, second)


def _measure(
    case: Case, bench: Bench, options: Options, result: CaseResult
) -> list[dict[str, Any]]:
    """Measure a candidate as `measure_candidate` does; an accusation has to repeat.

    A sign of cheating may be luck, such as a rounding error or a busy device. It counts only if a
    fresh process shows one again, on other inputs. Otherwise, what that process shows is the
    verdict, and a note keeps the sign.
    """
    from evaluators.timing.candidate_process import measure_candidate

    before = copy.deepcopy(result)
    try:
        return measure_candidate(case, bench, options, result)
    except Failed as failed:
        if failed.reason not in _REPEATED:
            raise
        sign = f"{failed.reason}: {failed.message}"
    seeds = result.seeds
    vars(result).update(vars(before))
    # What shows in some calls only must not pass because fewer are looked at.
    options = replace(options, plan=replace(options.plan, checked_share=1.0))
    note = f"a fresh process does not repeat on other inputs: {sign}"
    try:
        return measure_candidate(case, bench, options, result)
    except Failed as failed:
        if failed.reason in _REPEATED:
            note = f"a process before it showed on other inputs: {sign}"
        raise
    finally:
        result.seeds = [*seeds, *result.seeds]
        result.notes.append(note)


def _build_options(case: Case, config: Config, device: str, calls: int) -> Options:
    from evaluators.timing.candidate_process import Options
    from evaluators.worker.baselines import list_baselines

    [precision] = config.precision
    baselines = config.baselines
    if baselines is None:
        has_all = device == "cuda" and config.protocol == "full"
        baselines = list_baselines(device) if has_all else ()
    return Options(
        precision=precision,
        calls=calls,
        robustness=config.robustness,
        profile=config.diagnosis or config.kernels == "custom_required",
        baselines=["eager", *(name for name in baselines if name != "eager")],
        plan=build_plan(case, config, device),
        limits=_build_limits(config, device),
        deadlines=_build_deadlines(config),
    )


def build_plan(case: Case, config: Config, device: str) -> Plan:
    """Return how long and how finely to measure a case."""
    from evaluators.timing.intervals import read_fallback_spreads
    from evaluators.timing.session import Plan

    on_gpu = device == "cuda"
    most = max(config.blocks, _FEWEST_BLOCKS)
    return Plan(
        looks=[*(look for look in Plan.looks if look < most), most],
        half_width=config.half_width or (0.01 if on_gpu else 0.03),
        budget_s=config.timing_s,
        limit_s=config.timing_limit_s,
        sample_ms=5.0,
        further_blocks=0 if config.protocol == "training" else Plan.further_blocks,
        spreads={**read_fallback_spreads("cuda" if on_gpu else "cpu"), **(case.spreads or {})},
    )


def _build_limits(config: Config, device: str) -> Limits:

    return Limits(
        memory_bytes=None if device == "cuda" else int(config.memory_gb * 2**30),
        file_bytes=int(config.file_mb * 2**20),
        open_files=1024,
        cpu_s=int(config.total_s * 4),
    )


def _build_deadlines(config: Config) -> Deadlines:
    from evaluators.worker.handle import Deadlines

    return Deadlines(
        import_s=config.import_s,
        build_s=config.build_s,
        first_call_s=config.first_call_s,
        call_s=config.call_s,
        total_s=config.total_s,
    )
