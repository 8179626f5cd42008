"""A task's own code: its inputs, answers and weights, and the loop that answers the judge.

All of it runs in the task's worker, behind the walls of every worker. A forged answer can only
falsify verdicts of its own task.

A module may remember earlier calls, for example in batch statistics. The reference therefore
answers once for every call of a candidate, in the same order, after a `reset` at the candidate's
start. A module may draw random numbers in its call, as dropout does. Both sides are therefore
seeded before every call, with a number that the candidate may know.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import socket
import textwrap
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeAlias, cast

import torch

from evaluators.device.roofline import count_work
from evaluators.limits.kinds import refuse_limit
from evaluators.memory.cuda_driver import release_unused_memory
from evaluators.memory.tensors import (
    MappedBox,
    OwnedBox,
    Side,
    compute_fingerprint,
    copy_value,
    find_place,
    get_dtype_name,
    has_same_bits,
    is_inexact,
    lay_out,
    move_to_device,
    paginate,
)
from evaluators.memory.values import call, describe_value, list_arguments, tensors_of
from evaluators.processes import messages
from evaluators.references.imported_file import (
    GENERATORS,
    WEIGHT_SEED,
    import_file,
    iterate_held,
    move_module,
    place_new_tensors,
    read_generators,
    seed_generators,
    share_storages,
    widen_module,
)
from evaluators.references.operations import (
    Choice,
    EagerError,
    RoundedFactors,
    StepRecorder,
    add_exact_values,
    find_kinds,
    find_margins,
    iterate_algorithms,
    iterate_moved,
    measure_errors,
    record,
)

_ALGORITHMS_LIMIT_S = 2.0
"""After as much time, no further algorithm is tried."""
_MOST_ERROR = 500
"""Characters of an error of the task's code."""
_MOST_ALIKE = 4.0
_MOST_ROUNDING = 0.05
_MOST_OF_OWN = 10.0
"""An algorithm counts if the norm of its error is below this share of the answer's, or below as
many times that of eager's error. Otherwise it is no other algorithm but another answer."""


Size: TypeAlias = "tuple[str, list[int], int | None, list[list[int]]]"
"""A name, its numbers, the place of one of them if they are a tuple or list, and the dimensions of
inputs that it sets: the number of the tensor and of the dimension."""
_MOST_SIZES = 16
_MOST_NUMBERS = 8
_MOST_SIZE_NAME = 60
_MOST_NAMES = 64
_MOST_NAME = 80
_NEAR = 0.01
_FIRST_ELEMENTS = 1 << 20
_TWO_DEVICES = "Expected all tensors to be on the same device"


class TaskFailed(Exception):
    """The task's own code fails; the text says which part."""


_Built: TypeAlias = "tuple[torch.nn.Module, dict[str, Any]]"
"""A new module, and the names of the Python module of its class unless other modules share them."""


