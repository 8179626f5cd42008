"""Honest, wrong, cheating, hostile and faulty candidates, each judged as any kernel is.

A candidate is a file of `adversarial/`. The comment at its head says what it does and what has to
come of it:

    task     file of `adversarial/tasks` that it is judged on
    device   cpu or cuda
    class    row of the taxonomy of reward hacks, or none
    expect   statuses, or status/reason, any of which is right
    flags    flags that have to be raised
    may      further flags that are no false alarm
    config   fields of the judge's Config
    needs    what the machine or the sandbox has to have for it to be tried
    files    further files; one that does not lie in the folder of its name has one line
    most     how many times as fast as eager it may look, where a cheat ends as correct
    slow     where it takes more than ten seconds
    hole     why the judge does not get it right yet

What succeeds at something that it must not do prints ESCAPED.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from example_counts import is_thorough

from evaluators.judge import Config, judge
from evaluators.judging.bench import Bench
from evaluators.judging.case import Case
from evaluators.judging.flags import FLAGS
from evaluators.judging.weak_tasks import audit_task
from evaluators.processes.process_tree import find_descendants
from evaluators.timing.surprising_wins import compute_speedups, ranks_nothing
from store.schema import catalog

FOLDER = Path(__file__).parent / "adversarial"
KINDS = ("honest", "flagged", "wrong", "cheating", "hostile", "faulty")
FIELDS = {"task", "device", "class", "expect", "flags", "may", "config", "needs", "files"}
FIELDS |= {"most", "slow", "hole"}
NO_ALARM = {
    "baseline_drift",
    "below_resolution",
    "contended",
    "timed_end_to_end",
    "near_roofline",
    "confirmed_win",
    "unconfirmed_win",
}
NO_ALARM |= {"no_custom_kernel", "not_frozen"}
"""Flags that a machine may raise over any kernel, or that say what a kernel is made of."""
SHOWN = {
    "compile_error": {
        *("build_failed", "import_failed", "init_failed", "no_entry_point", "syntax_error"),
    },
    "crash": {"early_exit", "exception", "out_of_memory"},
    "incorrect": {
        *("incorrect_dtype", "incorrect_numerical", "incorrect_shape", "incorrect_type"),
        *("input_mutated", "nan"),
    },
}
"""Reasons by status that test_verdicts has a candidate of its own for."""
HONEST_RUNS = 3
LIMITS = {
    "draw_shapes": 0,
    "timing_s": 0.05,
    "timing_limit_s": 2.0,
    "import_s": 120.0,
    "first_call_s": 120.0,
    "call_s": 120.0,
}
"""What hangs has shorter limits at its head; a busy machine is no fault of the others."""
UNTIMED = {"timing_limit_s": 0.01, "diagnosis": False}
"""One block: time is not what these are about."""
BRIEF = {"timing_limit_s": 0.6}
"""Some blocks: enough for every check of a session, and for no figure."""
OUTSIDE = ("/tmp", "/var/tmp", "/dev/shm", "/etc", "/usr/local/bin")


@dataclass(frozen=True)
class Candidate:
    """One file with what stands at its head."""

    name: str
    code: str
    head: dict[str, str]

    def words(self, field: str) -> list[str]:
        return self.head.get(field, "").split()

    @property
    def kind(self) -> str:
        return self.name.partition("/")[0]

    @property
    def shows(self) -> set[str]:
        """What `make test` tries at least one candidate of: its kind, its class unless it may end
        as correct, its reason if only one is right and test_verdicts does not show it, and the flag
        of a weak task. Whole sessions take seconds. test_sandbox tries every wall, and tests of
        checks raise the other flags."""
        status, _, reason = self.head["expect"].partition("/")
        classes = set() if "correct" in self.words("expect") else {self.head["class"]}
        reasons = {reason} - SHOWN.get(status, set()) if " " not in self.head["expect"] else set()
        flags = {"weak_task"} & {*self.words("flags")}
        return {self.kind, *classes, *reasons, *flags} - {""}

    @property
    def config(self) -> dict[str, Any]:
        pairs = (word.split("=") for word in self.words("config"))
        return {name: (value,) if name == "precision" else float(value) for name, value in pairs}

    @property
    def other_files(self) -> tuple[tuple[str, str], ...]:
        beside = FOLDER / self.name
        texts = [
            (path, (beside / path).read_text() if beside.is_dir() else "escaped = True\n")
            for path in self.words("files")
        ]
        return tuple(texts)


def read(path: Path) -> Candidate:
    code = path.read_text(encoding="utf-8", errors="surrogateescape")
    lines = [line[2:] for line in code.split("\n\n")[0].splitlines()]
    head = dict(line.split(": ", 1) for line in lines[2:])
    assert set(head) <= FIELDS, (path, head)
    return Candidate(f"{path.parent.name}/{path.stem}", code, head)


CANDIDATES = [read(path) for kind in KINDS for path in sorted((FOLDER / kind).glob("*.py"))]


def every_day() -> set[str]:
    """Names of the candidates that `make test` tries: few that show everything together."""
    quick = [one for one in CANDIDATES if one.head["device"] == "cpu" and "slow" not in one.head]
    left = {what for one in quick for what in one.shows}
    chosen: list[Candidate] = []
    while left:
        # Of those that show as much, one on a task that others are judged on: its workers and
        # baselines are there. Of these, the shortest.
        tasks = {one.head["task"] for one in chosen}
        best = max(
            quick,
            key=lambda one: (len(one.shows & left), one.head["task"] in tasks, -len(one.code)),
        )
        chosen.append(best)
        left -= best.shows
    for one in list(chosen):  # those that were chosen later may show all that an earlier one does
        if one.shows <= {what for other in chosen if other is not one for what in other.shows}:
            chosen.remove(one)
    return {one.name for one in chosen}


def parameters() -> Iterator[Any]:
    """Every candidate, honest ones several times; those of a task together, for its baselines."""
    today = every_day()
    for one in sorted(CANDIDATES, key=lambda one: (one.head["device"], one.head["task"])):
        marks: list[pytest.MarkDecorator] = []
        if one.head["device"] == "cuda":
            marks.append(pytest.mark.gpu)
        elif one.name not in today:
            marks.append(pytest.mark.slow)
        if "hole" in one.head:
            marks.append(pytest.mark.xfail(strict=True, reason=one.head["hole"]))
        again = one.kind in ("honest", "flagged") and "slow" not in one.head
        for run in range(HONEST_RUNS if again else 1):
            # Once is enough for every day; three times take minutes.
            repeated = [pytest.mark.slow] if run else []
            yield pytest.param(
                one,
                run,
                marks=[*marks, *repeated],
                id=f"{one.name}-{run + 1}" if again else one.name,
            )


@pytest.fixture(scope="module")
def bench_of(request: pytest.FixtureRequest) -> Callable[[str], Bench]:
    """Return a function from a device to its bench."""

    def of(device: str) -> Bench:
        return request.getfixturevalue({"cpu": "bench", "cuda": "gpu_bench"}[device])

    return of


@pytest.fixture(scope="module")
def weak(all_references: Any) -> Callable[[str], bool]:
    """Return a function that says whether answers without work pass a task."""
    known: dict[str, bool] = {}

    def of(task: str) -> bool:
        if task not in known:
            known[task] = bool(audit_task(all_references(task_code(task))))
            all_references.end()
        return known[task]

    return of


@pytest.fixture(scope="module")
def canary() -> Iterator[Path]:
    """Return a folder that belongs to somebody else, where candidates look for it."""
    folder = Path(tempfile.mkdtemp(prefix="flywheel-canary-", dir="/tmp"))
    (folder / "canary").write_text("untouched")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def task_code(name: str) -> str:
    return (FOLDER / "tasks" / f"{name}.py").read_text()


def case(one: Candidate, *, weak: bool) -> Case:
    return Case(
        kernel_id="k",
        task_id="t",
        workload_id="w",
        code=one.code,
        other_files=one.other_files,
        task_code=task_code(one.head["task"]),
        weak=weak,
    )


@pytest.mark.parametrize(("one", "run"), list(parameters()))
def test_a_candidate_gets_its_verdict_and_leaves_nothing(
    one: Candidate,
    run: int,
    bench_of: Callable[[str], Bench],
    weak: Callable[[str], bool],
    canary: Path,
) -> None:
    opened = bench_of_device(bench_of, one)
    names = {folder: set(os.listdir(folder)) for folder in OUTSIDE if os.path.isdir(folder)}
    config = Config(**{**limits(one, run), **one.config})
    is_weak = one.kind in ("honest", "flagged", "hostile") and weak(one.head["task"])
    tables = judge(case(one, weak=is_weak), opened, config)
    [row] = tables["evaluations"]

    outcome = (row["status"], f"{row['status']}/{row['reason']}")
    assert set(outcome) & set(one.words("expect")), told(row)
    flags = set(row["flags"]) - NO_ALARM
    wanted = set(one.words("flags")) if row["status"] == "correct" else set[str]()
    assert wanted <= flags, told(row)
    if one.kind in ("honest", "flagged", "hostile"):
        assert flags <= wanted | set(one.words("may")), told(row)
    assert bool(tables["timings"]) == (row["status"] == "correct")

    if "most" in one.head and row["status"] == "correct":
        assert looks_faster(tables["timings"]) <= float(one.head["most"]), told(row)

    assert "ESCAPED" not in f"{row['log']} {row['message']}", told(row)
    assert_can_be_stored(row)
    assert_nothing_is_left(opened)
    assert [path.name for path in canary.iterdir()] == ["canary"]
    assert (canary / "canary").read_text() == "untouched"
    for folder, before in names.items():
        new = {name for name in os.listdir(folder) if name not in before}
        assert not [name for name in new if "flywheel" in name and "-" not in name], new
        assert not new & {"result.json", "results.json", "flywheel-bomb"}, new


def test_after_all_of_them_the_judge_is_as_before(bench: Bench) -> None:
    # Between them each has been the next one after another; here nothing hostile is left to come.
    right = read(FOLDER / "honest" / "plain_torch.py")
    config = Config(**{**LIMITS, **UNTIMED, "calls": 3, "robustness": False})
    [row] = judge(case(right, weak=False), bench, config)["evaluations"]
    assert row["status"] == "correct", told(row)
    assert_nothing_is_left(bench)


def limits(one: Candidate, run: int) -> dict[str, Any]:
    """How long to look: cheats at times, honest ones at everything and once more at the answers."""
    if one.kind == "cheating":
        timing = {} if is_thorough() else BRIEF
        return {**LIMITS, **timing, "diagnosis": False, "robustness": False}
    if one.kind == "honest" and run < 2:
        # Tests of profiles have their own kernels.
        return {**LIMITS, **BRIEF, "diagnosis": is_thorough()} if run == 0 else LIMITS
    return {**LIMITS, **UNTIMED, "robustness": one.kind in ("honest", "flagged")}


def bench_of_device(bench_of: Callable[[str], Bench], one: Candidate) -> Bench:
    """The bench that a candidate is judged on; skips what cannot be tried here."""
    if one.head["device"] == "cuda":
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
    opened = bench_of(one.head["device"])
    if not opened.sandbox_level:
        right = read(FOLDER / "honest" / "plain_torch.py")
        judge(
            case(right, weak=False),
            opened,
            Config(**{**LIMITS, **UNTIMED, "calls": 3, "robustness": False}),
        )
    has = {*opened.sandbox_level.split(), platform.machine()}
    if shutil.which("c++") and shutil.which("cc"):
        has.add("compiler")
    has |= {name for name in ("nvcc",) if shutil.which(name)}
    has |= {name for name in ("triton",) if importlib.util.find_spec(name)}
    lacking = set(one.words("needs")) - has
    if lacking:
        pytest.skip(f"needs {', '.join(sorted(lacking))}")
    return opened


def looks_faster(timings: list[dict[str, Any]]) -> float:
    """The largest speedup over eager by which a clock ranks it: the lower bound."""
    sessions: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in timings:
        sessions.setdefault((row["session_id"], row["clock"]), []).append(row)
    lows = (
        math.exp(compute_speedups(rows)["eager"][0])
        for rows in sessions.values()
        if not ranks_nothing(rows)
    )
    return max(lows, default=0.0)


def told(row: dict[str, Any]) -> str:
    fields = ("status", "reason", "flags", "message", "log")
    return "\n".join(f"{name}: {row[name]}" for name in fields)


def assert_can_be_stored(row: dict[str, Any]) -> None:
    allowed = catalog.load().enums["evaluation_reason"].allowed[row["status"]]
    assert row["reason"] in (allowed or (None,))
    assert set(row["flags"]) <= set(FLAGS)
    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
    assert "\x00" not in text
    assert len(text.encode("utf-8")) < 100_000


def assert_nothing_is_left(bench: Bench) -> None:
    """No process below the fork server or with its mark, and no file in its folder."""
    fork_server = bench.candidate_server
    assert fork_server is not None
    if not fork_server.is_alive:  # a new one is started for the next candidate
        return
    pid = fork_server.pid
    assert find_descendants(pid) == set()
    assert os.listdir(fork_server.scratch) == []
    mark = fork_server.marker.encode()
    marked: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) not in (pid, os.getpid()):
            try:
                if mark in (entry / "environ").read_bytes():
                    marked.append(int(entry.name))
            except OSError:
                continue
    assert marked == []


def test_the_suite_is_large_enough_and_every_head_is_complete() -> None:
    by_kind = {kind: [one for one in CANDIDATES if one.kind == kind] for kind in KINDS}
    assert len(CANDIDATES) >= 200
    assert len(by_kind["honest"]) >= 25
    for one in CANDIDATES:
        assert {"task", "device", "class", "expect"} <= set(one.head), one.name
        assert (FOLDER / "tasks" / f"{one.head['task']}.py").exists(), one.name
        assert set(one.words("flags") + one.words("may")) <= set(FLAGS), one.name
    classes = {one.head["class"] for one in CANDIDATES} - {"none"}
    wanted = {f"A{n}" for n in range(1, 12)} | {f"B{n}" for n in range(1, 5)} | {"C1", "C2", "C3"}
    wanted |= {f"D{n}" for n in range(1, 13)} | {"E1", "E2", "E3", "E4", "F1", "F2", "F3"}
    assert wanted <= classes, wanted - classes
