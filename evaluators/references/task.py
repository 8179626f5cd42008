"""A task as the judge sees it: inputs from seeds, and the answers of its reference.

The task's code is as foreign as a candidate's. It runs in a worker of its own (`references.module`)
and never in the judge process. The judge checks the form of every answer and copies it into its own
memory, so that a task can only influence verdicts of its own kernels.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch

from evaluators.device.roofline import Counts
from evaluators.limits.kinds import refuse_limit
from evaluators.memory.cuda_driver import release_unused_memory
from evaluators.memory.tensors import (
    Box,
    MappedBox,
    OpenedBox,
    Side,
    create_sealed_file,
    find_place,
    is_inexact,
    lay_out,
    paginate,
    round_up,
    tensors_of,
)
from evaluators.processes.messages import Malformed, make_readable
from evaluators.references.operations import Choice, EagerError, read_choice
from evaluators.sandbox.failures import explain_end, explain_timeout
from evaluators.sandbox.launcher import Died, ForkServer, Limits, TimedOut, WorkerProcess
from store.errors import HostUnfit, SandboxFailed

_TASK_FILE = "task.py"
CALL_LIMIT_S = 300.0
_BUILD_LIMIT_S = 300.0
"""Time limit for making the module, and for an answer while a compiler is running."""
_MOST_TEXT = 4000
_KEPT_BYTES = 2 << 30
"""A larger box is freed once it has been read."""
_PERTURBATION = 0.3
_MOST_TENSORS = 100_000
Size: TypeAlias = "tuple[str, list[int], int | None, list[list[int]]]"
"""As `TaskModule.sizes` returns it."""
_SEED_BITS = 48
_OWN = "own"
_DRAWS = 2


class ReferenceFailed(Exception):
    """The task itself cannot be built or run; never the candidate's fault."""

    reason = "reference_failed"
    """Reason of the row of such a case, whose status is evaluator_error."""


class SizesExceeded(ReferenceFailed):
    """Inputs or an answer are larger than those for which a worker's memory was made."""

    def __init__(self, input_bytes: int, answer_bytes: int) -> None:
        detail = f"a call takes {max(input_bytes, answer_bytes)} bytes, more than those before it"
        super().__init__(refuse_limit("value_bytes", detail))
        self.input_bytes = input_bytes
        self.answer_bytes = answer_bytes


@dataclass(frozen=True)
class ModuleState:
    """Parameters and buffers of a module by name, on the processor."""

    values: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    parameters: set[str] = field(default_factory=set[str])
    """Names that are parameters and not buffers."""
    owners: dict[str, int] = field(default_factory=dict[str, int])
    """A number for each name, the same for names of the same memory."""

    def perturb(self, seed: int) -> dict[str, torch.Tensor]:
        """Return the state with noise of 0.3 on floating and complex values.

        Tied tensors stay tied. A buffer without negative values, such as a running variance, keeps
        none.
        """
        noise = torch.Generator().manual_seed(seed)
        moved: dict[tuple[Any, ...], torch.Tensor] = {}
        perturbed: dict[str, torch.Tensor] = {}
        for name, value in self.values.items():
            perturbed[name] = value
            if not is_inexact(value.dtype):
                continue
            tied = (self.owners[name], value.dtype, value.shape)
            if tied not in moved:
                dtype = torch.complex64 if value.is_complex() else torch.float32
                step = _PERTURBATION * torch.randn(value.shape, generator=noise, dtype=dtype)
                # Types such as float8 have no arithmetic.
                wide = value.float() if value.element_size() == 1 else value
                changed = wide + step.to(wide.dtype)
                positive = name not in self.parameters and not (
                    value.is_complex() or bool((wide < 0).any())
                )
                moved[tied] = (changed.abs() if positive else changed).to(value.dtype)
            perturbed[name] = moved[tied]
        return perturbed


@dataclass(frozen=True)
class Tolerance:
    """How far a floating element may be from the reference's, by a rule of the task's own.

    A task's text may define TASK_TOLERANCE, TASK_CHECK and TASK_SCRATCH, as
    `store.importers.reading.task_formats` documents them.
    """

    rtol: float
    atol: float
    either: bool
    """An element passes within rtol or within atol, instead of within their sum."""
    matched: float
    """Share of the elements that have to pass."""

    def __str__(self) -> str:
        """Return it in words."""
        words = f"rtol {self.rtol:g}, atol {self.atol:g}"
        words += ", either of them" if self.either else ""
        return words + (f", for {self.matched:.1%} of the elements" if self.matched < 1 else "")