class TaskModule:
    """One task on one device: makes inputs from seeds and answers them. Raises TaskFailed.

    The module exists twice, in the task's own precision and in double precision, and anew after
    every `reset`. Each is made from scratch: the file is imported again and the class constructed
    again under the same seeds, so that they share nothing, neither closures nor caches of the
    Python module. Copies would also fail for modules that hold computed tensors, generators, locks
    or open files. A module whose constructor is not repeatable is copied.
    """

    def __init__(self, path: str, axes: Mapping[str, Any], device: str) -> None:
        self._path = path
        self._axes = axes
        self._device = device
        self.draws = False
        """Whether a call draws random numbers; known after the first answer."""
        self.changed: list[int] | None = None
        """Numbers of the input tensors that calls change; None before the first answer."""
        self.keeps_inputs = False
        """Whether the module still holds inputs after the first answer."""
        self.places_tensors = False
        """Whether tensors that the task makes without a device are put on the one that judges.

        A task whose call fails otherwise, because it mixes them with its inputs, is written for a
        processor: for example, one that adds noise from numpy.
        """
        self._defaults = torch.get_default_dtype()
        self._pristine: torch.nn.Module | None = None
        """The module to copy, if its constructor is not repeatable."""
        self._can_import_again = True
        self._unused: list[_Built] = []
        """What has been built and not been called, in the order of its use."""
        with _name_failure("the task cannot be built"):
            namespace = self._import()
            self._get_inputs = namespace.get_inputs
            self._rules = _read_rules(namespace)
            self._check = getattr(namespace, "TASK_CHECK", None)
            seed_generators(WEIGHT_SEED, device)
            self.arguments = list_arguments(
                getattr(namespace, "get_init_inputs", list)(), namespace.Model
            )
            lay_out(self.arguments)
            self._first = namespace
            first, again = (self._construct(namespace), vars(namespace)), self._build()
            self._initial: dict[str, torch.Tensor] = copy_value(_read_state(first[0]))
            named = first[0].named_parameters(remove_duplicate=False)
            self.parameters = {name for name, _ in named}
            """Names in the state that are parameters and not buffers."""
            if _hold_same_tensors(first[0], again[0]):
                self._unused = [first, again]
            else:
                self._pristine = first[0]
            self._is_new = False
            self.reset()

    def _import(self) -> ModuleType:
        torch.set_default_dtype(self._defaults)  # an import before may have set others
        torch.set_default_device(None)
        module = import_file(self._path, {}, self._device)
        unknown = sorted(set(self._axes) - set(vars(module)))
        if unknown:
            names = ", ".join(unknown)
            raise ValueError(f"the workload sets {names}, which the task does not define")
        for name in ("Model", "get_inputs"):
            if not hasattr(module, name):
                raise TaskFailed(refuse_limit("task_form", f"the task does not define {name}"))
        for name, value in self._axes.items():
            # JSON has no tuples.
            is_tuple = type(getattr(module, name)) is tuple and isinstance(value, list)
            setattr(module, name, tuple(cast("list[Any]", value)) if is_tuple else value)
        return module

    def _construct(self, namespace: ModuleType) -> torch.nn.Module:
        # Seeded again, because get_init_inputs may have drawn numbers of its own.
        if self.places_tensors:
            torch.set_default_device(None)  # weights are drawn on the processor
        seed_generators(WEIGHT_SEED, self._device)
        module = call(namespace.Model, copy_value(self.arguments))
        if self.places_tensors:
            place_new_tensors(self._device)
        if not isinstance(module, torch.nn.Module):
            raise TaskFailed(refuse_limit("module_types", "the task's Model is no torch.nn.Module"))
        return module

    def _build(self) -> _Built:
        if self._unused:
            return self._unused.pop(0)
        if self._pristine is not None:
            try:
                return copy.deepcopy(self._pristine), {}
            except Exception as error:
                detail = (
                    "the constructor makes other tensors in every call, and a copy of the module"
                    f" fails: {error}"
                )
                raise TaskFailed(refuse_limit("module_copies", detail)) from error
        if self._can_import_again:
            try:
                namespace = self._import()
                return self._construct(namespace), vars(namespace)
            except (Exception, SystemExit):
                # For example, a process can define a library of operators once.
                self._can_import_again = False
        return self._construct(self._first), {}

    def reset(self) -> None:
        """Forget every call and every weight loaded since the module was made."""
        if self._is_new:
            return
        (own, self._namespace), (double, self._double_namespace) = self._build(), self._build()
        self._model = move_module(own, self._device)
        roots = [self._model, self._namespace]
        self._generators = [held for held in iterate_held(roots) if isinstance(held, GENERATORS)]
        self._double_device = self._device
        self._double = self._widen(move_module(double, self._device))
        self._is_new = True

    def _widen(self, module: torch.nn.Module, device: str | None = None) -> torch.nn.Module:
        if self._pristine is None:
            return widen_module(module, self._double_namespace, device)
        return module.double().to(device)  # it may share closures with the original

    def module(self) -> torch.nn.Module:
        """Return the module as it was made, on the device."""
        return move_module(self._build()[0], self._device)

    def _copy(self, module: torch.nn.Module, *, double: bool) -> torch.nn.Module:
        try:
            return copy.deepcopy(module)
        except Exception:
            built = self.module()
            copied = self._widen(built, self._double_device) if double else built
            copied.load_state_dict(module.state_dict())
            return copied

    def state(self, *, now: bool = False) -> dict[str, torch.Tensor]:
        """Return parameters and buffers by name: as made, or with `now` as after the calls."""
        return _read_state(self._model) if now else self._initial

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters and buffers by name until the next `reset`."""
        self._is_new = False
        with torch.no_grad():
            for model in (self._model, self._double):
                held = model.state_dict()
                for name, value in state.items():
                    held[name].copy_(value)

    def rules(self) -> dict[str, Any]:
        """Return the task's own rules, and the names of its inputs."""
        names: list[str] = []  # none where the method does not show its parameters
        with contextlib.suppress(TypeError, ValueError):
            parameters = inspect.signature(self._model.forward).parameters.values()
            named = itertools.takewhile(lambda p: p.kind is not p.VAR_POSITIONAL, parameters)
            names = [p.name[:_MOST_NAME] for p in itertools.islice(named, _MOST_NAMES)]
        return {**self._rules, "names": names}

    def check(self, inputs: list[Any], output: Any) -> tuple[bool, str]:
        """Return whether the task's own checker accepts an output, and its text."""
        if self._check is None:
            raise TaskFailed("the task has no checker")
        with torch.no_grad():
            accepted, text = self._check(inputs, output)
        return bool(accepted), str(text)

    def inputs(self, seed: int) -> list[Any]:
        """Return inputs of the task's own distribution."""
        seed_generators(seed, self._device)
        with _name_failure("get_inputs() failed"):
            with torch.device(self._device):
                made = list_arguments(self._get_inputs(), self._model.forward)
            made = move_to_device(made, self._device)
            lay_out(made)
        return made

    def answer(self, inputs: list[Any], seed: int) -> tuple[Any, list[torch.Tensor | None]]:
        """Return the reference's answer, and its tensors in double precision where that works.

        If calls change their inputs, the answer is a pair of what they return and a list of the
        changed tensors as they are after the call.

        `seed` is the seed of the module's own random numbers.
        """
        seed_generators(seed, self._device)
        before = read_generators(self._device, self._generators)
        is_first = self.changed is None
        try:
            value = self._call(inputs)
        except TaskFailed as failed:
            is_on_two_devices = self._device == "cuda" and _TWO_DEVICES in str(failed)
            if self.places_tensors or not is_on_two_devices:
                raise
            self.places_tensors = True
            self.reset()
            return self.answer(inputs, seed)
        self.draws |= before != read_generators(self._device, self._generators)
        if is_first and not self.draws:
            self.draws = self._depends_on_seed(inputs, seed, value)
        # Double precision is impossible for code that fixes its element type, and for code that
        # draws numbers, since another element type draws others.
        own, exact = list(tensors_of(value)), None
        with torch.no_grad():
            if not self.draws:
                with contextlib.suppress(Exception, SystemExit):
                    exact = _match_exact(list(tensors_of(self._run_in_double(inputs))), own)
            return value, exact or _match_exact(None, own)

    def _depends_on_seed(self, inputs: list[Any], seed: int, value: Any) -> bool:
        """Whether another seed gives another first answer: code may read a generator's state."""
        try:
            module = self.module()
            seed_generators(seed + 1, self._device)
            with torch.no_grad():
                other = call(module, copy_value(inputs))
        except (Exception, SystemExit):
            return False
        return not all(map(_is_near, tensors_of(value), tensors_of(other)))

    def value(self, inputs: list[Any], seed: int) -> Any:
        """Return the reference's answer in its own precision."""
        seed_generators(seed, self._device)
        return self._call(inputs)

    def _call(self, inputs: list[Any]) -> Any:
        """Return the answer, and note which inputs this call or one before it has changed."""
        is_scratch = self._rules["scratch"]  # then they are no part of the answer
        given = inputs if self.changed == [] and not is_scratch else copy_value(inputs)
        held = list(tensors_of(given))
        places = list(map(_read_place, held))
        form = describe_value(given, lambda _: None)
        self._is_new = False
        with torch.no_grad(), _name_failure("forward() failed"):
            value = call(self._model, given)
            lay_out(value, dense=True)
        if self.changed is None:
            self.keeps_inputs = share_storages(given, [self._model, self._namespace])
        now = list(tensors_of(given))
        is_other = len(now) != len(held) or any(a is not b for a, b in zip(now, held, strict=True))
        with _name_failure("the inputs after forward()"):
            is_same_form = is_other or describe_value(given, lambda _: None) == form
        if is_other or not is_same_form:
            other = "tensors" if is_other else "values"
            detail = f"forward() puts other {other} into a container of its inputs"
            raise TaskFailed(refuse_limit("containers", detail))
        if list(map(_read_place, held)) != places:
            detail = "forward() gives an input another shape or other memory"
            raise TaskFailed(refuse_limit("containers", detail))
        if is_scratch:
            self.changed = []
        elif self.changed != []:
            pairs = zip(tensors_of(inputs), held, strict=True)
            changed = {n for n, (one, other) in enumerate(pairs) if not has_same_bits(one, other)}
            self.changed = sorted(changed | set(self.changed or ()))
        return self._add_changed(value, given)

    def _add_changed(self, value: Any, given: list[Any]) -> Any:
        if not self.changed:
            return value
        tensors = list(tensors_of(given))
        return value, [tensors[number] for number in self.changed]

    def count_bytes(self, seed: int) -> tuple[int, int] | None:
        """Return the bytes of a call's inputs and of its answer; None if they need a real call.

        Nothing is computed: the module is called on the meta device.
        """
        try:
            model = self._build()[0].to("meta")
            seed_generators(seed, self._device)
            with torch.device("meta"), torch.no_grad():
                made = list_arguments(self._get_inputs(), model.forward)
                inputs = move_to_device(made, "meta")
                answer = call(model, inputs)
            input_bytes, answer_bytes = (
                sum(tensor.nbytes for tensor in tensors_of(value)) for value in (inputs, answer)
            )
            return input_bytes, answer_bytes
        except Exception:
            return None

    def sizes(self) -> list[Size]:
        """Return the whole numbers at the top of the file that set dimensions of inputs.

        Each is replaced in a module of its own, to see whether inputs get other dimensions.
        """
        with _name_failure("the task cannot be built"):
            names = vars(self._import())

        def list_shapes() -> list[torch.Size]:
            with contextlib.suppress(Exception, SystemExit), torch.device(self._device):
                return [tensor.shape for tensor in tensors_of(names["get_inputs"]())]
            return []

        before = list_shapes()
        found: list[Size] = []
        for name, constant in list(names.items()):
            if not name.isascii() or name.startswith("__") or len(name) > _MOST_SIZE_NAME:
                continue
            numbers = list(constant) if type(constant) in (tuple, list) else [constant]
            if len(numbers) > _MOST_NUMBERS or not all(type(number) is int for number in numbers):
                continue
            for at, number in enumerate(numbers):
                if not 0 < number < 1 << 31 or len(found) == _MOST_SIZES:
                    continue
                replaced = [*numbers[:at], number + 1, *numbers[at + 1 :]]
                names[name] = replaced[0] if constant is number else type(constant)(replaced)
                after = list_shapes()
                names[name] = constant
                if [len(shape) for shape in after] != [len(shape) for shape in before]:
                    continue
                places = [
                    [tensor, dimension]
                    for tensor, pair in enumerate(zip(before, after, strict=True))
                    for dimension, (old, new) in enumerate(zip(*pair, strict=True))
                    if old != new
                ]
                if places:
                    found.append((name, numbers, None if constant is number else at, places))
        return found

    def try_axes(self, axes: Mapping[str, Any], seed: int) -> tuple[Any, Any]:
        """Return inputs and the answer of another module, with these axes besides the own ones."""
        own = self._axes, self.arguments
        self._axes = {**self._axes, **axes}
        try:
            with _name_failure("the task fails at these sizes"), torch.no_grad():
                namespace = self._import()
                made = getattr(namespace, "get_init_inputs", list)()
                self.arguments = list_arguments(made, namespace.Model)
                model = move_module(self._construct(namespace), self._device)
                seed_generators(seed, self._device)
                with torch.device(self._device):
                    inputs = list_arguments(namespace.get_inputs(), model.forward)
                inputs = move_to_device(inputs, self._device)
                lay_out(inputs)
                return inputs, call(model, inputs)
        finally:
            self._axes, self.arguments = own

    def depends_on_tf32(self, seed: int) -> bool:
        """Whether the answer to new inputs changes with TF32 in convolutions.

        It changes with the flag of cuDNN, or would if cuDNN took TF32 for these shapes.
        """
        inputs = self.inputs(seed)

        def answer(allowed: bool) -> str:
            torch.backends.cudnn.allow_tf32 = allowed
            model = self.module()
            seed_generators(seed, self._device)
            with torch.no_grad():
                return compute_fingerprint(call(model, copy_value(inputs)))

        before = torch.backends.cudnn.allow_tf32
        try:
            with _name_failure("forward() failed"):
                usual = answer(False)
                with RoundedFactors(("convolution",)):
                    rounded = answer(False) if self._device == "cuda" else usual
                return not usual == rounded == answer(True)
        finally:
            torch.backends.cudnn.allow_tf32 = before

    def shows_only_in_evaluation(self, names: Sequence[str], seed: int) -> bool:
        """Whether an answer depends on what calls have made of these buffers, if at all, in
        evaluation mode alone; False where a copy of the module cannot be called there."""
        inputs = self.inputs(seed)

        def answer(*, as_made: bool, evaluates: bool) -> str:
            model = self._copy(self._model, double=False)
            if as_made:
                held = model.state_dict()
                for name in names:
                    held[name].copy_(self._initial[name])
            if evaluates:
                model.eval()
            seed_generators(seed, self._device)
            return compute_fingerprint(call(model, copy_value(inputs)))

        def shows(*, evaluates: bool) -> bool:
            now, before = (answer(as_made=made, evaluates=evaluates) for made in (False, True))
            return now != before

        try:
            with torch.no_grad():
                return shows(evaluates=True) and not shows(evaluates=False)
        except (Exception, SystemExit):
            return False

    def choices(self, inputs: list[Any], seed: int) -> list[Choice]:
        """Return the choices of indices in a call of a copy, which leaves no memory of it."""
        with torch.no_grad(), _name_failure("forward() failed"):
            model = self._copy(self._model, double=False)
            seed_generators(seed, self._device)
            own = record(lambda: call(model, copy_value(inputs)))
        if self.draws:
            return own
        device = self._double_device
        try:
            double = self._copy(self._double, double=True)
            with torch.no_grad(), _use_double(device):
                wide = record(lambda: call(double, copy_value(inputs, device, double=True)))
        except (Exception, SystemExit):
            return own  # code that fixes its element type has no numbers in double precision
        return add_exact_values(own, wide)

    def measure_algorithms(
        self, inputs: list[Any], seed: int, precision: str, limits: Mapping[str, float]
    ) -> tuple[list[EagerError | None], bool, bool]:
        """Return the largest errors of the algorithms that a precision allows.

        They are by tensor; there are none where no algorithm changes a bit. After them come whether
        the module rounds to steps, and whether an error is far larger than the usual algorithm's.
        """
        with torch.no_grad(), _name_failure("forward() failed"):
            model = self._copy(self._model, double=False)

            def answer() -> list[torch.Tensor]:
                seed_generators(seed, self._device)
                return list(tensors_of(call(model, copy_value(inputs))))

            kinds = find_kinds(answer)
            begin = time.perf_counter()
            before = read_generators(self._device, [])
            value = answer()
            draws = before != read_generators(self._device, [])
            if not all(map(has_same_bits, value, answer())):
                return [], "step" in kinds, False
        if draws:
            # Another number of threads, or another way to attend, may draw other numbers.
            kinds -= {"attention"} if self._device == "cuda" else kinds - {"step"}
        largest: list[EagerError | None] = []
        own: list[EagerError | None] = []
        exact: list[torch.Tensor | None] = []
        slack: list[torch.Tensor | None] = []
        for algorithm in iterate_algorithms(self._device, precision, kinds):
            if time.perf_counter() - begin > _ALGORITHMS_LIMIT_S:
                break
            try:
                with torch.no_grad(), algorithm:
                    other = answer()
            except (Exception, SystemExit):
                continue  # what the task cannot run under allows no error
            if all(map(has_same_bits, value, other)):
                continue
            if not exact:
                answers = None
                if not draws:
                    with contextlib.suppress(Exception, SystemExit):
                        answers = self._answer_in_double(inputs)
                exact = _match_exact(answers, value)
                del answers
                slack = self.steps(inputs, seed, limits)[0] if "step" in kinds else []
                slack = [None if one is None else one[1] for one in slack or [None] * len(value)]
                own = measure_errors(value, exact, slack)
            errors = measure_errors(other, exact, slack)
            if all(map(_is_rounding, errors, own)):
                largest = list(map(EagerError.merge, errors, largest or errors))
        is_wide = any(
            error is not None and (e is None or error.relative > _MOST_ALIKE * e.relative)
            for error, e in zip(largest, own, strict=False)
        )
        return largest, "step" in kinds, is_wide

    def steps(
        self, inputs: list[Any], seed: int, limits: Mapping[str, float]
    ) -> tuple[list[torch.Tensor | None], bool]:
        """Return how much another step changes each element of the answer, and whether it rounds.

        There is one for each tensor of the answer, which has two parts: by eager's own error of the
        values before the steps, and by their tolerance. None at all where no other step is near.

        limits: Relative tolerance of a value before a step by the name of its element type.
        """
        with torch.no_grad(), _name_failure("forward() failed"):
            model = self._copy(self._model, double=False)
            seed_generators(seed, self._device)
            given = copy_value(inputs)
            with StepRecorder() as recorder:
                call(model, given)
            own = recorder.list_steps()
        if not own or self.draws:
            return [], bool(own)
        try:
            recorder = StepRecorder()
            exact = self._answer_in_double(inputs, recorder)
            sets: list[list[torch.Tensor]] = []
            for margins in find_margins(own, recorder.list_steps(), limits):
                modes = iterate_moved(margins, apart=not sets)
                moved = [self._answer_in_double(inputs, mode) for mode in modes]
                groups = zip(exact, *moved, strict=True)
                sets.append([_find_distance(x, others) for x, *others in groups])
        except (Exception, SystemExit):
            return [], True  # code that fixes its element type has no numbers in double precision
        pairs = zip(*sets, strict=True)
        changes = [torch.stack([least, torch.maximum(least, most)]) for least, most in pairs]
        is_changed = any(bool(change.any()) for change in changes)
        return [*changes] if is_changed else [], True

    def _answer_in_double(
        self, inputs: list[Any], mode: AbstractContextManager[Any] | None = None
    ) -> list[torch.Tensor]:
        device = self._double_device
        double = self._copy(self._double, double=True)
        given = copy_value(inputs, device, double=True)
        with torch.no_grad(), _use_double(device), mode or contextlib.nullcontext():
            return list(tensors_of(call(double, given)))

    def _run_in_double(self, inputs: list[Any]) -> Any:
        try:
            with _use_double(self._double_device):
                given = copy_value(inputs, self._double_device, double=True)
                return self._add_changed(call(self._double, given), given)
        except torch.OutOfMemoryError:
            if self._double_device == "cpu":
                raise
        # Not every GPU has twice the memory; the processor is slow but has enough.
        self._double_device = "cpu"
        self._double = self._widen(self._double, "cpu")
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        with _use_double("cpu"):
            given = copy_value(inputs, "cpu", double=True)
            return self._add_changed(call(self._double, given), given)


