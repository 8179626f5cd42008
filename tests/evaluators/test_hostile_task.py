"""A hostile task: whatever its text does, kernels of other tasks get the verdicts they deserve."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from evaluators.judge import Config
from evaluators.judging.case import Case
from evaluators.processes.process_tree import count_threads_below
from evaluators.references import task
from evaluators.references.task import Reference, ReferenceFailed
from evaluators.sandbox.launcher import ForkServer, Template
from evaluators.scheduling.judges.process import JudgeProcess

TASK = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        return x * self.scale


def get_inputs():
    return [torch.randn(16, 8)]


def get_init_inputs():
    return []
"""
# Runs in the task's worker and rewrites what it answers; `forged` is given request and reply.
FORGE = """
import gc, json, os, socket, sys, time
import evaluators.processes.messages as channel
import evaluators.references.module as worker
genuine, last = channel.send, {{}}
def noted(end):
    last.clear()
    last.update(receive(end))
    return dict(last)
def forged(do, reply, end):
{body}
def send(end, message, fds=()):
    try:
        reply = forged(last.get("do"), dict(message), end)
    except KeyError:
        reply = message
    genuine(end, reply, fds)
receive, channel.receive, channel.send = channel.receive, noted, send
# The request by which this text is loaded has been read already.
last.update(do="load")
"""
QUICK = Config(
    draw_shapes=0,
    import_s=120.0,
    call_s=120.0,
    calls=3,
    robustness=False,
    diagnosis=False,
    timing_s=0.05,
    timing_limit_s=0.5,
    blocks=20,
)


def forge_task(body: str, task: str = TASK) -> str:
    """Return a task whose worker rewrites its answers."""
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    return task + FORGE.format(body=lines)


def use(reference: Reference) -> None:
    """Ask everything that the judge asks."""
    inputs = reference.inputs(1)
    expected = reference.answer(inputs, 2)
    assert len(expected.exact) >= 0
    reference.state()
    reference.current_state()
    reference.load(reference.perturb(3))
    reference.reset()
    reference.count([1, 2])


