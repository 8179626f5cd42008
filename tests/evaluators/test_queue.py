"""The job queue: which judge gets which case, lost judge processes, builds ahead."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaluators.device import placement
from evaluators.judge import Config, confirm_win
from evaluators.judging.case import Case
from evaluators.scheduling.judge_threads import judge_cases
from evaluators.scheduling.judges.process import JudgeProcess
from evaluators.scheduling.prebuild import describe_toolchain
from evaluators.worker.build_cache import Builds
from store.errors import DeviceUnavailable, SandboxFailed

ROOT = Path(placement.__file__).parents[2]
TASK = """
FACTOR = 1
def get_init_inputs(): return [FACTOR, "scale"]
"""
# Without torch's headers, which take a minute to compile; honest/cpp_load_inline has them.
EXTENSION = """
import torch
from torch.utils.cpp_extension import load_inline


class ModelNew(torch.nn.Module):
    def __init__(self, factor, name):
        super().__init__()
        source = f'extern "C" int {name}(int x) {{ return x * {factor:d}; }}'
        options = {"is_python_module": False, "no_implicit_headers": True}
        load_inline(name=name, cpp_sources=source, **options)
"""


class Scripted:
    """A judge that does what its script says about each case, after a moment."""

    pause_s = 0.005

    def __init__(
        self, name: str, script: Mapping[str, str] | None = None, device: str | None = None
    ) -> None:
        self.row = {"device_id": device or name, "name": name, "kind": "cuda"}
        self.script = dict(script or {})
        self.seen: list[str] = []
        self.looks: list[str] = []
        self.restarts = 0
        self.last_restart: int | None = None
        """The restart after which the device is gone."""

    def judge(self, case: Case) -> dict[str, list[dict[str, Any]]]:
        is_second = case.sessions == "second"
        (self.looks if is_second else self.seen).append(case.path)
        time.sleep(self.pause_s)
        row: dict[str, Any] = {"path": case.path, "status": "correct"}
        match None if is_second else self.script.get(case.path):
            case "lost once":
                del self.script[case.path]
                raise SandboxFailed("the judge process is gone")
            case "lost":
                raise SandboxFailed("the judge process is gone")
            case "sick":
                raise DeviceUnavailable("it multiplies matrices wrongly")
            case "surprising" if case.sessions == "first":
                row |= {"evaluation_id": "e", "flags": ["unconfirmed_win"]}
            case _:
                pass
        return {"evaluations": [row], "timings": []}

    def restart(self) -> None:
        self.restarts += 1
        if self.restarts == self.last_restart:
            raise DeviceUnavailable("an actor cannot be started")


class Compiling:
    """A builder that notes what it builds and in which thread."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.seen: list[str] = []

    def build(self, case: Case) -> dict[str, Any]:
        self.threads.add(threading.get_ident())
        self.seen.append(case.path)
        return {"seconds": 0.0, "hit": False, "failure": None}


def case(number: int, task: int = 0, *, compiles: bool = False) -> Case:
    """Return a case as the job queue has it."""
    return Case(
        path=f"{number}.py",
        kernel_id=f"{number:064x}",
        task_id=str(task),
        workload_id="w",
        compiles=compiles,
    )


def test_a_kernel_is_compiled_once_for_all_policies() -> None:
    precisions = ("torch_default", "fp32_strict")
    cases = [
        replace(case(n, compiles=True), precision=precision)
        for precision in precisions
        for n in range(4)
    ]
    builder = Compiling()
    results = list(judge_cases([cases], [Scripted("a")], [builder]))
    assert sorted(builder.seen) == [f"{n}.py" for n in range(4)]
    assert sorted((r.case.path, r.case.precision) for r in results) == sorted(
        (each.path, each.precision) for each in cases
    )
    assert all(r.case.build is not None for r in results)


def test_no_case_gets_the_rows_of_an_earlier_one() -> None:
    """A long run frees its finished cases, and Python reuses their addresses."""
    script = {f"{n}.py": "surprising" for n in range(0, 400, 2)}
    judges = [Scripted("a", script), Scripted("b", script)]
    for judge in judges:
        judge.pause_s = 0.0
    batches = ([case(n)] for n in range(400))
    for result in judge_cases(batches, judges, [], lambda tables, _second, _failed: tables):
        assert result.tables is not None
        assert result.tables["evaluations"][0]["path"] == result.case.path
    assert all(set(judge.looks) <= script.keys() for judge in judges)
    assert sum(len(judge.looks) for judge in judges) == len(script)


