"""A run folder of KernelBench: generated kernels, their prompts, and eval_results.json.

Kernels are files such as level_1_problem_12_sample_0_kernel.py, with _prompt.txt beside them if
prompts were logged. Import the tasks first (`store import kernelbench`). The files state one mean
runtime without samples: it becomes a claim in milliseconds, never a timing.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import store
from store.commandline.members import AuthorOption
from store.errors import ImportFailed
from store.foreign import text_files
from store.foreign.text_files import Fields, clean, read_figure
from store.ids import content_id
from store.importers.kernelbench import split_stem
from store.importers.reading import pieces, sources
from store.schema.baselines import Baseline, list_baselines

log = logging.getLogger(__name__)

NAME = "kernelbench-run"
EVALUATOR = "kernelbench"
RESULTS = "eval_results.json"
SUITE = "kernelbench"
_KERNEL = re.compile(r"level_([0-9]{1,3})_problem_([0-9]{1,6})_sample_([0-9]{1,6})_kernel\.py")
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
class Config(pieces.Origin):
    suite_revision: str | None = None
    """Revision of KernelBench that the run used, as it was imported; required."""
    policy: AuthorOption | None = None
    """Who wrote the kernels (default: the folder's name)."""
    baseline: Path | None = None
    """Timing file (results/timing/GPU/baseline_time_*.json) to compute claimed speedups from."""
    baseline_kind: Baseline | None = None
    """What the timing file measured, if its name does not state it."""
    source_revision: str | None = None
    """Revision of the run (default: a hash of eval_results.json)."""
    evaluator_version: int = 0
    """Version of KernelBench's evaluator to record; 0 means that it is unknown."""


def recognize(path: Path) -> str | None:
    for file in sources.list_files(path, "level_*_problem_*_sample_*_kernel.py"):
        if path.is_dir() and _KERNEL.fullmatch(file.name):
            return f"{file.name}: a kernel named by level, problem and sample"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the run as one bundle, without the evaluations that the lake has already."""
    folder = sources.require_path(path, "a run folder of KernelBench")
    labels = lake.run(
        "SELECT DISTINCT suite_revision, level, problem_id, task_id FROM task_labels "
        "WHERE suite = $1 ORDER BY ALL",
        [SUITE],
    ).rows()
    known, revision = sorted({str(row["suite_revision"]) for row in labels}), config.suite_revision
    if revision is None or revision not in known:
        there = f"The lake has {', '.join(known)}." if known else "The lake has none."
        raise ImportFailed(
            f"no tasks of KernelBench {revision}"
            if revision
            else "the revision of KernelBench is missing",
            f"{there} Import its tasks first (store import kernelbench CHECKOUT --revision R), "
            "then add --suite-revision R.",
        )
    task_ids: dict[tuple[int, int], list[str]] = {}
    for row in labels:
        if row["suite_revision"] == revision:
            task_ids.setdefault((row["level"], row["problem_id"]), []).append(row["task_id"])
    files = {
        tuple(map(int, match.groups())): file
        for file in (folder.iterdir() if folder.is_dir() else ())
        if (match := _KERNEL.fullmatch(file.name))
    }
    if not files:
        raise ImportFailed(
            f"{folder} is no run folder: it holds no level_L_problem_P_sample_S_kernel.py",
            "Name one folder of KernelBench's runs/, such as runs/my_run.",
        )
    files = dict(sorted(files.items()))
    contents = {sample: sources.read_bytes(file, folder) for sample, file in files.items()}
    prompts = {
        sample: prompt
        for sample, file in files.items()
        if (prompt := file.with_name(f"{_stem(file)}_prompt.txt")).exists()
    }
    judged = folder / RESULTS
    verdicts = sources.read_bytes(judged, folder) if judged.exists() else b""
    timed = b""
    if config.baseline is not None:
        timed = sources.read_bytes(config.baseline, config.baseline.parent)
    content = sources.digest(
        [(_stem(files[sample]), data) for sample, data in contents.items()]
        + [(prompt.name, sources.read_bytes(prompt, folder)) for prompt in prompts.values()]
        + [(RESULTS, verdicts), ("baseline", timed)]
    )
    policy = config.policy or folder.resolve().name
    source_revision = config.source_revision
    if source_revision is None and verdicts:
        source_revision = f"sha256:{sources.digest([(RESULTS, verdicts)])[:16]}"
    reading = pieces.Import(lake, NAME, config, source_revision=source_revision)
    rows, message = reading.start(f"{policy} {content}"), f"{NAME} {policy}"
    if rows.is_new:
        rows.add_policy(policy, "model")
        baseline_kind, timings = "", dict[tuple[int, int], tuple[str, str, float]]()
        if config.baseline is not None:
            text = sources.decode(timed, config.baseline)
            baseline_kind, timings = parse_baseline(text, config.baseline, config.baseline_kind)
        entries = parse_entries(sources.decode(verdicts, judged), judged) if verdicts else []
        by_place: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for sample in files:
            by_place.setdefault(sample[1:], []).append(sample)
        by_sample: dict[tuple[int, ...], list[Entry]] = {}
        for entry in entries:
            fitting = by_place.get((entry.problem_id, entry.sample_id), [])
            if len(fitting) > 1:
                levels = ", ".join(str(level) for level, _, _ in fitting)
                raise ImportFailed(
                    f"{judged}: problem {entry.problem_id} may be of level {levels}",
                    "Give every level a run folder of its own.",
                )
            for sample in fitting:
                by_sample.setdefault(sample, []).append(entry)
        count = sum(map(len, by_sample.values()))
        if count < len(entries):
            lost = len(entries) - count
            log.warning("%d of %d verdicts in %s have no kernel file", lost, len(entries), judged)
        for sample, data in contents.items():
            level, problem_id, sample_id = sample
            fitting = task_ids.get((level, problem_id), [])
            if len(fitting) != 1:
                there = f"has {len(fitting)} texts" if fitting else "is not"
                raise ImportFailed(
                    f"{files[sample].name}: level {level} problem {problem_id} of KernelBench "
                    f"{revision} {there} in the lake",
                    "Name a suite revision under which one checkout alone was imported."
                    if fitting
                    else "Import that level first: store import kernelbench CHECKOUT "
                    f"--revision {revision}",
                )
            (task_id,) = fitting
            code = sources.decode(data, files[sample])
            kernel_id = rows.add_code(code if code.strip() else None)
            messages: list[dict[str, str]] = []
            if sample in prompts:
                prompt = sources.read_text(prompts[sample], folder)
                messages = [{"role": "user", "content": prompt}]
            attempt = rows.add_attempt(
                [policy, task_id, str(sample_id), kernel_id],
                policy=policy,
                task_id=task_id,
                kernel_id=kernel_id,
                prompt_id=rows.add_prompt(messages, task_id),
                group_id=content_id("group", NAME, policy, task_id),
                sample_index=sample_id,
                parse_error="the kernel file is empty" if kernel_id is None else None,
            )
            place = [policy, task_id, kernel_id, str(sample_id)]
            for entry in by_sample.get(sample, []) if kernel_id is not None else ():
                rows.add_verdict(
                    attempt,
                    evaluator=EVALUATOR,
                    evaluator_version=config.evaluator_version,
                    gpu=entry.hardware,
                    device_id=rows.add_device(entry.hardware, EVALUATOR),
                    evaluation_id=content_id("evaluation", NAME, *place, entry.text),
                    **entry.verdict(),
                )
                if entry.latency_ms is None:
                    continue
                where = f"problem {problem_id}, sample {sample_id}"
                figures: list[tuple[str, str | None, float, str]] = [
                    ("latency_ms", None, entry.latency_ms, where)
                ]
                # One timing file may mix GPUs, and a speedup compares times of one.
                name, timed_on, mean_ms = timings.get((level, problem_id), ("", "", 0.0))
                if config.baseline is not None and timed_on == entry.hardware:
                    file = config.baseline.name
                    quote = f"level{level}/{name} in {file}: mean {mean_ms} ms, unpaired"
                    speedup = mean_ms / entry.latency_ms
                    figures.append(("speedup", baseline_kind, speedup, f"{quote} / {where}"))
                gpu = pieces.gpu_name(entry.hardware)
                for metric, kind, figure, quote in figures:
                    rows.add_claim(
                        attempt,
                        metric,
                        figure,
                        f"{quote} in {RESULTS}: runtime {entry.latency_ms} ms on {entry.hardware}",
                        gpu=gpu,
                        baseline=kind,
                        claim_id=content_id("claim", NAME, *place, gpu, metric, kind, repr(figure)),
                        source=f"{NAME} {policy}",
                    )
        metrics = [row["metric"] for row in rows.tables.get("claims", {}).values()]
        timed_kernels, compared = metrics.count("latency_ms"), metrics.count("speedup")
        if config.baseline is not None and compared < timed_kernels:
            log.warning(
                "%d of %d timed kernels have no speedup: %s has no figure for them on their GPU",
                timed_kernels - compared,
                timed_kernels,
                config.baseline.name,
            )
        message += f": {len(files)} kernels, {count} verdicts"
    yield reading.finish(rows, message, policy)


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


def parse_entries(text: str, file: Path) -> list[Entry]:
    """Return the verdicts of eval_results.json; a single object counts as a list of one.

    Raises ImportFailed for anything that is not {problem: [{sample_id, compiled, correctness}]}.
    """
    document = text_files.parse_object(text, f"{file}")
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


def parse_baseline(
    text: str, file: Path, kind: str | None
) -> tuple[str, dict[tuple[int, int], tuple[str, str, float]]]:
    """Return what a baseline_time_*.json timed, and its figures.

    Its name or `kind` states what it timed. A figure is that of (level, problem): file name, GPU
    and mean in milliseconds.

    Raises ImportFailed if that is unknown, or the file is not {level1: {file.py: {mean}}}.
    """
    known = _BASELINE_KINDS.get(file.stem.removeprefix("baseline_time_"))
    if kind is None and known is None:
        raise ImportFailed(
            f"what {file.name} timed cannot be told from its name",
            f"Add --baseline-kind: {', '.join(list_baselines())}.",
        )
    figures: dict[tuple[int, int], tuple[str, str, float]] = {}
    document = text_files.parse_object(text, f"{file}")
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
    return kind or known or "", figures


def _stem(file: Path) -> str:
    return file.name.removesuffix("_kernel.py")


def _line(value: Any) -> str:
    if value is None:
        return ""
    return " ".join(clean(value if isinstance(value, str) else json.dumps(value)).split())
