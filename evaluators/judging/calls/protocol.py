"""The face of the correctness protocol: weights, verdict calls, timed outputs, robustness calls."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from evaluators.judging.calls.input_variations import (
    ADD_ROUNDING,
    FRAGILE,
    SIGNS,
    SPECIAL,
    STEEP,
    Variation,
    name_tensors,
    take_step,
    vary_whole,
)
from evaluators.judging.calls.verdict_calls import (
    DRAWS_OF_FEW,
    LARGE_BYTES,
    MOST_ROUNDING,
    STRIDED_SLOT,
    Candidate,
    PrecisionRecord,
    SeedProbe,
    StateChecks,
    VerdictCalls,
    classify_rounding,
    draw_probe,
    draw_seed,
    pair_tensors,
    pick_class,
)
from evaluators.judging.case import Policy
from evaluators.judging.case_result import CaseResult
from evaluators.judging.comparison import (
    Comparison,
    compare,
    describe_change,
    describe_inputs,
    describe_largest_error,
    find_departure,
    find_lost_infinity,
    is_close,
    is_finite,
    is_whole,
    name_failures,
    pair_outputs,
)
from evaluators.judging.flags import FLAGS
from evaluators.judging.tolerance import (
    EAGER_ERRORS_ALLOWED,
    compute_rms,
    get_tolerance,
    is_below,
    measure_algorithms,
    rank_class,
)
from evaluators.memory.tensors import change_elements, layout, tensors_of
from evaluators.references.eager_error import EagerError
from evaluators.references.task import (
    Expected,
    Reference,
    ReferenceFailed,
    call_seed,
    has_same_bits,
    join_answer,
)
from evaluators.worker.handle import Failed, Parameter, WorkerHandle

_MOST_TENSORS = 32
VISIBLE = 30.0
"""Change of an answer, in multiples of its tolerance, for a tensor that is changed alone."""
HARDLY_VISIBLE = 3.0
_MOST_AMPLIFIED = 1e6
_ROUNDING_ERRORS = 4.0
"""A move of the exact answer by as many of eager's largest errors is not rounding."""
_FEWEST_MOVED = 8
_SHARE_MOVED = 1 / 64


