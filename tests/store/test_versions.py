"""The version rises with the schema, the judge and every file format; lakes of all schemas open.

`python tests/store/test_versions.py` writes what this version has into versions.json.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
from pathlib import Path
from typing import Any

import store
from store.schema import catalog

ROOT = Path(store.__file__).parents[1]
VERSIONS = Path(__file__).with_name("versions.json")
"""Version to its schema, the hash of its catalog, the judge's version and hashes of formats."""
FORMATS = {
    "record in the spool": "store/writing/record_format.py:encode",
    "suffixes of the spool": "store/writing/spool.py:OPEN, SEALED",
    "note of the last commit": "store/writing/commit_turns.py:Note",
    "rejected bundle": "store/writing/rejected.py",
    "record of a move": "store/lake/location.py:Move",
    "tables of a lake on a server": "store/lake/server/sql/committer.sql",
    "record of a move on a server": "store/lake/server/sql/create_move.sql",
    "manifest of an edition": "store/hub/edition_writer.py:_write_manifest",
    "catalog of an edition": "store/hub/frozen_catalog.py",
    "files of an edition": "store/hub/shards.py",
    "queue of the judge service": "evaluators/service/queue/sql/schema.sql",
    "recipe of a dataset": "pipelines/datasets/card.py:write, collect_facts",
    "folder of a dataset": "pipelines/datasets/folder.py",
    "folder of a run": "trainers/runs/run_folder.py:open_state, write_state",
}
"""What a version leaves for later ones, other than caches, to the code that writes it."""
ADVICE = """
Raise `__version__` in store/__init__.py, and `schema` in catalog.yaml if the catalog changed; then
run `python tests/store/test_versions.py`. If no lake outside of this checkout can have this number,
because a change since the last release has raised it, running that program is enough.
"""


def test_the_version_is_raised_with_the_catalog_the_judge_and_every_format() -> None:
    recorded = json.loads(VERSIONS.read_text("utf-8"))
    now = describe_formats()
    assert recorded.get(store.__version__) == now, ADVICE
    newest = list(recorded)[-1]
    assert newest == store.__version__, f"{newest} was raised to {store.__version__}.{ADVICE}"


def test_the_number_of_the_schema_rises_with_every_change_of_the_catalog() -> None:
    recorded = list(json.loads(VERSIONS.read_text("utf-8")).values())
    for old, new in itertools.pairwise(recorded):
        assert (new["schema"] > old["schema"]) == (new["catalog"] != old["catalog"]), ADVICE


def test_descriptions_are_no_part_of_what_raises_the_version() -> None:
    installed = catalog.load()
    document = json.loads(installed.definition)
    document["tables"]["runs"]["about"] = "Other words."
    document["tables"]["runs"]["id"]["unbound"] = "Other words."
    document["tables"]["runs"]["columns"]["host"]["about"] = "Other words."
    described = catalog.read_definition(json.dumps(document), "changed")
    assert described.digest == installed.digest
    document["tables"]["runs"]["columns"]["about"] = {"type": "VARCHAR", "about": "New."}
    assert catalog.read_definition(json.dumps(document), "changed").digest != installed.digest


def describe_formats() -> dict[str, Any]:
    installed = catalog.load()
    judge = ast.parse((ROOT / "evaluators" / "judge.py").read_text("utf-8"))
    [version] = [
        ast.literal_eval(one.value)
        for one in judge.body
        if isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "VERSION"
    ]
    formats = {name: hash_code(place) for name, place in FORMATS.items()}
    return {
        "schema": installed.schema,
        "catalog": installed.digest,
        "judge": version,
        "formats": formats,
    }


def hash_code(place: str) -> str:
    """Return the hash of a file or some of its parts, without comments, docstrings and layout."""
    path, _, names = place.partition(":")
    text = (ROOT / path).read_text("utf-8")
    if path.endswith(".sql"):
        code = " ".join(line.strip() for line in text.splitlines() if not line.startswith("--"))
    else:
        wanted = names.split(", ") if names else []
        body = ast.parse(text).body
        parts = [one for one in body if not wanted or read_name(one) in wanted]
        assert len(parts) >= len(wanted), place
        code = "\n".join(ast.unparse(remove_docstrings(one)) for one in parts)
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def read_name(part: ast.stmt) -> str | None:
    if isinstance(part, ast.Assign):
        return ast.unparse(part.targets[0])
    return getattr(part, "name", None)


def remove_docstrings(node: ast.AST) -> ast.AST:
    for part in ast.walk(node):
        if isinstance(body := getattr(part, "body", None), list):
            kept = [one for one in body if not is_text(one)]
            part.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
    return ast.Pass() if is_text(node) else node


def is_text(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


if __name__ == "__main__":
    known = json.loads(VERSIONS.read_text("utf-8")) if VERSIONS.exists() else {}
    known[store.__version__] = describe_formats()
    VERSIONS.write_text(json.dumps(known, indent=1) + "\n", "utf-8")
