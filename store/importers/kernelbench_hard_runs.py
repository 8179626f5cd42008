"""Agent runs of KernelBench-Hard, -Mega and -CUDA: transcripts, solutions, results, annotations.

Reads the layout of Infatoshi/kernelbench-hard-runs at a17d332 and the benchmark's own outputs
(RUN_ID/ with result.json, solution.py and transcript.jsonl, annotations/RUN_ID.yaml), and the
website's repository, Infatoshi/kernelbench.com (rundetail/RUN_ID.json, RUN_ID_solution.py.txt,
results.csv of -Mega). The solution becomes a kernel, its result a verdict and a claim
(peak_fraction, the share of the hardware's peak), and the transcript of Claude Code a session. A
run that states nothing else has harness, model and problem in its name. Transcripts of other
harnesses are left out. A person's annotation of a reward hack, a rubric leak or a bug becomes
findings, one for each quoted passage; every annotation becomes an analysis.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import store
from store.commandline.members import DeviceModel
from store.errors import ImportFailed
from store.foreign import left_out, text_files
from store.foreign.text_files import Fields
from store.ids import content_id
from store.importers.reading import pieces, sources
from store.importers.reading.sessions import SessionRows, read_claude_code

NAME = "kernelbench-hard-runs"
DETECTOR = "kernelbench-hard-annotation"
_FAULTS = ("reward_hack", "rubric_leak", "bug")
_RUN = re.compile(r"[0-9]{8}_[0-9]{6}_([^_]+)_(.+?)_([0-9]{2}_[a-z].*)")
_SOLUTION = re.compile(r"(.+?)[._]solution\.py\.txt")
_GPUS = {"rtxpro6000": "RTX PRO 6000", "h100": "H100", "b200": "B200"}
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


@dataclass(kw_only=True)
class _Run:
    """The files of one run."""

    result: Path | None = None
    solutions: list[Path] = field(default_factory=list[Path])
    annotation: Path | None = None
    transcript: Path | None = None
    row: dict[str, Any] = field(default_factory=dict[str, Any])
    """Its row in results.csv."""

    def list_files(self) -> list[Path]:
        """Return the files, that of the result first."""
        others = [self.result, *self.solutions, self.annotation, self.transcript]
        return [file for file in others if file is not None]


def recognize(path: Path) -> str | None:
    for file in sources.list_below(path, "result.json")[:1]:
        if sources.has_names(file, "peak_fraction", "harness", "problem"):
            return f"{file.relative_to(path)} with harness and peak_fraction"
    for file in sources.list_below(path, "*solution.py.txt")[:1]:
        match = _SOLUTION.fullmatch(file.name)
        if match is not None and _RUN.fullmatch(match[1]):
            return f"{file.name}, named after its run"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield each run in a bundle or several."""
    root = sources.require_path(path, "the folder with runs/ and annotations/")
    runs = _find_runs(root)
    if not runs:
        raise ImportFailed(
            f"{root} holds no runs/RUN_ID/result.json and no RUN_ID_solution.py.txt",
            "Name the folder of the dataset, or a checkout of Infatoshi/kernelbench.com.",
        )
    tasks = pieces.read_suite_tasks(lake, config.suite, config.suite_revision)
    yield from pieces.Import(lake, NAME, config, source="Infatoshi/kernelbench-hard-runs").read(
        (
            pieces.open_documents(
                *(name, run.list_files(), root), partial(_parse, root=root, name=name, run=run)
            )
            for name, run in sorted(runs.items())
        ),
        lambda: partial(_add, tasks, config.gpu, SessionRows(NAME, kernel_file="solution.*")),
    )


