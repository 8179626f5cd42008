"""Judges a correct kernel at other shapes of its task, in a share of the time of its verdict.

A shape is a workload like any other, and what the kernel does there is an evaluation with the
protocol `shape`, which ranks nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from evaluators.judging.case import Case, Config, parse_axes
from store.errors import EvaluatorError
from store.ids import workload_id

if TYPE_CHECKING:
    from evaluators.judging.bench import Bench
    from evaluators.judging.case_result import CaseResult
    from evaluators.references.shapes import Shape

Judge: TypeAlias = "Callable[[Case, Bench, Config], dict[str, list[dict[str, Any]]]]"
ShapeOutcome: TypeAlias = Literal["held", "raises", "wrong"]

_SHARE = 0.3
"""Share of the time of a verdict that other shapes may take; one is judged in any case."""
_OVERHEAD = 0.15
"""Share of it that preparing a session takes, about: baselines start, and all arms warm up."""
_LEAST_TIMING_S = 0.3
"""Fewest seconds of a session."""
_MOST_NOTE = 300


def name_outcome(evaluation: Mapping[str, Any]) -> ShapeOutcome:
    """Return what an evaluation at another shape says of its kernel, as the view shape_verdicts.

    A kernel that raises is honest about what it is not written for. One that answers wrongly,
    leaves its memory or hangs is not.
    """
    if evaluation["status"] == "correct":
        return "held"
    is_error = evaluation["status"] == "compile_error" or evaluation["reason"] == "exception"
    return "raises" if is_error and "CUDA error" not in evaluation["message"] else "wrong"


@dataclass
class ShapeRows:
    """Rows of the shapes of a case, and what to note on those that have none."""

    workloads: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    evaluations: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    timings: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    notes: list[str] = field(default_factory=list[str])

    def note(self, text: str) -> None:
        """Add a line for the log of the verdict."""
        self.notes.append(text[:_MOST_NOTE])


def judge_shapes(
    case: Case,
    bench: Bench,
    config: Config,
    result: CaseResult,
    judge: Judge,
    *,
    version: int,
    wall_s: float,
) -> ShapeRows:
    """Judge a kernel at other shapes, the smallest first.

    Nothing that goes wrong here and is no fault of the kernel raises: the shape has a note then,
    and no row.

    Args:
        case: The kernel at its own workload, where it is correct.
        bench: The bench, whose workers for that workload stay.
        result: Where the time of drawing belongs.
        version: Version of the judge, which draws depend on.
        wall_s: Seconds of the verdict; shapes may take a share of them.
    """
    from evaluators.references.shapes import draw_shapes, try_shapes
    from evaluators.references.task import ReferenceFailed

    rows = ShapeRows()
    try:
        with result.time_part("drawing", bench.lock.hold_shared()):
            asked = (config.draw_shapes, *config.axes)
            if asked not in bench.task.shapes:
                axes = json.loads(case.axes)
                reference = bench.open_reference(case.task_code, axes)
                bench.task.shapes[asked] = (
                    try_shapes(reference, axes, map(parse_axes, config.axes))
                    if config.axes
                    else draw_shapes(
                        reference, case.task_id, axes, config.draw_shapes, version=version
                    )
                )
            shapes = bench.task.shapes[asked]
    except (EvaluatorError, ReferenceFailed) as failed:
        rows.note(f"other shapes: none, {failed}")
        return rows
    rows.notes += shapes.notes
    order = sorted(shapes.accepted, key=lambda shape: (shape.elements, shape.name))
    timed: list[Shape] = []
    if config.protocol != "training" and order:
        # Those of the user's, or the drawn one nearest to the task's own.
        own = max(shapes.own_elements, 1)
        nearest = min(order, key=lambda shape: abs(math.log(max(shape.elements, 1) / own)))
        timed = order if config.axes else [nearest]
    left_s, longest_s = _SHARE * wall_s, 0.0
    for number, shape in enumerate(order):
        if number and left_s < longest_s and not config.axes:
            names = "; ".join(one.name for one in order[number:])
            rows.note(f"shapes left out to save time: {names}")
            break
        limit_s = math.inf if config.axes else left_s - _OVERHEAD * wall_s
        is_timed = shape in timed and limit_s >= _LEAST_TIMING_S
        if shape in timed and not is_timed:
            rows.note(f"shape {shape.name}: not timed, to save time")
        limits = config
        if is_timed:
            limits = replace(config, timing_limit_s=min(config.timing_limit_s, limit_s))
        there = replace(
            case,
            workload_id=workload_id(case.task_id, shape.axes),
            axes=shape.axes,
            build=None,
            shape="timed" if is_timed else "answers",
        )
        try:
            with bench.set_task_aside():
                tables = judge(there, bench, limits)
        except EvaluatorError as failed:
            rows.note(f"shape {shape.name}: not judged, {failed}")
            continue
        [evaluation] = tables["evaluations"]
        took_s = float(evaluation["wall_s"])
        left_s -= took_s
        longest_s = max(longest_s, 0.0 if is_timed else took_s)
        if evaluation["status"] == "evaluator_error" or evaluation["reason"] == "out_of_memory":
            rows.note(f"shape {shape.name}: not judged, {evaluation['message']}")
            continue
        ids = {"workload_id": there.workload_id, "task_id": case.task_id}
        named = {"name": shape.name, "axes": shape.axes, "generator": "get_inputs"}
        rows.workloads.append(ids | named)
        rows.evaluations.append(evaluation)
        rows.timings += tables["timings"]
    return rows
