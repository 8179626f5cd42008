"""docs/duckdb.md: plain DuckDB reads a lake, a copy and an edition; every snippet runs as it is."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import builders
import commands
import duckdb
import psycopg
import pytest
from hub import lakes
from hub.server import TOKEN, HubServer
from postgres_server import OWNER, PostgresServer

import store
from store.hub import edition_writer
from store.hub.edition_writer import Options
from store.lake import location
from store.upkeep import history, maintenance

PAGE = (Path(store.__file__).parents[1] / "docs" / "duckdb.md").read_text("utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
LIVE, TAG, SERVER, COPY, EDITION = SNIPPETS
(DOWNLOAD,) = re.findall(r"```\n(hf .*?)\n```", PAGE)
ROW_FORMS = re.findall(r"`(rows\.\w+\(\))`", PAGE)
TABLE_FORMS = re.findall(r"`(FROM [^`]*\))`", PAGE)
REPO = "alice/kernels"
LIVE_KERNELS = "SELECT count(DISTINCT code) FROM lake.kernels"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home folder in which DuckDB has installed its extensions, without the network."""
    home = tmp_path_factory.mktemp("home")
    platform = duckdb.sql("PRAGMA platform").fetchall()[0][0]
    folder = home / ".duckdb" / "extensions" / f"v{duckdb.__version__}" / platform
    folder.mkdir(parents=True)
    for name in ("ducklake", "sqlite_scanner", "postgres_scanner"):
        package = Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
        (file,) = package.glob("extensions/*/*.duckdb_extension")
        (folder / file.name).symlink_to(file)
    return home