@dataclass(frozen=True, kw_only=True)
class TaskRules:
    """Rules of one task."""

    tolerance: Tolerance | None = None
    has_checker: bool = False
    scratch: bool = False
    """Whether calls may write into their inputs, which then are no part of an answer."""
    names: tuple[str, ...] = ()
    """Names of the inputs, for messages."""


NO_RULES = TaskRules()


@dataclass(frozen=True)
class Expected:
    """The reference's answer to one set of inputs."""

    value: Any
    """The answer in the task's own element types."""
    exact: list[torch.Tensor | None]
    """The same tensors computed in double precision; None where there is no such answer."""
    inputs: Sequence[Any] = ()
    """The inputs."""
    rules: TaskRules = NO_RULES
    """Rules of the task's own, by which an answer is right or wrong."""
    check: Callable[[Any], tuple[bool, str]] | None = None
    """Asks the task's own checker whether an output is right, and why not."""
    algorithms: Sequence[EagerError | None] = ()
    """Largest error of other algorithms that the precision allows, by tensor; empty if unknown."""
    steps: Callable[[], Sequence[torch.Tensor | None]] = tuple
    """Returns how much another rounding step changes each tensor; nothing if no step is near."""
    rounds: bool = False
    """Whether the task is known to round to steps."""
    changed: Sequence[int] = ()
    """Numbers of the input tensors that calls change; see `join_answer`."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """Element type and dimensions of the tensors of a task's inputs and of its answer."""

    inputs: list[tuple[str, list[int]]]
    answers: list[tuple[str, list[int]]]
    finite: bool
    """Whether the answer is finite."""


def join_answer(output: Any, inputs: Any, changed: Sequence[int]) -> Any:
    """Return an answer: what a call returns, or a pair of that and the inputs that calls change.

    Args:
        inputs: Its inputs as they are after it.
        changed: Numbers of the input tensors that calls change.
    """
    if not changed:
        return output
    tensors = list(tensors_of(inputs))
    return output, [tensors[number] for number in changed]


def call_seed(seed: int) -> int:
    """Return the seed of a call's own random numbers, which does not reveal the input seed.

    >>> call_seed(7) == call_seed(7) != call_seed(8)
    True
    """
    return int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:6])


def _is_exact(exact: Any, tensor: torch.Tensor) -> bool:
    """Whether a value can be the exact counterpart of a tensor; whole numbers have none."""
    if exact is None:
        return not (tensor.is_floating_point() or tensor.is_complex())
    return (
        isinstance(exact, torch.Tensor)
        and exact.shape == tensor.shape
        and exact.is_floating_point() == tensor.is_floating_point()
        and exact.is_complex() == tensor.is_complex()
    )


def _half_of_memory() -> int:
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    return os.sysconf("SC_PHYS_PAGES") * page_bytes // 2 // page_bytes * page_bytes


