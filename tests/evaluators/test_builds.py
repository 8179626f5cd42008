"""Kept builds: whose they are, what of hostile code's files is published, where it can write."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.judging.case import Case
from evaluators.sandbox.failures import Failed
from evaluators.sandbox.folders import OpenFolder
from evaluators.sandbox.launcher import ForkServer, Limits
from evaluators.scheduling.prebuild import Builder, describe_toolchain
from evaluators.worker.build_cache import Build, Builds
from evaluators.worker.handle import Deadlines, Sizes, WorkerHandle, start_worker
from store.errors import SandboxFailed

IDS = dict.fromkeys(("kernel_id", "task_id", "workload_id"), "k")

LIMITS = Limits(memory_bytes=2**30, file_bytes=2**22, open_files=256, cpu_s=60)
DEADLINES = Deadlines(import_s=120, build_s=600, first_call_s=120, call_s=120, total_s=600)
SETTING = {"device": "cpu", "threads": 1, "flush_bytes": 0}
FILES = {"kernel.py": "the kernel"}
TASK = "the task"


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    """Return an empty folder of builds."""
    return Builds(tmp_path / "builds", "the toolchain")


def claim(builds: Builds, task: str = TASK, axes: str = "{}") -> Build:
    return builds.claim(FILES, task, axes)


def keep_once(builds: Builds, text: bytes = b"code") -> Path:
    """Keep a build of one library; return the library's file."""
    held = claim(builds)
    (held.folder.path / "ext").mkdir()
    (held.folder.path / "ext" / "ext.so").write_bytes(text)
    assert held.keep()
    held.release()
    [file] = (builds.root / "kept").rglob("ext.so")
    return file


def test_a_build_serves_its_own_kernel_at_its_own_task_alone(builds: Builds) -> None:
    keep_once(builds)
    for files, task, axes, hit in (
        (FILES, TASK, "{}", True),
        (FILES, TASK, " { } ", True),
        (FILES, "another task", "{}", False),
        (FILES, TASK, '{"N": 1}', False),
        ({"kernel.py": "another kernel"}, TASK, "{}", False),
        ({"other.py": "the kernel"}, TASK, "{}", False),
    ):
        held = builds.claim(files, task, axes)
        assert held.hit == hit
        held.release()
    held = Builds(builds.root, "another toolchain").claim(FILES, TASK, "{}")
    assert not held.hit
    held.release()


parts = st.text(st.characters(codec="utf-8"), max_size=6)


@given(
    one=st.tuples(parts, parts, parts, parts, parts),
    other=st.tuples(parts, parts, parts, parts, parts),
)
def test_what_differs_in_any_part_has_another_key(
    tmp_path_factory: pytest.TempPathFactory, one: tuple[str, ...], other: tuple[str, ...]
) -> None:
    root = tmp_path_factory.getbasetemp() / "keys"

    def key(tools: str, name: str, text: str, task: str, axis: str) -> str:
        return Builds(root, tools).key({name: text}, task, json.dumps({"N": axis}))

    assert (key(*one) == key(*other)) == (one == other)


def test_a_build_has_the_same_path_and_times_each_time(builds: Builds) -> None:
    held = claim(builds)
    path = held.folder.path
    file = path / "ext" / "main.o"
    file.parent.mkdir()
    file.write_bytes(b"object")
    os.utime(file, ns=(1, 1_234_567_891))
    (path / "ext" / "ext.so").write_bytes(b"code")
    assert held.keep()
    held.release()
    assert not path.exists()
    held = claim(builds)
    assert (held.hit, held.folder.path) == (True, path)
    assert file.read_bytes() == b"object"
    assert file.stat().st_mtime_ns == 1_234_567_891
    # Another process has the path now; who comes second builds for itself.
    second = claim(builds)
    assert second.folder.path != path
    assert not second.hit
    assert not second.keep()
    second.release()
    held.release()
    assert {one.suffix for one in (builds.root / "live").iterdir()} == {".lock"}


