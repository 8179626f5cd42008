"""Results of AMD's AgentKernelArena: task_result.yaml with the kernel of its workspace.

Reads what AMD-AGI/AgentKernelArena at d6f7c8a writes to workspace_GPU_AGENT/run_TIME/TASK_TIME/.
The files that the task's config.yaml names become a kernel. Results, scores and mean times in
milliseconds become claims; a time of 0 is a missing one. A speedup is over the task's original
kernel, or over PyTorch for a task that starts from PyTorch, so its metric is speedup_over_original.
Its quote says so if baseline and kernel were timed by different methods. Held-out results
(heldout_task_result.yaml) are not read. Of the tasks of its repository (config.yaml without a
result), the kernels to start from are read; each other file with device code of a task, such as
its reference, is an attempt of its own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, cast

import store
from store.commandline.members import DeviceModel
from store.errors import ImportFailed
from store.foreign import left_out, text_files
from store.foreign.text_files import Fields
from store.importers.reading import pieces, sources
from store.importers.reading.session_files import is_kernel

NAME = "agent-kernel-arena"
RESULT, TASK = "task_result.yaml", "config.yaml"
_DEVICE = (".hip", ".cu", ".cuh", ".py")
_AGENT = re.compile(r"Optimized by (\S{1,100}) using")
_WORKSPACE = re.compile(r"[^_]+_([^_]+)_(.+)")


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    gpu: DeviceModel | None = None
    """GPU of the figures (default: the one in the workspace's name)."""


def recognize(path: Path) -> str | None:
    for file in sources.list_below(path, RESULT):
        if "pass_compilation:" in sources.read_head(file):
            return f"{file.name} with pass_compilation"
    for file in sources.list_below(path, TASK):
        if re.search("^target_kernel_functions:", sources.read_head(file), re.MULTILINE):
            return f"{file.relative_to(path)} with target_kernel_functions"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the results of each run in bundles."""
    root = sources.require_path(path, f"a workspace of AgentKernelArena with {RESULT}")
    files = [root] if root.is_file() else sorted(root.rglob(RESULT))
    files += [one for one in sorted(root.rglob(TASK)) if not one.with_name(RESULT).is_file()]
    if not files:
        raise ImportFailed(
            f"{root} holds no {RESULT} and no {TASK}",
            "Name the folder workspace_GPU_AGENT, or a checkout of AgentKernelArena.",
        )
    folder = root if root.is_dir() else root.parent
    documents: dict[Path, list[Path]] = {}
    for file in files:
        task = file.with_name(TASK)
        with left_out.errors():
            parts = [*_list_sources(task, folder)] if task.is_file() else []
            parts += [] if file.name == RESULT else _list_others(file, parts)
            listed = [file, *([task] if task.is_file() and task != file else []), *parts]
            documents.setdefault(file.resolve().parents[1], []).extend(listed)
    parse = partial(_parse, folder=folder)
    yield from pieces.Import(lake, NAME, config).read(
        (
            pieces.open_documents("/".join(run.parts[-2:]), listed, folder, parse)
            for run, listed in documents.items()
        ),
        lambda: partial(_add, config.gpu),
    )


def _list_sources(task: Path, folder: Path) -> list[Path]:
    """Return the source files of a task that are in its workspace, the target first."""
    fields = text_files.parse_yaml(sources.read_text(task, folder), str(task))
    names: list[Any] = [fields.values.get("target_file_path")]
    others = fields.values.get("source_file_path")
    names += cast("list[Any]", others) if isinstance(others, list) else [others]
    files: list[Path] = []
    for name in names:
        if not isinstance(name, str) or not name:
            continue
        parts = PurePosixPath(name)
        if parts.is_absolute() or ".." in parts.parts:
            raise ImportFailed(f"{task}: {name!a:.80} leaves the workspace")
        file = task.parent / parts
        # A name that is too long is no file; Path.is_file raises OSError for it.
        if os.path.isfile(file) and file not in files:
            files.append(file)
    return files


def _list_others(task: Path, named: list[Path]) -> list[Path]:
    """Return the other files of a task's folder that may have device code."""
    files = (one for suffix in _DEVICE for one in sorted(task.parent.rglob(f"*{suffix}")))
    return [one for one in files if one not in named]


def _read_texts(task: Path, files: list[Path], folder: Path) -> dict[str, str]:
    return {
        one.relative_to(task.parent).as_posix(): sources.read_text(one, folder) for one in files
    }


def _parse(file: Path, folder: Path) -> Iterator[Fields]:
    if file.name == TASK and not file.with_name(RESULT).is_file():
        named = [*_list_sources(file, folder)]
        name = file.parent.relative_to(folder).as_posix()
        for files in (named, *([one] for one in _list_others(file, named))):
            texts = _read_texts(file, files, folder)
            place = ["task", name, *(() if files is named else texts)]
            values = {"task_name": name, "agent": "original", "files": texts, "place": place}
            if any(map(is_kernel, texts.values())):
                yield Fields(values=values, where=str(file))
    if file.name != RESULT:
        return
    about = text_files.parse_yaml(sources.read_text(file, folder), str(file))
    task = file.with_name(TASK)
    parts = _list_sources(task, folder) if task.is_file() else []
    texts = _read_texts(file, parts, folder)
    workspace = _WORKSPACE.fullmatch(file.resolve().parents[2].name)
    values = {
        **about.values,
        "files": {name: text for name, text in texts.items() if text.strip()},
        "place": list(file.resolve().parts[-4:-1]),
        "gpu": workspace and workspace[1],
        "agent": workspace and workspace[2],
    }
    yield Fields(values=values, where=str(file))


def _add(gpu: str | None, rows: pieces.BundleRows, result: Fields) -> None:
    problem, gpu = result.require_text("task_name"), gpu or result.text("gpu")
    match = _AGENT.search(result.text("optimization_summary") or "")
    agent = match[1] if match else result.text("agent") or "unknown"
    files = cast("dict[str, str]", result.values["files"])
    kernel_id = None
    if files:
        kernel_id = rows.add_kernel(files, entry_path=next(iter(files)), entry_point="forward")
    place = cast("list[str]", result.values["place"])
    attempt = rows.add_attempt(
        place,
        policy=f"{NAME}/{agent}",
        problem=problem,
        kernel_id=kernel_id,
        parse_error="the workspace has no source of the task" if kernel_id is None else None,
    )
    quote = f"{RESULT} of {problem} in {place[1]}"
    compiled, correct = result.flag("pass_compilation"), result.flag("pass_correctness")
    if compiled is False or correct is not None:
        passed = float(bool(compiled is not False and correct))
        rows.add_claim(attempt, "correct", passed, quote, gpu=gpu)
    mixed = result.flag("benchmark_method_consistent") is False
    note = f"{quote}; baseline and kernel were timed by different methods" if mixed else quote
    for metric, name, place_in_source in (
        ("latency_ms", "best_optimized_execution_time", quote),
        ("original_latency_ms", "base_execution_time", quote),
        ("speedup_over_original", "speedup_ratio", note),
        ("reported_score", "score", quote),
    ):
        rows.add_claim(attempt, metric, result.positive(name), place_in_source, gpu=gpu)
