"""A column with another name: lakes, old snapshots and bundles that have it by its former one.

`evaluations.precision` was `policy` in schemas before 5. The catalog of these tests is that of
today with the former name.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import builders as b
import duckdb
import pyarrow as pa
import pytest
from example_counts import is_thorough

import store
from store.errors import CatalogError, RowsRejected
from store.lake.location import Location
from store.lake.sql_files import list_views
from store.schema import catalog, migrate
from store.upkeep import history, integrity, maintenance
from store.writing import bundle, writer

TASK, GPU = b.task(), b.device("H200", kind="cuda")
SIZES = b.workload(TASK)
KERNELS = {name: b.kernel(name) for name in ("plain", "strict", "library", "later")}
LIBRARY_ONLY = {"precision": "torch_default", "flags": ["custom_required"]}


def rename_back(document: dict[str, Any]) -> None:
    """Make a catalog that of an earlier schema."""
    document["schema"] -= 1
    table = document["tables"]["evaluations"]
    table["columns"] = {
        column.pop("renamed_from", name): column for name, column in table["columns"].items()
    }


@pytest.fixture
def earlier(tmp_path: Path) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Return a context in which the catalog is that of an earlier schema."""
    document = json.loads(catalog.load().definition)
    rename_back(document)
    file = tmp_path / "earlier.yaml"
    file.write_text(json.dumps(document), "utf-8")

    @contextlib.contextmanager
    def use() -> Generator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLYWHEEL_CATALOG", str(file))
            yield

    return use


def judge(name: str, **columns: Any) -> dict[str, list[b.Row]]:
    row = b.evaluation(KERNELS[name], TASK, SIZES, GPU, **columns)
    return {"evaluations": [row], "timings": b.session(row, [1.0] * 9, eager=[2.0] * 9)}


@pytest.fixture
def old_lake(tmp_path: Path, earlier: Any) -> str:
    """Return a lake of the earlier schema: verdicts in a file, in the catalog, and in the spool."""
    url = str(tmp_path / "lake")
    with earlier(), store.writer(url, author="tests") as writer:
        rows = {"tasks": [TASK], "workloads": [SIZES], "devices": [GPU]}
        writer.append(rows | {"kernels": list(KERNELS.values())}, "kernels")
        writer.append(judge("plain", policy="torch_default"), "in a file")
        maintenance.compact(Location.of(url))
        writer.append(judge("strict", policy="fp32_strict", minute=1), "in the catalog")
        words = {"policy": "torch_default custom_required", "custom_kernel_share": 0.0}
        writer.append(judge("library", **words, flags=[], minute=2), "in the spool", wait=False)
    return url


def read_precisions(lake: store.Lake, source: str = "evaluations") -> list[str | None]:
    time = "last_judged_at" if source == "verdicts" else "created_at"
    query = f'SELECT "precision" FROM {source} ORDER BY {time}'
    return [row["precision"] for row in lake.sql(query).rows()]


@pytest.mark.slow
def test_an_old_lake_migrates_and_all_views_answer_at_each_snapshot(old_lake: str) -> None:
    with store.open(old_lake) as before:  # which nobody has migrated
        assert read_precisions(before) == ["torch_default", "fp32_strict"]
        assert read_precisions(before, "verdicts") == ["torch_default", "fp32_strict"]
        old = before.snapshot
    with store.writer(old_lake, author="tests") as opened:
        opened.flush()
        new = opened.append(judge("later", precision="allow_tf32", minute=3), "new")
    stored = ["torch_default", "fp32_strict", "torch_default custom_required", "allow_tf32"]
    for is_compacted in (False, True):
        for at in (old, old + 1, new):
            with store.open(old_lake, at) as lake:
                count = len(stored) if at == new else 2
                assert read_precisions(lake) == stored[:count]
                counted = [text.partition(" ")[0] for text in stored[:count]]
                assert read_precisions(lake, "counted_evaluations") == counted
                # Compaction changes no row of a snapshot, so that views answer as before.
                for view in () if is_compacted and not is_thorough() else list_views():
                    lake.sql(f"FROM {view}").arrow()
        maintenance.compact(Location.of(old_lake))
        assert integrity.check(Location.of(old_lake)) == []
    with store.open(old_lake) as lake, store.open(old_lake, old) as before:
        [library] = lake.sql(
            "SELECT precision, flags FROM standing_evaluations WHERE kernel_id = $1",
            [KERNELS["library"]["kernel_id"]],
        ).rows()
        assert library == LIBRARY_ONLY
        assert "policy" not in lake.sql("FROM evaluations").arrow().column_names
        assert history.compare(before, lake).new_verdicts.num_rows == 2
        assert history.list_added_rows(before, lake, "evaluations").num_rows == 2


