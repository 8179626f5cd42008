"""Test the SQLite database in which DuckLake keeps a lake's catalog."""

from __future__ import annotations

import json
import subprocess
import sys

from store import faults
from store.lake.location import FolderLocation, Location

_TEST_DATABASE = """
import json, sqlite3, sys
try:
    opened = sqlite3.connect(sys.argv[1], timeout=30)
    said = "; ".join(row[0] for row in opened.execute("PRAGMA integrity_check(3)"))
    opened.execute("SELECT count(*) FROM ducklake_snapshot").fetchone()
except sqlite3.Error as error:
    said = str(error)
print(json.dumps(said))
"""


def find_damage(location: Location) -> str | None:
    """Return what SQLite says is wrong with the catalog database, or None; a server tests its own.

    SQLite runs in a process of its own: POSIX drops the locks that DuckDB's SQLite has on a file
    when any other part of the same process closes that file.

    Raises:
        CommitConflict: another program holds the database.
        LakeUnreachable: it cannot be opened.
    """
    if not isinstance(location, FolderLocation):
        return None
    command = [sys.executable, "-c", _TEST_DATABASE, str(location.find_readable_catalog())]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode:
        return (answer.stderr.splitlines() or ["no answer"])[-1]
    report = str(json.loads(answer.stdout))
    if report == "ok":
        return None
    faults.raise_unless_damage(OSError(report), location.catalog)
    return report
