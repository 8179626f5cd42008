"""Kernels of Meta's KernelAgent: program_database.json of its optimizer, and its sessions.

Reads what meta-pytorch/KernelAgent at a3001c7 writes. A program of the optimizer becomes a kernel
and an attempt that continues its parent, and its time a claim. In a session (session_TIME/), each
worker starts from a seed: the rounds of a worker are one trajectory, with problem.txt as the prompt
and the result of the agent's own tests as a claim. Times in result.json become claims on the round
that won. Runs of the Fuser (.fuse/) are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import store
from store.commandline.members import AuthorOption
from store.errors import ImportFailed
from store.foreign.text_files import Fields
from store.importers.reading import pieces, sources

NAME = "kernelagent"
DATABASE, PROBLEM, RESULT = "program_database.json", "problem.txt", "result.json"
_PART = re.compile(r"workers/worker_([0-9]{1,6})/round_([0-9]{1,6})\.json|seed_([0-9]{1,6})\.py")
"""A round of a worker, or the seed of one, inside a session."""


@dataclass(frozen=True, kw_only=True)
class Config(pieces.ProgramOrigin):
    policy: AuthorOption = NAME
    entry_point: str = "kernel_function"


def recognize(path: Path) -> str | None:
    for file in sources.list_files(path, DATABASE, f"*/{DATABASE}", f"*/*/{DATABASE}"):
        if sources.has_names(file, "programs"):
            return f"{file.name} with programs"
    for file in sources.list_files(path, PROBLEM, f"*/{PROBLEM}", f"*/*/{PROBLEM}"):
        if path.is_dir() and any(file.parent.glob("seed_[0-9]*.py")):
            return f"{file.relative_to(path)} with seeds"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield each database and each session in a bundle or several."""
    root = sources.require_path(path, f"{DATABASE} of KernelAgent, a session, or their folder")
    databases = [root] if root.is_file() else sorted(root.rglob(DATABASE))
    sessions = sorted(file.parent for file in root.rglob(PROBLEM)) if root.is_dir() else []
    files = [
        pieces.open_documents(
            None, [file], root, lambda one: pieces.parse_document(one, root).list("programs")
        )
        for file in databases
    ]
    for folder in sessions:
        parts = _list_session(folder)
        if parts:
            about = [file for file in (folder / PROBLEM, folder / RESULT) if file.is_file()]
            parse = partial(_parse_session, root=root)
            files.append(pieces.open_documents(folder.name, [*about, *parts], root, parse))
    if not files:
        raise ImportFailed(
            f"{root} holds no {DATABASE} and no session", "Name the log folder of KernelAgent."
        )
    reading = pieces.Import(lake, NAME, config)
    yield from reading.read(
        files,
        lambda: partial(
            _add, config, pieces.ProgramRows(reading, config.problem or NAME, config.entry_point)
        ),
    )


def _list_session(folder: Path) -> list[Path]:
    """Return the rounds of a session by worker, and the seeds of workers without rounds."""
    found = [*folder.glob("workers/worker_*/round_*.json"), *folder.glob("seed_*.py")]
    parts = [
        (int(match[1] or match[3]), int(match[2] or 0), file)
        for file in found
        if (match := _PART.fullmatch(file.relative_to(folder).as_posix()))
    ]
    started = {worker for worker, _, file in parts if file.suffix == ".json"}
    return [
        file for worker, _, file in sorted(parts) if file.suffix == ".json" or worker not in started
    ]


def _parse_session(file: Path, root: Path) -> Iterator[Fields]:
    if file.name in (PROBLEM, RESULT):
        return
    is_seed = file.suffix == ".py"
    folder = file.parent if is_seed else file.parents[2]
    match = _PART.fullmatch(file.relative_to(folder).as_posix())
    assert match is not None
    if is_seed:
        values: dict[str, Any] = {"round": 0, "kernel_code": sources.read_text(file, root)}
    else:
        values = dict(pieces.parse_document(file, root).values)
    values |= {"session": folder.name, "worker": int(match[1] or match[3])}
    values["problem"] = sources.read_text(folder / PROBLEM, root)
    if (folder / RESULT).is_file():
        result = pieces.parse_document(folder / RESULT, root)
        if result.values.get("kernel_code") == values.get("kernel_code"):
            values["performance"] = result.inner("performance").values
    yield Fields(values=values, where=str(file))


def _add(
    config: Config, programs: pieces.ProgramRows, rows: pieces.BundleRows, program: Fields
) -> None:
    kernel_id = programs.add_code(rows, program.code("kernel_code"))
    if "session" in program.values:
        session, worker = program.require_text("session"), program.require_whole("worker")
        name = parent = f"worker {worker}"
        turn, problem = program.require_whole("round"), session
        prompt, at = program.prose("problem"), program.moment("timestamp")
        place = [session, str(worker), str(turn), kernel_id or ""]
        quote = f"round {turn} of {name} in {session}"
        success, figures = program.flag("success"), program.inner("performance")
        time_ms, speedup = figures.positive("triton_time_ms"), figures.positive("speedup")
    else:
        name, parent = program.require_text("program_id"), program.text("parent_id")
        # The path of the problem's file; its last two parts name the problem.
        problem = "/".join(PurePosixPath(program.text("problem_id") or NAME).parts[-2:])
        turn, session, prompt = program.whole("generation"), None, None
        at = program.moment("created_at")
        place = [problem, name, kernel_id or "", program.text("created_at") or ""]
        quote = f"program {name} of {problem}"
        success, time_ms, speedup = None, program.inner("metrics").positive("time_ms"), None
    messages = [] if prompt is None else [{"role": "user", "content": prompt}]
    attempt = programs.add(
        rows,
        name,
        place,
        kernel_id=kernel_id,
        parent=parent,
        problem=config.problem or problem,
        prompt_id=rows.add_prompt(messages, programs.reading.task_id),
        trajectory_id=None if session is None else rows.identify(place[:2]),
        turn=turn,
        created_at=at,
    )
    rows.add_result(attempt, success, quote, gpu=config.gpu)
    rows.add_claim(attempt, "latency_ms", time_ms, quote, gpu=config.gpu)
    rows.add_claim(attempt, "speedup", speedup, quote, gpu=config.gpu, baseline="eager")
