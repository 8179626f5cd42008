"""Lakes of every schema that catalog.yaml has had migrate to that of today.

old_lakes.tar.xz has a lake for each commit that changed catalog.yaml in more than descriptions
before schemas had numbers, and one of the last commit of each of the schemas 1 to 5, written by the
code of that commit (the first one, which had no code yet, by that of the next). All tables have a
row of required values in a Parquet file, and a row of all values in the catalog.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import builders
import pytest

import store
from store.lake import attachment
from store.lake.location import FolderLocation
from store.schema import catalog, migrate
from store.upkeep import integrity, maintenance

ARCHIVE = Path(__file__).with_name("old_lakes.tar.xz")
# fmt: off
COMMITS = [
    "cc448ed5", "9642e634", "641f5352", "8aaa1837", "71a1d82e", "a5fedb61", "d70cd5f0",
    "51d23b5f", "0e780ad7", "ae601bf5", "79b5d88c", "a46b7f49", "f772d1c6", "d5365a42",
    "5532fe03", "a1a62292", "fadfb253", "0a0a2d9c", "6867e51e", "40de8538", "36beab1a",
    "180cee19", "31ae6aad", "aba629ec", "a0d2f6bc", "c587e6ce", "91598c5b", "23720847",
    "e102faa7", "f31a664f", "39ce5791", "9f96b211", "eca69981",
]
# fmt: on
"""The first one was a dead end: generations.task_id is required there."""
OWN = {"catalogs", "ingest_log", "file_checksums"}
"""Tables to which every migration and every commit adds rows."""
FEWER = {"lakes", "tags"}

pytestmark = pytest.mark.folder


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder


def read_rows(folder: Path, columns: dict[str, list[str]] | None = None) -> dict[str, Any]:
    """Return the rows of all tables, or of some columns, as DuckLake alone reads them."""
    connection = attachment.connect()
    attachment.attach(connection, FolderLocation(folder))
    columns = columns or dict(
        connection.execute(
            "SELECT table_name, list(column_name ORDER BY column_index) FROM duckdb_columns() "
            "WHERE database_name = 'lake' GROUP BY table_name"
        ).fetchall()
    )
    rows: dict[str, Any] = {
        table: (
            names,
            connection.execute(f"SELECT {', '.join(names)} FROM lake.{table}").fetchall(),
        )
        for table, names in columns.items()
        if table not in OWN
    }
    connection.close()
    return rows


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("commit", COMMITS)
def test_a_lake_of_each_schema_migrates_and_keeps_its_rows(
    commit: str, lakes: Path, tmp_path: Path
) -> None:
    lake = shutil.copytree(lakes / commit, tmp_path / "lake")
    before = read_rows(lake)
    assert all(len(rows) == 2 for name, (_, rows) in before.items() if name not in FEWER)
    with store.open(str(lake)) as opened:  # also before it is migrated
        assert opened.sql("SELECT count(*) AS n FROM kernels").rows() == [{"n": 2}]
    task, policy = builders.task("new"), builders.policy("new")
    attempt = builders.generation(policy, task) | {"task_id": None}
    new = {"tasks": [task], "policies": [policy], "generations": [attempt]}
    with store.writer(str(lake), author="tests") as writer:
        writer.append(new, "new")
        assert migrate.migrate(writer._connection, catalog.load()) == []  # nothing is left to do
    maintenance.compact(FolderLocation(lake))
    assert integrity.check(FolderLocation(lake)) == []
    renamed = {table.name: table.renamed for table in catalog.load().tables.values()}
    after = read_rows(
        lake,
        {
            table: [renamed[table].get(name, name) for name in names]
            for table, (names, _) in before.items()
        },
    )
    for name, (_, rows) in before.items():
        added = Counter(map(repr, after[name][1]))
        added.subtract(map(repr, rows))
        assert sorted(added.values())[:1] >= [0], name
        assert added.total() == len(new.get(name, [])), name
    with store.open(str(lake)) as opened:
        [*_, newest] = opened.sql("SELECT definition, version FROM catalogs ORDER BY rowid").rows()
    assert newest["version"] == store.describe_version()
    assert json.loads(newest["definition"])["schema"] == catalog.load().schema


def test_the_archive_has_the_lakes_that_are_tried(lakes: Path) -> None:
    assert sorted(folder.name for folder in lakes.iterdir()) == sorted(COMMITS)