class WeightChecks:
    """Flags that depend on a candidate's weights."""

    def __init__(self, candidate: Candidate) -> None:
        self._candidate = candidate
        self._reference = candidate.reference
        self._result = candidate.result
        self._moving: dict[str, torch.Tensor] = {}

    def perturb_all(self) -> None:
        """Flag a candidate that is wrong under other weights than those of the seed."""
        state = self._reference.perturb(draw_seed())
        self._reference.load(state)
        try:
            probe = draw_probe(self._reference, self._result)
            if not all(map(is_finite, tensors_of(probe.expected.value))):
                return
            self._candidate.worker.adopt(
                {name: state[name] for name in self._candidate.known_state}
            )
            is_right = self._candidate.is_right(probe)
            fault = self._candidate.last_fault
        except ReferenceFailed:
            return
        except Failed as failed:
            is_right, fault = False, failed.message
        finally:
            self._reference.reset()
        if not is_right:
            self._note(f"all parameters and buffers changed: {fault}")

    def perturb_each(self, end: float) -> bool:
        """Change one parameter or buffer at a time, by enough to be visible in the answer.

        Next to large sums, the effect of a bias can be below the tolerance when all weights change
        together. Of many tensors, a random sample is changed.

        end: Moment of the candidate's clock at which to stop.

        Returns whether there was time for all of them.
        """
        own = self._reference.state()
        # Both sides begin each call with these: they are called another number of times.
        self._moving = {name: own[name] for name in self._candidate.moving_state}
        moved = self._reference.perturb(draw_seed())
        # Parameters that share their memory are one tensor.
        tied = {
            name: {other: own[other] for other in moved if moved[other] is moved[name]}
            for name in moved
            if name in self._candidate.known_state
        }
        names = sorted(name for name, group in tied.items() if name == min(group))
        try:
            self._candidate.worker.adopt({name: own[name] for name in self._candidate.known_state})
            probe = draw_probe(self._reference, self._result)
            for name in random.sample(names, min(len(names), _MOST_TENSORS)):
                if self._candidate.read_clock() > end or self._candidate.is_lost:
                    return False
                change = self._find_change(name, tied[name], moved[name])
                if change is not None and not self._follows(probe, tied[name], change):
                    self._note(f"{name} changed alone: {self._candidate.last_fault}")
                    return True
        except (Failed, ReferenceFailed):
            return False
        finally:
            self._reference.reset()
        return True

    def _find_change(
        self, name: str, own: Mapping[str, torch.Tensor], moved: torch.Tensor
    ) -> Callable[[float], dict[str, torch.Tensor]] | None:
        """Return what changes some tied tensors by a multiple of a step; None if nothing can."""
        value = own[name]
        if is_whole(value):
            may_fail = self._reference.device == "cpu"
            varied = vary_whole(value, [], [], draw_seed(), may_fail=may_fail)
            return None if varied is None else lambda _: dict.fromkeys(own, varied)
        is_packed = value.element_size() == 1  # such as float8, which has no arithmetic
        wide, moved = (each.float() if is_packed else each for each in (value, moved))
        step = moved - wide
        # A running variance has no negative values.
        is_positive = name not in self._reference.parameters() and not (
            value.is_complex() or bool((wide < 0).any())
        )

        def change(times: float) -> dict[str, torch.Tensor]:
            changed = wide + times * step
            changed = changed.abs() if is_positive else changed
            return dict.fromkeys(own, changed.to(value.dtype))

        return change

    def _follows(
        self,
        probe: SeedProbe,
        own: Mapping[str, torch.Tensor],
        change: Callable[[float], dict[str, torch.Tensor]],
    ) -> bool:
        """Whether the candidate follows a change of some tensors, if the reference does."""
        policy = self._candidate.policy
        answers: dict[float, Expected] = {}

        def measure(times: float) -> float:
            self._reference.load(self._moving | change(times))
            answers[times] = self._reference.answer(probe.inputs, probe.seed)
            return measure_visibility(probe.expected, answers[times], policy)

        try:
            times, visibility = amplify(measure, can_amplify=not is_whole(next(iter(own.values()))))
            changed = replace(probe, expected=answers[times])
            is_visible = visibility > HARDLY_VISIBLE
            if not (is_visible or moves_beyond_rounding(probe.expected, changed.expected)):
                return True
            before = None if is_visible else self._candidate.try_output(0, probe)
            # The comparison may ask the reference for the rounding steps under these values.
            self._reference.load(self._moving | change(times))
            self._candidate.worker.adopt(self._moving | change(times))
            if is_visible:
                is_right = self._candidate.is_right(changed)
            else:
                is_right = not self._candidate.keeps_answer(before, changed)
        except ReferenceFailed:
            if not self._reference.is_alive:
                raise
            return True  # the task's module refuses these values
        finally:
            self._reference.load(own)
        if not self._candidate.is_lost:
            self._candidate.worker.adopt(own)
        return is_right

    def _note(self, what: str) -> None:
        self._candidate.note("fails_perturbed_parameters", what)


def amplify(measure: Callable[[float], float], *, can_amplify: bool) -> tuple[float, float]:
    """Return by how much to multiply a step so that it is visible, and how visible it is then.

    measure: Returns the visibility of a multiple of the step.
    """
    visibility = measure(1.0)
    if not can_amplify or not 0 < visibility < VISIBLE:
        return 1.0, visibility
    times = min(_MOST_AMPLIFIED, 2 * VISIBLE / visibility)
    return times, measure(times)


def moves_beyond_rounding(before: Expected, after: Expected) -> bool:
    """Whether an answer moves by more than eager's rounding errors, in a share of its elements.

    A kernel whose answer keeps every bit then leaves out what has changed.
    """
    sides = [list(tensors_of(each.value)) for each in (before, after)]
    if [t.shape for t in sides[0]] != [t.shape for t in sides[1]]:
        return False
    for old, new, old_exact, new_exact in zip(*sides, before.exact, after.exact, strict=True):
        if old_exact is None or new_exact is None or is_whole(old) or not old.numel():
            continue
        if not (is_finite(old) and is_finite(new)):
            return False
        pairs = ((old, old_exact), (new, new_exact))
        errors = [float((own.to(x.device, x.dtype) - x).abs().amax()) for own, x in pairs]
        unit = torch.finfo(old.dtype).eps / 2 * float(new_exact.abs().amax())
        most = _ROUNDING_ERRORS * max(*errors, unit)
        moved = int(((new_exact - old_exact).abs() > most).sum())
        if moved >= max(_FEWEST_MOVED, _SHARE_MOVED * old.numel()):
            return True
    return False


