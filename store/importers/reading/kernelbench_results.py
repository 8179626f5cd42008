"""Reads KernelBench's JSON files, eval_results.json and baseline_time_*.json, tolerantly."""

from __future__ import annotations

import json
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from store.errors import ImportFailed
from store.foreign.fields import clean
from store.importers.kernelbench import split_stem
from store.importers.reading import sources
from store.importers.reading.flashinfer import require_object
from store.schema.baselines import list_baselines

Mapping: TypeAlias = "dict[str, Any]"

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
    metadata: Mapping
    latency_ms: float | None
    """Mean runtime; None if it was not measured or the kernel is wrong."""
    text: str
    """The verdict as JSON, which identifies it."""

    @property
    def hardware(self) -> str:
        """Full name of the GPU, or unknown."""
        return _line(self.metadata.get("hardware")) or "unknown"

    def verdict(self) -> Mapping:
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
    found: list[Entry] = []
    for problem, value in require_object(sources.parse_json(text, file), f"{file}").items():
        where = f"{file}, problem {problem!a:.20}"
        if not re.fullmatch(r"[0-9]{1,6}", problem):
            raise ImportFailed(f"{where} is no number", "The keys are problem numbers.")
        listed: list[Any] = value if isinstance(value, list) else [value]
        for index, one in enumerate(listed):
            found.append(parse_entry(int(problem), one, f"{where}, entry {index}"))
    return found


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
    for level, named in require_object(sources.parse_json(text, file), f"{file}").items():
        match = re.fullmatch(r"level_?([0-9]{1,3})", level)
        if match is None:
            raise ImportFailed(f"{file}: {level!a:.40} is no level", "The keys are level1, level2.")
        for name, value in require_object(named, f"{file}, {level}").items():
            where = f"{file}, {level}, {name!a:.80}"
            problem = split_stem(name.removesuffix(".py"))
            if problem is None:
                raise ImportFailed(f"{where} is no name of a problem", "They are like 12_Name.py.")
            stats = require_object(value, where)
            mean_ms = _read_positive(stats.get("mean"))
            if mean_ms is not None:
                key = (int(match[1]), problem[0])
                figures[key] = (clean(name), _line(stats.get("hardware")), mean_ms)
    return Baseline(name=file.name, kind=kind or known or "", figures=figures)


def parse_entry(problem_id: int, value: Any, where: str) -> Entry:
    """Return one verdict; raises ImportFailed if it does not say whether the kernel is correct."""
    fields = require_object(value, where)
    sample_id = fields.get("sample_id", 0)
    if not isinstance(sample_id, int) or not 0 <= sample_id < 1_000_000:
        raise ImportFailed(f"{where}: sample_id is {sample_id!a:.40}, no sample number")
    correct = _flag(fields, ("correctness", "correct"), where)
    stats = fields.get("runtime_stats")
    runtime = _read_positive(fields.get("runtime"))
    if runtime is None and isinstance(stats, dict):
        runtime = _read_positive(cast("Mapping", stats).get("mean"))
    metadata = fields.get("metadata") or {}
    compiled = _flag(fields, ("compiled",), where) if "compiled" in fields else correct
    return Entry(
        problem_id=problem_id,
        sample_id=sample_id,
        compiled=compiled,
        correct=correct,
        metadata=require_object(metadata, f"{where}, metadata"),
        latency_ms=runtime if correct and compiled else None,
        text=json.dumps(fields, sort_keys=True),
    )


def _flag(fields: Mapping, names: tuple[str, ...], where: str) -> bool:
    for name in names:
        if name in fields:
            if not isinstance(fields[name], bool):
                raise ImportFailed(f"{where}: {name} is {fields[name]!a:.40}, not true or false")
            return bool(fields[name])
    raise ImportFailed(f"{where} says no {' or '.join(names)}")


def _read_positive(value: Any) -> float | None:
    """Return a measured time; KernelBench writes -1.0 if it did not measure."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and number > 0 else None


def _line(value: Any) -> str:
    """Return a value as one clean line of text."""
    if value is None:
        return ""
    return " ".join(clean(value if isinstance(value, str) else json.dumps(value)).split())
