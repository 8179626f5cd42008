"""SQL files by name: those of this package, and those of the user's own pipelines."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

import store
from store.errors import UnknownName

OURS = Path(__file__).parent.parent / "sql"
OWN = Path("flywheel/pipelines/sql")


@functools.cache
def sql(folder: str, name: str) -> str:
    """Return the SQL file `name` of a pipeline's folder, or of `shared`; raises UnknownName.

    The user's own pipelines have their files in ./flywheel/pipelines/sql/<pipeline>/.
    """
    for root in (OURS, OWN):
        file = root / folder / f"{name}.sql"
        if file.is_file():
            return store.read_statement(file)
    known = [file.stem for root in (OURS, OWN) for file in (root / folder).glob("*.sql")]
    raise UnknownName.among(f"SQL file of {folder}", name, known)


def sql_hash(folder: str) -> str:
    """Return the sha256 over the SQL files that a pipeline may use: its own and the shared ones."""
    digest = hashlib.sha256()
    for root in (OURS / "shared", OURS / folder, OWN / folder):
        for file in sorted(root.glob("*.sql")):
            digest.update(f"{root.name}/{file.name}\0{file.read_text('utf-8')}\0".encode())
    return digest.hexdigest()
