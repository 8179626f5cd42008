"""The rows of one KernelBench run: attempts with their kernels, verdicts, published figures."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from store.ids import content_id, workload_id
from store.importers.reading.kernelbench_results import Baseline, Entry
from store.importers.reading.rows import ENTRY_PATH, BundleRows

log = logging.getLogger(__name__)

NAME = "kernelbench-run"
EVALUATOR = "kernelbench"
RESULTS = "eval_results.json"


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
        """Prefix of the names of the sample's files."""
        return f"level_{self.level}_problem_{self.problem_id}_sample_{self.sample_id}"


@dataclass(frozen=True, kw_only=True)
class RunRows:
    """Collects the rows of one run folder."""

    gathered: BundleRows
    policy: str
    run_id: str
    evaluator_version: int
    baseline: Baseline | None

    def add(
        self, sample: Sample, task_id: str, code: str, prompt: str | None, entries: list[Entry]
    ) -> None:
        """Add one attempt, with its kernel if the file is not empty."""
        empty = not code.strip()
        kernel_id = None if empty else self.gathered.add_kernel({ENTRY_PATH: code})
        row = {
            "generation_id": content_id(
                "generation", NAME, self.policy, task_id, str(sample.sample_id), kernel_id
            ),
            "run_id": self.run_id,
            "task_id": task_id,
            "policy_id": self.policy,
            "kernel_id": kernel_id,
            "prompt_id": None if prompt is None else self.gathered.add_prompt(prompt, task_id),
            "group_id": content_id("group", NAME, self.policy, task_id),
            "sample_index": sample.sample_id,
            "parse_error": "the kernel file is empty" if empty else None,
            **self.gathered.origin(),
        }
        self.gathered.add("generations", (str(row["generation_id"]),), row)
        if kernel_id is not None:
            for entry in entries:
                self._add_evaluation(sample, task_id, kernel_id, entry)

    def warn_of_unmatched(self) -> None:
        """Log how many timed kernels have no figure for their GPU in the baseline file."""
        metrics = [row["metric"] for row in self.gathered.tables.get("claims", {}).values()]
        timed, compared = metrics.count("latency_ms"), metrics.count("speedup")
        if self.baseline is not None and compared < timed:
            log.warning(
                "%d of %d timed kernels have no speedup: %s has no figure for them on their GPU",
                timed - compared,
                timed,
                self.baseline.name,
            )

    def _add_evaluation(self, sample: Sample, task_id: str, kernel_id: str, entry: Entry) -> None:
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
        self._add_claim(place, kernel_id, task_id, entry, stem, value=entry.latency_ms)
        if self.baseline is not None:
            found = self.baseline.figure(sample.level, sample.problem_id, entry)
            if found is not None:
                mean_ms, quote = found
                speedup = mean_ms / entry.latency_ms
                self._add_claim(
                    place, kernel_id, task_id, entry, f"{quote} / {stem}", speedup=speedup
                )

    def _add_claim(
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
        """Add a latency, or a speedup over the baseline file, whose runs are not paired."""
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