def run(code: str, answers: str, folder: Path, home: Path) -> Any:
    """Run code of the page in a folder; return the value of an expression after it."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json\nprint(json.dumps({answers}, default=str))"],
        cwd=folder, env=os.environ | {"HOME": str(home)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def add_kernel(url: str, name: str) -> int:
    with store.writer(url, author="tests") as writer:
        return writer.append({"kernels": [builders.kernel(name)]}, name)


def count(url: str, at: str | int | None = None) -> int:
    with store.open(url, at) as lake:
        row = lake.sql("SELECT count(DISTINCT code) AS n FROM kernels").one()
        assert row is not None
        return int(row["n"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, empty_lake: Path) -> Path:
    """Return a folder with a lake that has rows in files and in its catalog, before and after v1,
    a copy of it, and an edition of v1.
    """
    folder = tmp_path_factory.mktemp("page")
    lake = str(shutil.copytree(empty_lake, folder / "lake"))
    with store.writer(lake, author="tests") as writer:
        writer.append(lakes.rows(), "rows")
        maintenance.compact(writer.location)
        history.add_tag(writer, "v1", None, None)
        salt = writer.location.read_salt()
    shutil.copytree(lake, folder / "copy")
    with store.open(lake) as now, store.open(lake, "v1") as tagged:
        (folder / "edition").mkdir()
        edition_writer.write_edition(
            tagged, now, folder / "edition", REPO, Options(tag="v1", license="MIT"), salt
        )
    for name in ("late", "later"):
        add_kernel(lake, name)
    return folder


@pytest.mark.slow
@pytest.mark.folder
def test_each_snippet_reads_what_the_store_reads(folder: Path, home: Path) -> None:
    lake = str(folder / "lake")
    whole, tagged = count(lake), count(lake, "v1")
    assert whole == tagged + 2
    with store.open(lake) as opened:
        statuses = opened.sql("SELECT status, count(*) AS n FROM evaluations GROUP BY 1").rows()
    forms = ", ".join(f"len({form})" for form in ROW_FORMS)
    values = [
        "rows.fetchall()", f"[{forms}]", "tagged_kernels",
        "copied_kernels", "edition_kernels", f"connection.sql({LIVE_KERNELS!r}).fetchone()",
    ]  # fmt: skip
    answers = run(LIVE + TAG + COPY + EDITION, f"[{', '.join(values)}]", folder, home)
    assert answers == [
        sorted([row["status"], row["n"]] for row in statuses),
        [len(statuses)] * 3, [tagged], [tagged], [tagged], [whole],
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.folder
def test_an_edition_is_downloaded_as_the_page_says(
    folder: Path, home: Path, tmp_path: Path
) -> None:
    with HubServer() as hub:
        environment = os.environ | {
            "HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HOME": str(tmp_path / "hf"),
            "HF_HUB_DISABLE_XET": "1",
        }  # fmt: skip
        words = ["store", "publish", REPO, "--tag", "v1", "--tables", "all", "--license", "MIT"]
        published = commands.run(
            [*words, "--lake", str(folder / "copy")], cwd=tmp_path, env=environment
        )
        assert published.returncode == 0, published.stderr
        program, *rest = DOWNLOAD.replace("ORG/NAME", REPO).split()
        done = subprocess.run(
            [Path(sys.executable).parent / program, *rest],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    code = LIVE.split('connection.execute("ATTACH')[0] + EDITION
    assert run(code, "edition_kernels", tmp_path, home) == [count(str(folder / "lake"), "v1")]


@pytest.mark.slow
@pytest.mark.folder
def test_a_table_can_be_read_at_a_snapshot_and_at_a_time(folder: Path, home: Path) -> None:
    assert len(TABLE_FORMS) == 3
    lake = str(folder / "lake")
    with store.open(lake) as opened:
        snapshot, log = opened.snapshot, opened.run("FROM ducklake_snapshots('lake')").rows()
    moment = f"{log[-2]['snapshot_time'].isoformat()}"
    forms = [
        form.replace("=> 12", f"=> {snapshot - 1}").replace("2026-11-28 12:00:00+00", moment)
        for form in TABLE_FORMS
    ]
    counts = f"[connection.sql(form).fetchall().__len__() for form in {forms!r}]"
    assert run(LIVE, counts, folder, home) == [count(lake) - 1, count(lake) - 1, len(log)]


@pytest.mark.folder
@pytest.mark.slow
def test_a_copy_names_the_files_of_its_original_until_it_is_written_to(
    folder: Path, tmp_path: Path
) -> None:
    lake = location.FolderLocation(shutil.copytree(folder / "lake", tmp_path / "copy"))
    assert read_data_path(lake) == f"{folder / 'lake' / 'data'}/"
    maintenance.backup(lake, tmp_path / "saved")
    saved = location.FolderLocation(tmp_path / "saved")
    assert read_data_path(saved) == f"{saved.data}/"
    store.writer(lake.url, author="tests").close()
    assert read_data_path(lake) == f"{lake.data}/"


def read_data_path(lake: location.FolderLocation) -> str:
    """Return where plain DuckDB reads the files of a lake."""
    with closing(sqlite3.connect(lake.catalog)) as catalog:
        (path,) = catalog.execute(
            "SELECT value FROM ducklake_metadata WHERE key = 'data_path'"
        ).fetchone()
    return str(path)


@pytest.mark.slow
def test_a_lake_on_a_server(server: PostgresServer, tmp_path: Path, home: Path) -> None:
    # In a database of its own: other tests have a schema of this name in the default one.
    admin = f"host=127.0.0.1 port={server.port} user={OWNER}"
    with psycopg.connect(f"{admin} dbname=postgres", autocommit=True) as session:
        session.execute("CREATE DATABASE page")
    url = server.build_url("lake", tmp_path / "data").replace("/postgres?", "/page?")
    with store.writer(url, author="tests") as writer:
        writer.append({"tasks": [builders.task()]}, "a task")
    code = SERVER.replace("host=db dbname=kernels user=alice", f"{admin} dbname=page")
    assert code != SERVER
    assert run(code, "served_tasks", tmp_path, home) == [1]
