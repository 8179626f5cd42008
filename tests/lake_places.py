"""Where the lakes of the tests are: in folders, or on a PostgreSQL server with files in a folder.

Most tests are about rows and do not care. `FLYWHEEL_TEST_LAKES=server pytest …` runs them on a
server; tests marked `folder` are about the files of a lake in a folder and are skipped then.
"""

from __future__ import annotations

import itertools
import os
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from postgres_server import OWNER, PostgresServer
from psycopg import sql

ON_SERVER = os.environ.get("FLYWHEEL_TEST_LAKES") == "server"


class LakePlaces(ABC):
    """Makes URLs of lakes that do not exist yet, and copies lakes."""

    @abstractmethod
    def choose_url(self, folder: Path) -> str:
        """Return the URL of a new lake; `folder` is the lake, or has its data files."""

    @abstractmethod
    def copy(self, source: str, target: str) -> None:
        """Copy a lake that nobody uses to a URL that `choose_url` returned."""


class Folders(LakePlaces):
    """Lakes in folders."""

    def choose_url(self, folder: Path) -> str:
        return str(folder)

    def copy(self, source: str, target: str) -> None:
        shutil.copytree(source, target)


class Databases(LakePlaces):
    """Lakes on one server, each in a database of its own, which copies as a whole."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = itertools.count()

    def choose_url(self, folder: Path) -> str:
        name = f"lake_{next(self._numbers)}"
        with self._connect("postgres") as session:
            session.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self._server.build_url("lake", folder).replace("/postgres?", f"/{name}?")

    def copy(self, source: str, target: str) -> None:
        old, new = (urlsplit(url).path.lstrip("/") for url in (source, target))
        old_data, new_data = (url.partition("&data=")[2] for url in (source, target))
        names = {"old": sql.Identifier(old), "new": sql.Identifier(new)}
        with self._connect("postgres") as session:
            session.execute(sql.SQL("DROP DATABASE {new}").format(**names))
            session.execute(sql.SQL("CREATE DATABASE {new} TEMPLATE {old}").format(**names))
        shutil.copytree(old_data, new_data)
        with self._connect(new) as session:
            session.execute(
                "UPDATE lake.ducklake_metadata SET value = %s WHERE key = 'data_path'",
                [f"{new_data}/"],
            )

    def _connect(self, database: str) -> psycopg.Connection:
        target = f"host=127.0.0.1 port={self._server.port} user={OWNER} dbname={database}"
        return psycopg.connect(target, autocommit=True)