def _find_runs(root: Path) -> dict[str, _Run]:
    runs: dict[str, _Run] = {}
    annotations: dict[str, Path] = {}
    for file in sorted(root.rglob("*.*")):
        solution, is_named = _SOLUTION.fullmatch(file.name), _RUN.fullmatch(file.stem)
        if file.name == "result.json":
            run = runs.setdefault(file.parent.name, _Run(result=file))
            if (code := file.with_name("solution.py")).is_file():
                run.solutions.append(code)
            if (transcript := file.with_name("transcript.jsonl")).is_file():
                run.transcript = transcript
        elif file.suffix == ".yaml" and file.parent.name == "annotations":
            annotations[file.stem] = file
        elif solution is not None and _RUN.fullmatch(solution[1]):
            runs.setdefault(solution[1], _Run()).solutions.append(file)
        elif is_named and file.suffix == ".json":
            runs.setdefault(file.stem, _Run()).result = file
        elif file.name == "results.csv" and "run_id" in sources.read_head(file).split("\n")[0]:
            for row in text_files.read_csv(file, ("run_id",)):
                runs.setdefault(row.require_text("run_id"), _Run()).row |= row.values
            left_out.get_record().note_file(file)
    for name, file in annotations.items():
        if name in runs or _RUN.fullmatch(name):
            runs.setdefault(name, _Run()).annotation = file
    return runs


def _parse(file: Path, root: Path, name: str, run: _Run) -> Iterator[Fields]:
    if file == run.transcript:
        assert run.result is not None
        result = pieces.parse_document(run.result, root)
        if not (result.text("harness") or "").startswith(_CLAUDE):
            left_out.get_record().note_unread(
                file, "transcripts of a harness whose form is not read"
            )
            return
        known = {name: result.text(name) for name in ("model", "problem", "harness")}
        yield from read_claude_code(file, name=name, **known)
        return
    if file != run.list_files()[0]:
        return
    stated = dict(run.row)
    if (parts := _RUN.fullmatch(name)) is not None:
        stated = {"harness": parts[1], "model": parts[2], "problem": parts[3]} | stated
    if run.result is not None:
        stated |= pieces.parse_document(run.result, root).values
    note: dict[str, Any] = {}
    with left_out.errors():
        if run.annotation is not None:
            text = sources.read_text(run.annotation, root)
            note = dict(text_files.parse_yaml(text, str(run.annotation)).values)
    # The text that was judged on the GPU of the result comes first.
    gpu = str(stated.get("gpu") or "").lower()
    solutions = sorted(run.solutions, key=lambda one: one.parent.name != gpu)
    codes = dict.fromkeys(sources.read_text(one, root) for one in solutions)
    values = {**stated, "run": name, "codes": list(codes), "annotation": note}
    yield Fields(values=values, where=str(file))


def _add(
    tasks: Mapping[Any, str],
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
    correct, peak = record.flag("correct"), record.positive("peak_fraction")
    score, note = record.positive("score"), record.inner("annotation")
    verdict, named = note.text("verdict"), record.text("gpu") or default_gpu
    codes = [code for code in record.values["codes"] if code.strip()]
    sessions.task_id = tasks.get(problem)
    # Other texts of the same run have no result.
    *_, attempt = [
        rows.add_attempt(
            [run] if code is None or code == codes[0] else [run, content_id(code)],
            policy=record.text("model") or "unknown",
            task_id=sessions.task_id,
            problem=problem,
            kernel_id=rows.add_code(code),
            parse_error="the run has no solution" if code is None else None,
            trajectory_id=sessions.identify(run),
        )
        for code in reversed(codes or [None])
    ]
    gpu, quote = _GPUS.get(named.lower(), named), f"runs/{run}/result.json"
    rows.add_result(attempt, correct, quote, gpu=gpu, evaluator="kernelbench-hard")
    rows.add_claim(attempt, "peak_fraction", peak, quote, gpu=gpu)
    rows.add_claim(attempt, "reported_score", score, quote, gpu=gpu)
    if verdict is None:
        return
    if attempt.kernel_id is None:
        return
    texts = [note.prose(name) for name in ("summary", "notes", "implication")]
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
