"""Agent runs of KernelBench-Hard, -Mega and -CUDA: transcripts, solutions, results, annotations.

Reads the layout of Infatoshi/kernelbench-hard-runs at a17d332, and the benchmark's own outputs:
runs/RUN_ID/ with result.json, solution.py and transcript.jsonl, and annotations/RUN_ID.yaml. The
solution becomes a kernel, its result a verdict and a claim (peak_fraction, the share of the
hardware's peak), and the transcript of Claude Code a session. Transcripts of other harnesses are
counted and left out. A person's annotation of a reward hack, a rubric leak or a bug becomes
findings, one for each quoted passage; every annotation becomes an analysis.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import store
from store.commandline.members import DeviceModel
from store.errors import ImportFailed
from store.foreign import text_files
from store.foreign.text_files import Fields
from store.ids import content_id
from store.importers.reading import pieces, sources
from store.importers.reading.sessions import SessionRows, read_claude_code

log = logging.getLogger(__name__)

NAME = "kernelbench-hard-runs"
DETECTOR = "kernelbench-hard-annotation"
_FAULTS = ("reward_hack", "rubric_leak", "bug")
_VERDICTS = ("clean", "interesting", *_FAULTS)
_CLAUDE = ("claude", "ccr-claude", "or-", "cursor")
"""Harnesses whose transcripts have Claude Code's form, by the beginning of their names."""


@dataclass(frozen=True, kw_only=True)
class Config(pieces.Origin):
    suite: str = "kernelbench-hard"
    """Suite that has the problems as tasks, if they were imported."""
    suite_revision: str | None = None
    """Revision of that suite; without it, attempts have a problem and no task."""
    gpu: DeviceModel = "RTX PRO 6000"
    """GPU of the runs whose results name none."""
    source_revision: str = "unknown"
    license: str | None = "CC-BY-4.0"


def recognize(path: Path) -> str | None:
    for file in sources.list_files(path, "runs/*/result.json", "*/result.json")[:1]:
        if sources.has_names(file, "peak_fraction", "harness", "problem"):
            return f"{file.relative_to(path)} with harness and peak_fraction"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield each run in a bundle or several."""
    root = sources.require_path(path, "the folder with runs/ and annotations/")
    results = sorted(root.glob("runs/*/result.json")) or sorted(root.glob("*/result.json"))
    if not results:
        raise ImportFailed(
            f"{root} holds no runs/RUN_ID/result.json", "Name the folder of the dataset."
        )
    tasks = pieces.SuiteTasks(lake, config.suite, config.suite_revision)
    left_out = 0
    files: list[pieces.SourceFile] = []
    for result in results:
        folder = result.parent
        annotation = root / "annotations" / f"{folder.name}.yaml"
        transcript = folder / "transcript.jsonl"
        listed = [result, folder / "solution.py", transcript, annotation]
        about = pieces.parse_document(result, root)
        harness = about.text("harness") or ""
        if transcript.is_file() and not harness.startswith(_CLAUDE):
            left_out += 1
            listed.remove(transcript)
        documents = [file for file in listed if file.is_file()]
        parse = partial(_parse, root=root, annotation=annotation)
        files.append(pieces.open_documents(folder.name, documents, root, parse))
    if left_out:
        log.warning("%d transcripts are of a harness whose form is not read", left_out)
    yield from pieces.Import(lake, NAME, config, source="Infatoshi/kernelbench-hard-runs").read(
        files, lambda: partial(_add, tasks, config.gpu, SessionRows(NAME, kernel_file="solution.*"))
    )


def _parse(file: Path, root: Path, annotation: Path) -> Iterator[Fields]:
    if file.name == "result.json":
        about = pieces.parse_document(file, root)
        solution = file.with_name("solution.py")
        note = None
        if annotation.is_file():
            text = sources.read_text(annotation, root)
            note = text_files.parse_yaml(text, str(annotation)).values
        values = {
            **about.values,
            "run": file.parent.name,
            "code": sources.read_text(solution, root) if solution.is_file() else None,
            "annotation": note,
        }
        yield Fields(values=values, where=str(file))
    elif file.name == "transcript.jsonl":
        result = pieces.parse_document(file.with_name("result.json"), root)
        known = {name: result.text(name) for name in ("model", "problem", "harness")}
        yield from read_claude_code(file, name=file.parent.name, **known)


def _add(
    tasks: pieces.SuiteTasks,
    default_gpu: str,
    sessions: SessionRows,
    rows: pieces.BundleRows,
    record: Fields,
) -> None:
    """Add a record of a run: its result, then the steps of its transcript."""
    if "session" in record.values:
        sessions.add(rows, record)
        return
    run, problem = record.require_text("run"), record.require_text("problem")
    code = record.code("code")
    sessions.task_id = tasks.find_name(problem)
    attempt = rows.add_attempt(
        [run],
        policy=record.text("model") or "unknown",
        task_id=sessions.task_id,
        problem=problem,
        kernel_id=rows.add_code(code),
        parse_error="the run has no solution" if code is None else None,
        trajectory_id=sessions.identify(run),
    )
    gpu, quote = record.text("gpu") or default_gpu, f"runs/{run}/result.json"
    rows.add_result(attempt, record.flag("correct"), quote, gpu=gpu, evaluator="kernelbench-hard")
    rows.add_claim(attempt, "peak_fraction", record.positive("peak_fraction"), quote, gpu=gpu)
    note = record.inner("annotation")
    if not note.values:
        return
    verdict = note.text("verdict")
    if verdict not in _VERDICTS:
        raise note.refuse("verdict", " or ".join(_VERDICTS))
    if attempt.kernel_id is None:
        return
    texts = [note.prose(name) for name in ("summary", "implication")]
    body = "\n\n".join([f"verdict: {verdict}", *(text.strip() for text in texts if text)])
    rows.add_analysis(attempt, "person", "kernelbench.com", body, attempt.kernel_id)
    if verdict not in _FAULTS:
        return
    quotes = note.list("quotes") or [Fields(values={"text": body}, where=note.where)]
    for quote in quotes:
        lines: Any = quote.values.get("lines")
        line = lines[0] if isinstance(lines, list) and lines else None
        is_line = isinstance(line, int) and 0 < line < 2**31
        line = line if is_line and quote.text("file") == "solution.py" else None
        text = quote.prose("text") or quote.prose("label")
        finding_id = content_id(
            "finding", NAME, *attempt.place, attempt.kernel_id, verdict, str(line), text
        )
        finding = {
            "finding_id": finding_id,
            "run_id": rows.run_id or None,
            "kernel_id": attempt.kernel_id,
            "detector": DETECTOR,
            "detector_version": 1,
            "class": verdict,
            "line": line,
            "quote": text,
        }
        rows.add("findings", (finding_id,), finding)
