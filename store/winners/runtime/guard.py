"""Calls the winner for a device and shape, or the task's own code where no winner may run.

This file is part of every exported kernel, and `evaluators.load_best` runs it as well. It needs
the standard library and torch. Beside it are:

    winners.json   task, kernels with their ids, and the winner of each device and workload
    reference.py   the task's own code; its sha256 is the task's id
    kernels/       a folder per kernel; the kernel's id is a hash of its files

A winner runs only in calls like those that were judged: the same shapes, element types, strides
and plain values, on a device of the judged model, aligned, without autocast, and without a gradient
to compute, because no kernel has a backward. Its first call of each kind is compared with the
reference. Everything else runs the reference. A warning says once that a device or inputs were not
judged, and why a kernel cannot be used.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import inspect
import json
import os
import platform
import re
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor

FORMAT = 1
_CONSTRUCTED = ("ModelNew", "Model")
"""Entry points that are classes, or functions that return a module."""
_PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None), torch.dtype))
_TENSORS = frozenset((Tensor, torch.nn.Parameter))
_is_autocast = torch._C._is_any_autocast_enabled  # pyright: ignore[reportPrivateUsage]
"""For every kind of device; the public function has to be asked for each."""
_has_grad = torch.is_grad_enabled
_FLAGS: tuple[tuple[Callable[[], Any], Callable[[Any], Any]], ...] = (
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_num_threads, torch.set_num_threads),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    *(
        (functools.partial(getattr, owner, name), functools.partial(setattr, owner, name))
        for owner, name in (
            (torch.backends.cudnn, "allow_tf32"),
            (torch.backends.cudnn, "benchmark"),
            # Those before set these as well, and cannot be read where a kernel has set these alone.
            (torch.backends, "fp32_precision"),
            (torch.backends.cuda.matmul, "fp32_precision"),
            (getattr(torch.backends.cudnn, "conv", None), "fp32_precision"),
            (getattr(torch.backends.cudnn, "rnn", None), "fp32_precision"),
        )
        if hasattr(owner, name)
    ),
)
"""Reads and sets what kernels set for the whole process, in the order of setting it back."""
_MOST_KEYS = 4096
"""Kinds of calls that a thread remembers."""
_UNALIGNED = 15
_MISSING: Any = object()
_UNUSUAL: tuple[int, Any, Any] = (-1, None, None)
_TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.float64: 1e-6}
_TOLERANCE = 1e-3
"""How far a first answer may be from the reference's, relative to the largest element: the judge
has compared them closely already, and this finds another function, stale weights and other builds.
"""


class Setting:
    """The task at one workload: a module of its own code, and the calls that were judged."""

    def __init__(self, code: str, file: Path, axes: Mapping[str, Any], on_cuda: bool) -> None:
        self._on_cuda = on_cuda
        module = run_text(code, file, f"_flywheel_task_{id(self)}")
        for name, value in axes.items():
            # JSON has no tuples.
            is_tuple = type(getattr(module, name, None)) is tuple
            setattr(module, name, tuple(value) if is_tuple else value)
        # The caller's random numbers stay as they are.
        with torch.random.fork_rng(devices=[]):
            made = getattr(module, "get_init_inputs", list)()
            self.arguments: list[Any] = [] if isinstance(made, dict) else list(made)
            self.named: dict[str, Any] = dict(made) if isinstance(made, dict) else {}
            self.reference: torch.nn.Module = self.build(module.Model)
        self.model: Any = module.Model
        self._get_inputs = module.get_inputs
        self.parameters = dict(self.reference.named_parameters(remove_duplicate=False))
        self.buffers = dict(self.reference.named_buffers(remove_duplicate=False))
        self.state = [*self.parameters, *self.buffers]
        values = [*self.parameters.values(), *self.buffers.values()]
        self.state_form = tuple(_describe_tensor(value) for value in values)

    @functools.cached_property
    def form(self) -> tuple[Any, ...] | None:
        """Element types, shapes and strides of its inputs; None if some are no plain values."""
        with torch.random.fork_rng(devices=[]):
            if self._on_cuda:
                # Such inputs may be large. Where the task's code allows that, they have no data.
                try:
                    with torch.device("meta"):
                        return _describe_all(self._get_inputs())
                except Exception:
                    pass
            return _describe_all(self._get_inputs())

    def has_form(self, form: tuple[Any, ...] | None, state_form: tuple[Any, ...] | None) -> bool:
        """Return whether inputs and state of this form were judged."""
        return form is not None and state_form == self.state_form and form == self.form

    def build(self, entry: Any) -> Any:
        """Construct what the workload's module is constructed with."""
        return entry(*copy.deepcopy(self.arguments), **copy.deepcopy(self.named))

    def find_config(self, module: torch.nn.Module) -> list[tuple[dict[str, Any], str, Any]] | None:
        """Return where a module has its submodules and plain attributes, their names and values.

        None if it is not set up like the task's module, apart from the values of its state.
        """
        config: list[tuple[dict[str, Any], str, Any]] = []
        for path, part in self.reference.named_modules(remove_duplicate=False):
            own = _find_part(module, path)
            if own is None or (path and type(own) is not type(part)):
                return None
            for name, value in vars(part).items():
                if name == "training" or name.startswith("_"):
                    continue
                given = vars(own).get(name, _MISSING)
                if isinstance(given, Tensor) or not (given is value or _is_same(given, value)):
                    return None
                config.append((vars(own), name, given))
            children: dict[str, Any] = vars(own)["_modules"]
            config += [(children, name, child) for name, child in children.items()]
        return config

    def find_state(self, module: torch.nn.Module) -> list[tuple[dict[str, Any], str]]:
        """Return the dict and key of each parameter and buffer; KeyError if one is missing."""
        slots: list[tuple[dict[str, Any], str]] = []
        for name in self.state:
            path, _, leaf = name.rpartition(".")
            part = _find_part(module, path)
            if part is None:
                raise KeyError(name)
            parameters: dict[str, Any] = vars(part)["_parameters"]
            owner: dict[str, Any] = parameters if leaf in parameters else vars(part)["_buffers"]
            if owner[leaf] is None:
                raise KeyError(name)
            slots.append((owner, leaf))
        return slots


