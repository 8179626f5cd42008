"""Compile candidates ahead of their turn, on processor cores, while a GPU times another one.

A builder imports and constructs a candidate in a worker process that sees no GPU. The build cache
(`evaluators.worker.build_cache`) keeps the result for the judge's worker process. A build decides
no verdict, except that code that does not compile fails without a GPU.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evaluators.judging import host
from evaluators.judging.case import Case
from evaluators.sandbox.failures import Failed
from evaluators.sandbox.launcher import ForkServer, Limits, Template
from evaluators.worker.build_cache import Build, Builds

if TYPE_CHECKING:
    from evaluators.worker.handle import WorkerHandle

_ARGUMENT_BYTES = 64 * 1024
_TASK_FILE = "task.py"
_ARGUMENTS = """

class Arguments:
    def __call__(self):
        import torch
        try:
            with torch.device("meta"):
                inputs = _list(get_inputs())
                inputs = inputs and [_describe(one) for one in inputs]
        except Exception:
            inputs = None
        return [_list(get_init_inputs()), inputs]


def _list(made):
    return None if isinstance(made, dict) else list(made)  # a dict is passed by name

def _describe(one):
    is_tensor = hasattr(one, "dtype")
    return [str(one.dtype).partition(".")[2], *one.shape] if is_tensor else one
"""
"""Returns the arguments of the task's constructor, and types and shapes of its inputs."""
_FILES = 2  # that a builder compiles at a time: mostly a binding and its kernels
_IMPORT_S = 60.0
_BUILD_S = 300.0
_DECIDED = {"build_failed", "syntax_error", "build_timeout"}
"""Reasons that hold whether there is a GPU or not."""


class Builder(contextlib.AbstractContextManager["Builder"]):
    """One warm process that compiles one candidate at a time. Use as a context manager."""

    def __init__(self, builds: Builds, arch: str | None, cores: Sequence[int]) -> None:
        self._builds = builds
        self._arch = arch
        self._cores = cores
        hidden = {"CUDA_VISIBLE_DEVICES": "", "MAX_JOBS": str(min(_FILES, len(cores)))}
        built_for = {} if arch is None else {"TORCH_CUDA_ARCH_LIST": arch}
        self._template = Template(1, {**hidden, **built_for})
        self._fork_server: ForkServer | None = None

    def __exit__(self, *_: object) -> None:
        if self._fork_server is not None:
            self._fork_server.close()
        self._template.close()

    def build(self, case: Case) -> dict[str, Any]:
        """Compile the extensions that importing and constructing a candidate builds.

        Returns seconds, hit and failure; `failure` (status, reason, message, detail) is there only
        where no GPU could change it. Raises SandboxFailed.
        """
        begin = time.perf_counter()
        files = case.files
        device = "cpu" if self._arch is None else "cuda"
        if host.find_unfit(host.find_needs(files, device), device) is not None:
            return {"seconds": 0.0, "hit": False, "failure": None}  # the judge says what is wrong
        oom_kills = host.count_oom_kills()
        build = self._builds.claim(files, case.task_code, case.axes)
        try:
            failed = None if build.hit else self.compile(build, case)
        finally:
            build.release()
        # A compiler that was ended for lack of memory says nothing. The count alone shows no lack:
        # it also rises with every process that a limit of its own has ended.
        decided = (
            failed is not None
            and failed.reason in _DECIDED
            and not ("Killed" in failed.detail and host.count_oom_kills() > oom_kills)
        )
        return {
            "seconds": time.perf_counter() - begin,
            "hit": build.hit,
            "failure": vars(failed) if failed is not None and decided else None,
        }

    def compile(self, build: Build, case: Case) -> Failed | None:
        """Compile a candidate into a build; return how it failed, or None."""
        from evaluators.references.imported_file import WEIGHT_SEED  # which imports torch

        # First a worker runs the task's constructor arguments, and types and shapes of its inputs.
        arguments = inputs = None
        text = {_TASK_FILE: case.task_code + _ARGUMENTS}
        with contextlib.suppress(Failed), self._start_worker(text) as worker:
            worker.load(_TASK_FILE, "Arguments", json.loads(case.axes))
            worker.construct(WEIGHT_SEED, [])
            worker.fill(0, [])
            match worker.call(0, first=True):
                case [own_arguments, own_inputs]:
                    arguments, inputs = _select_plain(own_arguments), _select_plain(own_inputs)
                case _:
                    pass
        try:
            with self._start_worker(case.files, build) as worker:
                worker.keeps_build = True  # a failed build as well, but none that is not done
                try:
                    worker.load(case.path, case.entry_point, {})
                    if arguments is not None:
                        worker.construct(WEIGHT_SEED, arguments)
                except Failed as failed:
                    worker.keeps_build = failed.status != "timeout"
                    raise
                if arguments is not None and inputs is not None and self._arch is not None:
                    with contextlib.suppress(Failed):  # a GPU could change everything about it
                        worker.rehearse(inputs)
        except Failed as failed:
            return failed
        return None

    @contextlib.contextmanager
    def _start_worker(
        self, files: Mapping[str, str], build: Build | None = None
    ) -> Generator[WorkerHandle]:
        from evaluators.worker.handle import Deadlines, Sizes, WorkerHandle, start_worker

        is_gpu = self._arch is not None
        setting = {"device": "cpu", "threads": 1, "flush_bytes": 0, "pretends_gpu": is_gpu}
        cpu_s = int(_BUILD_S * 4)
        limits = Limits(memory_bytes=None, file_bytes=1 << 30, open_files=1024, cpu_s=cpu_s)
        started = start_worker(
            self._warm(), files, setting=setting, limits=limits, sizes=Sizes(0, 0), build=build
        )
        worker = WorkerHandle(
            started,
            Sizes(0, 0),
            deadlines=Deadlines(
                import_s=_IMPORT_S,
                build_s=_BUILD_S,
                first_call_s=_IMPORT_S,
                call_s=_IMPORT_S,
                total_s=math.inf,
            ),
            trusted=False,
        )
        worker.prepare()
        try:
            yield worker
        finally:
            worker.end()

    def _warm(self) -> ForkServer:
        if self._fork_server is None or not self._fork_server.is_alive:
            if self._fork_server is not None:
                self._fork_server.close()
            # Of this thread, and hence of the processes that it starts.
            os.sched_setaffinity(0, self._cores)
            self._fork_server = ForkServer(self._template)
        return self._fork_server


def _select_plain(value: Any) -> list[Any] | None:
    with contextlib.suppress(TypeError, ValueError):
        if isinstance(value, list) and len(json.dumps(value)) <= _ARGUMENT_BYTES:
            return value
    return None


def describe_toolchain(arch: str | None) -> str:
    """Return what a build depends on besides its sources: versions and the GPU's architecture."""
    parts = [platform.machine(), sys.version, version("torch"), f"arch {arch}"]
    parts += [f"{name} {os.environ.get(name)}" for name in ("CC", "CXX", "CUDA_HOME")]
    for command in (os.environ.get("CXX", "c++"), "nvcc", "ninja"):
        path = shutil.which(command) or str(Path(sys.executable).parent / command)
        try:
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            parts.append(f"{command}: {said.stdout.strip()}")
        except OSError:
            parts.append(f"no {command}")
    return "\n".join(parts)
