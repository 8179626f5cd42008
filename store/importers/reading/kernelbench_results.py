"""Reads KernelBench's JSON files, eval_results.json and baseline_time_*.json, tolerantly."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store.errors import ImportFailed
from store.foreign import json_text
from store.foreign.fields import Fields, clean, read_figure
from store.importers.kernelbench import split_stem
from store.schema.baselines import list_baselines

MESSAGE_CHARACTERS = 500
LOG_CHARACTERS = 8000

# The keys under which KernelBench notes an exception of the candidate that was running. It files
# a CUDA error as a failed compilation, but the code was built and died.
_CRASHES = ("runtime_error", "cuda_error", "gpu_error")
_BASELINE_KINDS = {
    "torch": "eager",
    "torch_compile_inductor_default": "compile",
    "torch_compile_inductor_reduce-overhead": "compile_reduce_overhead",
}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One verdict of eval_results.json."""

    problem_id: int
    sample_id: int
    compiled: bool
    correct: bool
    metadata: Mapping[str, Any]
    latency_ms: float | None
    """Mean runtime; None if it was not measured or the kernel is wrong."""
    text: str
    """The verdict as JSON, which identifies it."""

    @property
    def hardware(self) -> str:
        """Full name of the GPU, or unknown."""
        return _line(self.metadata.get("hardware")) or "unknown"

    def verdict(self) -> dict[str, Any]:
        """Return the columns of an evaluation that state its result."""
        metadata = self.metadata
        names = " ".join(str(metadata.get(f"{key}_name", "")) for key in _CRASHES)
        issue = str(metadata.get("correctness_issue", ""))
        status, reason = "incorrect", "unspecified"
        if self.correct and self.compiled:
            status, reason = "correct", None
        elif any(metadata.get(key) for key in _CRASHES):
            status, reason = "crash", "out_of_memory" if "OutOfMemory" in names else "exception"
        elif not self.compiled:
            status = "compile_error"
        elif "shape mismatch" in issue:
            reason = "incorrect_shape"
        elif "Output mismatch" in issue:
            reason = "incorrect_numerical"
        keys = [*_CRASHES, "compilation_error", "other_error", "error_message", "correctness_issue"]
        if not self.correct:
            keys.append("correctness_trials")
        message = next((text for key in keys if (text := _line(metadata.get(key)))), None)
        details = {
            key: value
            for key, value in metadata.items()
            if key not in ("hardware", "device", "correctness_trials")
        }
        flags = [
            flag for flag in ("excessive_speedup", "error_during_performance") if details.get(flag)
        ]
        stated = details.get("max_difference")
        listed: list[Any] = stated if isinstance(stated, list) else [stated]
        errors: list[float] = []
        for value in listed:  # numbers, or texts of numbers
            with suppress(TypeError, ValueError, OverflowError):
                errors.append(float(value))
        return {
            "status": status,
            "reason": reason,
            "message": message and message[:MESSAGE_CHARACTERS],
            "log": clean(json.dumps(details, indent=1))[:LOG_CHARACTERS] if details else None,
            "flags": flags or None,
            "max_abs_error": max(filter(math.isfinite, errors), default=None),
        }


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A file of reference timings."""

    name: str
    kind: str
    figures: dict[tuple[int, int], tuple[str, str, float]]
    """(level, problem) to file name, GPU and mean in milliseconds."""

    def figure(self, level: int, problem_id: int, entry: Entry) -> tuple[float, str] | None:
        """Return mean (ms) and origin of the reference's time on the GPU of a verdict.

        One timing file may mix GPUs, so each figure is compared with one of the same GPU.
        """
        found = self.figures.get((level, problem_id))
        if found is None or found[1] != entry.hardware:
            return None
        return found[2], f"level{level}/{found[0]} in {self.name}: mean {found[2]} ms, unpaired"


def parse_entries(text: str, file: Path) -> list[Entry]:
    """Return the verdicts of eval_results.json; a single object counts as a list of one.

    Raises ImportFailed for anything that is not {problem: [{sample_id, compiled, correctness}]}.
    """
    document = Fields(values=json_text.parse_object(text, f"{file}"), where=f"{file}")
    entries: list[Entry] = []
    for problem, value in document.values.items():
        if not re.fullmatch(r"[0-9]{1,6}", problem):
            raise ImportFailed(
                f"{file}, problem {problem!a:.20} is no number", "The keys are problem numbers."
            )
        is_one = isinstance(value, dict)
        listed = [document.inner(problem)] if is_one else document.list(problem)
        entries += [parse_entry(int(problem), one) for one in listed]
    return entries


def parse_entry(problem_id: int, fields: Fields) -> Entry:
    """Return one verdict; raises ImportFailed if it does not say whether the kernel is correct."""
    correct = fields.flag("correctness" if "correctness" in fields.values else "correct")
    if correct is None:
        raise ImportFailed(f"{fields.where} says no correctness or correct")
    compiled = fields.flag("compiled")
    compiled = correct if compiled is None else compiled
    stats = fields.values.get("runtime_stats")
    mean = stats.get("mean") if isinstance(stats, dict) else None
    # KernelBench writes -1.0 if it did not measure.
    runtime = read_figure(fields.values.get("runtime"), 0) or read_figure(mean, 0) or None
    return Entry(
        problem_id=problem_id,
        sample_id=fields.whole("sample_id") or 0,
        compiled=compiled,
        correct=correct,
        metadata=fields.inner("metadata").values,
        latency_ms=runtime if correct and compiled else None,
        text=json.dumps(dict(fields.values), sort_keys=True),
    )


def parse_baseline(text: str, file: Path, kind: str | None) -> Baseline:
    """Return the figures of a baseline_time_*.json; its name or `kind` states what it timed.

    Raises ImportFailed if that is unknown, or the file is not {level1: {file.py: {mean}}}.
    """
    known = _BASELINE_KINDS.get(file.stem.removeprefix("baseline_time_"))
    if kind is None and known is None:
        raise ImportFailed(
            f"what {file.name} timed cannot be told from its name",
            f"Add --baseline-kind: {', '.join(list_baselines())}.",
        )
    figures: dict[tuple[int, int], tuple[str, str, float]] = {}
    document = Fields(values=json_text.parse_object(text, f"{file}"), where=f"{file}")
    for level in document.values:
        match = re.fullmatch(r"level_?([0-9]{1,3})", level)
        if match is None:
            raise ImportFailed(f"{file}: {level!a:.40} is no level", "The keys are level1, level2.")
        named = document.inner(level)
        for name in named.values:
            problem, stats = split_stem(name.removesuffix(".py")), named.inner(name)
            if problem is None:
                raise ImportFailed(
                    f"{named.where}, {name!a:.80} is no name of a problem",
                    "They are like 12_Name.py.",
                )
            mean_ms = read_figure(stats.values.get("mean"), 0) or None
            if mean_ms is not None:
                key = (int(match[1]), problem[0])
                figures[key] = (clean(name), _line(stats.values.get("hardware")), mean_ms)
    return Baseline(name=file.name, kind=kind or known or "", figures=figures)


def _line(value: Any) -> str:
    """Return a value as one clean line of text."""
    if value is None:
        return ""
    return " ".join(clean(value if isinstance(value, str) else json.dumps(value)).split())