def measure_visibility(before: Expected, after: Expected, policy: Policy) -> float:
    """Return the move of an answer in multiples of its tolerance; 0 where it is not finite.

    It is 0 as well for answers of different shapes, in which no element has a pair. A move of whole
    numbers is infinite.
    """
    shapes = [[tensor.shape for tensor in tensors_of(each.value)] for each in (before, after)]
    if shapes[0] != shapes[1]:
        return 0.0
    most = 0.0
    groups = zip(
        tensors_of(before.value), tensors_of(after.value), after.exact, before.exact, strict=True
    )
    for index, (first, own, new, old) in enumerate(groups):
        if new is None or old is None or is_whole(own):
            most = most if torch.equal(first, own) else math.inf
            continue
        if not (is_finite(own) and is_finite(new)):
            return 0.0
        limit = get_tolerance(own.dtype, policy)
        allowed = limit * (new.abs() + compute_rms(new))
        eager_error = float((own.to(new.device, new.dtype) - new).abs().amax())
        others = after.algorithms[index] if after.algorithms else None
        if others is not None:
            eager_error = max(eager_error, others.scaled * compute_rms(new))
        allowed += EAGER_ERRORS_ALLOWED * eager_error
        most = max(most, float(((new - old).abs() / allowed).nan_to_num(0.0).amax()))
    return most


# Robustness calls: inputs and weights that the task does not promise.
#
# Honest kernels break on some of them, so they raise flags (`judging.flags`) and decide no
# verdict.

_LIMIT_S = 20.0
_MOST_ALONE = 6
"""Tensors of the inputs that are varied alone, at most."""
_MOST_ROUNDING_OF_USUAL = 0.02
"""Norm of the error over that of usual answers up to which it counts as rounding, for answers that
may be close to zero."""


class EagerLost(ReferenceFailed):
    """Eager has not survived the inputs."""


