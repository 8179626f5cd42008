"""Builds the rows of a bundle: tasks, kernels, attempts, verdicts, reported figures, the run."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import store
from store import ids
from store.code import completion as completions
from store.code import task_families
from store.code.completion import ENTRY_PATH as ENTRY_PATH
from store.errors import ImportFailed
from store.ids import content_id
from store.importers.reading import sources
from store.schema import catalog
from store.writing.bundle import Bundle

_TEXTS = ("kernel_id", "code", "path", "other_files")
"""Columns of a kernel from which its features are read."""
_GPU = re.compile(r"\b(?:(?:RTX|GTX|MI|A|B|GB|GH|H|L|P|T|V)(?: )?A?[0-9]+[A-Z]*(?: Ti)?)\b")


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One attempt: everything that its verdict and its figures refer to."""

    place: tuple[str | None, ...] = ()
    """What distinguishes it in its source; part of every id."""
    generation_id: str = ""
    policy: str
    task_id: str | None = None
    problem: str | None = None
    kernel_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class BundleRows:
    """Collects the rows of one bundle, each key once."""

    source: str
    """Importer or repository that the rows come from."""
    source_revision: str | None
    """Its revision."""
    license: str | None
    """SPDX identifier that the source states."""
    importer: str
    """Name of the importer."""
    namespace: str
    """Name from which the ids of attempts and figures follow."""
    run_id: str = ""
    """Id of the bundle, which is that of its run; empty while a file is only checked."""
    tables: dict[str, dict[tuple[str, ...], dict[str, Any]]] = field(
        default_factory=dict[str, dict[tuple[str, ...], dict[str, Any]]]
    )
    began: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When the import of the bundle began."""

    def add(self, table: str, key: tuple[str, ...], row: dict[str, Any]) -> bool:
        """Add a row unless its key is there already; return whether it was added."""
        rows = self.tables.setdefault(table, {})
        if key in rows:
            return False
        rows[key] = row
        return True

    def under(self, license: str | None) -> BundleRows:
        """Return a builder of rows under another license, for the same bundle."""
        return replace(self, license=license)

    def origin(self, source: str | None = None) -> dict[str, str | None]:
        """Return the columns that state where a row comes from."""
        return {
            "source": source or self.source,
            "source_revision": self.source_revision,
            "license": self.license,
        }

    def identify(self, place: Iterable[str | None]) -> str:
        """Return the id of the attempt at a place of the source."""
        return content_id("generation", self.namespace, *place)

    def add_task(self, code: str) -> str:
        """Add a task with its default workload and return its id."""
        text = ids.normalize(code)
        task_id = ids.task_id(text)
        self.add("tasks", (task_id,), {"task_id": task_id, "code": text, **self.origin()})
        self.add_workload(task_id, "default", {})
        return task_id

    def add_workload(
        self, task_id: str, name: str, axes: Mapping[str, Any], generator: str = "get_inputs"
    ) -> str:
        """Add an input setting of a task and return its id."""
        text = json.dumps(axes, sort_keys=True)
        workload_id = ids.workload_id(task_id, text)
        row = {
            "workload_id": workload_id,
            "task_id": task_id,
            "name": name,
            "axes": text,
            "generator": generator,
        }
        self.add("workloads", (workload_id,), row)
        return workload_id

    def add_label(
        self,
        task_id: str,
        *,
        family: str,
        suite: str,
        revision: str,
        name: str,
        title: str | None = None,
        **columns: Any,
    ) -> None:
        """Name a task in a revision of a suite; `columns` are level, problem_id, degenerate."""
        row = {
            "suite": suite,
            "suite_revision": revision,
            "name": name,
            "task_id": task_id,
            "title": title or name,
            "family": family,
            **columns,
            **self.origin(),
        }
        self.add("task_labels", (suite, revision, name, task_id), row)

    def add_suite_task(
        self, code: str | None, *, suite: str, revision: str, name: str, **columns: Any
    ) -> str | None:
        """Add a task with its label; return its id, or None if the text is no task."""
        family = None if code is None else _classify(code)
        if code is None or family is None:
            return None
        task_id = self.add_task(code)
        self.add_label(task_id, family=family, suite=suite, revision=revision, name=name, **columns)
        return task_id

    def add_splits(self, decided: Iterable[Mapping[str, str]]) -> None:
        """Add the decided splits of the families that have a label."""
        labels = self.tables.get("task_labels", {}).values()
        labeled = {(row["suite"], row["family"]) for row in labels}
        for row in decided:
            key = (row["suite"], row["family"])
            if key in labeled:
                self.add("splits", key, dict(row))

    def add_policy(self, name: str, kind: str, **columns: Any) -> str:
        """Add a policy with its name as id, and return the id."""
        self.add("policies", (name,), {"policy_id": name, "name": name, "kind": kind, **columns})
        return name

    def add_device(self, model: str, namespace: str | None = None) -> str:
        """Add a GPU that is known by its name only, and return its id."""
        device_id = content_id("device", namespace or self.namespace, model)
        row = {"device_id": device_id, "name": gpu_name(model), "kind": "cuda", "model": model}
        self.add("devices", (device_id,), row)
        return device_id

    def add_kernel(
        self,
        files: Mapping[str, str],
        *,
        source: str | None = None,
        entry_path: str = ENTRY_PATH,
        entry_point: str = "ModelNew",
    ) -> str:
        """Add a kernel, given as path to text, and return its id."""
        kernel_id = ids.kernel_id(files, entry_path, entry_point)
        others = [
            {"path": path, "code": text}
            for path, text in sorted(files.items())
            if path != entry_path
        ]
        row = {
            "kernel_id": kernel_id,
            "code": files[entry_path],
            "path": entry_path,
            "entry_point": entry_point,
            "other_files": others or None,
            **self.origin(source),
        }
        self.add("kernels", (kernel_id,), row)
        return kernel_id

    def add_code(
        self, code: str | None, *, path: str = ENTRY_PATH, entry_point: str = "ModelNew"
    ) -> str | None:
        """Add a kernel of one file and return its id, or None if there is no code."""
        if code is None:
            return None
        return self.add_kernel({path: code}, entry_path=path, entry_point=entry_point)

    def parse_completion(
        self, completion: str, finish_reason: str = "stop"
    ) -> tuple[str | None, dict[str, Any]]:
        """Add the kernel that a completion has; return its id, and the columns of its attempt."""
        parsed = completions.parse_completion(completion, finish_reason)
        kernel_id = None
        if parsed.code is not None:
            files = {parsed.path: parsed.code, **dict(parsed.other_files)}
            kernel_id = self.add_kernel(
                files, entry_path=parsed.path, entry_point=parsed.entry_point
            )
        return kernel_id, {
            "completion": completion,
            "parse_error": parsed.parse_error,
            "analysis": parsed.analysis,
            "design": parsed.design,
        }

    def add_prompt(
        self, messages: Sequence[Mapping[str, str]], task_id: str | None, purpose: str = "eval"
    ) -> str | None:
        """Add a prompt and return its id, or None if it has no messages."""
        if not messages:
            return None
        prompt_id = ids.prompt_id(messages)
        row = {
            "prompt_id": prompt_id,
            "messages": ids.messages_json(messages),
            "task_id": task_id,
            "purpose": purpose,
        }
        self.add("prompts", (prompt_id,), row)
        return prompt_id

    def add_attempt(
        self,
        place: Sequence[str | None],
        *,
        policy: str,
        policy_kind: str = "model",
        task_id: str | None = None,
        problem: str | None = None,
        kernel_id: str | None = None,
        generation_id: str | None = None,
        **columns: Any,
    ) -> Attempt:
        """Add an attempt; `columns` are further columns of the table generations."""
        self.add_policy(policy, policy_kind)
        generation_id = generation_id or self.identify(place)
        row = {
            "generation_id": generation_id,
            "run_id": self.run_id,
            "task_id": task_id,
            "problem": problem,
            "policy_id": policy,
            "kernel_id": kernel_id,
            **self.origin(),
            "created_at": datetime.now(UTC),
            **_select_stated(columns),
        }
        self.add("generations", (generation_id,), row)
        return Attempt(
            place=tuple(place),
            generation_id=generation_id,
            policy=policy,
            task_id=task_id,
            problem=problem,
            kernel_id=kernel_id,
        )

    def add_verdict(
        self,
        attempt: Attempt,
        *,
        evaluator: str,
        gpu: str | None,
        status: str,
        reason: str | None = None,
        quote: str = "",
        evaluation_id: str | None = None,
        **columns: Any,
    ) -> None:
        """Add the source's verdict on the kernel of an attempt; `columns` are of evaluations.

        It is an evaluation if the task is known. An evaluation needs the task's text, so that
        without it the verdict becomes a claim with the metric `correct`, 1 or 0.
        """
        if attempt.kernel_id is None:
            return
        if attempt.task_id is None:
            self.add_claim(attempt, "correct", float(status == "correct"), quote, gpu=gpu)
            return
        evaluation_id = evaluation_id or content_id(
            "evaluation", self.namespace, *attempt.place, attempt.kernel_id, gpu, status, reason
        )
        row = {
            "evaluation_id": evaluation_id,
            "run_id": self.run_id,
            "kernel_id": attempt.kernel_id,
            "task_id": attempt.task_id,
            "workload_id": ids.workload_id(attempt.task_id),
            "device_id": columns.get("device_id") or self.add_device(gpu or "unknown"),
            "evaluator": evaluator,
            "evaluator_version": 0,
            "status": status,
            "reason": reason or (None if status == "correct" else "unspecified"),
            **self.origin(),
            **_select_stated(columns),
        }
        self.add("evaluations", (evaluation_id,), row)

    def add_result(
        self,
        attempt: Attempt,
        correct: bool | None,
        quote: str,
        *,
        gpu: str | None,
        evaluator: str | None = None,
    ) -> None:
        """Add a verdict that says only whether a kernel is correct; nothing for None."""
        if correct is not None:
            self.add_verdict(
                attempt,
                evaluator=evaluator or self.importer,
                gpu=gpu,
                status="correct" if correct else "incorrect",
                quote=quote,
            )

    def add_claim(
        self,
        attempt: Attempt,
        metric: str,
        figure: float | None,
        quote: str,
        *,
        gpu: str | None = None,
        baseline: str | None = None,
        claim_id: str | None = None,
        **columns: Any,
    ) -> None:
        """Add a reported figure; nothing if there is none. A speedup needs a baseline."""
        if figure is None or (metric == "speedup" and figure <= 0):
            return
        claim_id = claim_id or content_id(
            *("claim", self.namespace, *attempt.place, attempt.kernel_id),
            *(metric, baseline, gpu, repr(figure)),
        )
        is_speedup = metric == "speedup"
        row = {
            "claim_id": claim_id,
            "run_id": self.run_id or None,
            "task_id": attempt.task_id,
            "kernel_id": attempt.kernel_id,
            "policy_id": attempt.policy,
            "gpu": None if gpu is None else gpu_name(gpu),
            "baseline": baseline,
            "metric": metric,
            "speedup": figure if is_speedup else None,
            "value": None if is_speedup else figure,
            "problem": attempt.problem,
            "quote": quote,
            **self.origin(),
            "source_revision": self.source_revision or "unknown",
            **columns,
        }
        self.add("claims", (claim_id,), row)

    def add_analysis(
        self, attempt: Attempt, kind: str, author: str, body: str, *place: str | None
    ) -> None:
        """Add an analysis of an attempt's kernel; `place` distinguishes it, the body does too."""
        analysis_id = content_id("analysis", self.namespace, *attempt.place, *place, body)
        row = {
            "analysis_id": analysis_id,
            "kernel_id": attempt.kernel_id,
            "generation_id": attempt.generation_id,
            "kind": kind,
            "author": author,
            "body": body,
        }
        self.add("analyses", (analysis_id,), row)

    def leave_out_stored(self, lake: store.Lake) -> None:
        """Remove the evaluations and analyses that an earlier import has stored."""
        for table, key in (("evaluations", "evaluation_id"), ("analyses", "analysis_id")):
            mine = self.tables.get(table)
            if not mine:
                continue
            known = lake.run(
                f"SELECT {key} AS id FROM {table} WHERE {key} IN (SELECT unnest($1))",
                [[key for (key,) in mine]],
            ).rows()
            for row in known:
                del mine[(row["id"],)]

    def make_bundle(self, message: str, *, config: Any, what: str) -> Bundle:
        """Return all rows as a bundle, with the run and the features of the kernels."""
        import pyarrow as pa

        run = store.make_run(
            kind="import",
            name=self.importer,
            config=config_json(config),
            run_id=self.run_id,
            started_at=self.began,
        )
        self.add("runs", (self.run_id,), run | self.origin(what))
        self.add("run_ends", (self.run_id,), store.make_end(self.run_id))
        tables: dict[str, Any] = {name: list(rows.values()) for name, rows in self.tables.items()}
        if "kernels" in tables:
            columns = catalog.load().table("kernels").arrow_schema
            schema = pa.schema([columns.field(name) for name in _TEXTS])
            texts = [{name: row[name] for name in _TEXTS} for row in tables["kernels"]]
            kernels = pa.Table.from_pylist(texts, schema=schema)
            tables["kernel_features"] = store.extract_features(kernels)
        return Bundle(bundle_id=self.run_id, message=message, tables=tables)