class Bound:
    """What a call reads of one module of the caller's."""

    def __init__(
        self,
        weak: weakref.ref[torch.nn.Module],
        module: torch.nn.Module,
        settings: Mapping[int, Setting],
    ) -> None:
        self.module = weak
        self.slots: list[tuple[dict[str, Any], str]] = []
        self.config: list[tuple[dict[str, Any], str, Any]] = []
        matching: list[int] = []
        for number, setting in settings.items():
            config = setting.find_config(module)
            if config is not None:
                with contextlib.suppress(KeyError):
                    self.slots = setting.find_state(module)
                    self.config = config
                    matching.append(number)
        self.settings = tuple(matching)
        """Numbers of the workloads whose module is set up alike."""

    def holds(self) -> bool:
        """Return whether submodules and attributes are what they were."""
        for owner, name, value in self.config:  # noqa: SIM110 (a generator takes longer)
            if owner.get(name, _MISSING) is not value:
                return False
        return True


class _Tables(threading.local):
    """What a thread remembers."""

    def __init__(self) -> None:
        self.kernels: dict[tuple[Any, ...], Any] = {}
        """By the kind of call: module, where its state is and id of the kernel, or None."""
        self.usual: dict[Any, tuple[int, Callable[..., bool], Any]] = {}
        """By workloads of the module: number of tensors, a check in C++ that others are like them,
        and the kernel, of the kind of call that found one last."""
        self.references: dict[Setting, torch.nn.Module] = {}


