"""A run folder of KernelBench: generated kernels, their prompts, and eval_results.json.

Files are level_1_problem_12_sample_0_kernel.py (and _prompt.txt where prompts were logged). The
tasks have to be in the lake already (`store import kernelbench`). Runtimes come as one mean
without samples: they are stored as claims in milliseconds, never as timings.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from store.bundle import Bundle
from store.errors import ImportFailed
from store.importers import _kernelbench_results as results
from store.importers import _sources
from store.importers._kernelbench_results import Baseline, Entry
from store.importers._rows import Gathered
from store.ids import content_id, workload_id

if TYPE_CHECKING:
    import store

log = logging.getLogger(__name__)

NAME = "kernelbench-run"
IMPORTER_VERSION = 1
SUITE = "kernelbench"
EVALUATOR = "kernelbench"
RESULTS = "eval_results.json"
_KERNEL = re.compile(r"level_([0-9]{1,3})_problem_([0-9]{1,6})_sample_([0-9]{1,6})_kernel\.py")

BaselineKind: TypeAlias = Literal["eager", "compile", "compile_reduce_overhead", "cuda_graph"]


@dataclass(frozen=True, kw_only=True)
class Config:
    """Options of the kernelbench-run importer."""

    suite_revision: str | None = None
    """Revision of KernelBench that the run was made on, as it was imported; has to be said."""
    policy: str | None = None
    """Who wrote the kernels (default: the folder's name)."""
    baseline: Path | None = None
    """Timing file (results/timing/GPU/baseline_time_*.json) to state speedups from, as claims."""
    baseline_kind: BaselineKind | None = None
    """What the timing file timed, where its name does not say."""
    source_revision: str | None = None
    """Revision of the run (default: a hash of eval_results.json)."""
    license: str | None = None
    """SPDX identifier under which the kernels were released."""
    evaluator_version: int = 0
    """Version to give to KernelBench's evaluator; 0 stands for: the files do not record it."""


@dataclass(frozen=True, order=True)
class Sample:
    """Place of a kernel in a run."""

    level: int
    problem_id: int
    sample_id: int

    @property
    def prompt_name(self) -> str:
        """Name of the file with the prompt."""
        return f"{self.stem}_prompt.txt"

    @property
    def stem(self) -> str:
        """What the names of the sample's files begin with."""
        return f"level_{self.level}_problem_{self.problem_id}_sample_{self.sample_id}"


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[Bundle]:
    """Yield the run as one bundle; evaluations that the lake holds are left out.

    Raises ImportFailed where a task is not in the lake, or a file is malformed.
    """
    folder = _sources.required(path, "a run folder of KernelBench")
    revision = _require_revision(config, lake)
    files = _kernel_files(folder)
    contents = {sample: _sources.read_bytes(file, folder) for sample, file in files.items()}
    prompts = {
        sample: _sources.read_bytes(prompt, folder)
        for sample in files
        if (prompt := folder / sample.prompt_name).exists()
    }
    judged = folder / RESULTS
    verdicts = _sources.read_bytes(judged, folder) if judged.exists() else b""
    timed = b""
    if config.baseline is not None:
        timed = _sources.read_bytes(config.baseline, config.baseline.parent)
    content = _sources.digest(
        [(sample.stem, data) for sample, data in contents.items()]
        + [(sample.prompt_name, data) for sample, data in prompts.items()]
        + [(RESULTS, verdicts), ("baseline", timed)]
    )
    policy = config.policy or folder.resolve().name
    identity = _sources.bundle_id(NAME, IMPORTER_VERSION, f"{policy} {content}", config)
    if _sources.stored(lake, identity):
        yield Bundle(bundle_id=identity, message=f"{NAME} {policy}")
        return

    source_revision = config.source_revision
    if source_revision is None and verdicts:
        source_revision = f"sha256:{_sources.digest([(RESULTS, verdicts)])[:16]}"
    gathered = Gathered(source=NAME, source_revision=source_revision, license=config.license)
    gathered.policy(policy, "model")
    run = _Run(
        gathered=gathered,
        policy=policy,
        run_id=identity,
        evaluator_version=config.evaluator_version,
        baseline=_baseline(config, timed),
    )
    entries = results.entries(_sources.decode(verdicts, judged), judged) if verdicts else []
    by_sample = _assign(entries, list(files), judged)
    tasks = _tasks(lake, revision, files)
    for sample, data in contents.items():
        code = _sources.decode(data, files[sample])
        prompt = prompts.get(sample)
        shown = None if prompt is None else _sources.decode(prompt, folder / sample.prompt_name)
        run.add(sample, tasks[sample.level, sample.problem_id], code, shown, by_sample[sample])
    run.leave_out_stored(lake)
    yield gathered.bundle(
        identity,
        f"{NAME} {policy}: {len(files)} kernels, {sum(map(len, by_sample.values()))} verdicts",
        importer=NAME,
        config=config,
        what=policy,
    )


@dataclass(frozen=True, kw_only=True)
class _Run:
    """The rows of one run folder while they are made."""

    gathered: Gathered
    policy: str
    run_id: str
    evaluator_version: int
    baseline: Baseline | None

    def add(
        self, sample: Sample, task_id: str, code: str, prompt: str | None, entries: list[Entry]
    ) -> None:
        """Add one attempt, with its kernel where the file is not empty."""
        empty = not code.strip()
        kernel_id = None if empty else self.gathered.kernel({"kernel.py": code})
        row = {
            "generation_id": content_id(
                "generation", NAME, self.policy, task_id, str(sample.sample_id), kernel_id
            ),
            "run_id": self.run_id,
            "task_id": task_id,
            "policy_id": self.policy,
            "kernel_id": kernel_id,
            "prompt_id": None if prompt is None else self.gathered.prompt(prompt, task_id),
            "group_id": content_id("group", NAME, self.policy, task_id),
            "sample_index": sample.sample_id,
            "parse_error": "the kernel file is empty" if empty else None,
            **self.gathered.origin(),
        }
        self.gathered.add("generations", (str(row["generation_id"]),), row)
        if kernel_id is not None:
            for entry in entries:
                self._judged(sample, task_id, kernel_id, entry)

    def leave_out_stored(self, lake: store.Lake) -> None:
        """Forget evaluations that an earlier import of the same run brought."""
        mine = self.gathered.tables.get("evaluations", {})
        known = lake.run(
            "SELECT evaluation_id FROM evaluations WHERE evaluation_id IN (SELECT unnest($1))",
            [[key for (key,) in mine]],
        ).rows()
        for row in known:
            del mine[(row["evaluation_id"],)]

    def _judged(self, sample: Sample, task_id: str, kernel_id: str, entry: Entry) -> None:
        place = [self.policy, task_id, kernel_id, str(sample.sample_id)]
        device = entry.device_row()
        self.gathered.add("devices", (device["device_id"],), device)
        evaluation_id = content_id("evaluation", NAME, *place, entry.text)
        self.gathered.add(
            "evaluations",
            (evaluation_id,),
            {
                "evaluation_id": evaluation_id,
                "run_id": self.run_id,
                "kernel_id": kernel_id,
                "task_id": task_id,
                "workload_id": workload_id(task_id),
                "device_id": device["device_id"],
                "evaluator": EVALUATOR,
                "evaluator_version": self.evaluator_version,
                **entry.verdict(),
                **self.gathered.origin(),
            },
        )
        if entry.latency_ms is None:
            return
        stem = f"problem {sample.problem_id}, sample {sample.sample_id}"
        self._claim(place, kernel_id, task_id, entry, stem, value=entry.latency_ms)
        if self.baseline is not None:
            found = self.baseline.figure(sample.level, sample.problem_id, entry)
            if found is not None:
                mean_ms, quote = found
                speedup = mean_ms / entry.latency_ms
                self._claim(place, kernel_id, task_id, entry, f"{quote} / {stem}", speedup=speedup)

    def _claim(
        self,
        place: list[str],
        kernel_id: str,
        task_id: str,
        entry: Entry,
        where: str,
        *,
        value: float | None = None,
        speedup: float | None = None,
    ) -> None:
        """State a latency, or a speedup over the baseline file: two runs that were not paired."""
        metric = "latency_ms" if speedup is None else "speedup"
        baseline = None if speedup is None or self.baseline is None else self.baseline.kind
        figure = repr(value if speedup is None else speedup)
        claim_id = content_id("claim", NAME, *place, entry.gpu, metric, baseline, figure)
        row = {
            "claim_id": claim_id,
            "run_id": self.run_id,
            "task_id": task_id,
            "kernel_id": kernel_id,
            "policy_id": self.policy,
            "gpu": entry.gpu,
            "baseline": baseline,
            "metric": metric,
            "speedup": speedup,
            "value": value,
            "quote": f"{where} in {RESULTS}: runtime {entry.latency_ms} ms on {entry.hardware}",
            **self.gathered.origin(f"{NAME} {self.policy}"),
        }
        self.gathered.add("claims", (claim_id,), row)


def _require_revision(config: Config, lake: store.Lake) -> str:
    known = [
        str(row["suite_revision"])
        for row in lake.run(
            "SELECT DISTINCT suite_revision FROM task_labels WHERE suite = $1 ORDER BY ALL",
            [SUITE],
        ).rows()
    ]
    if config.suite_revision in known:
        return str(config.suite_revision)
    said = config.suite_revision
    there = f"The lake has {', '.join(known)}." if known else "The lake has none."
    raise ImportFailed(
        f"no tasks of KernelBench {said}" if said else "the revision of KernelBench is not said",
        f"{there} Import its tasks first (store import kernelbench CHECKOUT --revision R), "
        "then add --suite-revision R.",
    )


def _kernel_files(folder: Path) -> dict[Sample, Path]:
    found = {
        Sample(int(match[1]), int(match[2]), int(match[3])): file
        for file in (folder.iterdir() if folder.is_dir() else ())
        if (match := _KERNEL.fullmatch(file.name))
    }
    if not found:
        raise ImportFailed(
            f"{folder} is no run folder: it holds no level_L_problem_P_sample_S_kernel.py",
            "Name one folder of KernelBench's runs/, such as runs/my_run.",
        )
    return dict(sorted(found.items()))


def _assign(
    entries: list[Entry], samples: list[Sample], file: Path
) -> dict[Sample, list[Entry]]:
    """Give each verdict to its kernel; the file names problem and sample but not the level."""
    by_place: dict[tuple[int, int], list[Sample]] = {}
    for sample in samples:
        by_place.setdefault((sample.problem_id, sample.sample_id), []).append(sample)
    assigned: dict[Sample, list[Entry]] = {sample: [] for sample in samples}
    lost = 0
    for entry in entries:
        fitting = by_place.get((entry.problem_id, entry.sample_id), [])
        if len(fitting) > 1:
            levels = ", ".join(str(sample.level) for sample in fitting)
            raise ImportFailed(
                f"{file}: problem {entry.problem_id} may be of level {levels}",
                "Give every level a run folder of its own.",
            )
        if fitting:
            assigned[fitting[0]].append(entry)
        else:
            lost += 1
    if lost:
        log.warning("%d of %d verdicts in %s have no kernel file", lost, len(entries), file)
    return assigned


def _tasks(
    lake: store.Lake, revision: str, samples: dict[Sample, Path]
) -> dict[tuple[int, int], str]:
    """Return the task of every (level, problem) that the samples need."""
    known: dict[tuple[int, int], list[str]] = {}
    for row in lake.run(
        "SELECT DISTINCT level, problem_id, task_id FROM task_labels "
        "WHERE suite = $1 AND suite_revision = $2 ORDER BY ALL",
        [SUITE, revision],
    ).rows():
        known.setdefault((row["level"], row["problem_id"]), []).append(row["task_id"])
    for sample, file in samples.items():
        texts = known.get((sample.level, sample.problem_id), [])
        if len(texts) != 1:
            what = "is not in the lake" if not texts else f"has {len(texts)} texts in the lake"
            raise ImportFailed(
                f"{file.name}: level {sample.level} problem {sample.problem_id} of KernelBench "
                f"{revision} {what}",
                f"Import that level first: store import kernelbench CHECKOUT --revision {revision}"
                if not texts
                else "Name a suite revision under which one checkout alone was imported.",
            )
    return {place: texts[0] for place, texts in known.items()}


def _baseline(config: Config, data: bytes) -> Baseline | None:
    if config.baseline is None:
        return None
    return results.baseline(
        _sources.decode(data, config.baseline), config.baseline, config.baseline_kind
    )