class RobustnessCalls:
    """The calls that raise flags and decide nothing."""

    def __init__(
        self, candidate: Candidate, precision: PrecisionRecord, eager: WorkerHandle
    ) -> None:
        """Take the worker that runs eager, the task's own module.

        On a GPU it tries the inputs first: inputs outside the task's promise may end the
        process that reads them, and that must not be the judge's process.
        """
        self._candidate = candidate
        self._reference = candidate.reference
        self._result = candidate.result
        self._precision = precision
        self._eager = eager
        self._is_complete = True
        """Whether every call could be compared so far."""
        self._last_output: Any = None
        self._class_of_signs: str | None = None
        """Precision class that random signs have shown."""

    def run(self) -> None:
        """Check first whether the candidate is the same function, then its robustness.

        Inputs of other signs are always tried: a candidate that is slow on unexpected inputs must
        not use up the time of these checks.

        Raises EagerLost, ReferenceFailed.
        """
        if not self._try_variations(SIGNS, math.inf):
            return
        end = self._candidate.read_clock() + _LIMIT_S
        with self._note_limit("one input alone"):
            self._is_complete &= self._vary_alone(end)
        if not self._candidate.missing_parameters and self._reference.state():
            weights = WeightChecks(self._candidate)
            with self._note_limit("other weights"):
                weights.perturb_all()
                self._is_complete &= weights.perturb_each(end)
            try:
                self._candidate.restore_weights()
            except Failed:
                return
        is_complete = self._is_complete and self._candidate.read_clock() <= end
        self._result.compared_as_function = is_complete and not self._candidate.is_lost
        if self._try_variations(FRAGILE, end) and self._try_steep(end):
            self._try_variations(SPECIAL, end)

    def _try_variations(self, variations: Sequence[Variation], end: float) -> bool:
        """Try variations of the inputs; returns whether there are time and process for more."""
        for variation in variations:
            if self._candidate.read_clock() > end or self._candidate.is_lost:
                return False
            with self._note_limit(variation.flag):
                if not self._try_variation(variation):
                    return False
        return True

    @contextlib.contextmanager
    def _note_limit(self, calls: str) -> Generator[None]:
        """Note that calls end by a limit of the judge or a fault of the task, not of the kernel."""
        try:
            with name_failures():
                yield
        except EagerLost:
            raise
        except ReferenceFailed as failed:
            self._result.notes.append(f"{calls}: not tried, {failed}")
            self._is_complete = False

    def _try_variation(self, variation: Variation) -> bool:
        """Try a variation; returns whether the process can be used for more."""
        probe = self._draw_variation(variation)
        if probe is None:
            return True
        comparison, departure = self._try(variation, probe)
        if variation.by_chance and comparison is not None and comparison.reason is None:
            probe = self._draw_variation(variation) or probe
            comparison, departure = self._try(variation, probe)
        if variation.tells_precision:
            self._note_class(variation, comparison, probe)
        if comparison is None or comparison.reason is not None:
            self._result.flags.add(variation.flag)
            fault = self._candidate.last_fault
            if variation in SIGNS and not self._is_rounding(probe, variation, comparison):
                self._note_function(variation, fault)
            if departure is not None and self._departs_again(variation):
                self._note_function(variation, departure)
            # The failure may have broken the process too; then further calls show nothing.
            if self._candidate.is_lost or not self._candidate.is_right(
                draw_probe(self._reference, self._result)
            ):
                if variation in SIGNS:
                    self._note_function(variation, fault)
                return False
        return True

    def _try(self, variation: Variation, probe: SeedProbe) -> tuple[Comparison | None, str | None]:
        """Return the comparison of a varied call, None where it fails, and how it departs."""
        slot = STRIDED_SLOT if variation.strided else 0
        output = self._candidate.try_output(slot, probe, strided=variation.strided)
        if output is None:
            return None, None
        usual = self._candidate.get_usual(probe)
        comparison = self._candidate.compare(probe, output[0], usual if variation.special else None)
        self._candidate.last_fault = comparison.message or ""
        self._last_output = output[0]
        departure = None
        if variation.departs and not self._may_be_rounding(comparison):
            if variation.finite:
                departure = self._find_departure(probe, output[0])
            elif usual is not None:
                departure = find_lost_infinity(probe.expected, output[0], usual)
        return comparison, departure

    def _find_departure(self, probe: SeedProbe, output: Any) -> str | None:
        """Describe how an answer departs from the reference, if rounding cannot explain it."""
        policy, expected = self._candidate.policy, probe.expected
        # Rules of the task decide what is right, and a rounding step moves an answer far.
        if expected.rules.tolerance is not None or expected.check is not None or expected.rounds:
            return None
        departure = find_departure(expected, output, policy)
        if departure is not None and any(step is not None for step in expected.steps()):
            return None
        if departure is not None:
            noisy = ADD_ROUNDING(probe.inputs, draw_seed())
            moved = self._reference.answer(noisy, probe.seed).exact
            departure = find_departure(expected, output, policy, moved)
        return departure

    def _departs_again(self, variation: Variation) -> bool:
        """Whether the candidate departs from the reference on another draw as well."""
        probe = self._draw_variation(variation)
        return probe is not None and self._try(variation, probe)[1] is not None

    def _may_be_rounding(self, comparison: Comparison) -> bool:
        """Whether the candidate rounds more than the policy allows, and the error may be that."""
        # What is left out may look like rounding where inputs are uneven, but not where they are of
        # one size.
        usual = self._result.comparison.precision_class
        shown = max(usual, self._class_of_signs, key=rank_class)
        return (
            is_below(shown, self._precision.lowest_class)
            and comparison.rel_l2_error is not None
            and comparison.rel_l2_error <= MOST_ROUNDING
        )

    def _note_function(self, variation: Variation, fault: str) -> None:
        self._candidate.note("another_function", f"{FLAGS[variation.flag]}: {fault}")

    def _try_steep(self, end: float) -> bool:
        """Try inputs of steep scale, in which what is left out elsewhere dominates the answer.

        Returns whether there are time and process for more.
        """
        for variations in STEEP:
            # The second one is for a reference that overflows on the first.
            for variation in variations:
                if self._candidate.read_clock() > end or self._candidate.is_lost:
                    return False
                probe = self._draw_variation(variation)
                if probe is None:
                    continue
                departure = self._try(variation, probe)[1]
                if departure is not None and self._departs_again(variation):
                    self._result.flags.add(variation.flag)
                    self._note_function(variation, departure)
                break
        return not self._candidate.is_lost

    def _vary_alone(self, end: float) -> bool:
        """Vary one tensor of the inputs at a time, whole numbers and masks among them.

        A tensor may be constant, or its effect may be below the tolerance when all vary. Where the
        task's own draws vary a visible tensor, the verdict calls have shown that it is read.

        Returns whether there was time for all of them.
        """
        seed = draw_seed()
        own = self._reference.inputs(seed)
        tensors = list(tensors_of(own))
        chosen = [
            number
            for number, tensor in enumerate(tensors)
            if tensor.numel() > int(is_whole(tensor)) and (is_whole(tensor) or len(tensors) > 1)
        ]
        if not chosen:
            return True
        draws = [list(tensors_of(self._reference.inputs(draw_seed()))) for _ in range(2)]
        sizes = [size for tensor in tensors for size in tensor.shape]
        names = name_tensors(own)
        self._result.seeds.append(seed)
        probe = SeedProbe(own, self._reference.answer(own, call_seed(seed)), call_seed(seed))
        for number in sorted(random.sample(chosen, min(len(chosen), _MOST_ALONE))):
            if self._candidate.read_clock() > end or self._candidate.is_lost:
                return False
            tensor = tensors[number]
            others = [
                each[number]
                for each in draws
                if len(each) == len(tensors) and each[number].shape == tensor.shape
            ]
            is_drawn = not all(has_same_bits(tensor, other) for other in others)
            self._vary_one(probe, number, names[number], others, sizes, is_drawn=is_drawn)
        return True

    def _vary_one(
        self,
        probe: SeedProbe,
        number: int,
        name: str,
        others: Sequence[torch.Tensor],
        sizes: Sequence[int],
        *,
        is_drawn: bool,
    ) -> None:
        tensor = list(tensors_of(probe.inputs))[number]
        seed = draw_seed()
        may_fail = self._reference.device == "cpu"
        varied = tensor
        if is_whole(tensor):
            varied = vary_whole(tensor, others, sizes, seed, may_fail=may_fail)
        if varied is None:
            return
        probes: dict[float, SeedProbe] = {}

        def measure(times: float) -> float:
            value = varied if is_whole(tensor) else take_step(tensor, seed, times)
            changed = self._ask_changed(replace_tensor(probe.inputs, number, value), probe)
            if changed is None:
                return 0.0
            probes[times] = changed
            return measure_visibility(probe.expected, changed.expected, self._candidate.policy)

        times, visibility = amplify(measure, can_amplify=not is_whole(tensor))
        changed = probes.get(times)
        if not visibility > HARDLY_VISIBLE:
            if changed is not None and moves_beyond_rounding(probe.expected, changed.expected):
                before = self._candidate.try_output(0, probe)
                if self._candidate.keeps_answer(before, changed):
                    fault = self._candidate.last_fault
                    self._candidate.note("another_function", f"{name} varied alone: {fault}")
            return
        if is_drawn and visibility >= VISIBLE and times == 1.0 and not is_whole(tensor):
            return
        comparison = self._candidate.try_call(probes[times])
        if comparison is None and not is_whole(tensor):
            return  # an input of unusual size, beyond its range
        if comparison is None or comparison.reason is not None:
            error = None if comparison is None else comparison.max_scaled_error
            # What ignores an input is off by as much as the answer moves; rounding is not.
            if error is None or error > min(visibility, VISIBLE) / 2:
                fault = self._candidate.last_fault
                self._candidate.note("another_function", f"{name} varied alone: {fault}")

    def _ask_changed(self, inputs: list[Any], probe: SeedProbe) -> SeedProbe | None:
        """Return a probe on changed inputs; None where the task's module fails on them."""
        changed = self._reference.changed or []
        if self._reference.device == "cuda" and not _try_eager(self._eager, inputs, None, changed):
            if not _try_eager(self._eager, probe.inputs, None, changed):
                raise EagerLost
            return None
        try:
            expected = self._reference.answer(inputs, probe.seed)
        except ReferenceFailed:
            if not self._reference.is_alive:
                raise
            return None
        return replace(probe, inputs=inputs, expected=expected)

    def _is_rounding(
        self, probe: SeedProbe, variation: Variation, comparison: Comparison | None
    ) -> bool:
        """Whether a wrong answer differs from the right one by rounding alone.

        If the answer to special inputs may be close to zero, a small share of usual answers counts
        as rounding as well.
        """
        if comparison is None or comparison.rel_l2_error is None:
            return False
        size = sum(compute_rms(exact) for exact in probe.expected.exact)
        allowed = MOST_ROUNDING * size
        if variation.special:
            allowed = max(allowed, _MOST_ROUNDING_OF_USUAL * sum(self._candidate.usual))
        return comparison.rel_l2_error * size <= allowed

    def _note_class(
        self, variation: Variation, comparison: Comparison | None, probe: SeedProbe
    ) -> None:
        """Record the precision that an answer shows; None if the answer is wrong."""
        output = self._last_output
        few = self._precision.has_few_elements
        shown = classify_rounding(comparison, typical=variation.widens)
        self._precision.note_eager(comparison)
        # A single sum may be right by chance, or close to zero, where any error is large.
        if few or is_below(shown, self._precision.lowest_class):
            joint = self._compare_draws(variation, DRAWS_OF_FEW if few else 1)
            repeated = classify_rounding(joint, typical=variation.widens)
            shown = pick_class(shown, repeated, has_few_elements=few)
        if variation in SIGNS:
            self._class_of_signs = shown
        self._precision.robustness_classes.append(shown)
        if is_below(shown, self._precision.lowest_class):
            numbers = pair_outputs(probe.expected, output)
            elements = "; ".join(describe_largest_error(number) for number in numbers[:1])
            self._result.notes.append(f"precision_below_policy: {shown}, such as {elements}")

    def _compare_draws(self, variation: Variation, draws: int) -> Comparison | None:
        """Compare several draws of varied inputs as one answer; None where one fails."""
        wanted: list[list[torch.Tensor]] = []
        exact: list[list[torch.Tensor]] = []
        given: list[list[torch.Tensor]] = []
        inputs: list[Any] = []
        algorithms: list[EagerError | None] = []
        for _ in range(draws):
            probe = self._draw_variation(variation)
            if probe is None:
                return None
            output = self._candidate.try_output(0, probe)
            if output is None or self._candidate.compare(probe, output[0]).rel_l2_error is None:
                return None
            expected, answers = probe.expected, tensors_of(output[0])
            triples = list(zip(tensors_of(expected.value), expected.exact, answers, strict=True))
            numbers = [(w, x, g) for w, x, g in triples if x is not None and not is_whole(w)]
            sides = zip((wanted, exact, given), zip(*numbers, strict=True), strict=True)
            for side, tensors in sides:
                side.append(list(tensors))
            inputs = probe.inputs
            errors = zip(probe.expected.algorithms, triples, strict=False)
            algorithms = [e for e, (w, x, _) in errors if x is not None and not is_whole(w)]
        if len({len(tensors) for tensors in wanted}) != 1:
            return None  # the task answers in another number of tensors
        value, wide, answers = (
            [_join(tensors) for tensors in zip(*side, strict=True)]
            for side in (wanted, exact, given)
        )
        expected = Expected(value, list(wide), inputs, algorithms=algorithms)
        return compare(expected, answers, self._candidate.policy)

    def _draw_variation(self, variation: Variation) -> SeedProbe | None:
        """Return a probe on varied inputs; None if there is none or it shows nothing."""
        if variation.flag in self._reference.refused:
            return None
        seed = draw_seed()
        own = self._reference.inputs(seed)
        if variation.strided and layout(own)[1] > LARGE_BYTES:
            return None
        inputs = variation.change(own, seed)
        if all(
            a is b or (not variation.strided and has_same_bits(a, b))
            for a, b in pair_tensors(own, inputs)
        ):
            return None
        self._result.seeds.append(seed)
        eager_answers: list[Any] = []
        if self._reference.device == "cuda":
            changed = self._reference.changed or []
            eager_answers = _try_eager(self._eager, inputs, variation, changed)
            if not eager_answers:
                self._reference.refused.add(variation.flag)
                if not _try_eager(self._eager, own, None, changed):
                    raise EagerLost
                return None
        try:
            probes = [(inputs, call_seed(seed))]
            measure_algorithms(self._reference, self._candidate.policy, variation.flag, probes)
            expected = self._reference.answer(inputs, call_seed(seed), variation.flag)
        except ReferenceFailed:
            return None
        probe = SeedProbe(inputs, expected, call_seed(seed))
        usual = self._candidate.get_usual(probe) if variation.special else None
        if self._reference.repeatable and any(
            self._candidate.compare(probe, output, usual).reason for output in eager_answers
        ):
            return None  # eager itself is as far off, at the precision that the policy allows
        return probe if _tells_something(expected, variation) else None