class SuiteTasks:
    """The tasks of one revision of a suite, by level and number, by name and by title."""

    def __init__(self, lake: store.Lake, suite: str, revision: str | None) -> None:
        self._by_number: dict[tuple[int | None, int | None], set[str]] = {}
        self._by_name: dict[str, set[str]] = {}
        if revision is None:
            return
        rows = lake.run(
            "SELECT level, problem_id, name, title, task_id FROM task_labels "
            "WHERE suite = $1 AND suite_revision = $2",
            [suite, revision],
        ).rows()
        if not rows:
            raise ImportFailed(
                f"the lake has no tasks of {suite} {revision}",
                f"Import them first, such as: store import {suite} CHECKOUT --revision {revision}",
            )
        for row in rows:
            key = (row["level"], row["problem_id"])
            self._by_number.setdefault(key, set()).add(row["task_id"])
            for name in (row["name"], row["title"]):
                if name is not None:
                    self._by_name.setdefault(str(name), set()).add(row["task_id"])

    def find_number(self, level: int, problem_id: int) -> str | None:
        """Return the task of a level and number, or None if there is none or more than one."""
        return self._choose(self._by_number.get((level, problem_id)))

    def find_name(self, name: str) -> str | None:
        """Return the task with a name or title, or None if there is none or more than one."""
        return self._choose(self._by_name.get(name))

    def _choose(self, task_ids: set[str] | None) -> str | None:
        return next(iter(task_ids)) if task_ids is not None and len(task_ids) == 1 else None