HUGE = '{"tensor": ["float32", [1 << 33], 0]}'
FORGERIES = {
    "a tensor beyond its memory": f'return {{**reply, "spec": {{"list": [{HUGE}]}}}}',
    "tensors over one another": (
        'if do != "inputs": return reply\n'
        'return {**reply, "spec": {"list": [{"tensor": ["float32", [16, 8], 0]}] * 900000}}'
    ),
    "many tensors over one another": (
        'if do != "inputs": return reply\n'
        'one = {"tensor": ["uint8", [1 << 20], 0]}\n'
        'return {**reply, "spec": {"list": [one] * 3000}}'
    ),
    "sizes that are NaN": (
        'if do != "inputs": return reply\n'
        'return {**reply, "spec": {"list": [{"tensor": ["float32", [float("nan")], 0]}]}}'
    ),
    "sizes below zero": (
        'if do != "inputs": return reply\n'
        'return {**reply, "spec": {"list": [{"tensor": ["float32", [-4], 0]}]}}'
    ),
    "sizes whose product overflows": (
        'if do != "inputs": return reply\n'
        'entry = ["float32", [1 << 39, 1 << 39, 0], 0]\n'
        'return {**reply, "spec": {"list": [{"tensor": entry}]}}'
    ),
    "an element type that is none": (
        'if do != "inputs": return reply\n'
        'return {**reply, "spec": {"list": [{"tensor": ["object", [1], 0]}]}}'
    ),
    "a structure without end": (
        'if do != "inputs": return reply\n'
        'spec = {"value": 1}\n'
        'for _ in range(5000): spec = {"list": [spec]}\n'
        'return {**reply, "spec": spec}'
    ),
    "no structure": 'return {**reply, "spec": "import os"}',
    "another place": 'return {**reply, "place": "cuda"}',
    "no place": 'return {**reply, "place": ["cpu"]}',
    "inputs that are no list": (
        'if do != "inputs": return reply\nreturn {**reply, "spec": {"value": 3}}'
    ),
    "a need of more than there is": 'return {"place": "cpu", "needs": 1 << 50}',
    "a need that grows": (
        'if do not in ("inputs", "fetch"): return reply\n'
        'last["n"] = last.get("n", 0); return {"place": "cpu", "needs": 1 << 22}'
    ),
    "a need that is no number": 'return {"place": "cpu", "needs": float("nan")}',
    "a need that is true": 'return {"place": "cpu", "needs": True}',
    "an answer that is no pair": (
        'if do != "answer": return reply\nreturn {**reply, "spec": {"list": []}}'
    ),
    "an exact answer of another shape": (
        'if do != "answer": return reply\n'
        'value = {"tensor": ["float32", [16, 8], 0]}\n'
        'exact = {"list": [{"tensor": ["float64", [8], 512]}]}\n'
        'return {**reply, "spec": {"list": [value, exact]}}'
    ),
    "no exact answer": (
        'if do != "answer": return reply\n'
        'value = {"tensor": ["float32", [16, 8], 0]}\n'
        'return {**reply, "spec": {"list": [value, {"list": [{"value": None}]}]}}'
    ),
    "draws that are a word": (
        'if do != "answer": return reply\nreturn {**reply, "draws": "yes"}'
    ),
    "changes nothing at all": (
        'if do != "answer": return reply\nreturn {**reply, "changed": None}'
    ),
    "a state without end": (
        'if do != "state": return reply\nreturn {**reply, "total": 1 << 60}'
    ),
    "a state of another length": (
        'if do != "state": return reply\nreturn {**reply, "page": []}'
    ),
    "names that are none": (
        'if do != "state": return reply\nreturn {**reply, "page": [[1, 2, 3]]}'
    ),
    "a count that is NaN": (
        'if do != "count": return reply\nreturn {**reply, "moved_bytes": float("nan")}'
    ),
    "a count below zero": (
        'if do != "count": return reply\nreturn {**reply, "operations": -1}'
    ),
    "a count without end": (
        'if do != "count": return reply\nreturn {**reply, "operations": 10**300}'
    ),
    "another request's number": 'return {**reply, "number": "0" * 16}',
    "two answers": "genuine(end, reply); return reply",
    "no JSON": 'end.send(b"\\x80\\x04K*."); return reply',
    "a packet of nothing": 'end.send(b""); return reply',
    "an answer without end": 'end.send(b"[" * 200000); return reply',
    "an end": 'if do != "inputs": return reply\nos._exit(0)',
    "an end by a signal": 'if do != "inputs": return reply\nos.kill(os.getpid(), 9)',
    "a closed channel": 'if do != "inputs": return reply\nend.close(); time.sleep(60)',
    "silence": 'if do != "inputs": return reply\ntime.sleep(60)',
}  # fmt: skip
ENDS = ("an end", "an end by a signal", "a closed channel", "silence")


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize(
    "name",
    [
        # Every third one each day, and those that end a task in another way than by a message.
        pytest.param(name, marks=[pytest.mark.slow] if number % 3 and name not in ENDS else [])
        for number, name in enumerate(FORGERIES)
    ],
)
def test_a_malformed_answer_fails_its_own_task_alone(
    name: str, fork_server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        if name in ("silence", "a closed channel"):
            # The limit of a call is the default of its argument.
            patch.setattr(task.Reference.ask, "__defaults__", (1.0,))
        with (
            pytest.raises(ReferenceFailed),
            Reference(forge_task(FORGERIES[name]), {}, "cpu", fork_server) as hostile,
        ):
            use(hostile)
    with Reference(TASK, {}, "cpu", fork_server) as honest:
        use(honest)
        assert torch.equal(honest.answer([torch.ones(16, 8)]).value, torch.ones(16, 8))


TEXTS = {
    "leaves Python": "raise SystemExit(0)",
    "ends its process": "import os; os._exit(3)",
    "fails to say why": (
        "class Silent(Exception):\n    def __str__(self): raise ValueError\nraise Silent"
    ),
    "fails at length": "raise ValueError('x' * 10**7)",
    "is no Python": "def (",
    "has arguments of a kind of its own": (
        "get_init_inputs = lambda: [object()]"
    ),
    "ends its channel": "import os\nos.closerange(3, 64)",
    "recurs": "def f(): f()\nf()",
    "takes all memory": "held = bytearray(1 << 45)",
}  # fmt: skip


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_cannot_be_run_fails_its_own_task_alone(
    name: str, fork_server: ForkServer
) -> None:
    with pytest.raises(ReferenceFailed) as caught:
        Reference(TASK + "\n" + TEXTS[name] + "\n", {}, "cpu", fork_server).close()
    assert len(str(caught.value)) < 5000
    with Reference(TASK, {}, "cpu", fork_server) as honest:
        use(honest)


@pytest.mark.slow
def test_a_task_of_too_many_outputs_says_so(fork_server: ForkServer) -> None:
    text = TASK.replace("return x * self.scale", "return [x[0]] * 4000")
    with (
        Reference(text, {}, "cpu", fork_server) as task,
        pytest.raises(ReferenceFailed, match="too many inputs or outputs: a message of"),
    ):
        task.answer(task.inputs(1))


def test_a_task_that_changes_what_it_has_given_changes_no_copy_of_the_judge(
    fork_server: ForkServer,
) -> None:
    # A thread writes over the shared memory as long as the worker runs.
    text = (
        TASK
        + """
import gc, threading
import evaluators.references.module as worker
def scribble():
    while True:
        for one in gc.get_objects():
            if isinstance(one, worker.TaskLoop):
                for box in one._boxes.values():
                    box._memory.fill_(255)
                break
threading.Thread(target=scribble, daemon=True).start()
"""
    )
    with Reference(text, {}, "cpu", fork_server) as hostile:
        [given] = hostile.inputs(1)
        before = given.clone()
        time.sleep(0.2)
        assert torch.equal(given.nan_to_num(), before.nan_to_num())


@pytest.mark.slow
def test_sizes_follow_what_a_task_gives(fork_server: ForkServer) -> None:
    text = TASK.replace("torch.randn(16, 8)", "torch.randn(int(torch.randint(1, 1 << 19, ())), 8)")
    with Reference(text, {}, "cpu", fork_server) as task:
        seen = {tuple(task.inputs(seed)[0].shape) for seed in range(6)}
        assert len(seen) == 6
        large = max(range(6), key=lambda seed: task.inputs(seed)[0].numel())
        inputs = task.inputs(large)
        assert torch.equal(task.answer(inputs).value, inputs[0])
        assert torch.equal(task.inputs(large)[0], inputs[0])


@pytest.mark.slow
def test_state_passes_in_pages(fork_server: ForkServer) -> None:
    made = "self.many = torch.nn.ParameterList(torch.full((3,), float(n)) for n in range(700))"
    text = TASK.replace("self.scale =", made + "\n        self.scale =")
    with Reference(text, {}, "cpu", fork_server) as task:
        state = task.state()
        assert len(state) == 701
        assert float(state["many.699"][0]) == 699.0
        task.load({name: value + 1 for name, value in state.items()})
        assert float(task.current_state()["many.699"][0]) == 700.0
        assert float(task.state()["many.699"][0]) == 699.0
        inputs = task.inputs(1)
        assert torch.equal(task.answer(inputs).value, inputs[0] * 2)
        task.reset()
        assert torch.equal(task.answer(inputs).value, inputs[0])


def test_a_candidate_reaches_no_process_of_a_task(
    template: Template, fork_server: ForkServer
) -> None:
    """A candidate's worker finds the task's worker neither to read nor to signal nor to trace."""
    search = """
import ctypes, json, os
done = []
for pid in {pids}:
    places = [f"/proc/{{pid}}/{{what}}" for what in ("mem", "environ", "maps")]
    places += [f"/proc/{{pid}}/fd/{{fd}}" for fd in range(20)]
    for place in places:
        try:
            with open(place, "rb") as file:
                file.read(1)
                done.append(place)
        except OSError:
            pass
    try:
        os.kill(pid, 0)
        done.append([pid, "signal"])
    except OSError:
        pass
    if ctypes.CDLL(None).ptrace(16, pid, 0, 0) == 0:
        done.append([pid, "ptrace"])
raise ValueError(json.dumps(done))
"""
    if not {"landlock", "signal_scope", "seccomp"} <= set(fork_server.limits):
        pytest.skip("this machine has not the walls")
    with ForkServer(template) as other, Reference(TASK, {}, "cpu", fork_server) as task:
        assert task.pid is not None
        inside = sorted({task.pid, template.pid, *count_threads_below(fork_server.pid)})
        text = TASK + search.format(pids=inside)
        with pytest.raises(ReferenceFailed) as caught:
            Reference(text, {}, "cpu", other).close()
        assert json.loads(str(caught.value).partition("cannot be built: ")[2]) == []
        use(task)


HOSTILE = """
import json, os, socket, sys, threading, time
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []


def write(path):
    with open(path, "w") as file:
        file.write("planted")


def link(path):
    os.symlink({outside!r}, path)


def reach():
    # Whatever of the judge is loaded here, or can be.
    import importlib
    for name in (
        "judging.calls",
        "judging.comparison", "judging.case_result", "judge", "timing.measurement",
        "timing.checks", "timing.candidate_process", "worker.handle",
        "references.task", "references.module", "scheduling.judges.process",
    ):
        try:
            module = importlib.import_module("evaluators." + name)
        except Exception:
            continue
        for key in ("compare", "has_same_bits", "is_same_answer"):
            if hasattr(module, key):
                setattr(module, key, lambda *a, **k: True)
        if hasattr(module, "build_tables"):
            module.build_tables = lambda *a, **k: {{"policies": [{{"policy_id": "forged"}}]}}
    folders = [{cache!r} + part for part in ("", "/builds/live", "/builds/kept")]
    for folder in (*folders, {outside!r}, "/dev/shm"):
        try:
            for name in os.listdir(folder):
                os.rename(folder + "/" + name, folder + "/moved")
                os.symlink({outside!r}, folder + "/" + name)
        except OSError:
            pass
        for make in (write, os.mkdir, link):
            try:
                make(folder + "/planted")
            except OSError:
                pass
    for fd in os.listdir("/proc/self/fd"):
        try:
            with socket.socket(fileno=os.dup(int(fd))) as end:
                end.send(json.dumps({{"tables": {{}}, "sick": "forged"}}).encode() + b"\\n")
        except OSError:
            pass
    if os.fork() == 0:
        os.setsid()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                for name in os.listdir({cache!r} + "/builds/live"):
                    os.rename({cache!r} + "/builds/live/" + name, {outside!r} + "/" + name)
            except OSError:
                time.sleep(0.001)
        os._exit(0)


{when}
"""
VICTIM = TASK.replace("x * self.scale", "torch.nn.functional.gelu(x * self.scale)")
KERNEL = (
    "import torch\nclass ModelNew(torch.nn.Module):\n    def __init__(self):\n"
    "        super().__init__()\n        self.scale = torch.nn.Parameter(torch.ones(8))\n"
    "    def forward(self, x): return {}\n"
)
PLAIN = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return {}\n"
RIGHT, WRONG = (
    KERNEL.format(f"torch.nn.functional.{name}(x * self.scale)") for name in ("gelu", "relu")
)
# When the hostile text strikes: at import, at construction, at each draw, at each call.
WHEN = {
    "import": "reach()",
    "construction": "Model.__init__ = lambda self: (nn.Module.__init__(self), reach())[0]",
    "inputs": "def get_inputs():\n    reach()\n    return [torch.randn(64, 64)]",
    "call": "Model.forward = lambda self, x: (reach(), torch.relu(x))[1]",
}


def case(code: str, task: str, number: int) -> Case:
    """Return a case with identities of its own."""
    return Case(
        kernel_id=f"{number:064x}",
        task_id=f"t{number}",
        workload_id=f"w{number}",
        code=code,
        task_code=task,
    )


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JudgeProcess]:
    """Return a judge with a cache of its own."""
    cache = tmp_path_factory.mktemp("cache")
    before = os.environ.get("FLYWHEEL_CACHE")
    os.environ["FLYWHEEL_CACHE"] = str(cache)
    try:
        with JudgeProcess("judge", "cpu", QUICK) as started:
            yield started
    finally:
        if before is None:
            del os.environ["FLYWHEEL_CACHE"]
        else:
            os.environ["FLYWHEEL_CACHE"] = before


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("when", WHEN)
def test_other_tasks_get_the_verdicts_they_deserve(
    host: JudgeProcess, when: str, tmp_path: Path
) -> None:
    cache = Path(os.environ["FLYWHEEL_CACHE"])
    outside = tmp_path / "outside"
    outside.mkdir()
    text = HOSTILE.format(cache=str(cache), outside=str(outside), when=WHEN[when])
    first = host.judge(case(PLAIN.format("torch.relu(x)"), text, 1))
    # Processes that it has left end with its worker, which the next task replaces.
    right = host.judge(case(RIGHT, VICTIM, 2))
    wrong = host.judge(case(WRONG, VICTIM, 3))
    [found] = right["evaluations"]
    assert found["status"] == "correct", found
    [found] = wrong["evaluations"]
    assert (found["status"], found["reason"]) == ("incorrect", "incorrect_numerical"), found
    for number, tables in enumerate((first, right, wrong), start=1):
        assert set(tables) <= {"evaluations", "timings", "findings", "analyses"}
        ids = {row["kernel_id"] for rows in tables.values() for row in rows}
        assert ids == {f"{number:064x}"}
    assert list(outside.iterdir()) == []
    assert not (cache / "planted").exists()
    assert {entry.name for entry in cache.iterdir()} == {"builds"}
    assert list((cache / "builds" / "kept").iterdir()) == []
    assert all(one.suffix == ".lock" for one in (cache / "builds" / "live").iterdir())
    # Other programs of this machine make and delete files here, too.
    shared = list(Path("/dev/shm").iterdir())
    assert [one for one in shared if one.name in ("planted", "moved") or one.is_symlink()] == []


@pytest.mark.slow
def test_a_task_worker_that_is_lost_is_replaced(host: JudgeProcess, tmp_path: Path) -> None:
    counter = "import os\nN = 0\n"
    text = counter + VICTIM.replace(
        "        return torch.nn",
        "        global N\n        N += 1\n        if N > 2: os._exit(1)\n        return torch.nn",
    )
    statuses = [host.judge(case(RIGHT, text, n))["evaluations"][0] for n in (4, 5)]
    assert [one["reason"] for one in statuses] == ["reference_failed"] * 2, statuses
    assert "worker is gone" in statuses[0]["message"]
    [found] = host.judge(case(RIGHT, VICTIM, 6))["evaluations"]
    assert found["status"] == "correct"