@pytest.mark.slow
@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("statement", ["ALTER TABLE", "CALL lake.set_commit_message", "COMMIT"])
def test_a_migration_that_is_killed_changes_nothing_and_the_next_one_ends_it(
    old_lake: str, statement: str
) -> None:
    def migrate_and_die() -> None:
        class Dying:
            def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
                self._connection = connection

            def execute(self, query: str, *parameters: Any) -> Any:
                if query.startswith(statement):
                    os.kill(os.getpid(), signal.SIGKILL)
                return self._connection.execute(query, *parameters)

        connect: Any = Dying
        writer.migrate = lambda connection, known: migrate.migrate(connect(connection), known)
        store.writer(old_lake, author="tests")

    process = multiprocessing.get_context("fork").Process(target=migrate_and_die)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with store.open(old_lake) as lake:
        assert read_precisions(lake) == ["torch_default", "fp32_strict"]
    with store.writer(old_lake, author="tests") as opened:
        opened.flush()
    with store.open(old_lake) as lake:
        assert len(read_precisions(lake)) == 3
    assert integrity.check(Location.of(old_lake)) == []


def test_rows_may_have_the_former_name_and_are_the_same_bundle(tmp_path: Path) -> None:
    table = catalog.load().table("evaluations")
    row = judge("plain", precision="fp32_strict")["evaluations"][0]
    former = {("policy" if name == "precision" else name): row[name] for name in row}
    assert bundle.conform(table, [former]) == bundle.conform(table, [row])
    assert bundle.conform(table, pa.Table.from_pylist([former])) == bundle.conform(table, [row])
    with pytest.raises(RowsRejected, match="unknown column policy"):
        bundle.conform(table, [former | row])
    with store.writer(str(tmp_path / "lake"), author="tests") as writer:
        rows = {"tasks": [TASK], "workloads": [SIZES], "devices": [GPU]}
        writer.append(rows | {"kernels": list(KERNELS.values())}, "kernels")
        first = writer.append({"evaluations": [row]}, "one")
        assert writer.append({"evaluations": [former]}, "again") == first


@pytest.mark.slow
def test_a_column_keeps_what_the_lake_says_about_it(
    old_lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(change: Callable[[dict[str, Any]], object]) -> None:
        document = json.loads(catalog.load(None).definition)
        change(document["tables"]["evaluations"])
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.yaml"
        file.write_text(json.dumps(document), "utf-8")
        monkeypatch.setenv("FLYWHEEL_CATALOG", str(file))

    for change, reason in (
        (lambda t: t["columns"]["precision"].update(type="INTEGER"), "precision is VARCHAR in"),
        (lambda t: t["columns"]["precision"].update(unit="bits"), "unit of evaluations.policy is"),
        (
            lambda t: t["checks"].update(new="\"precision\" = 'fp32_strict'"),
            "stored rows may break",
        ),
        (lambda t: t["columns"]["precision"].update(renamed_from="status"), "is another column"),
    ):
        with monkeypatch.context():
            write(change)
            with pytest.raises(CatalogError, match=reason):
                store.writer(old_lake, author="tests")
        monkeypatch.delenv("FLYWHEEL_CATALOG")
    with store.writer(old_lake, author="tests") as opened:
        opened.flush()
