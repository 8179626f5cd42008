"""Workers in this process whose messages are changed before the judge reads them.

They run the loops of real workers in threads, so that every message starts from a genuine one.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st

from evaluators.judging.comparison import compare
from evaluators.processes import messages, schema
from evaluators.references import module as task_loop
from evaluators.references.task import Expected, Reference, ReferenceFailed
from evaluators.sandbox.failures import Failed
from evaluators.sandbox.launcher import Limits, WorkerProcess
from evaluators.worker import loop as candidate_loop
from evaluators.worker.handle import Deadlines, Sizes, WorkerHandle, start_worker
from evaluators.worker.loop import describe_error, make_boxes
from store.errors import SandboxFailed

Forge = Callable[[str, dict[str, Any]], bytes]
"""Takes a request and its genuine reply, and returns the packet to send."""

WORDS = (
    *("tensor", "list", "tuple", "dict", "value", "output", "odd", "boxed", "pieces", "devices"),
    *("named_tuple", "dataclass", "keywords", "complex", "numpy", "dtype", "device", "value"),
    *("error", "spec", "needs", "place", "number", "cpu", "cuda", "meta", "float32", "int64"),
    *("bool", "complex128", "float8_e4m3fn", "object", "weight", "", "\0", "\ud800", "a" * 5000),
)
NUMBERS = (
    *(0, 1, -1, 2, 255, 256, 512, 4096, 1 << 20, 1 << 31, 1 << 39, 1 << 40, 1 << 62, (1 << 63) - 1),
    *(1 << 63, 1 << 64, 10**400, 0.5, float("nan"), float("inf"), -float("inf"), 1e308),
)
DEEP: Any = 1
for _ in range(40):
    DEEP = {"list": [DEEP]}

leaves = st.one_of(
    st.none(), st.booleans(), st.sampled_from(NUMBERS), st.sampled_from(WORDS), st.just(DEEP)
)
numbers = st.lists(st.sampled_from(NUMBERS), max_size=4)
tensors = st.one_of(
    st.tuples(st.sampled_from(WORDS), numbers, numbers, st.sampled_from(NUMBERS)),
    st.tuples(st.sampled_from(("float32", "uint8")), numbers, st.sampled_from(NUMBERS)),
).map(lambda entry: {"tensor": list(entry)})
values = st.recursive(
    leaves | tensors,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(WORDS), inner, max_size=3)
        | st.tuples(
            st.sampled_from(("list", "tuple", "dict", "named_tuple", "dataclass")),
            st.lists(inner, max_size=3),
        ).map(lambda pair: dict([pair]))
    ),
    max_leaves=6,
)
"""Any JSON, and values that look like those of the protocol."""


def list_places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a message with each of its keys."""
    keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in list(keys):
        yield node, key
        yield from list_places(node[key])


@st.composite
def changes(draw: st.DrawFn) -> Callable[[dict[str, Any]], Any]:
    """Return a function that changes some nodes of a message."""
    steps = draw(
        st.lists(
            st.tuples(
                st.integers(0, 10**6),
                st.sampled_from(("replace", "replace", "delete", "double", "add", "wrap")),
                values,
            ),
            min_size=1,
            max_size=3,
        )
    )

    def change(message: dict[str, Any]) -> Any:
        changed = {"reply": copy.deepcopy(message)}
        for position, action, drawn in steps:
            value = copy.deepcopy(drawn)
            places = list(list_places(changed))
            holder, key = places[position % len(places)]
            if action == "replace":
                holder[key] = value
            elif action == "wrap":
                holder[key] = {"list": [holder[key]]}
            elif action == "add" and isinstance(holder, dict):
                holder[value if isinstance(value, str) else "more"] = value
            elif action == "delete" and holder is not changed:
                del holder[key]
            elif isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
        return changed["reply"]

    return change


