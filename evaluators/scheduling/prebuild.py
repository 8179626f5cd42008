"""Compile candidates ahead of their turn, on processor cores, while a GPU times another one.

A builder imports and constructs a candidate in a worker process that sees no GPU. The build cache
(`evaluators.worker.build_cache`) keeps the result for the judge's worker process. A build decides
no verdict, except that code that does not compile fails without a GPU.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self, TypeAlias

from evaluators.judging import host
from evaluators.judging.case import Case
from evaluators.processes.messages import Malformed
from evaluators.sandbox.failures import Failed, explain_end, explain_error, explain_timeout
from evaluators.sandbox.launcher import Died, ForkServer, Limits, Template, TimedOut
from evaluators.worker.build_cache import Build, Builds

_Request: TypeAlias = tuple[str, dict[str, Any]]

_BOX_BYTES = 4096
_ARGUMENT_BYTES = 64 * 1024
_ARGUMENT_DEPTH = 8
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


class Builder:
    """One warm process that compiles one candidate at a time. Use as a context manager."""

    def __init__(self, builds: Builds, arch: str | None, cores: Sequence[int]) -> None:
        self._builds = builds
        self._arch = arch
        self._cores = cores
        hidden = {"CUDA_VISIBLE_DEVICES": "", "MAX_JOBS": str(min(_FILES, len(cores)))}
        built_for = {} if arch is None else {"TORCH_CUDA_ARCH_LIST": arch}
        self._template = Template(1, {**hidden, **built_for})
        self._fork_server: ForkServer | None = None

    def __enter__(self) -> Self:
        return self

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
            failed = None if build.hit else self.compile(build, case, files)
            answered = failed is None or failed.status != "timeout"
            if answered and not build.hit:
                build.keep()
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

    def compile(self, build: Build, case: Case, files: Mapping[str, str]) -> Failed | None:
        """Compile a candidate into a build; return how it failed, or None."""
        from evaluators.references.imported_file import WEIGHT_SEED  # which imports torch

        # First a worker runs the task's constructor arguments, and types and shapes of its inputs.
        names = json.loads(case.axes)
        answers, failed = self._ask_worker(
            {_TASK_FILE: case.task_code + _ARGUMENTS},
            [
                ("load", {"path": _TASK_FILE, "entry_point": "Arguments", "names": names}),
                ("construct", {"seed": WEIGHT_SEED, "arguments": {"list": []}}),
                ("fill", {"slot": 0, "inputs": {"list": []}}),
                ("call", {"slot": 0}),
            ],
        )
        arguments = inputs = None
        match answers[-1].get("output") if failed is None else None:
            case {"list": [own_arguments, own_inputs]}:
                arguments, inputs = _select_plain(own_arguments), _select_plain(own_inputs)
            case _:
                pass
        requests: list[_Request] = [
            ("load", {"path": case.path, "entry_point": case.entry_point, "names": {}})
        ]
        if arguments is not None:
            requests.append(("construct", {"seed": WEIGHT_SEED, "arguments": arguments}))
            if inputs is not None and self._arch is not None:
                requests.append(("rehearse", {"inputs": inputs}))
        return self._ask_worker(files, requests, build)[1]

    def _ask_worker(
        self, files: Mapping[str, str], requests: Sequence[_Request], build: Build | None = None
    ) -> tuple[list[dict[str, Any]], Failed | None]:
        """Return the answers of a worker without a GPU, up to the first failure."""
        from evaluators.memory.tensors import create_sealed_file  # which imports torch

        fds = [create_sealed_file(_BOX_BYTES) for _ in range(2)]
        setting = {
            "device": "cpu",
            "threads": 1,
            "flush_bytes": 0,
            "pretends_gpu": self._arch is not None,
        }
        limits = Limits(
            memory_bytes=None, file_bytes=1 << 30, open_files=1024, cpu_s=int(_BUILD_S * 4)
        )
        folder = build.folder if build is not None else None
        try:
            process = self._warm().start(
                files, setting=setting, limits=limits, inbox=fds[0], outbox=fds[1], build=folder
            )
        finally:
            for fd in fds:
                os.close(fd)
        answers: list[dict[str, Any]] = []
        failed: Failed | None = None
        lost = False
        try:
            sizes: dict[str, Any] = {"inbox_bytes": _BOX_BYTES, "outbox_bytes": _BOX_BYTES}
            for do, fields in (("prepare", sizes), *requests):
                stage = "construct" if do == "construct" else "load"
                try:
                    answers.append(process.ask(do, _IMPORT_S, _BUILD_S, **fields))
                    if do == "prepare":
                        process.freeze_between_requests()
                except TimedOut as error:
                    failed = explain_timeout(stage, _IMPORT_S, _BUILD_S, error.compiling)
                except Died:
                    lost = True
                except Malformed as error:
                    failed = Failed("rejected", "malformed_output", str(error))
                else:
                    if "error" in answers[-1]:
                        failed = explain_error(stage, answers[-1]["error"])
                if do == "rehearse":
                    failed, lost = None, False  # a GPU could change everything about it
                if failed is not None or lost:
                    break
        finally:
            ended = process.end()
        return answers, explain_end(ended) if lost else failed

    def _warm(self) -> ForkServer:
        if self._fork_server is None or not self._fork_server.is_alive:
            if self._fork_server is not None:
                self._fork_server.close()
            # Of this thread, and hence of the processes that it starts.
            os.sched_setaffinity(0, self._cores)
            self._fork_server = ForkServer(self._template)
        return self._fork_server


def _select_plain(spec: Any) -> dict[str, Any] | None:
    """Return a list's structure if it has only plain values and is short, or None."""
    is_short = _is_plain(spec) and len(json.dumps(spec)) <= _ARGUMENT_BYTES
    return spec if is_short and "list" in spec else None


def _is_plain(spec: Any, depth: int = 0) -> bool:
    """Whether a task's answer describes a value without tensors."""
    if depth > _ARGUMENT_DEPTH or not isinstance(spec, dict) or len(spec) != 1:
        return False
    [(kind, body)] = spec.items()
    if kind in ("list", "tuple"):
        return isinstance(body, list) and all(_is_plain(item, depth + 1) for item in body)
    return kind == "value" and (body is None or isinstance(body, bool | int | float | str))


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