class Reference(contextlib.AbstractContextManager["Reference"]):
    """One task on one device, in a worker of its own. Use it as a context manager, or `close` it.

    Methods raise ReferenceFailed where the task fails, ends, hangs or answers in another form.
    Unless the task's code raised an ordinary exception, the worker has ended then, and a new
    Reference is needed. The constructor raises SandboxFailed where no worker can be started.
    """

    def __init__(
        self,
        code: str,
        axes: Mapping[str, Any],
        device: str,
        fork_server: ForkServer,
        threads: int = 1,
        *,
        convolution_tf32: bool = False,
    ) -> None:
        self.device = device
        self.draws = False
        """Whether a call draws random numbers; known after the first answer."""
        self.changed: list[int] | None = None
        """Numbers of the input tensors that calls change; None before the first answer."""
        self.keeps_inputs = False
        """Whether the module holds inputs of earlier calls, which must not be overwritten then."""
        self.places_tensors = False
        """Whether tensors that code makes without a device are put on the one that judges."""
        self.is_unseeded: bool | None = None
        """Whether an answer depends on the time, or on numbers that no seed decides; None before a
        question was asked twice."""
        self.remembers = False
        """Whether an answer depends on earlier calls; set by the caller who observes it."""
        self.least_bytes: tuple[int, int] = (0, 0)
        """Bytes of inputs and answer for which to make room, beyond those of the first call; set by
        the caller who has seen larger ones."""
        self.refused: set[str] = set()
        """Flags of the inputs that end the process in which the task's module gets them."""
        self.rounds: bool | None = None
        """Whether a call rounds to steps; None if unknown."""
        self.limits: Mapping[str, float] = {}
        """Relative tolerance by the name of an element type; set by `measure_algorithms`."""
        self._algorithms: dict[str, Sequence[EagerError | None]] = {}
        """Largest errors of eager's other algorithms, by what the inputs are."""
        self._algorithms_differ = False
        self._initial: ModuleState | None = None
        self._depends_on_tf32: bool | None = None
        self._most_bytes = _half_of_memory()
        self._boxes: dict[tuple[Side, str], MappedBox | OpenedBox] = {}
        self._files: dict[Side, int] = {
            "inbox": create_sealed_file(self._most_bytes),
            "outbox": create_sealed_file(self._most_bytes),
        }
        self._process: WorkerProcess | None = None
        # It outlives candidates, so few of its limits are finite.
        memory_bytes = None if device == "cuda" else 2 * _half_of_memory()
        limits = Limits(memory_bytes=memory_bytes, file_bytes=1 << 30, open_files=1024, cpu_s=10**7)
        setting = {"device": device, "threads": threads, "convolution_tf32": convolution_tf32}
        try:
            self._process = fork_server.start(
                {_TASK_FILE: code},
                setting=setting,
                limits=limits,
                inbox=self._files["inbox"],
                outbox=self._files["outbox"],
                loop="task",
            )
            self._process.freeze_between_requests()
            answer = self.ask("load", path=_TASK_FILE, axes=dict(axes))
            self.arguments = self._take_list(answer, "cpu", "the constructor's arguments")
            """Arguments of the task's constructor."""
        except BaseException:
            self.close()
            raise
        answer = self.ask("rules")["result"]
        stated = answer["tolerance"]
        self.rules = TaskRules(
            tolerance=None if stated is None else Tolerance(*stated),
            has_checker=answer["checks"],
            scratch=answer["scratch"],
            names=tuple(map(make_readable, answer["names"])),
        )
        """Rules of the task's own, and the names of its inputs."""

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_alive(self) -> bool:
        """Whether the worker runs and has answered every request."""
        return self._process is not None

    @property
    def pid(self) -> int | None:
        """Process number of the worker; None once it has ended."""
        return None if self._process is None else self._process.pid

    @property
    def repeatable(self) -> bool:
        """Whether an answer follows from the inputs alone, so that any call can be verified."""
        return not (self.draws or self.remembers)

    def close(self) -> None:
        """End the worker; may be called again."""
        for box in self._boxes.values():
            box.close()
        self._boxes.clear()
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(SandboxFailed):  # its fork server ends what is left of it
                process.end()
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()

    def reset(self) -> None:
        """Forget every call and every weight loaded since the module was made."""
        self.ask("reset")

    def inputs(self, seed: int) -> list[Any]:
        """Return inputs of the task's own distribution."""
        answer = self.ask("inputs", seed=seed)
        return self._take_list(answer, self.device, "the inputs")

    def input_sets(self, seeds: Sequence[int]) -> list[list[Any]]:
        """Return inputs of the task's own distribution for each seed."""
        answer = self.ask("input_sets", seeds=list(seeds))
        sets = self._take_list(answer, self.device, "the inputs")
        if len(sets) != len(seeds) or not all(isinstance(one, list) for one in sets):
            raise self._break_off("the inputs are no lists")
        return sets

    def value(self, inputs: list[Any], seed: int = 0) -> Any:
        """Return the reference's answer in the task's own element types alone."""
        return self._take(self.ask("value", **self._put(inputs), seed=seed), self.device)

    def answer(self, inputs: list[Any], seed: int = 0, kind: str = _OWN) -> Expected:
        """Return the reference's answer, and the same in double precision where that works.

        kind: What the inputs are; see `measure_algorithms`.
        """
        answer = self.ask("answer", **self._put(inputs), seed=seed)
        with self._open_answer(answer) as (box, spec, place):
            match spec:
                case {"list": [value_spec, exact_spec]}:
                    # Without room for double precision on a GPU, the exact part is on the CPU.
                    value, exact = box.get(value_spec, self.device), box.get(exact_spec, place)
                case _:
                    raise Malformed("an answer is no pair")
            own = list(tensors_of(value))
            if not isinstance(exact, list) or len(exact) != len(own):
                raise Malformed("an answer has more tensors than exact ones, or fewer")
            if not all(_is_exact(one, of) for one, of in zip(exact, own, strict=True)):
                raise Malformed("an exact answer is of another form than the answer")
        self.draws |= answer["draws"]
        self.changed = answer["changed"]
        self.keeps_inputs |= answer["keeps"]
        self.places_tensors |= answer["places"]
        tensors = list(tensors_of(inputs))
        if any(number >= len(tensors) for number in answer["changed"]):
            raise self._break_off("a call changes an input that there is not")
        # A checker gets what a call returns, which is a part of the answer only.
        has_checker = self.rules.has_checker and not self.changed
        check = functools.partial(self.check, inputs) if has_checker else None
        errors = self._algorithms.get(kind) or self._algorithms.get(_OWN, ())
        if len(errors) != len(exact):
            errors = ()
        steps = functools.partial(self.steps, inputs, seed)
        return Expected(
            value,
            exact,
            inputs,
            self.rules,
            check,
            algorithms=errors,
            steps=steps,
            rounds=bool(self.rounds),
            changed=answer["changed"],
        )

    def check(self, inputs: list[Any], output: Any) -> tuple[bool, str]:
        """Return whether the task's own checker accepts an output, and its text."""
        values = self._put([inputs, output], "values")
        try:
            answer = self.ask("check", **values)
        except ReferenceFailed as failed:
            if not self.is_alive:
                raise
            return False, f"the checker failed: {failed}"  # it accepts nothing then
        return answer["accepted"], make_readable(answer["text"])

    def measure_algorithms(
        self,
        precision: str,
        limits: Mapping[str, float],
        kind: str = _OWN,
        questions: Sequence[tuple[list[Any], int]] = (),
    ) -> None:
        """Measure eager's error under each algorithm that a precision allows, once.

        Later answers have these errors with them. Inputs other than the task's own are measured
        only where the algorithms differ much.

        Args:
            limits: Relative tolerance by the name of an element type.
            kind: What the inputs are; the task's own by default.
            questions: Inputs and seeds of calls; two draws of the task's own by default.
        """
        if kind in self._algorithms or (kind != _OWN and not self._algorithms_differ):
            return
        self._algorithms[kind], self.limits = (), limits
        for inputs, seed in questions or (self._draw() for _ in range(_DRAWS)):
            answer = self.ask(
                "algorithms",
                **self._put(inputs),
                seed=seed,
                precision=precision,
                limits=dict(limits),
            )
            self.rounds = answer["rounds"]
            self._algorithms_differ |= answer["differ"]
            errors = [row and EagerError(row[0], tuple(row[1]), row[2]) for row in answer["errors"]]
            known = self._algorithms[kind] or errors
            if len(errors) != len(known):
                return
            self._algorithms[kind] = list(map(EagerError.merge, errors, known))
            if not answer["differ"]:
                return  # more draws would hardly show more

    def leave_out_algorithms(self) -> None:
        """Measure nothing: the process of this task does not survive it."""
        self._algorithms[_OWN] = ()

    def _draw(self) -> tuple[list[Any], int]:
        seed = secrets.randbits(_SEED_BITS)
        return self.inputs(seed), call_seed(seed)

    def steps(self, inputs: list[Any], seed: int) -> Sequence[torch.Tensor | None]:
        """Return how much another rounding step changes each tensor of an answer.

        An element that is next to an edge of a rounding operation may be on its other side, by the
        errors of the value before it (`references.operations`). Nothing where none may, or the task
        does not round.
        """
        if self.rounds is False:
            return ()
        answer = self.ask("steps", **self._put(inputs), seed=seed, limits=dict(self.limits))
        changes = self._take_list(answer, self.device, "the steps")
        self.rounds = answer["rounds"]
        if not all(isinstance(change, torch.Tensor) for change in changes):
            raise self._break_off("the steps are no tensors")
        return changes

    def count_bytes(self) -> tuple[int, int] | None:
        """Return the bytes of a call's inputs and of its answer; None if only a call can tell."""
        counts = self.ask("count_bytes", seed=secrets.randbits(_SEED_BITS))["result"]
        return None if counts is None else tuple(counts)

    def sizes(self) -> list[Size]:
        """Return the numbers of the task's text that set dimensions of its inputs."""
        return [tuple(size) for size in self.ask("sizes")["result"]]

    def try_axes(self, axes: Mapping[str, Any], limit_s: float = CALL_LIMIT_S) -> Form:
        """Return the form of inputs and answer at other axes, by a module of its own.

        Raises ReferenceFailed where the task fails there; where it takes longer than the limit, the
        worker has ended.
        """
        given: dict[str, Any] = {"axes": dict(axes), "seed": secrets.randbits(_SEED_BITS)}
        return Form(**self.ask("try_axes", limit_s, **given))

    def depends_on_tf32(self) -> bool:
        """Whether answers change with the flag for TF32 in convolutions; asked once."""
        if self._depends_on_tf32 is None:
            answer = self.ask("depends_on_tf32", seed=secrets.randbits(_SEED_BITS))
            self._depends_on_tf32 = bool(answer["result"])
        return self._depends_on_tf32

    def choices(self, inputs: list[Any], seed: int = 0) -> list[Choice]:
        """Return the choices of indices that a call makes, without changing the module's memory."""
        answer = self.ask("choices", **self._put(inputs), seed=seed)
        entries = self._take_list(answer, self.device, "the choices")
        try:
            return [read_choice(entry) for entry in entries]
        except ValueError as error:
            raise self._break_off(str(error)) from error

    def state(self) -> dict[str, torch.Tensor]:
        """Return parameters and buffers as they were made, by name, on the processor."""
        return dict(self._initial_state().values)

    def current_state(self) -> dict[str, torch.Tensor]:
        """Return parameters and buffers as they are after the calls, by name, on the processor."""
        return self._read_state(now=True).values

    def shows_only_in_evaluation(self, names: Sequence[str]) -> bool:
        """Whether what calls have made of these buffers shows in evaluation mode alone.

        The running statistics of a batch normalization in training mode do: no answer depends on
        them until the module is put into evaluation mode.
        """
        seed = secrets.randbits(_SEED_BITS)
        answer = self.ask("shows_only_in_evaluation", names=list(names), seed=seed)
        return bool(answer["result"])

    def parameters(self) -> set[str]:
        """Return the names in the state that are parameters and not buffers."""
        return set(self._initial_state().parameters)

    def perturb(self, seed: int) -> dict[str, torch.Tensor]:
        """Return the initial state with noise on its floating values; see `ModuleState.perturb`."""
        return self._initial_state().perturb(seed)

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters and buffers by name until the next `reset`."""
        for page in paginate(state.items(), lambda named: named[1].nbytes):
            values = self._put([value for _, value in page], "values")
            self.ask("adopt", **values, names=[name for name, _ in page])

    def count(self, seeds: Sequence[int]) -> Counts:
        """Return the least work of a call, which the worker counts on inputs of two seeds."""
        return Counts(**self.ask("count", seeds=list(seeds)))

    def _initial_state(self) -> ModuleState:
        if self._initial is None:
            self._initial = self._read_state(now=False)
        return self._initial

    def _read_state(self, *, now: bool) -> ModuleState:
        state = ModuleState()
        while True:
            answer = self.ask("state", start=len(state.values), now=now)
            page = answer["page"]
            values = self._take_list(answer, "cpu", "the state")
            if len(page) != len(values):
                raise self._break_off("the state is not described")
            for (name, is_parameter, owner), value in zip(page, values, strict=True):
                if name in state.values or not isinstance(value, torch.Tensor):
                    raise self._break_off("the state is not described")
                state.values[name] = value
                state.owners[name] = owner
                if is_parameter:
                    state.parameters.add(name)
            if len(state.values) >= answer["total"]:
                return state
            if not page or len(state.values) > _MOST_TENSORS:
                raise self._break_off("the state has no end")

    def ask(self, do: str, limit_s: float = CALL_LIMIT_S, **fields: Any) -> dict[str, Any]:
        """Send one request and return its answer."""
        if self._process is None:
            raise ReferenceFailed("the task's worker is gone")
        if self.device == "cuda":
            release_unused_memory()
        try:
            answer = self._process.ask(do, limit_s, _BUILD_LIMIT_S, **fields)
        except TimedOut as error:
            failed = explain_timeout("call", limit_s, _BUILD_LIMIT_S, error.compiling)
            raise self._break_off(refuse_limit("task_time", failed.message)) from error
        except Died as error:
            process, self._process = self._process, None
            try:
                reason = explain_end(process.end()).message
            finally:
                self.close()
            raise ReferenceFailed(f"the task's worker is gone: {reason}") from error
        except (Malformed, ValueError) as error:
            raise self._break_off(str(error)) from error
        if "error" in answer:
            reason = make_readable(answer["error"][:_MOST_TEXT])
            if answer.get("lost"):
                raise self._break_off(reason)
            raise ReferenceFailed(reason)
        return answer

    def _break_off(self, reason: str) -> ReferenceFailed:
        """End a worker that breaks the protocol, and return the error to raise."""
        self.close()
        return ReferenceFailed(f"the task's worker is ended: {make_readable(reason)}")

    def _put(self, value: list[Any], name: str = "inputs") -> dict[str, Any]:
        place = find_place(value, self.device)
        return {"place": place, name: self._box("inbox", place, lay_out(value).end).put(value)}

    def _take(self, answer: Mapping[str, Any], device: str) -> Any:
        with self._open_answer(answer) as (box, spec, _):
            return box.get(spec, device)

    def _take_list(self, answer: Mapping[str, Any], device: str, what: str) -> list[Any]:
        value = self._take(answer, device)
        if not isinstance(value, list):
            raise self._break_off(f"{what} are no list")
        return value

    @contextlib.contextmanager
    def _open_answer(self, answer: Mapping[str, Any]) -> Generator[tuple[Box, Any, str]]:
        try:
            place = self._read_place(answer)
            if "needs" in answer:
                self._box("outbox", place, answer["needs"])
                answer = self.ask("fetch")
                if self._read_place(answer) != place:
                    raise Malformed("a value has moved")
            held = self._boxes.get(("outbox", place))
            if held is None:
                raise Malformed("a value has no memory")
            yield held, answer["spec"], place
        except (Malformed, RuntimeError, ValueError, OverflowError) as error:
            raise self._break_off(str(error)) from error
        if held.size_bytes > _KEPT_BYTES:
            self._drop("outbox", place)

    def _read_place(self, answer: Mapping[str, Any]) -> str:
        if answer["place"] not in ("cpu", self.device):
            raise Malformed("a value is on another device")
        return answer["place"]

    def _box(self, side: Side, place: str, needed: int) -> Box:
        """Return a box of at least `needed` bytes, a new one if the present one is too small."""
        held = self._boxes.get((side, place))
        if held is not None and held.size_bytes >= needed:
            return held
        if held is not None:
            self._drop(side, place)
        size = round_up(needed)
        most_bytes = self._most_bytes if place == "cpu" else torch.cuda.mem_get_info()[1]
        if size > most_bytes:
            raise self._break_off(f"a value takes {needed} bytes, and may take {most_bytes}")
        order: dict[str, Any] = {"side": side, "place": place, "size": size}
        try:
            answer = self.ask("box", **order)
        except ReferenceFailed:
            if place == "cpu" or self._process is None:
                raise
            torch.cuda.empty_cache()  # what this process has freed makes room
            answer = self.ask("box", **order)
        try:
            if place == "cpu":
                made = MappedBox(self._files[side], size)
            else:
                if self._process is None:
                    raise ReferenceFailed("the task's worker is gone")
                with self._process.let_run():  # CUDA opens the memory with its help
                    made = OpenedBox(answer.get("handle", ""), size)
        except OSError as error:
            self.close()
            raise HostUnfit(
                f"this host has no {size} bytes of memory to pass a value: {error.strerror}",
                "End other processes, or use a machine with more memory.",
            ) from error
        except (RuntimeError, TimedOut, ValueError) as error:
            raise self._break_off(f"there are no {size} bytes to pass a value: {error}") from error
        self._boxes[side, place] = made
        return made

    def _drop(self, side: Side, place: str) -> None:
        self._boxes.pop((side, place)).close()
        self.ask("box", side=side, place=place, size=0)