@st.composite
def packets(draw: st.DrawFn) -> Forge:
    """Return what turns a genuine reply into the packet of a hostile worker."""
    kind = draw(st.sampled_from(("change",) * 8 + ("any", "bytes", "cut", "twice", "long")))
    change, value, noise = draw(changes()), draw(values), draw(st.binary(max_size=40))

    def forge(_: str, reply: dict[str, Any]) -> bytes:
        packet = json.dumps(reply).encode()
        if kind == "change":
            changed = change({name: part for name, part in reply.items() if name != "number"})
            if isinstance(changed, dict):  # otherwise, the number alone is refused
                changed = {"number": reply["number"], **changed}
            packet = json.dumps(changed).encode()
        elif kind == "any":
            packet = json.dumps({"number": reply["number"], "output": value}).encode()
        elif kind == "bytes":
            packet = noise
        elif kind == "cut":
            packet = packet[: len(noise) * len(packet) // 40]
        elif kind == "twice":
            packet = packet[:-1] + b", " + packet[1:]
        elif kind == "long":
            packet = b'{"number": ' + b"[" * 100_000
        return packet[: messages.PACKET_LIMIT_BYTES]

    return forge


class NoFreezer:
    """Freezes nothing: the process is the judge's own."""

    def freeze(self) -> None:
        pass

    def thaw(self) -> None:
        pass

    def cpu_ns(self) -> int:
        return 0

    def processes(self) -> set[int]:
        return {os.getpid()}

    def close(self) -> None:
        pass


class ForgingServer:
    """A fork server that starts workers in threads of this process."""

    is_alive = True

    def __init__(self) -> None:
        self.forge: Forge | None = None
        """Changes the reply to each request of `target` from now on."""
        self.target: str | None = None
        self._controls: list[tuple[socket.socket, socket.socket]] = []

    def start(
        self,
        files: Mapping[str, str],
        *,
        setting: Mapping[str, Any],
        limits: Any,
        inbox: int,
        outbox: int,
        build: Any = None,
        loop: schema.Loop = "candidate",
    ) -> WorkerProcess:
        """Start a worker with some files."""
        del limits, build
        directory = Path(tempfile.mkdtemp(prefix="forged-"))
        for name, text in files.items():
            (directory / name).write_text(text, "utf-8", errors="surrogateescape")
        log = os.open(directory.with_suffix(".log"), os.O_RDWR | os.O_CREAT, 0o600)
        ours, theirs = messages.make_pair()
        control, their_control = messages.make_pair()
        self._controls.append((control, their_control))
        boxes = os.dup(inbox), os.dup(outbox)
        answer = self._make_worker(setting, *boxes, directory, loop)

        def serve() -> None:
            self._serve(theirs, their_control, answer)
            for box in boxes:
                os.close(box)

        threading.Thread(target=serve, daemon=True).start()
        return WorkerProcess(self, ours, control, os.getpid(), directory, log, NoFreezer(), loop)

    def send(self, message: Mapping[str, Any], fds: list[int] | None = None) -> None:
        """Tell that the worker has ended."""
        self._controls[-1][1].send(b"end")

    def receive(self, event: schema.Event, limit_s: float) -> dict[str, Any]:
        """Return how the worker has ended."""
        for end in self._controls.pop():
            end.close()
        return {
            "ended": {"code": -9, "peak_memory_bytes": None, "strays": 0, "excess": None},
        }

    def _make_worker(
        self,
        setting: Mapping[str, Any],
        inbox: int,
        outbox: int,
        directory: Path,
        loop: schema.Loop,
    ) -> Callable[[str, dict[str, Any]], dict[str, Any]]:
        """Return what answers a request as a worker's loop does."""
        worker: Any = None
        if loop == "task":
            files: dict[Any, int] = {"inbox": inbox, "outbox": outbox}
            worker = task_loop.TaskLoop(task_loop.Setting(**setting), files)

        def answer(do: str, fields: dict[str, Any]) -> dict[str, Any]:
            nonlocal worker
            if do == "prepare":
                sizes = (fields["inbox_bytes"], fields["outbox_bytes"])
                boxes, handles = make_boxes("cpu", (inbox, outbox), sizes)
                worker = candidate_loop.CandidateLoop(candidate_loop.Setting(**setting), *boxes)
                return {"handles": handles}
            if do == "load":
                fields["path"] = str(directory / fields["path"])
            try:
                if loop == "task":
                    return worker.perform(do, fields)
                return getattr(worker, do)(**fields)
            except Exception as error:
                if loop == "task":
                    return {"error": f"{type(error).__name__}: {error}", "lost": False}
                return {"error": describe_error(error)}

        return answer

    def _serve(
        self,
        channel: socket.socket,
        control: socket.socket,
        answer: Callable[[str, dict[str, Any]], dict[str, Any]],
    ) -> None:
        with channel, torch.no_grad():
            while True:
                try:
                    request = messages.receive(channel)
                except messages.Closed:
                    return
                number, do = request.pop("number"), request.pop("do")
                reply = {"number": number, **answer(do, request)}
                packet = json.dumps(reply).encode()
                if self.forge is not None and do == self.target:
                    packet = self.forge(do, reply)
                with contextlib.suppress(OSError):  # the judge has ended it
                    if not packet:
                        control.send(b"end")  # the judge waits for it
                    channel.send(packet)


MODULE = """
import torch


class {name}(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(size, size))
        self.register_buffer("seen", torch.zeros(3, dtype=torch.int64))

    def forward(self, x, scale):
        y = x @ self.weight * scale
        mean = float(y.detach().mean())
        return {{"y": y, "best": y.max(1), "name": "a", "mean": mean, "none": None}}


def get_inputs():
    return [torch.randn(4, 4), 2.0]


def get_init_inputs():
    return [4]
"""
LIMITS = Limits(memory_bytes=None, file_bytes=1 << 20, open_files=64, cpu_s=1000)
DEADLINES = Deadlines(import_s=20, build_s=20, first_call_s=20, call_s=20, total_s=10**6)
REFUSALS = (Failed, ReferenceFailed, SandboxFailed)
"""What may leave the judge's side of a worker."""


class HandleUnderAttack:
    """A candidate's worker and the judge's handle to it; started again once it has ended."""

    def __init__(self) -> None:
        self.server = ForgingServer()
        self._inputs = [torch.randn(4, 4), 2.0]
        self._state = {"weight": torch.randn(4, 4), "seen": torch.zeros(3, dtype=torch.int64)}
        self.start()
        self._calls: dict[str, Callable[[WorkerHandle], Any]] = {
            "load": lambda handle: handle.load("kernel.py", "ModelNew", {}),
            "construct": lambda handle: handle.construct(1, [4]),
            "state": lambda handle: handle.construct(1, [4]),
            "adopt": lambda handle: handle.adopt(self._state),
            "current_state": lambda handle: handle.current_state(self._state),
            "reseed": lambda handle: handle.reseed(1),
            "poison": lambda handle: handle.poison([16]),
            "fill": lambda handle: handle.fill(2, self._inputs, strided=True),
            "inputs": lambda handle: handle.inputs(2),
            "call": self._call,
            "output": self._call_without_reading_memory,
            "time": self._time,
            "clocks": lambda handle: handle.check_clocks(),
            "variant": lambda handle: handle.prepare_variant("eager", 0, compiles=False),
            "empty": lambda handle: handle.prepare_empty(0),
            "profile": lambda handle: handle.profile(0),
        }
        self.requests = ("prepare", *self._calls)

    def close(self) -> None:
        """End the worker."""
        self.handle.end()

    def start(self) -> None:
        """Start a worker with an honest module in it."""
        self.server.target = None
        sizes = Sizes(4096, 4096)
        setting = {"device": "cpu", "threads": 1, "flush_bytes": 64}
        files = {"kernel.py": MODULE.format(name="ModelNew")}
        started = start_worker(
            self.server,
            files,
            setting=setting,
            limits=LIMITS,
            sizes=sizes,
        )
        self.handle = WorkerHandle(started, sizes, deadlines=DEADLINES, trusted=False)
        self.is_prepared = False

    def prepare(self) -> None:
        """Bring the worker to where it can be called."""
        self.handle.prepare()
        self.handle.load("kernel.py", "ModelNew", {})
        self.handle.construct(1, [4])
        for slot in (0, 1):
            self.handle.fill(slot, self._inputs)
        self.handle.fill(2, self._inputs, strided=True)
        self.expected = self.handle.call(0)
        self.is_prepared = True

    def attack(self, request: str, forge: Forge) -> str:
        """Make a request whose reply is forged; return what the judge makes of it."""
        if request == "prepare":
            self.handle.end()
            self.start()
        elif not self.is_prepared:
            self.prepare()
        self.server.forge, self.server.target = forge, request
        try:
            if request == "prepare":
                self.handle.prepare()
            else:
                self._calls[request](self.handle)
        except REFUSALS as refusal:
            return getattr(refusal, "reason", "sandbox_failed")
        finally:
            self.server.target = None
            if request == "prepare" or self.handle._ended is not None:
                self.handle.end()
                self.start()
        return "accepted"

    def _call(self, handle: WorkerHandle) -> None:
        output = handle.call(0)
        exact = [t.double() if t.is_floating_point() else None for t in _tensors(self.expected)]
        compare(Expected(self.expected, exact, self._inputs), output)
        if handle._answers[1]:
            handle.output(0, before=True)

    def _call_without_reading_memory(self, handle: WorkerHandle) -> None:
        reader = handle._outputs
        vars(reader)["can_read_memory"] = False
        try:
            self._call(handle)
        finally:
            del vars(reader)["can_read_memory"]

    def _time(self, handle: WorkerHandle) -> None:
        handle.time([0, 1])
        handle.outputs_overlap()
        handle.output(1)


def _tensors(value: Any) -> list[torch.Tensor]:
    from evaluators.memory.tensors import tensors_of

    return list(tensors_of(value))


TASK_REQUESTS = (
    *("load", "box", "inputs", "input_sets", "value", "answer", "count_bytes", "choices"),
    *("state", "adopt", "reset", "count", "depends_on_tf32", "fetch"),
)


def attack_reference(request: str, forge: Forge) -> str:
    """Ask a task everything with forged replies to a request; return what the judge makes of it."""
    server = ForgingServer()
    server.forge, server.target = forge, request
    try:
        with Reference(
            MODULE.format(name="Model"),
            {},
            "cpu",
            server,
        ) as reference:
            inputs = reference.inputs(1)
            reference.input_sets([1, 2])
            reference.count_bytes()
            reference.depends_on_tf32()
            reference.value(inputs)
            expected = reference.answer(inputs, 2)
            compare(expected, expected.value, choices=lambda: reference.choices(inputs))
            reference.choices(inputs)
            reference.state()
            reference.current_state()
            reference.load(reference.perturb(3))
            reference.reset()
            reference.count([1, 2])
    except REFUSALS as refusal:
        return getattr(refusal, "reason", "sandbox_failed")
    return "accepted"


HOSTILE = """
import random as _random
import sys as _sys

_MESSAGES = _sys.modules["evaluators.processes.messages"]
_SEND = _MESSAGES.send
_DRAW = _random.Random({seed})
_VALUES = [
    None, True, -1, 0, 1 << 31, 1 << 39, 1 << 62, 1 << 64, 10**400, float("nan"), "", "\\ud800",
    "tensor", "a" * 5000, [], {{}}, {{"dict": [5]}}, {{"list": [5]}}, {{"tensor": [1]}},
    {{"tensor": ["float32", [1 << 39, 1 << 39, 0], [1, 1, 1], 4096]}},
    {{"tensor": ["float32", [1 << 31, 1 << 31], [0, 0], 4096]}},
    {{"tensor": ["float32", [1 << 20], [1], 4096]}},
]
for _ in range(40):
    _VALUES[-1] = {{"list": [_VALUES[-1]]}}


def _list_places(node):
    keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in list(keys):
        if key != "number":
            yield node, key
            yield from _list_places(node[key])


def _forge(end, message, fds=()):
    message = _MESSAGES.json.loads(_MESSAGES.json.dumps(dict(message)))
    places = list(_list_places(message))
    if places and _DRAW.random() < 0.2:
        holder, key = _DRAW.choice(places)
        holder[key] = _DRAW.choice(_VALUES)
    _SEND(end, message, fds)


_MESSAGES.send = _forge
"""
"""Text before a candidate's: it changes the messages of its worker at random."""
