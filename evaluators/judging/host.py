"""What judging needs of its host: compilers, space, memory. The judge and `doctor` ask it alike.

A fault of the host is never a verdict on a kernel. Before a kernel is judged, the facts that it
needs are checked; each compiler once per version of it. After a failure, `host_trial` checks the
host again. What a kernel says of itself decides nothing here, only which facts it needs.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from evaluators.device.placement import read_torch_versions
from evaluators.processes.messages import make_readable
from evaluators.worker.build_cache import default_root, make_folders
from store.errors import HostUnfit

Need: TypeAlias = Literal["cpp", "cuda", "triton", "compile"]
"""A C++ extension, a CUDA extension, a Triton kernel, torch.compile."""

WORDS: Mapping[Need, str] = {
    "cpp": "builds a C++ extension",
    "cuda": "builds a CUDA extension",
    "triton": "launches a Triton kernel",
    "compile": "calls torch.compile",
}
_COMPILERS: Mapping[str, Need] = {
    **dict.fromkeys(("c++", "g++", "gcc", "cc", "clang", "clang++"), "cpp"),
    "nvcc": "cuda",
}
_LEAST_BYTES = 4 << 20
_LEAST_TO_BUILD = 32 << 20
_LEAST_FILES = 256
_LEAST_MEMORY = 256 << 20
SCARCE_BYTES = 1 << 30
"""Free space or memory below which a build of PyTorch's headers may not fit."""
_TRIAL_S = 120.0
_KEPT_S = 60.0
"""Seconds for which a fault is not looked for again."""
_CPP = """#include <Python.h>
#include <vector>
int count() { return static_cast<int>(std::vector<int>(3).size()); }
"""
_CUDA = """#include <cuda_runtime.h>
#include <vector>
__global__ void fill(float* out) { out[threadIdx.x] = 1.0f; }
int run() { fill<<<1, 1>>>(nullptr); return static_cast<int>(cudaGetLastError()); }
"""


@dataclass(frozen=True)
class Fact:
    """One fact about the host."""

    what: str
    state: str
    """How it is, or what is wrong with it."""
    holds: bool
    follows: str
    """What follows where it does not hold."""
    mend: str


_trials: dict[tuple[object, ...], tuple[float, str | None]] = {}
"""When a compiler was tried, and its fault; by what the result depends on."""


def find_needs(files: Mapping[str, str], device: str) -> set[Need]:
    """Return what the code of a kernel, by its path, needs of a host with this kind of device.

    A name in a comment or a docstring is no need. Files that are not Python need nothing: what
    builds them is in a Python file.
    """
    needs: set[Need] = set()
    for path, code in files.items():
        if not path.endswith(".py"):
            continue
        try:
            tree = ast.parse(code.removeprefix("\ufeff"))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        names: set[str] = set()
        texts: set[str] = set()
        torch: set[str | None] = {"torch"}
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=aliases):
                    names.update(part for alias in aliases for part in alias.name.split("."))
                    torch.update(one.asname for one in aliases if one.name == "torch")
                case ast.ImportFrom(module=module, names=aliases):
                    names.update((module or "").split("."))
                    names.update(f"{module}.{alias.name}" for alias in aliases)
                    names.update(alias.name for alias in aliases)
                case ast.Attribute(value=ast.Name(id=of), attr=attribute):
                    names.update((attribute, f"{of}.{attribute}"))
                case ast.Attribute(attr=attribute):
                    names.add(attribute)
                case ast.Call(func=ast.Attribute(attr="compile"), args=[]):  # of a module
                    names.add("torch.compile")
                case ast.keyword(arg=str(argument)):
                    names.add(argument)
                case ast.Constant(value=str(text)) if len(text) < 200:
                    texts.add(text.strip())
                case _:
                    pass
        if "cpp_extension" in names or "torch.utils.cpp_extension" in texts:
            is_cuda = names & {"cuda_sources", "CUDAExtension"} or any(
                text.endswith((".cu", ".cuh")) for text in texts
            )
            needs.add("cuda" if is_cuda else "cpp")
        if names & {"subprocess", "os.system", "os.popen"}:
            first = (Path(text.split()[0]).name for text in texts if text)
            needs.update(_COMPILERS[name] for name in first if name in _COMPILERS)
        if "triton" in names and device == "cuda":
            needs.add("triton")
        if names & {"_dynamo", "_inductor", *(f"{name}.compile" for name in torch)}:
            needs.add("compile")
    return needs


