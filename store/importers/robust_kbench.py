"""Results of Sakana AI's robust-kbench: highlighted/results.csv of its repository, at 078f5ba.

A row has the CUDA code of a kernel, the thought behind it, whether it is correct, its runtime in
milliseconds, its speedup over PyTorch and over torch.compile, profiles, and the names of task and
direction. Runtimes and speedups become claims; profiles become analyses. Tasks of robust-kbench
take their inputs from configuration files, which KernelBench's form does not have: attempts have a
problem and no task. A kernel in another file of the checkout is an attempt without figures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import store
from store.commandline.members import DeviceModel
from store.errors import ImportFailed
from store.foreign import text_files
from store.foreign.text_files import Fields
from store.importers.reading import pieces, sources
from store.importers.reading.session_files import is_kernel

NAME = "robust-kbench"
POLICY = "robust-kbench"
_REQUIRED = ("Kernel Name", "Code", "Correct", "Runtime (ms)", "Speedup", "task_name", "forward")
_NUMBERS = ("Batch ID", "Sample ID", "Runtime (ms)", "Speedup", "Speedup Compile", "Max Diff")
_FLAGS = ("Correct", "forward")
_PROFILES = (
    ("NCU Profile", "Nsight Compute"),
    ("Torch Profile", "torch.profiler"),
    ("Clang Tidy", "clang-tidy"),
)


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    gpu: DeviceModel = "H100"
    """GPU that the kernels were timed on."""
    source_revision: str | None = None
    """Commit of the repository (default: the checkout's HEAD)."""
    license: str | None = "Apache-2.0"


def recognize(path: Path) -> str | None:
    for file in sources.list_files(path, "results.csv", "highlighted/results.csv"):
        head = sources.read_head(file).partition("\n")[0]
        if "Kernel Name" in head and "Speedup Compile" in head:
            return f"{file.name} with Kernel Name and Speedup Compile"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the rows of results.csv in bundles."""
    root = sources.require_path(path, "a checkout of robust-kbench, or its results.csv")
    files = sources.list_files(root, "results.csv", "highlighted/results.csv")
    if not files:
        raise ImportFailed(f"{root} holds no highlighted/results.csv", "Name the checkout.")
    parse = partial(text_files.read_csv, required=_REQUIRED, numbers=_NUMBERS, flags=_FLAGS)
    reading = pieces.Import(
        *(lake, NAME, config),
        source="SakanaAI/robust-kbench",
        source_revision=config.source_revision or sources.git_head(root),
    )
    codes: set[str | None] = set()
    """Those of results.csv."""
    yield from reading.read(
        (pieces.open_documents(file.name, [file], root, parse) for file in files),
        lambda: partial(_add, config.gpu, codes),
    )
    if others := sorted(root.rglob("*.cu")) if root.is_dir() else []:
        parse_kernel = partial(_parse_kernel, root=root)
        yield from reading.read(
            [pieces.open_documents("kernels", others, root, parse_kernel)],
            lambda: partial(_add_kernel, codes),
        )


def _parse_kernel(file: Path, root: Path) -> Iterator[Fields]:
    code = sources.read_text(file, root)
    if is_kernel(code):
        # highlighted/TASK/forward/kernel.cu, tasks/TASK/forward.cu
        folders, stem = file.relative_to(root).parts[:-1], file.stem
        problem = "/".join([*folders[1:], *([] if stem == "kernel" else [stem])]) or stem
        place = file.relative_to(root).as_posix()
        yield Fields(values={"problem": problem, "code": code, "place": place}, where=str(file))


def _add_kernel(codes: set[str | None], rows: pieces.BundleRows, file: Fields) -> None:
    if (code := file.code("code")) not in codes:
        rows.add_attempt(
            [file.require_text("place")],
            policy=POLICY,
            policy_kind="released",
            problem=file.require_text("problem"),
            kernel_id=rows.add_code(code, path="kernel.cu", entry_point="forward"),
        )


def _add(gpu: str, codes: set[str | None], rows: pieces.BundleRows, row: Fields) -> None:
    code, task, name = row.code("Code"), row.require_text("task_name"), row.text("Kernel Name")
    codes.add(code)
    problem = f"{task}/{'forward' if row.flag('forward') else 'backward'}"
    place = [problem, row.text("Batch ID") or "", row.text("Sample ID") or "", name or ""]
    attempt = rows.add_attempt(
        place,
        policy=POLICY,
        policy_kind="released",
        problem=problem,
        kernel_id=rows.add_code(code, path="kernel.cu", entry_point="forward"),
        design=row.prose("Thought"),
        parse_error="the row has no code" if code is None else None,
    )
    if attempt.kernel_id is None:
        return
    quote = f"{name} of {problem}"
    rows.add_result(attempt, row.flag("Correct"), quote, gpu=gpu)
    rows.add_claim(attempt, "latency_ms", row.positive("Runtime (ms)"), quote, gpu=gpu)
    for column, baseline in (("Speedup", "eager"), ("Speedup Compile", "compile")):
        rows.add_claim(attempt, "speedup", row.positive(column), quote, gpu=gpu, baseline=baseline)
    for column, author in _PROFILES:
        body = row.prose(column)
        if body is not None and body != "None":
            rows.add_analysis(attempt, "profiler", f"{author} ({NAME})", body, column)