def config_json(config: Any) -> str:
    """Return the options of an importer (its Config dataclass) as JSON."""
    return json.dumps(dataclasses.asdict(config), sort_keys=True, default=str)


def decide_splits(suite: str, families: Iterable[str], lake: store.Lake) -> list[dict[str, str]]:
    """Return the splits of a suite's families, over the tasks of a source and those in the lake.

    `families` has the family of each task of the source. The splits of a source are decided
    together, not bundle by bundle. Earlier decisions of the lake remain, because the first row of a
    key is kept.
    """
    known = lake.run("SELECT DISTINCT task_id, family FROM task_labels WHERE suite = $1", [suite])
    stored = (str(row["family"]) for row in known.rows())
    return task_families.split_rows(suite, [*families, *stored])


def gpu_name(model: str) -> str:
    """Return the short name of a GPU, as tables use it.

    >>> [gpu_name(m) for m in ("NVIDIA H100 80GB HBM3", "NVIDIA GeForce RTX 3090", "Tesla T4")]
    ['H100', 'RTX 3090', 'T4']
    >>> [gpu_name(m) for m in ("NVIDIA A100-SXM4-80GB", "NVIDIA RTX A6000", "unknown")]
    ['A100', 'RTX A6000', 'unknown']
    """
    match = _GPU.search(model)
    # A name is printable ASCII (store.schema.row_checks).
    return match[0] if match else " ".join(re.findall("[!-~]+", model)) or "unknown"


@lru_cache(maxsize=4096)
def _classify(code: str) -> str | None:
    try:
        sources.check_task(code, "the text")
    except ImportFailed:
        return None
    return task_families.classify_family(code)


def _select_stated(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in columns.items() if value is not None}
