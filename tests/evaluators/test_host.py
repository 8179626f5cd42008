"""Faults of the host are no verdicts: real compilers that are missing or fail, and full disks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evaluators.judging import host
from evaluators.judging.bench import Bench
from evaluators.judging.host import Need
from store.errors import HostUnfit

EXTENSION = """
import torch
from torch.utils.cpp_extension import load_inline

built = load_inline(name="small", cpp_sources="{source}", no_implicit_headers=True)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x
"""
FAILING = "#!/bin/sh\necho 'error: a fault of this compiler' >&2\nexit 1\n"
ONLY_SMALL = f"""#!/bin/sh
case "$*" in *trial.cpp*|*version*|-v) exec {host.shutil.which("c++")} "$@";; esac
echo 'error: this compiler fails on larger files' >&2
exit 1
"""
"""A compiler that the facts call good."""


def write_program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("code", "device", "needs"),
    [
        ("from torch.utils.cpp_extension import load_inline", "cpu", {"cpp"}),
        ("import torch.utils.cpp_extension as e\ne.load('x', ['a.cpp'])", "cpu", {"cpp"}),
        ("from torch.utils import cpp_extension as c\nc.load('x', ['a.cu'])", "cuda", {"cuda"}),
        ("from torch.utils.cpp_extension import load_inline as f\nf('x', '', cuda_sources='')",
         "cpu", {"cuda"}),
        ("import subprocess\nsubprocess.run(['g++', 'a.cpp'])", "cpu", {"cpp"}),
        ("import os\nos.system('/usr/local/cuda/bin/nvcc a.cu')", "cuda", {"cuda"}),
        ("import torch\nf = torch.compile(torch.relu)", "cpu", {"compile"}),
        ("from torch import compile\nf = compile(abs)", "cpu", {"compile"}),
        ("import torch as t\nf = t.compile(abs)", "cpu", {"compile"}),
        ("import torch._dynamo\nf = torch._dynamo.optimize()(abs)", "cpu", {"compile"}),
        ("def f(model): model.compile(mode='default')", "cpu", {"compile"}),
        ("import importlib\nimportlib.import_module('torch.utils.cpp_extension')", "cpu", {"cpp"}),
        ("import os\nos.popen(f'g++ {__file__}')", "cpu", {"cpp"}),
        ("import torch\n@torch.compile\ndef f(x): return x", "cuda", {"compile"}),
        ("import triton.language as tl", "cuda", {"triton"}),
        ("import triton.language as tl", "cpu", set[str]()),
        ("'''nvcc and torch.utils.cpp_extension, No space left'''\n# torch.compile\nimport re\n"
         "re.compile('c++')", "cuda", set[str]()),
        ("def (", "cpu", set[str]()),
    ],
)  # fmt: skip
def test_what_a_kernel_needs_is_read_from_its_code(code: str, device: str, needs: set[str]) -> None:
    assert host.find_needs({"kernel.py": code, "readme.txt": "cpp_extension"}, device) == needs


def find_fault(*needs: Need) -> str | None:
    unfit = host.find_unfit(needs, "cpu")
    return None if unfit is None else unfit.message.partition(" (")[2].removesuffix(")")


def test_compilers_that_are_missing_or_fail_are_named_until_they_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find_fault("cpp") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_fault() is None
    assert find_fault("cpp") == "C++ compiler: c++ is not in PATH"
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert "CXX=/nowhere/g++ does not exist" in str(find_fault("compile"))
    monkeypatch.undo()
    folder = tmp_path / "a folder"
    folder.mkdir()
    monkeypatch.setenv("CXX", f"'{write_program(folder / 'g++', FAILING)}' -O0")
    assert "a fault of this compiler" in str(find_fault("cpp"))
    silent = write_program(tmp_path / "silent", "#!/bin/sh\nexit 0\n")
    monkeypatch.setenv("CXX", silent)
    assert "compiles a file of a few lines to nothing" in str(find_fault("cpp"))
    write_program(Path(silent), f'#!/bin/sh\nexec {host.shutil.which("c++")} "$@"\n')
    assert find_fault("cpp") is None


def test_what_a_gpu_needs_is_named_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "/nowhere/gcc")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    facts = {fact.what: fact for fact in host.list_facts("cuda")}
    assert facts["C compiler"].state.startswith("CC=/nowhere/gcc does not exist")
    assert facts["CUDA toolkit"].state.startswith("CUDA_HOME=")
    assert not facts["CUDA toolkit"].holds
    assert all(fact.follows and fact.mend for fact in facts.values())


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=2k", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_disk_without_room_is_a_fault_of_the_host(
    monkeypatch: pytest.MonkeyPatch, small_disk: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLYWHEEL_CACHE", str(small_disk))
    assert find_fault() is None
    files = [small_disk / str(number) for number in range(2000)]
    for file in files[:1900]:
        file.touch()
    assert "more files" in str(find_fault())
    for file in files[:1900]:
        file.unlink()
    files[0].write_bytes(bytes(50 << 20))
    assert find_fault() is None
    assert "has 14 MB left" in str(find_fault("cpp"))
    files[1].write_bytes(bytes(12 << 20))
    assert "has 2 MB left" in str(find_fault())
    assert str(find_fault()).startswith("build cache: ")
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLYWHEEL_CACHE", str(tmp_path / "file"))
    assert "takes no files" in str(find_fault())


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("compiler", ["/nowhere/g++", FAILING], ids=["missing", "failing"])
def test_a_kernel_that_needs_a_compiler_has_no_verdict_without_and_others_have_theirs(
    bench: Bench,
    judge_code: Callable[..., dict[str, Any]],
    right_candidate: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    compiler: str,
) -> None:
    bench.candidate_server.wait_ready()  # later tests have its environment
    path = write_program(tmp_path / "c++", compiler) if compiler == FAILING else compiler
    monkeypatch.setenv("CXX", path)
    with pytest.raises(HostUnfit, match=path):
        judge_code(EXTENSION.format(source="int run() { return 1; }"))
    assert judge_code(right_candidate, robustness=False)["status"] == "correct"


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize(
    "text", ["No space left on device", "c++: command not found", "CUDA_HOME is not set", "Killed"]
)
def test_what_a_kernel_says_of_the_host_is_no_excuse(
    judge_code: Callable[..., dict[str, Any]], text: str
) -> None:
    code = f"raise OSError(28, {text!r})  # nvcc\nclass ModelNew: pass\n"
    assert judge_code(code)["status"] == "compile_error"


@pytest.mark.slow
def test_a_failed_build_is_the_kernels_fault_where_the_hosts_own_build_works(
    judge_code: Callable[..., dict[str, Any]],
) -> None:
    row = judge_code(EXTENSION.format(source="#error No space left on device"))
    assert (row["status"], row["reason"]) == ("compile_error", "build_failed")


@pytest.mark.slow
def test_a_failed_build_is_the_hosts_fault_where_its_own_build_fails_too(
    template: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", write_program(tmp_path / "c++", ONLY_SMALL))
    assert find_fault("cpp") is None
    with Bench("cpu", template=template) as bench:
        why = bench.find_build_fault("cpp", brief=True)
    assert "Error building extension" in str(why)


WITHOUT_ACCOUNT = """
import os, pwd, sys, sysconfig
from store.errors import FlywheelError
from store.lake import host
from evaluators.sandbox.isolation import find_readable_paths

sysconfig.get_paths()
os.setgroups([])
os.setuid(54321)
os.environ = {"PATH": os.environ["PATH"]}
import tempfile
tempfile.tempdir = sys.argv[1]
print(host.name_user(), host.choose_cache("builds"))
try:
    host.choose_state()
except FlywheelError as error:
    print(error.hint)
assert "/usr" in find_readable_paths()
"""


def test_a_user_without_account_or_home_has_a_name_and_a_cache(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root may take another user id")
    tmp_path.chmod(0o777)
    command = [sys.executable, "-c", WITHOUT_ACCOUNT, str(tmp_path)]
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"uid-54321 {tmp_path}/kernel-flywheel-54321/cache/builds",
        "Set XDG_STATE_HOME or HOME to a folder that you can write to.",
    ]