class Winner:
    """The winner of one task, to be called like the task's module.

    Inputs come first. The module's parameters follow by name: `winner(x, weight=weight)`. Buffers
    may be given as well; otherwise they are the task's own.
    """

    def __init__(self, folder: Path) -> None:
        self.facts: dict[str, Any] = json.loads((folder / "winners.json").read_text("utf-8"))
        if self.facts.get("format") != FORMAT:
            raise ImportError(f"{folder} has format {self.facts.get('format')!r}, not {FORMAT}")
        self.__name__ = self.__qualname__ = str(self.facts["function"])
        self.__module__ = str(__package__)
        self.__doc__ = f"Call the winner of {self.__name__}, or the task's own code."
        self._folder = folder
        code = _read_text(folder / "reference.py")
        if hashlib.sha256(code.encode()).hexdigest() != self.facts["task_id"]:
            raise ImportError(f"{folder / 'reference.py'} is not the code of task {self.__name__}")
        # Workloads that were judged on devices of a kind that is not here are not made.
        kinds = {"cpu"} | ({"cuda"} if torch.cuda.is_available() else set[str]())
        rows = [row for row in self.facts["winners"] if row["kind"] in kinds]
        self._winners: list[dict[str, Any]] = rows
        self._settings = {
            number: Setting(code, folder / "reference.py", one["axes"], on_cuda)
            for number, one in enumerate(self.facts["workloads"])
            for on_cuda in (any(r["workload"] == number and r["kind"] == "cuda" for r in rows),)
            if number in {row["workload"] for row in rows} or not (rows or number)
        }
        first = next(iter(self._settings.values()))
        self._signature = inspect.signature(first.model.forward)
        self._state = tuple(first.state)
        self._first = first
        self._depends_on_shape = any(
            one.find_config(first.reference) is None for one in self._settings.values()
        )
        self._lock = threading.RLock()
        self._tables = _Tables()
        self._said: set[str] = set()
        self._refused: set[str] = set()
        self._bound: dict[int, Bound] = {}
        """By the id of the module."""

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Return the task's answer to inputs, with its parameters by name."""
        if (*named,) == self._state:
            return self._call(None, inputs, (*named.values(),))
        return self._call(None, *self._arrange(inputs, named))

    def __reduce__(self) -> str:
        """Be copied and pickled by name, as a function is."""
        return self.__qualname__

    def make_layer(self, name: str) -> type[torch.nn.Module]:
        """Return a stateless layer, whose `forward` reads parameters of the module it is put in."""
        winner = self

        def forward(self: torch.nn.Module, *inputs: Any, **named: Any) -> Any:
            return winner._call_layer(self, inputs, named)

        forward.__signature__ = self._signature  # pyright: ignore[reportFunctionMemberAccess]
        members = {"forward": forward, "has_backward": False, "can_torch_compile": False}
        return type(name, (torch.nn.Module,), members)

    def _call_layer(
        self, module: torch.nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        bound = self._bound.get(id(module))
        if bound is None or bound.module() is not module or not bound.holds():
            forget = functools.partial(self._bound.pop, id(module), None)
            bound = Bound(weakref.ref(module, lambda _: forget()), module, self._settings)
            self._bound[id(module)] = bound
        if named:
            given = self._signature.bind(module, *inputs, **named)
            inputs, named = given.args[1:], given.kwargs
        if named or not bound.settings:
            self._say("setup", "the module is not set up like the task's")
            return self._get_model(bound).forward(module, *inputs, **named)
        return self._call(bound, inputs, tuple([owner[key] for owner, key in bound.slots]))

    def _call(self, bound: Bound | None, inputs: tuple[Any, ...], state: tuple[Any, ...]) -> Any:
        # This runs on every call, and is written for speed.
        if _is_autocast():
            return self._fall_back(bound, inputs, state)
        tables, values, has_grad = self._tables, inputs + state, _has_grad()
        settings = bound and bound.settings
        count, check, kernel = tables.usual.get(settings, _UNUSUAL)
        if count == len(values) and not has_grad and check(*values):
            for value in values:
                if value.data_ptr() & _UNALIGNED:
                    return self._fall_back(bound, inputs, state)
        else:
            key = _make_key(settings, values, has_grad)
            if key is None:
                return self._fall_back(bound, inputs, state)
            kernel = tables.kernels.get(key, _MISSING)
            if kernel is _MISSING:
                return self._choose(key, bound, inputs, state)
            if kernel is None:
                return self._fall_back(bound, inputs, state)
        module, slots, kernel_id = kernel
        for (owner, name), value in zip(slots, state):  # noqa: B905 (strict takes longer)
            owner[name] = value
        try:
            return module(*inputs)
        except Exception as error:
            self._refuse(kernel_id, error)
            tables.kernels.clear()
            tables.usual.clear()
            return self._fall_back(bound, inputs, state)

    def _fall_back(
        self, bound: Bound | None, inputs: tuple[Any, ...], state: tuple[Any, ...]
    ) -> Any:
        if bound is None:
            return self._call_reference(inputs, state)
        return self._get_model(bound).forward(bound.module(), *inputs)

    def _get_model(self, bound: Bound) -> Any:
        return (self._settings[bound.settings[0]] if bound.settings else self._first).model

    def _choose(
        self,
        key: tuple[Any, ...],
        bound: Bound | None,
        inputs: tuple[Any, ...],
        state: tuple[Any, ...],
    ) -> Any:
        """Find the kernel for a kind of call, and remember it, or that there is none."""
        table = self._tables.kernels
        if len(table) >= _MOST_KEYS:
            table.clear()
        tensors = [value for value in (*inputs, *state) if isinstance(value, Tensor)]
        if tensors and tensors[0].is_cuda and torch.cuda.is_current_stream_capturing():
            return self._fall_back(bound, inputs, state)  # a first call builds, compares and waits
        found = self._find(bound and bound.settings, inputs, state, tensors)
        if found is None:
            table[key] = None
            return self._fall_back(bound, inputs, state)
        winner, setting = found
        kernel_id = str(winner["kernel_id"])
        device = tensors[0].device
        # Either may overwrite what it is given, and the caller's must change once.
        values = [*inputs, *state]
        copies = [one.detach().clone() if isinstance(one, Tensor) else one for one in values]
        answer = self._fall_back(bound, inputs, state)
        try:
            with (
                self._lock,
                self._use_build_folder(kernel_id),
                torch.cuda.device_of(tensors[0]),
                torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
                _keep_flags(),
            ):
                module, slots = self._load(kernel_id, setting, device)
                for (owner, name), value in zip(slots, copies[len(inputs) :], strict=bool(slots)):
                    owner[name] = value
                given = module(*copies[: len(inputs)])
                # Such a tensor may be made of weights, and would not follow the caller's.
                if slots and _holds_tensors(module):
                    raise ValueError("it keeps tensors beside its parameters")
                if not _agree(given, answer):
                    raise ValueError("its first answer differs from the task's own")
                if not _agree(copies, values):
                    raise ValueError(
                        "it leaves other inputs or parameters than the task's own code"
                    )
        except (Exception, SystemExit) as error:
            self._refuse(kernel_id, error)
            table[key] = None
            return answer
        if device.type == "cuda" and torch.cuda.device_count() > 1:
            module = _bind_device(module, device)
        table[key] = kernel = (module, slots, kernel_id)
        if len(tensors) == len(inputs) + len(state) and _has_checks():
            usual = (len(tensors), _make_check(tensors), kernel)
            self._tables.usual[bound and bound.settings] = usual
        return answer

    def _find(
        self,
        settings: tuple[int, ...] | None,
        inputs: tuple[Any, ...],
        state: tuple[Any, ...],
        tensors: list[Tensor],
    ) -> tuple[dict[str, Any], Setting] | None:
        """Return the row of the winner for a call, and its workload; None where none may run."""
        if not tensors or any(
            one.device != tensors[0].device or one.data_ptr() & _UNALIGNED for one in tensors
        ):
            return None
        model = _read_model(tensors[0].device)
        rows = [row for row in self._winners if model in row["models"]]
        if not rows:
            self._say(model, f"no kernel has won on {model}")
        form = (_describe_all(inputs), _describe_all(state))
        fitting = [
            row
            for row in rows
            if settings is None or row["workload"] in settings
            if self._settings[row["workload"]].has_form(*form)
        ]
        if not fitting:
            if rows:
                self._say("form", f"no call like this one was judged on {model}, by its inputs")
            return None
        row = max(fitting, key=lambda one: one["speedup_low"])
        if row["kernel_id"] in self._refused:
            return None
        return row, self._settings[row["workload"]]

    def _load(
        self, kernel_id: str, setting: Setting, device: torch.device
    ) -> tuple[Any, list[tuple[dict[str, Any], str]]]:
        """Import a kernel whose text has its id, and construct it for a workload and a device."""
        facts = self.facts["kernels"][kernel_id]
        path, entry = facts["path"], facts["entry_point"]
        folder = self._folder / "kernels" / kernel_id
        files = {one: _read_text(folder / one) for one in (path, *facts["other_paths"])}
        # As `store.ids.kernel_id` computes it.
        parts = json.dumps([sorted(files.items()), path, entry, []])
        if hashlib.sha256(parts.encode()).hexdigest() != kernel_id:
            raise ValueError("its code is not the code that was judged")
        name = f"_flywheel_kernel_{kernel_id}"
        made = sys.modules.get(name) or run_text(files[path], folder / path, name)
        found = getattr(made, entry)
        is_class = isinstance(found, type) or entry in _CONSTRUCTED
        module = setting.build(found) if is_class else found
        if not isinstance(module, torch.nn.Module):
            if setting.state:
                raise ValueError("it does not take the task's parameters")
            return module, []
        module = module.to(device)
        own = [
            *dict(module.named_parameters(remove_duplicate=False)),
            *dict(module.named_buffers(remove_duplicate=False)),
        ]
        if sorted(own) != sorted(setting.state):
            raise ValueError("its parameters are not those of the task")
        return module, setting.find_state(module)

    def _arrange(
        self, inputs: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """Return the inputs in order, and the state in the order of its names."""
        given = {name: named.pop(name) for name in self._state if name in named}
        if named:
            inputs = self._signature.bind(None, *inputs, **named).args[1:]
        missing = [name for name in self._first.parameters if name not in given]
        if missing:
            names = ", ".join(f"{name}=…" for name in missing)
            raise TypeError(f"{self.__name__}() needs the task's parameters by name: {names}")
        if len(given) < len(self._state):
            setting = self._match_inputs(inputs)
            device = next((one.device for one in inputs if isinstance(one, Tensor)), None)
            for name, value in setting.buffers.items():
                if name not in given:
                    given[name] = value = value.to(device)
                    setting.buffers[name] = value
        return inputs, tuple(given[name] for name in self._state)

    def _match_inputs(self, inputs: tuple[Any, ...]) -> Setting:
        form = _describe_all(inputs)
        # Forms take time to find, and decide nothing where all workloads are set up alike.
        several = self._settings.values() if self._depends_on_shape or self._first.buffers else ()
        return next((one for one in several if one.form == form), self._first)

    def _call_reference(self, inputs: tuple[Any, ...], state: tuple[Any, ...]) -> Any:
        setting = self._match_inputs(inputs)
        if self._depends_on_shape and setting.form != _describe_all(inputs):
            raise ValueError(
                f"{self.__name__}: the task's module is set up differently at each of its "
                "workloads, and these inputs are of none. Call the layer or the task's own module."
            )
        # A module for every thread, since it has the state of the call.
        references = self._tables.references
        if setting not in references:
            with torch.random.fork_rng(devices=[]):
                references[setting] = setting.build(setting.model)
        reference = references[setting]
        for (owner, name), value in zip(setting.find_state(reference), state, strict=True):
            owner[name] = value
        return reference(*inputs)

    @contextlib.contextmanager
    def _use_build_folder(self, kernel_id: str) -> Generator[None]:
        """Give what a kernel compiles a folder of its own, which later processes find again."""
        name = "TORCH_EXTENSIONS_DIR"
        before = os.environ.get(name)
        root = Path(before) if before else Path.home() / ".cache" / "torch_extensions"
        python = f"py{sys.version_info[0]}{sys.version_info[1]}"
        os.environ[name] = str(root / f"flywheel-{kernel_id[:16]}-{torch.__version__}-{python}")
        try:
            yield
        finally:
            if before is None:
                del os.environ[name]
            else:
                os.environ[name] = before

    def _refuse(self, kernel_id: str, error: BaseException) -> None:
        self._refused.add(kernel_id)
        text = " ".join(f"{type(error).__name__}: {error}".split())
        self._say(kernel_id, f"kernel {kernel_id[:12]} is not used: {text:.300}")

    def _say(self, topic: str, text: str) -> None:
        if topic not in self._said:
            self._said.add(topic)
            message = f"{self.__name__}: {text}; the task's own code runs instead"
            # The warning points to the first caller outside of this file.
            level, frame = 2, sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
            while frame.f_back is not None and frame.f_code.co_filename == __file__:
                level, frame = level + 1, frame.f_back
            warnings.warn(message, RuntimeWarning, stacklevel=level)


def _make_key(
    settings: tuple[int, ...] | None, values: tuple[Any, ...], has_grad: bool
) -> tuple[Any, ...] | None:
    """Return what tells kinds of calls apart; None for a call that no kernel may have."""
    key: list[Any] = [settings]
    addresses = 0
    for value in values:
        if type(value) in _TENSORS:
            # The memory of a negated or conjugated view has other values than the view.
            if (has_grad and value.requires_grad) or value.is_neg() or value.is_conj():
                return None
            try:
                key += (
                    value.dtype,
                    value.device,
                    value.shape,
                    value.is_contiguous() or value.stride(),
                )
                addresses |= value.data_ptr()
            except RuntimeError:  # no strides, or no memory
                return None
        elif type(value) in _PLAIN:
            key += (type(value), value)
        else:
            return None
    return None if addresses & _UNALIGNED else tuple(key)


def _make_check(tensors: Sequence[Tensor]) -> Callable[..., bool]:
    """Return a check that tensors have the types, shapes, strides and device of these."""
    from torch._C._dynamo.guards import TensorGuards

    # torch declares these lists without their tensors.
    sizes: Any = [list(one.shape) for one in tensors]
    strides: Any = [list(one.stride()) for one in tensors]
    checks = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)
    return checks.check


@functools.cache
def _has_checks() -> bool:
    """Return whether this torch has such checks, which are not public, and as they are used here.

    Without them, a call takes longer.
    """
    one, pair = torch.zeros(2, 2), torch.zeros(2, 2, dtype=torch.complex64)
    others = (one[:1], one[0], one.t(), one.int(), one.to("meta"), torch.nn.Parameter(one), 1)
    try:
        check, of_pair = _make_check([one]), _make_check([pair.imag])
        # The imaginary part of a conjugated view is a negated view of the same form.
        return check(one.clone()) and not any(map(check, others)) and not of_pair(pair.conj().imag)
    except Exception:
        return False


def _bind_device(module: Any, device: torch.device) -> Callable[..., Any]:
    """Return a function that calls a module with its GPU as the current one."""

    def call(*inputs: Any) -> Any:
        with torch.cuda.device(device):
            return module(*inputs)

    return call


def run_text(code: str, file: Path, name: str) -> ModuleType:
    """Run the text of a file as a module.

    The text is what was compared with its hash. An import of the file could take other code from
    __pycache__.
    """
    module = ModuleType(name)
    module.__file__ = str(file)
    sys.modules[name] = module
    try:
        exec(compile(code, str(file), "exec"), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _read_text(file: Path) -> str:
    return file.read_bytes().decode()


def _find_part(module: torch.nn.Module, path: str) -> torch.nn.Module | None:
    part: torch.nn.Module | None = module
    for name in path.split(".") if path else ():
        part = None if part is None else vars(part)["_modules"].get(name)
    return part


def _holds_tensors(module: torch.nn.Module) -> bool:
    """Return whether a module has tensors in attributes that are neither parameters nor buffers."""
    values = [
        value
        for part in module.modules()
        for name, value in vars(part).items()
        if name not in ("_parameters", "_buffers", "_modules")
    ]
    seen: set[int] = set()
    for value in values:
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, list | tuple | set):
            values.extend(value)
        elif isinstance(value, dict):
            values.extend(value.values())
        elif isinstance(value, Tensor):
            return True
    return False


def _describe_tensor(value: Tensor) -> tuple[Any, ...]:
    return (tuple(value.shape), value.dtype, value.stride())


def _describe_all(values: Any) -> tuple[Any, ...] | None:
    """Return what judged inputs and others must have in common; None for what is not compared."""
    if not isinstance(values, list | tuple):
        return None
    form: list[tuple[Any, ...]] = []
    for value in cast("Sequence[Any]", values):
        if isinstance(value, Tensor):
            form.append(_describe_tensor(value))
        elif type(value) in _PLAIN:
            form.append((type(value), value))
        else:
            return None
    return tuple(form)


def _is_same(given: Any, value: Any) -> bool:
    try:
        return type(given) is type(value) and bool(given == value)
    except Exception:
        return False


def _read_model(device: torch.device) -> str:
    """Return the name of a device as the judge reads it."""
    if device.type != "cpu":
        return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    with contextlib.suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


@contextlib.contextmanager
def _keep_flags() -> Generator[None]:
    """Undo what a kernel sets for the whole process while it is imported, built and compared."""
    kept: list[tuple[Callable[[], Any], Callable[[Any], Any], Any]] = []
    for read, write in _FLAGS:
        with contextlib.suppress(RuntimeError):  # the caller has set it by another interface
            kept.append((read, write, read()))
    try:
        yield
    finally:
        for read, write, value in kept:
            is_kept = False
            with contextlib.suppress(RuntimeError):  # the kernel has set it by another interface
                is_kept = read() == value
            if not is_kept:
                write(value)


def _agree(given: Any, answer: Any) -> bool:
    """Return whether two answers have the same form, and values of the same computation."""
    if isinstance(answer, Tensor):
        if not isinstance(given, Tensor) or given.shape != answer.shape:
            return False
        if given.dtype != answer.dtype or given.device != answer.device:
            return False
        if not answer.is_floating_point():
            return torch.equal(given, answer)
        finite = answer[answer.isfinite()].abs().double()
        tolerance = _TOLERANCES.get(answer.dtype, _TOLERANCE)
        scale = float(finite.max()) if finite.numel() else 1.0
        return torch.allclose(
            given.double(), answer.double(), rtol=tolerance, atol=tolerance * scale, equal_nan=True
        )
    if isinstance(answer, list | tuple):
        return (
            isinstance(given, list | tuple)
            and len(given) == len(answer)
            and all(map(_agree, given, answer))
        )
    return type(given) is type(answer) and bool(given == answer)