def _read_rules(module: ModuleType) -> dict[str, Any]:
    """Return the rules of a task's module, as the judge reads them.

    Raises ValueError, TypeError, KeyError where TASK_TOLERANCE has another form.
    """
    stated = getattr(module, "TASK_TOLERANCE", None)
    tolerance = None
    if stated is not None:
        limits = float(stated["rtol"]), float(stated["atol"])
        shares = bool(stated.get("either", False)), min(float(stated.get("matched", 1.0)), 1.0)
        tolerance = [*limits, *shares]
    return {
        "tolerance": tolerance,
        "checks": callable(getattr(module, "TASK_CHECK", None)),
        "scratch": bool(getattr(module, "TASK_SCRATCH", False)),
    }


@contextlib.contextmanager
def _use_double(device: str) -> Generator[None]:
    """Make new floating tensors double, and on this device where a task names another default."""
    default = torch.get_default_dtype()
    other = torch.get_default_device().type not in ("cpu", device)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device(device) if other else contextlib.nullcontext():
            yield
    finally:
        torch.set_default_dtype(default)


def _classify(tensor: torch.Tensor) -> str:
    """Return the kind of numbers; whole ones are compared exactly, others with a tolerance."""
    if not is_inexact(tensor.dtype):
        return "whole"
    return "complex" if tensor.is_complex() else "floating"