def list_facts(device: str, needs: Iterable[Need] | None = None) -> Iterator[Fact]:
    """Yield the facts that these needs depend on; without needs, all that this device may need."""
    wanted = {"cpp", "compile", *(("cuda", "triton") if device == "cuda" else ())}
    wanted = wanted if needs is None else set(needs)
    least = _LEAST_TO_BUILD if wanted else _LEAST_BYTES
    yield from (_check_folder(*place, least) for place in _list_folders())
    free = _read_free_memory()
    yield Fact(
        "memory",
        f"{free / 2**30:.1f} GB free",
        free >= _LEAST_MEMORY,
        "no kernel is judged",
        "End other processes, or use a machine with more memory.",
    )
    headers = Path(sysconfig.get_path("include"), "Python.h")
    if wanted & {"cpp", "cuda", "compile"} and not (wanted == {"compile"} and device == "cuda"):
        command = os.environ.get("CXX") or "c++"
        source = _CPP if headers.is_file() else _CPP.partition("\n")[2]
        options = ("-shared", "-fPIC", f"-I{headers.parent}")
        yield _describe_program(
            "C++ compiler",
            command,
            _try_compiler(command, "trial.cpp", source, options),
            "kernels that build C++ or CUDA, or call torch.compile on a CPU, are not judged",
            "Install g++ (apt-get install g++), or set CXX to a C++ compiler that works.",
            variable="CXX",
        )
    if device == "cuda" and wanted & {"triton", "compile"}:
        command = os.environ.get("CC") or next(filter(shutil.which, ("gcc", "clang")), "gcc")
        source = "int one(void) { return 1; }\n"
        yield _describe_program(
            "C compiler",
            command,
            _try_compiler(command, "trial.c", source, ("-shared", "-fPIC")),
            "kernels in Triton, and those that call torch.compile, are not judged on a GPU",
            "Install gcc (apt-get install gcc), or set CC to a C compiler that works.",
            variable="CC",
        )
    if wanted:
        yield Fact(
            "Python's headers",
            str(headers) if headers.is_file() else f"{headers} does not exist",
            headers.is_file(),
            "kernels that build C++ or CUDA, Triton kernels and torch.compile are not judged",
            "Install Python's headers, such as with apt-get install python3-dev.",
        )
    if wanted & {"cpp", "cuda"}:
        folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        path = shutil.which("ninja", path=folders)
        fault = "is not in PATH" if path is None else _run([path, "--version"], None)
        yield Fact(
            "ninja",
            f"ninja {fault}" if fault else str(path),
            fault is None,
            "kernels that build C++ or CUDA are not judged",
            "Install it with pip install ninja.",
        )
    if "cuda" in wanted:
        versions = read_torch_versions()
        cuda = versions[1] if versions else None
        beside = shutil.which("nvcc")
        home = str(Path(beside).parents[1]) if beside else "/usr/local/cuda"
        nvcc = f"{os.environ.get('CUDA_HOME') or home}/bin/nvcc"
        compiler = os.environ.get("CC")
        options = ("-shared", "-Xcompiler", "-fPIC", *(("-ccbin", compiler) if compiler else ()))
        fault = _try_compiler(shlex.quote(nvcc), "trial.cu", _CUDA, options)
        if fault is None:  # torch refuses to build where the versions differ
            said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False)
            release = re.search(r"release (\d+)\.(\d+)", said.stdout)
            if cuda and release and release[1] != cuda.partition(".")[0]:
                fault = f"is of CUDA {release[1]}.{release[2]}, and torch of CUDA {cuda}"
        yield _describe_program(
            "CUDA toolkit",
            nvcc,
            fault,
            "kernels that build CUDA are not judged",
            "Install the CUDA toolkit that torch.version.cuda names, with a C++ compiler that it"
            " supports, and set CUDA_HOME to its folder.",
            variable="CUDA_HOME",
        )
        if device == "cuda":
            number, fault = ctypes.c_int(), None
            try:
                ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(number))
            except (OSError, AttributeError) as error:
                fault = f"libcuda.so.1 cannot be loaded: {error}"
            version = f"{number.value // 1000}.{number.value % 1000 // 10}"
            if fault is None and cuda and number.value // 1000 < int(cuda.partition(".")[0]):
                fault = f"the driver is for CUDA {version}, and torch of CUDA {cuda}"
            yield Fact(
                "NVIDIA driver",
                fault or f"CUDA {version}",
                fault is None,
                "no kernel is judged on a GPU",
                "Install a driver for the CUDA version of torch, or a torch for that of the"
                " driver.",
            )
    if needs is None:
        try:
            user = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            user = f"user id {os.getuid()} has no account"
        home = os.environ.get("HOME")
        yield Fact(
            "user",
            f"{user}, HOME={home}" if home else f"{user}, HOME is not set",
            True,
            "caches are in the folder for temporary files",
            "Set HOME, or FLYWHEEL_CACHE, to a folder that you can write to.",
        )


