"""Collects the rows that every importer adds: tasks, labels, kernels, their origin, the run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from store import ids
from store.code import features, task_families
from store.importers.reading import sources
from store.writing.bundle import Bundle
from store.writing.run_record import make_end, make_run

if TYPE_CHECKING:
    import pyarrow as pa

    import store

ENTRY_PATH = "kernel.py"
"""Path of every kernel of one file, so that equal kernels with other file names are equal."""


@dataclass(frozen=True, kw_only=True)
class BundleRows:
    """Collects the rows of one bundle, each key once."""

    source: str
    """Importer or repository that the rows come from."""
    source_revision: str | None
    """Its revision."""
    license: str | None
    """SPDX identifier that the source states."""
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

    def origin(self, source: str | None = None) -> dict[str, str | None]:
        """Return the columns that state where a row comes from."""
        return {
            "source": source or self.source,
            "source_revision": self.source_revision,
            "license": self.license,
        }

    def add_task(self, code: str) -> str:
        """Add a task with its default workload and return its id."""
        text = ids.normalize(code)
        task_id = ids.task_id(text)
        self.add("tasks", (task_id,), {"task_id": task_id, "code": text, **self.origin()})
        workload_id = ids.workload_id(task_id)
        self.add(
            "workloads",
            (workload_id,),
            {
                "workload_id": workload_id,
                "task_id": task_id,
                "name": "default",
                "axes": "{}",
                "generator": "get_inputs",
            },
        )
        return task_id

    def add_label(
        self,
        task_id: str,
        *,
        family: str,
        suite: str,
        revision: str,
        name: str,
        title: str,
        level: int | None = None,
        problem_id: int | None = None,
    ) -> None:
        """Name a task in a revision of a suite."""
        row = {
            "suite": suite,
            "suite_revision": revision,
            "name": name,
            "task_id": task_id,
            "level": level,
            "problem_id": problem_id,
            "title": title,
            "family": family,
            **self.origin(),
        }
        self.add("task_labels", (suite, revision, name, task_id), row)

    def add_splits(self, decided: Iterable[Mapping[str, str]]) -> None:
        """Add the decided splits of the families that have a label."""
        wanted = {(row["suite"], row["family"]) for row in self._rows("task_labels")}
        for row in decided:
            key = (row["suite"], row["family"])
            if key in wanted:
                self.add("splits", key, dict(row))

    def add_policy(self, name: str, kind: str) -> str:
        """Add a policy with its name as id, and return the id."""
        self.add("policies", (name,), {"policy_id": name, "name": name, "kind": kind})
        return name

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

    def add_prompt(self, text: str, task_id: str) -> str:
        """Add a prompt of one user message, as a benchmark sent it, and return its id."""
        messages = [{"role": "user", "content": text}]
        prompt_id = ids.prompt_id(messages)
        row = {
            "prompt_id": prompt_id,
            "messages": ids.messages_json(messages),
            "task_id": task_id,
            "purpose": "eval",
        }
        self.add("prompts", (prompt_id,), row)
        return prompt_id

    def leave_out_stored(self, lake: store.Lake) -> None:
        """Remove the evaluations and analyses that an earlier import has stored."""
        for table, key in (("evaluations", "evaluation_id"), ("analyses", "analysis_id")):
            mine = self.tables.get(table, {})
            known = lake.run(
                f"SELECT {key} AS id FROM {table} WHERE {key} IN (SELECT unnest($1))",
                [[one for (one,) in mine]],
            ).rows()
            for row in known:
                del mine[(row["id"],)]

    def make_bundle(
        self, bundle_id: str, message: str, *, importer: str, config: Any, what: str
    ) -> Bundle:
        """Return all rows as a bundle, with the run and the features of the kernels."""
        run = make_run(
            kind="import",
            name=importer,
            config=sources.config_json(config),
            run_id=bundle_id,
            started_at=self.began,
        )
        self.add("runs", (bundle_id,), run | self.origin(what))
        self.add("run_ends", (bundle_id,), make_end(bundle_id))
        tables: dict[str, Any] = {name: list(rows.values()) for name, rows in self.tables.items()}
        if "kernels" in tables:
            tables["kernel_features"] = features.extract_features(_texts(tables["kernels"]))
        return Bundle(bundle_id=bundle_id, message=message, tables=tables)

    def _rows(self, table: str) -> Iterable[dict[str, Any]]:
        return self.tables.get(table, {}).values()


def decide_splits(suite: str, found: Iterable[str], lake: store.Lake) -> list[dict[str, str]]:
    """Return the splits of a suite's families, over the tasks of a source and those in the lake.

    `found` has the family of each task of the source. The splits of a source are decided together,
    not bundle by bundle. Earlier decisions of the lake remain, because the first row of a key is
    kept.
    """
    known = lake.run("SELECT DISTINCT task_id, family FROM task_labels WHERE suite = $1", [suite])
    return task_families.split_rows(suite, [*found, *(str(row["family"]) for row in known.rows())])


def _texts(kernels: list[dict[str, Any]]) -> pa.Table:
    import pyarrow as pa

    from store.schema import catalog

    schema = catalog.load().table("kernels").arrow_schema
    wanted = pa.schema(
        [schema.field(name) for name in ("kernel_id", "code", "path", "other_files")]
    )
    rows = [{name: row[name] for name in wanted.names} for row in kernels]
    return pa.Table.from_pylist(rows, schema=wanted)