def _to_exact(tensor: torch.Tensor) -> torch.Tensor | None:
    if _classify(tensor) == "whole":
        return None
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def _match_exact(
    exact: list[torch.Tensor] | None, own: list[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Return each tensor of an answer in double precision, or its own numbers if that is none."""
    if exact is None or [t.shape for t in exact] != [t.shape for t in own]:
        return [_to_exact(tensor) for tensor in own]
    pairs = zip(own, exact, strict=True)
    return [x if _classify(x) == _classify(t) else _to_exact(t) for t, x in pairs]


def _read_place(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _find_distance(exact: torch.Tensor, moved: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return how far each element may be from the exact answer; zero where that is not finite.

    moved: Answers with all values before steps moved up, with all moved down, and others. If both
        directions change an element, several values are at edges, whose effects add.
    """
    if exact.is_complex():
        return torch.zeros(exact.shape, dtype=torch.float64, device=exact.device)
    wide = exact.to(torch.float64)
    distances = [(m.to(torch.float64) - wide).abs().nan_to_num(0.0, 0.0, 0.0) for m in moved]
    up, down, *_ = distances
    every = torch.stack(distances)
    return torch.where((up > 0) & (down > 0), every.sum(0), every.amax(0))


def _is_rounding(error: EagerError | None, own: EagerError | None) -> bool:
    if error is None or own is None:
        return True
    return error.relative <= max(_MOST_ROUNDING, _MOST_OF_OWN * own.relative)


def _read_state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    held = module.state_dict().items()
    return {name: value for name, value in held if isinstance(value, torch.Tensor)}


def _hold_same_tensors(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    first, second = (
        [held for held in iterate_held([module]) if isinstance(held, torch.Tensor)]
        for module in (one, other)
    )
    if len(first) != len(second):
        return False
    for a, b in zip(first, second, strict=True):
        if (a.shape, a.dtype, a.layout) != (b.shape, b.dtype, b.layout):
            return False
        if a.is_sparse:
            is_same = torch.equal(a.to_dense(), b.to_dense())
        else:
            is_plain = a.layout is torch.strided and not (a.is_meta or a.is_quantized)
            is_same = not is_plain or has_same_bits(a, b)
        if not is_same:
            return False
    return True


def _is_near(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors differ by no more than the same computation on a GPU may."""
    if one.shape != other.shape:
        return False
    one, other = (tensor.reshape(-1)[:_FIRST_ELEMENTS] for tensor in (one, other))
    if _classify(one) == "whole":
        return int((one != other).sum()) <= _NEAR * one.numel()
    wide = torch.complex128 if one.is_complex() else torch.float64
    one, other = (tensor.to(wide) for tensor in (one, other))
    one, other = (torch.where(tensor.isfinite(), tensor, 0) for tensor in (one, other))
    return float((one - other).norm()) <= _NEAR * float(one.norm())


@contextlib.contextmanager
def _name_failure(what: str) -> Generator[None]:
    try:
        yield
    except TaskFailed:
        raise
    except SystemExit as error:
        raise TaskFailed(f"{what}: it calls sys.exit({error.code!r:.80})") from error
    except Exception as error:
        # Texts of torch may be as long as a page, and the name of the limit comes after them.
        text = str(error) or type(error).__name__
        detail, limit = f"{what}: {textwrap.shorten(text, _MOST_ERROR)}", None
        if "does not require grad" in str(error):
            limit = "backward"
        elif isinstance(error, RecursionError):
            limit = "nesting"
        elif "meta tensor" in str(error):
            limit = "devices"
        elif "CUDA" in str(error) and not torch.cuda.is_available():
            limit = "gpu_only"
        elif type(error).__module__.startswith("torch") and type(error).__name__.startswith("Dist"):
            limit = "several_gpus"
        elif isinstance(error, OSError):
            limit = "isolation"
        raise TaskFailed(detail if limit is None else refuse_limit(limit, detail)) from error


_TEXT_LIMIT = 4000


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings of a task's worker, as the judge sends them at its start."""

    device: str
    threads: int
    convolution_tf32: bool
    """Use TF32 in convolutions on a GPU, as PyTorch does by default."""


class TaskLoop:
    """One task and the memory that it shares with the judge, which checks every answer.

    A request is a public method. Those of `_PLAIN` are the task module's own.
    """

    def __init__(self, setting: Setting, files: dict[Side, int]) -> None:
        self._setting = setting
        self._files = files
        self._boxes: dict[tuple[Side, str], MappedBox | OwnedBox] = {}
        self._waiting: Any = None
        """A value that did not fit, and whether it is dense."""

    def perform(self, operation: str, fields: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to a request."""
        if operation in _PLAIN:
            return {"result": getattr(self._task, operation)(**fields)}
        return _OPERATIONS[operation](self, **fields)

    def box(self, side: Side, place: str, size: int) -> dict[str, Any]:
        """Replace a box by one of another size, or remove it where the size is 0."""
        held = self._boxes.pop((side, place), None)
        if isinstance(held, OwnedBox):
            held.close()
        if not size:
            return {}
        if place == "cpu":
            self._boxes[side, place] = MappedBox(self._files[side], size)
            return {}
        torch.cuda.empty_cache()
        made = OwnedBox(size)
        self._boxes[side, place] = made
        return {"handle": made.handle}

    def load(self, path: str, axes: dict[str, Any]) -> dict[str, Any]:
        """Run the task's code and make its module; returns the constructor's arguments."""
        torch.set_num_threads(self._setting.threads)
        if self._setting.device == "cuda":
            torch.backends.cudnn.allow_tf32 = self._setting.convolution_tf32
            torch.backends.cuda.matmul.allow_tf32 = False
        self._task = TaskModule(path, axes, self._setting.device)
        return self._give(self._task.arguments, dense=False)

    def inputs(self, seed: int) -> dict[str, Any]:
        """Draw inputs."""
        return self._give(self._task.inputs(seed), dense=False)

    def input_sets(self, seeds: list[int]) -> dict[str, Any]:
        """Draw several sets of inputs."""
        return self._give([self._task.inputs(seed) for seed in seeds], dense=False)

    def value(self, place: str, inputs: dict[str, Any], seed: int) -> dict[str, Any]:
        """Answer inputs in the task's own precision."""
        return self._give(self._task.value(self._take(place, inputs), seed))

    def answer(self, place: str, inputs: dict[str, Any], seed: int) -> dict[str, Any]:
        """Answer inputs, in the task's own precision and in double precision."""
        task = self._task
        answer = self._give([*task.answer(self._take(place, inputs), seed)])
        return {
            **answer,
            "draws": task.draws,
            "changed": task.changed,
            "keeps": task.keeps_inputs,
            "places": task.places_tensors,
        }

    def check(self, place: str, values: dict[str, Any]) -> dict[str, Any]:
        """Ask the task's own checker whether an output is right: values are inputs and output."""
        accepted, text = self._task.check(*self._take(place, values))
        return {"accepted": accepted, "text": text[:_TEXT_LIMIT]}

    def try_axes(self, axes: dict[str, Any], seed: int) -> dict[str, Any]:
        """Call the task's module at other sizes; return what its inputs and its answer are."""
        inputs, value = self._task.try_axes(axes, seed)
        answers = list(tensors_of(value))
        floating = (answer for answer in answers if is_inexact(answer.dtype))
        reply = {
            "inputs": [[get_dtype_name(t.dtype), list(t.shape)] for t in tensors_of(inputs)],
            "answers": [[get_dtype_name(t.dtype), list(t.shape)] for t in answers],
            "finite": all(bool(answer.isfinite().all()) for answer in floating),
        }
        del inputs, value, answers
        self._release_memory()
        return reply

    def algorithms(
        self,
        place: str,
        inputs: dict[str, Any],
        seed: int,
        precision: str,
        limits: dict[str, float],
    ) -> dict[str, Any]:
        """Return the largest errors of the algorithms that a precision allows; see `EagerError`."""
        given = self._take(place, inputs)
        errors, rounds, differ = self._task.measure_algorithms(given, seed, precision, limits)
        self._release_memory()
        rows = [e and [e.scaled, list(e.shares), e.relative] for e in errors]
        return {"errors": rows, "rounds": rounds, "differ": differ}

    def steps(
        self, place: str, inputs: dict[str, Any], seed: int, limits: dict[str, float]
    ) -> dict[str, Any]:
        """Return how much another step changes an answer, and whether the task rounds at all."""
        changes, rounds = self._task.steps(self._take(place, inputs), seed, limits)
        return {**self._give(changes), "rounds": rounds}

    def choices(self, place: str, inputs: dict[str, Any], seed: int) -> dict[str, Any]:
        """Return the choices of indices in a call, each as the fields of `Choice`."""
        choices = self._task.choices(self._take(place, inputs), seed)
        return self._give([[c.places, c.values, c.dim, c.ordered, c.exact] for c in choices])

    def state(self, start: int, now: bool) -> dict[str, Any]:
        """Return a page of the state: name, whether it is a parameter, owner of the memory."""
        held = self._task.state(now=now)
        owners: dict[int, int] = {}
        first = [owners.setdefault(value.data_ptr(), at) for at, value in enumerate(held.values())]
        page = next(paginate(list(held.items())[start:], lambda named: named[1].nbytes), [])
        entries = [
            [name, name in self._task.parameters, first[at]]
            for at, (name, _) in enumerate(page, start=start)
        ]
        return {**self._give([value for _, value in page]), "page": entries, "total": len(held)}

    def adopt(self, place: str, names: list[str], values: dict[str, Any]) -> dict[str, Any]:
        """Overwrite parameters and buffers by name until the next reset."""
        given = self._boxes["inbox", place].get(values)
        self._task.load(dict(zip(names, given, strict=True)))
        return {}

    def count(self, seeds: list[int]) -> dict[str, Any]:
        """Count the least work of a call on two draws of inputs; see `device.roofline`."""
        one, other = (self._task.inputs(seed) for seed in seeds)
        with torch.enable_grad():
            return vars(count_work(self._task.module(), one, other))

    def fetch(self) -> dict[str, Any]:
        """Return the value that did not fit before."""
        return self._give(*self._waiting)

    def _take(self, place: str, spec: dict[str, Any]) -> Any:
        return self._boxes["inbox", place].get(spec, self._setting.device)

    def _give(self, value: Any, dense: bool = True) -> dict[str, Any]:
        """Put a value into the outbox, or keep it and report the bytes that it needs.

        dense: Without the memory around the tensors, for values that no kernel is called on.
        """
        place = find_place(value, self._setting.device)
        needed = lay_out(value, dense=dense).end
        held = self._boxes.get(("outbox", place))
        if held is None or held.size_bytes < needed:
            self._waiting = value, dense
            return {"place": place, "needs": needed}
        self._waiting = None
        spec = held.put(value, dense=dense)
        del value
        self._release_memory()
        return {"place": place, "spec": spec}

    def _release_memory(self) -> None:
        if self._setting.device == "cuda":
            release_unused_memory()


_OPERATIONS = {n: each for n, each in vars(TaskLoop).items() if not n.startswith("_")}
_PLAIN = (
    *("reset", "rules", "count_bytes", "sizes", "depends_on_tf32", "shows_only_in_evaluation"),
)
"""Methods of the module that take and return JSON values."""


def serve(channel: socket.socket, setting: Setting, inbox_fd: int, outbox_fd: int) -> None:
    """Answer requests until the judge closes the channel."""

    def describe_failure(error: Exception) -> dict[str, Any]:
        if isinstance(error, messages.TooLong):
            error = TaskFailed(refuse_limit("value_count", f"too many inputs or outputs: {error}"))
        reply: dict[str, Any] = {"error": type(error).__name__, "lost": False}
        with contextlib.suppress(Exception):  # even reading its text may fail
            is_ours = isinstance(error, TaskFailed)
            text = str(error) if is_ours else f"{type(error).__name__}: {error}"
            reply["error"] = text[:_TEXT_LIMIT]
        if setting.device == "cuda":
            try:
                torch.cuda.synchronize()
            except RuntimeError:  # the GPU's context is broken: nothing can run in it
                reply["lost"] = True
        return reply

    loop = TaskLoop(setting, {"inbox": inbox_fd, "outbox": outbox_fd})
    messages.serve(channel, loop.perform, describe_failure)