def _describe_program(
    what: str, command: str, fault: str | None, follows: str, mend: str, *, variable: str
) -> Fact:
    state = command if fault is None else f"{command} {fault}"
    if fault is not None and os.environ.get(variable):
        state = f"{variable}={state}"
    return Fact(what, state, fault is None, follows, mend)


def find_unfit(needs: Iterable[Need], device: str) -> HostUnfit | None:
    """Return the error to raise if a fact that these needs depend on does not hold here."""
    fact = next((fact for fact in list_facts(device, needs) if not fact.holds), None)
    if fact is None:
        return None
    does = " and ".join(WORDS[need] for need in sorted(needs))
    subject = f"the kernel {does}, and this host cannot do so" if does else "this host cannot judge"
    return HostUnfit(f"{subject} ({fact.what}: {fact.state})", fact.mend)


def is_scarce() -> bool:
    """Whether the disk or the memory may not hold a build of PyTorch's headers."""
    free = [_count_free(folder)[0] for _, folder, _ in _list_folders()]
    return min([*free, _read_free_memory()]) < SCARCE_BYTES


def count_oom_kills() -> int:
    """Return how many processes the system has ended for lack of memory since it started."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def _list_folders() -> list[tuple[str, Path, str]]:
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError:  # none takes a file
        temporary = os.environ.get("TMPDIR") or "/tmp"
    return [
        ("temporary files", Path(temporary), "TMPDIR"),
        # The judge process may write to this folder of it.
        ("build cache", default_root() / "live", "FLYWHEEL_CACHE"),
    ]


def _check_folder(what: str, folder: Path, variable: str, least: int) -> Fact:
    follows = "no kernel is judged"
    mend = f"Free some space, or set {variable} to a folder on another disk that you can write to."
    try:
        if variable == "FLYWHEEL_CACHE":
            make_folders(folder.parent)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 16))
            file.flush()
        free, files = _count_free(folder)
    except OSError as error:
        return Fact(what, f"{folder} takes no files: {error.strerror}", False, follows, mend)
    if free < least:
        return Fact(what, f"{folder} has {free / 2**20:.0f} MB left", False, follows, mend)
    if files is not None and files < _LEAST_FILES:
        return Fact(what, f"{folder} takes {files} more files", False, follows, mend)
    return Fact(what, f"{folder}, {free / 2**30:.1f} GB free", True, follows, mend)


def _count_free(folder: Path) -> tuple[int, int | None]:
    state = os.statvfs(folder)
    return state.f_bavail * state.f_frsize, state.f_favail if state.f_files else None


def _read_free_memory() -> int:
    """Return the bytes that this host, or the control group of this process, still has."""
    free = sys.maxsize
    with contextlib.suppress(OSError):
        found = re.search(r"^MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text(), re.M)
        free = int(found[1]) << 10 if found else free
    with contextlib.suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        most, used = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        free = min(free, most - used)
    return free


def _try_compiler(command: str, name: str, source: str, options: tuple[str, ...]) -> str | None:
    """Compile a file of a few lines into a library; return what is wrong, or None.

    A compiler that works is tried again only when it, or another one in PATH, changes.
    """
    try:
        words = shlex.split(command)
    except ValueError:
        words = [command]
    path = shutil.which(words[0]) if words else None
    if path is None:
        in_path = not words or "/" not in words[0]
        return "is not in PATH" if in_path else "does not exist or is no program"
    state = os.stat(path)
    places = (os.environ.get("PATH"), os.environ.get("LD_LIBRARY_PATH"))
    key = (command, source, options, path, state.st_ino, state.st_size, state.st_mtime_ns, places)
    tried, fault = _trials.get(key, (0.0, "was not tried"))
    if fault is not None and not (tried and time.monotonic() - tried < _KEPT_S):
        with tempfile.TemporaryDirectory(prefix="flywheel-") as folder:
            file = Path(folder, name)
            file.write_text(source)
            built = Path(folder, "trial.so")
            fault = _run([path, *words[1:], *options, "-o", str(built), str(file)], folder)
            if fault is None and not built.is_file():
                fault = "compiles a file of a few lines to nothing"
        _trials[key] = (time.monotonic(), fault)
    return fault


def _run(command: list[str], folder: str | None) -> str | None:
    try:
        answer = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TRIAL_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"does not end within {_TRIAL_S:g} s"
    except OSError as error:
        return f"cannot be started: {error.strerror}"
    if answer.returncode == 0:
        return None
    text = make_readable((answer.stderr or answer.stdout).decode(errors="replace"))
    lines = text.strip().splitlines() or [f"exit code {answer.returncode}"]
    said = next((line for line in lines if "error" in line), lines[-1])
    return f"fails on a file of a few lines: {said[:200]}"