def replace_tensor(inputs: list[Any], number: int, value: torch.Tensor) -> list[Any]:
    """Return inputs with another tensor in place of one, by its number."""
    replaced = list(tensors_of(inputs))[number]
    return change_elements(inputs, lambda tensor: value if tensor is replaced else tensor)


def _tells_something(expected: Expected, variation: Variation) -> bool:
    """Whether an expected answer can show that a candidate is wrong."""
    answers = list(tensors_of(expected.value))
    if variation.finite:
        return all(map(is_finite, answers))
    # The conversion of infinity to a whole number depends on the machine.
    return not any(is_whole(tensor) and tensor.dtype != torch.bool for tensor in answers)


def _try_eager(
    eager: WorkerHandle, inputs: list[Any], variation: Variation | None, changed: Sequence[int]
) -> list[Any]:
    """Return what eager answers, as a list of one; an empty list where it fails.

    changed: Numbers of the input tensors that calls change, which are a part of the answer.
    """
    strided = variation is not None and variation.strided
    slot = STRIDED_SLOT if strided else 0
    try:
        eager.fill(slot, inputs, strided=strided)
        output = eager.call(slot)
        return [join_answer(output, eager.inputs(slot) if changed else [], changed)]
    except ReferenceFailed:
        return []


def _join(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return tensors as one; of varying shapes, only their elements in a row."""
    if len({tensor.shape for tensor in tensors}) == 1:
        return torch.stack(list(tensors))
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


_MOST_OF_DIFFERENCE = 0.1
"""Rounding errors are below this share of the difference between answers to different inputs."""
_MOST_GROWTH = 10.0
"""Rounding errors of timed calls are at most this many times as large as those of verdict calls."""


class CorrectnessProtocol:
    """The calls of one candidate.

    Methods raise Failed where the candidate fails, and ReferenceFailed where the task does.
    """

    def __init__(
        self, worker: WorkerHandle, reference: Reference, result: CaseResult, policy: Policy
    ) -> None:
        self._candidate = Candidate(worker, reference, result, policy)
        self._reference = reference
        self._result = result
        self._policy: Policy = policy
        self._precision = PrecisionRecord()
        self._state_checks = StateChecks(self._candidate)
        self._has_rounded = False
        """Whether the answer of a timed call has been beyond its tolerance by rounding."""
        result.comparison = Comparison()

    def adopt_weights(self, parameters: Sequence[Parameter]) -> None:
        """Give the candidate the task's own weights where it has them by name and shape.

        parameters: those that the candidate's module lists.
        """
        self._candidate.adopt_weights(parameters)

    def make_verdict_calls(self, first: SeedProbe, calls: int) -> None:
        """Make the calls that decide: `calls`, or five if a call is slow.

        After them, the module's state must equal that of the task's own module.
        """
        self._candidate.usual = [compute_rms(exact) for exact in first.expected.exact]
        self._precision.measure_answer(first.expected.value)
        VerdictCalls(self._candidate, self._precision).run(first, calls)
        self._state_checks.compare_after_verdict()
        self._precision.classify(self._result, self._policy)

    def check_timed_output(self, inputs: list[Any], output: Any, inputs_now: Any) -> None:
        """Compare the output of a timed call, unless it depends on more than what was sent.

        Args:
            inputs: Its inputs as they were sent.
            output: What it returned.
            inputs_now: Its inputs after it.

        Raises Failed: incorrect_numerical if answers of two calls are beyond the tolerance by their
        rounding errors, memorised_output for any other wrong answer, input_mutated for a change of
        the inputs that the task does not make. Rounding errors beyond the tolerance in a single
        call are luck, such as answers next to zero.
        """
        changed, rules = self._reference.changed or [], self._reference.rules
        self._check_timed_answer(inputs, join_answer(output, inputs_now, changed))
        pairs = enumerate(pair_tensors(inputs, inputs_now))
        is_kept = all(has_same_bits(*pair) for n, pair in pairs if n not in changed)
        if not is_kept and not rules.scratch:
            change = describe_change(inputs, inputs_now, rules.names, changed)
            raise Failed("incorrect", "input_mutated", f"a timed call has changed {change}")

    def _check_timed_answer(self, inputs: list[Any], output: Any) -> None:
        if not self._reference.repeatable:
            self._result.flags.add("timed_outputs_unverified")
            return
        eager = self._reference.value(inputs)
        self._candidate.worker.require_room(eager)
        if is_close(eager, output, self._policy, self._result.comparison.eager_error):
            return
        expected = self._reference.answer(inputs)
        comparison = compare(
            expected, output, self._policy, lambda: self._reference.choices(inputs)
        )
        if comparison.reason is not None:
            is_rounding = self._has_rounding_errors(expected, comparison)
            named = describe_inputs(inputs, self._reference.rules.names)
            message = f"a timed call on {named} gave a wrong answer: {comparison.message}"
            if is_rounding and not self._has_rounded:
                self._has_rounded = True
                self._result.notes.append(message)
                return
            self._result.comparison = comparison
            if is_rounding:
                raise Failed("incorrect", "incorrect_numerical", message)
            raise Failed("rejected", "memorised_output", message)

    def follow_state(self, calls: Sequence[list[Any]], eager: WorkerHandle) -> int:
        """Compare the module's state with the task's own after timed calls.

        To be called after every timed sample, so that nothing tells a sample that is checked.

        Args:
            calls: Inputs of the calls since the last time, to check them; empty otherwise.
            eager: A worker that runs the task's own module.

        Returns the nanoseconds of the request that belong to the sample before it.
        """
        return self._state_checks.follow(calls, eager)

    def _has_rounding_errors(self, expected: Expected, comparison: Comparison) -> bool:
        """Whether the errors of a wrong answer may be due to rounding.

        Rounding errors may be beyond the tolerance in one call of many. They are then not much
        larger than in the verdict calls, unless the candidate computes less precisely when it is
        timed. An answer from an earlier call is as far from the expected one as any other.
        """
        usual, largest = self._result.comparison.max_scaled_error, comparison.max_scaled_error
        if usual is None or largest is None or largest > max(1.0, _MOST_GROWTH * usual):
            return False
        other = draw_probe(self._reference, self._result).expected
        difference = compare(expected, other.value, self._policy).rel_l2_error
        error = comparison.rel_l2_error
        if error is None or difference is None:
            return False
        return error < _MOST_OF_DIFFERENCE * difference

    def make_robustness_calls(self, eager: WorkerHandle) -> bool:
        """Make the calls that raise flags and decide nothing, after all other calls.

        eager: worker that runs the task's own module; on a GPU it tries the inputs first.

        Returns whether eager can still be used.
        """
        if self._reference.remembers:
            return True
        try:
            RobustnessCalls(self._candidate, self._precision, eager).run()
        except EagerLost:
            return False
        finally:
            self._precision.classify(self._result, self._policy)
        return True