def test_every_case_is_judged_once_and_tasks_stay_with_their_judge() -> None:
    judges = [Scripted("a"), Scripted("b"), Scripted("c")]
    cases = [case(n, task=n // 20, compiles=n % 3 == 0) for n in range(120)]
    builder = Compiling()
    results = list(judge_cases([cases], judges, [builder]))
    assert sorted(r.case.path for r in results) == sorted(c.path for c in cases)
    assert all((r.case.build is not None) == r.case.compiles for r in results)
    for judge in judges:
        tasks = [int(path.removesuffix(".py")) // 20 for path in judge.seen]
        changes = sum(a != b for a, b in itertools.pairwise(tasks))
        assert changes <= 12, f"{judge.row['name']} went to and fro between tasks: {tasks}"


@pytest.mark.slow
def test_many_judges_may_start_and_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "pause_s", 0.0)
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # so that threads interrupt each other everywhere
    try:
        for _ in range(20):
            judges = [Scripted(str(n)) for n in range(64)]
            cases = [case(n, task=n) for n in range(200)]
            assert len(list(judge_cases([cases], judges, []))) == len(cases)
    finally:
        sys.setswitchinterval(interval_s)


def test_a_lost_process_is_replaced_and_its_case_tried_again() -> None:
    judge = Scripted("a", {"1.py": "lost once", "2.py": "lost"})
    results = {r.case.path: r for r in judge_cases([[case(n) for n in range(4)]], [judge], [])}
    assert len(results) == 4
    assert results["1.py"].tables is not None
    assert (results["2.py"].tables, results["2.py"].fault) == (
        None,
        "the judge process is gone",
    )
    assert judge.restarts == 3


def test_a_sick_device_leaves_its_cases_to_the_others() -> None:
    sick, well = Scripted("sick", {f"{n}.py": "sick" for n in range(9)}), Scripted("well")
    results = list(judge_cases([[case(n, task=n) for n in range(9)]], [sick, well], []))
    assert len(results) == 9
    assert len(sick.seen) == 1
    assert {r.device["name"] for r in results} == {"well"}


def test_a_case_whose_last_try_ends_the_device_still_has_a_result() -> None:
    judge = Scripted("a", {"1.py": "lost"})
    judge.last_restart = 2
    results = {r.case.path: r for r in judge_cases([[case(0), case(1)]], [judge], [])}
    assert results["0.py"].tables is not None
    assert results["1.py"].fault == "the judge process is gone"


def test_a_surprising_win_is_measured_again_by_another_judge() -> None:
    script = {f"{n}.py": "surprising" for n in (0, 3, 7)}
    judges = [Scripted("a", script), Scripted("b", script)]
    results = list(judge_cases([[case(n, task=n) for n in range(12)]], judges, [], confirm_win))
    assert sorted(r.case.path for r in results) == sorted(f"{n}.py" for n in range(12))
    assert sorted(judges[0].looks + judges[1].looks) == sorted(script)
    for judge in judges:
        assert not set(judge.looks) & set(judge.seen)
    by = {r.case.path: r.device["name"] for r in results}
    for judge in judges:  # the verdict is the first one's
        assert all(by[path] == judge.row["name"] for path in judge.seen)
    alone = Scripted("alone", script)
    assert len(list(judge_cases([[case(n) for n in range(9)]], [alone], [], confirm_win))) == 9
    assert alone.looks == []  # it does so itself, in a fresh process


def test_a_win_whose_other_judge_is_gone_is_measured_by_the_first() -> None:
    sick = Scripted("sick", {f"{n}.py": "sick" for n in range(9)})
    well = Scripted("well", {"2.py": "surprising"})
    results = list(
        judge_cases([[case(n, task=n) for n in range(9)]], [sick, well], [], confirm_win)
    )
    assert len(results) == 9
    assert well.looks in ([], ["2.py"])  # none where it was alone already


class Noting(JudgeProcess):
    """A judging process that notes what it is asked for."""

    def __init__(self, cores: list[int], config: Config) -> None:
        self.asked: list[str] = []
        super().__init__("judge", "cpu", config, cores)

    def judge(self, case: Case) -> dict[str, list[dict[str, Any]]]:
        self.asked.append(case.sessions)
        return super().judge(case)


@pytest.mark.slow
@pytest.mark.clock
def test_the_second_session_of_a_win_comes_from_the_other_device() -> None:
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core is one device")
    task = (
        "import torch, time\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        time.sleep(0.02)\n        return x * 2\n"
        "def get_inputs(): return [torch.randn(64, 64)]\ndef get_init_inputs(): return []\n"
    )
    code = (
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x): return x * 2\n"
    )
    config = Config(
        draw_shapes=0, timing_limit_s=20.0, blocks=20, calls=2, robustness=False, diagnosis=False
    )
    one = replace(case(1), code=code, path="kernel.py", task_code=task)
    with Noting(cores[:1], config) as a, Noting(cores[1:], config) as b:
        for _ in range(5):  # a session of a busy machine counts for nothing
            [result] = judge_cases([[one]], [a, b], [], confirm_win)
            assert result.tables is not None
            if len({row["session_id"] for row in result.tables["timings"]}) == 2:
                break
        else:
            pytest.skip("the machine is too busy for any session to count")
    # One of them judged, the other measured again.
    assert sorted([a.asked[-1], b.asked[-1]]) == ["first", "second"]
    assert {"confirmed_win", "unconfirmed_win"} & set(result.tables["evaluations"][0]["flags"])


def test_judges_of_one_gpu_measure_their_own_wins_again() -> None:
    judges = [Scripted(name, {"3.py": "surprising"}, device="gpu") for name in "ab"]
    results = list(judge_cases([[case(n) for n in range(6)]], judges, [], confirm_win))
    assert len(results) == 6
    assert [judge.looks for judge in judges] == [[], []]
    assert [result.tables for result in results if result.case.path == "3.py"] == [
        {"evaluations": [{"path": "3.py", "status": "correct"}], "timings": []}
    ]


def test_without_any_device_left_the_rest_stays_pending() -> None:
    sick = Scripted("sick", {"3.py": "sick"})
    results = []
    with pytest.raises(DeviceUnavailable, match="matrices"):
        results.extend(judge_cases([[case(n) for n in range(6)]], [sick], []))
    assert sick.seen == ["0.py", "1.py", "2.py", "3.py"]


@pytest.mark.parametrize(
    ("cores", "workers", "builders"), [(1, 1, 0), (2, 1, 0), (3, 1, 1), (16, 1, 9), (16, 4, 9)]
)
def test_judges_of_a_gpu_and_builders_share_all_cores_but_those_for_timing(
    monkeypatch: pytest.MonkeyPatch, cores: int, workers: int, builders: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    layout = placement.divide_machine("cuda:0", workers)
    timing = {core for place in layout.places for core in place.timing_cores}
    shared = tuple(sorted(set(range(cores)) - timing))
    assert bool(timing) == bool(builders)
    assert {place.cores for place in layout.places} == {shared}
    assert layout.builders == (shared,) * builders


def test_cores_are_divided_between_workers() -> None:
    cores = sorted(os.sched_getaffinity(0))
    whole = placement.divide_machine("cpu")
    assert [place.cores for place in whole.places] == [tuple(cores)]
    assert whole.builders == ()
    if len(cores) > 1:
        halves = placement.divide_machine("cpu", workers=2).places
        assert not set(halves[0].cores) & set(halves[1].cores)
    for workers in (0, len(cores) + 1):
        with pytest.raises(DeviceUnavailable, match="cores"):
            placement.divide_machine("cpu", workers=workers)
    for name in ("tpu", "cuda:x", "cuda:0,cuda:0", "cpu,cuda:0"):
        with pytest.raises(DeviceUnavailable):
            placement.divide_machine(name)


NAMED = """
from evaluators.device import placement
places = placement.divide_machine("auto").places
print(placement.identify_gpu(0), *(place.device for place in places))
"""


@pytest.mark.slow
def test_a_gpu_has_one_identity_whatever_names_it(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    lines = [
        f"GPU {n}: NVIDIA H100 80GB HBM3 (UUID: GPU-{name})" for n, name in ((0, "5a"), (1, "5c"))
    ]
    tool.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    tool.chmod(0o755)

    def ask(visible: str | None, path: str = f"{tmp_path}:{os.environ['PATH']}") -> list[str]:
        environment = {**os.environ, "PATH": path}
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        environment |= {"CUDA_VISIBLE_DEVICES": visible} if visible is not None else {}
        line = [sys.executable, "-c", NAMED]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert ask(None) == ["GPU-5a", "cuda:0", "cuda:1"]
    assert ask("1, 0") == ["GPU-5c", "cuda:0", "cuda:1"]
    assert ask("GPU-5c") == ["GPU-5c", "cuda:0"]
    assert ask("MIG-7") == ["MIG-7", "cuda:0"]
    assert ask("") == ["GPU-5a", "cpu"]
    assert ask("1", path="/nowhere") == ["1", "cuda:0"]


WHOLE = """
from evaluators.device import placement
print(placement.find_whole_gpu("cuda:0"), placement.find_whole_gpu("cuda:1"))
"""


@pytest.mark.slow
def test_a_part_of_a_gpu_is_not_taken_for_the_whole(tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    gpu = "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5a)"
    part = "  MIG 1g.10gb     Device  0: (UUID: MIG-7)"

    def ask(visible: str, *lines: str) -> str:
        tool.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
        tool.chmod(0o755)
        path = f"{tmp_path}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "CUDA_VISIBLE_DEVICES": visible}
        line = [sys.executable, "-c", WHOLE]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert ask("0", gpu) == "GPU-5a None"
    assert ask("GPU-5a", gpu) == "GPU-5a None"
    for visible in ("0", "MIG-7"):
        assert ask(visible, gpu, part) == "None None"
    assert ask("MIG-7", gpu) == "None None"
    assert ask("", gpu) == "None None"


def test_a_machine_without_a_gpu_is_known_to_be_one() -> None:
    if any(next(Path("/dev").glob(name), None) for name in ("nvidia*", "dxg", "nvhost*")):
        pytest.skip("this machine has a GPU")
    assert {place.device for place in placement.divide_machine("auto").places} == {"cpu"}


@pytest.mark.slow
def test_what_a_builder_compiles_is_found_by_the_next(builder: Any) -> None:
    builds, before = builder.builds, builder.list_kept()
    asked = replace(case(0), task_code=TASK, axes='{"FACTOR": 2}')
    good = replace(asked, code=EXTENSION)
    broken = replace(asked, code=EXTENSION.replace("return x *", "return undeclared *"))
    first = builder.build(good)
    assert (first["hit"], first["failure"]) == (False, None)
    second = builder.build(good)
    assert (second["hit"], second["failure"]) == (True, None)
    failed = builder.build(broken)["failure"]
    assert (failed["status"], failed["reason"]) == ("compile_error", "build_failed")
    assert "undeclared" in failed["message"]
    axes = asked.axes
    assert builder.list_kept() - before == {
        builds.key(one.files, TASK, axes) for one in (good, broken)
    }
    assert builder.list_live() == []
    # A judge finds it in the same place, for the same task alone.
    held = Builds(builds.root, describe_toolchain(None)).claim({"0.py": EXTENSION}, TASK, axes)
    assert held.hit
    held.release()
    for task, others in ((TASK, '{"FACTOR": 3}'), (TASK + "#", axes)):
        held = builds.claim({"0.py": EXTENSION}, task, others)
        assert not held.hit
        held.release()


@pytest.mark.slow
def test_an_extension_that_has_failed_is_not_compiled_again(builder: Any) -> None:
    code = EXTENSION.replace("**options", 'extra_cflags=["-fnowhere"], **options')
    asked = replace(case(0), code=code, task_code=TASK, axes='{"FACTOR": 2}')
    first = builder.build(asked)
    assert (first["failure"]["status"], first["failure"]["reason"]) == (
        "compile_error",
        "build_failed",
    )
    assert "nowhere" in first["failure"]["detail"]
    # What is on record is what the next worker is told: nothing else could know this text.
    key = builder.builds.key({"0.py": code}, TASK, asked.axes)
    [record] = (builder.builds.root / "kept" / key).rglob("failed.json")
    told = json.loads(record.read_text("utf-8"))
    assert "nowhere" in told["message"]
    held = builder.builds.claim({"0.py": code}, TASK, asked.axes)
    assert held.hit
    [record] = held.folder.path.rglob("failed.json")
    record.write_text(json.dumps(told | {"message": "as on record"}), "utf-8")
    failed = builder.compile(held, asked)
    held.release()
    assert failed is not None
    assert "as on record" in failed.message + failed.detail