def test_what_is_no_plain_file_is_not_published(builds: Builds, tmp_path: Path) -> None:
    secret = tmp_path / "secret.so"
    secret.write_text("a secret")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "inner.so").write_text("a secret")
    held = claim(builds)
    path = held.folder.path
    (path / "ext.so").write_bytes(b"code")
    (path / "link.so").symlink_to(secret)
    (path / "linked").symlink_to(folder)
    (path / "gone.so").symlink_to(tmp_path / "nowhere")
    os.mkfifo(path / "pipe.so")
    with socket.socket(socket.AF_UNIX) as end:
        with contextlib.chdir(path):
            end.bind("end.so")
        begin = time.monotonic()
        assert held.keep()
        assert time.monotonic() - begin < 60
    held.release()
    assert secret.read_text() == "a secret"
    [kept] = (builds.root / "kept").iterdir()
    assert sorted(str(one.relative_to(kept)) for one in kept.rglob("*")) == [
        "files",
        "files/ext.so",
        "manifest.json",
    ]


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("way", ["depth", "count", "size", "entries"])
def test_a_build_without_measure_is_not_published(
    builds: Builds, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = claim(builds)
    path = held.folder.path
    (path / "ext.so").write_bytes(b"code")
    if way == "depth":
        (path / "/".join("d" * 60)).mkdir(parents=True)
    elif way == "count":
        for number in range(2100):
            (path / f"{number}.o").touch()
    elif way == "size":
        monkeypatch.setattr("evaluators.worker.build_cache.BUILD_LIMIT_BYTES", 1 << 20)
        (path / "large.o").write_bytes(bytes(1 << 21))
    else:
        for number in range(20_100):
            (path / f"{number}.txt").touch()
    assert not held.keep()
    held.release()
    assert list((builds.root / "kept").iterdir()) == []


@pytest.mark.parametrize("way", ["changed", "missing", "link", "manifest", "nested", "names"])
def test_a_kept_build_that_is_not_as_it_was_kept_is_dropped(
    builds: Builds, way: str, tmp_path: Path
) -> None:
    file = keep_once(builds)
    kept = file.parent.parent.parent
    manifest = kept / "manifest.json"
    if way == "changed":
        file.write_bytes(b"evil")
    elif way == "missing":
        file.unlink()
    elif way == "link":
        other = tmp_path / "other.so"
        shutil.move(file, other)
        file.symlink_to(other)
    elif way == "manifest":
        manifest.write_text("{")
    elif way == "nested":
        manifest.write_text("[" * 100_000)
    else:
        [entry] = json.loads(manifest.read_text())
        manifest.write_text(json.dumps([entry | {"parts": ["..", "..", "ext.so"]}]))
    held = claim(builds)
    assert not held.hit
    assert list(held.folder.path.iterdir()) == []
    held.release()
    assert not kept.exists()
    assert keep_once(builds).read_bytes() == b"code"


def test_a_lock_that_is_a_link_makes_nothing_elsewhere(builds: Builds, tmp_path: Path) -> None:
    outside = tmp_path / "made_by_lock"
    (builds.root / "live" / f"{builds.key(FILES, TASK, '{}')}.lock").symlink_to(outside)
    with pytest.raises(SandboxFailed, match="symbolic link"):
        claim(builds)
    assert not outside.exists()


def test_what_was_left_behind_is_no_build(builds: Builds, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "ext.so").write_bytes(b"not ours")
    (builds.root / "live" / builds.key(FILES, TASK, "{}")).symlink_to(outside)
    held = claim(builds)
    assert not held.folder.path.is_symlink()
    assert list(held.folder.path.iterdir()) == []
    held.release()
    assert (outside / "ext.so").read_bytes() == b"not ours"


SEARCH = """
import json, os
done = []
def tried(what, action):
    try:
        action()
        done.append(what)
    except OSError:
        pass
def write(path):
    with open(path, "w") as file:
        file.write("planted")
own = os.environ["TORCH_EXTENSIONS_DIR"]
live = os.path.dirname(own)
kept = os.path.join(os.path.dirname(live), "kept")
for folder in (live, kept, {outside!r}):
    tried("listed " + folder, lambda: os.listdir(folder))
    tried("wrote " + folder, lambda: write(folder + "/planted.so"))
    tried("made " + folder, lambda: os.mkdir(folder + "/planted"))
    tried("linked " + folder, lambda: os.symlink("/", folder + "/planted_link"))
tried("moved", lambda: os.rename(own, live + "/moved"))
tried("removed", lambda: os.rmdir(own))
tried("read", lambda: open({outside!r} + "/secret").read())
tried("hard link", lambda: os.link({outside!r} + "/secret", own + "/secret.so"))
tried("link", lambda: (os.symlink({outside!r}, own + "/way"), write(own + "/way/planted")))
tried("own", lambda: write(own + "/own.so"))
print("done:", json.dumps(done), flush=True)
class ModelNew: pass
"""


def attack_builds(fork_server: ForkServer, build: Build, outside: Path) -> list[str]:
    """What a candidate has managed to do with a build folder in its hands."""
    sizes = Sizes(64, 64)
    started = start_worker(
        fork_server,
        {"kernel.py": SEARCH.format(outside=str(outside))},
        setting=SETTING,
        limits=LIMITS,
        sizes=sizes,
        build=build,
    )
    handle = WorkerHandle(started, sizes, deadlines=DEADLINES, trusted=False)
    try:
        handle.prepare()
        handle.load("kernel.py", "ModelNew", {})
    except Failed as failed:
        raise AssertionError(failed.message + failed.detail) from failed
    finally:
        ended = handle.end()
    return json.loads(ended.log.partition("done: ")[2].splitlines()[0])


@pytest.fixture
def foreign_folder(tmp_path: Path) -> Path:
    """Return a folder of somebody else's."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("a secret")
    return folder


def test_a_candidate_writes_to_its_own_build_folder_alone(
    builds: Builds, fork_server: ForkServer, foreign_folder: Path
) -> None:
    if "landlock" not in fork_server.limits:
        pytest.skip("this machine has no Landlock")
    keep_once(builds)
    other = builds.claim(FILES, "another task", "{}")
    held = builds.claim({"kernel.py": "another"}, TASK, "{}")
    assert attack_builds(fork_server, held, foreign_folder) == ["own"]
    # Its own library is published for itself: the arm has kept it.
    assert len(list((builds.root / "kept").iterdir())) == 2
    assert list(other.folder.path.iterdir()) == []
    other.release()
    assert sorted(one.name for one in foreign_folder.iterdir()) == ["secret"]


def test_a_folder_that_is_exchanged_for_a_link_leads_nowhere(
    builds: Builds, fork_server: ForkServer, foreign_folder: Path
) -> None:
    """Somebody swaps the folder after it was made: the sandbox holds the folder, not its name."""
    if "landlock" not in fork_server.limits:
        pytest.skip("this machine has no Landlock")
    held = claim(builds)
    path = held.folder.path
    path.rename(path.with_name("moved"))
    path.symlink_to(foreign_folder)
    if "own_root" in fork_server.limits:  # which takes no link at all
        with pytest.raises(SandboxFailed):
            attack_builds(fork_server, held, foreign_folder)
    else:
        assert attack_builds(fork_server, held, foreign_folder) == []
    assert sorted(one.name for one in foreign_folder.iterdir()) == ["secret"]
    assert list((builds.root / "kept").iterdir()) == []


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "name", ["../planted.py", "/tmp/flywheel-planted.py", "a/../../planted.py"]
)
def test_no_file_of_a_kernel_lies_outside_of_its_folder(
    builder: Any, fork_server: ForkServer, name: str, tmp_path: Path
) -> None:
    fd = os.open(tmp_path, os.O_PATH)
    with pytest.raises(SandboxFailed, match="is called"):
        fork_server.start(
            {"kernel.py": "", name: "planted"},
            setting=SETTING,
            limits=LIMITS,
            inbox=fd,
            outbox=fd,
            build=OpenFolder(tmp_path, fd),
        )
    os.close(fd)
    assert not Path("/tmp/flywheel-planted.py").exists()
    with pytest.raises(SandboxFailed, match="is called"):
        builder.build(Case(**IDS, path=name, task_code="def get_init_inputs(): return []"))
    assert builder.list_live() == []


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "arguments",
    ["['x' * 100_000]", "[[[[[[[[[[[[1]]]]]]]]]]]]", "[object()]", "['x' * 10**6]", "iter(int, 1)"],
)
def test_arguments_of_a_hostile_task_end_no_builder(builder: Any, arguments: str) -> None:
    code = "class ModelNew:\n    def __init__(self, *arguments): pass\n"
    task = f"def get_init_inputs(): return {arguments}"
    if "iter" in arguments:
        task = "def get_init_inputs(): raise SystemExit"
    assert builder.build(Case(**IDS, code=code, task_code=task))["failure"] is None
    # A task of its own each time, since what is kept would not be built again.
    plain = f"def get_init_inputs(): return []  # after {arguments}"
    again = builder.build(Case(**IDS, code=code, task_code=plain))
    assert (again["failure"], again["hit"]) == (None, False)


def test_the_toolchain_names_what_a_build_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = describe_toolchain("9.0")
    assert "arch 9.0" in plain
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert describe_toolchain("9.0") != plain


LAZY = """
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = 'extern "C" int answer() {{ return 42; }}'
OPTIONS = {{"no_implicit_headers": True, "is_python_module": False}}


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        assert torch.cuda.is_available() and torch.cuda.device_count() == 1
        self.weight = torch.nn.Parameter(torch.ones(width, device="cuda"))
        self.table = torch.arange(width).cuda().to("cuda:0", torch.float32)

    def forward(self, x, scale):
        y = torch.nn.functional.linear(x, self.weight.view(1, -1)) * scale
        if {condition}:
            load_inline("lazy", SOURCE, **OPTIONS)
        return y + x.sum().item()
"""
LAZY_TASK = """
import torch

def get_init_inputs():
    return [4096]

def get_inputs():
    return [torch.rand(1 << 24, 4096), 2.0]
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "compiles"),
    [
        ("x.is_cuda and x.shape[0] == 1 << 24", True),
        pytest.param("False", False, marks=pytest.mark.slow),
    ],
)
def test_what_a_first_call_compiles_is_compiled_ahead(
    tmp_path: Path, condition: str, compiles: bool
) -> None:
    builds = Builds(tmp_path / "builds", describe_toolchain("9.0"))
    case = Case(**IDS, code=LAZY.format(condition=condition), task_code=LAZY_TASK)
    with Builder(builds, "9.0", sorted(os.sched_getaffinity(0))) as builder:
        assert builder.build(case)["failure"] is None
    assert [one.name for one in builds.root.rglob("*.so")] == ["lazy.so"] * compiles
