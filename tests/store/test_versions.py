"""The version rises with the schema, the judge and every file format; lakes of all schemas open.

`python tests/store/test_versions.py` writes what this version has into versions.json.
"""

from __future__ import annotations

import ast
import hashlib
import itertools
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import store
from evaluators import judge
from store.schema import catalog

ROOT = Path(store.__file__).parents[1]
VERSIONS = Path(__file__).with_name("versions.json")
"""Version to its schema, the hash of its catalog, the judge's version and hashes of formats."""
FORMATS = {
    "record in the spool": "store/writing/spool.py:encode",
    "suffixes of the spool": "store/writing/spool.py:OPEN, SEALED",
    "rejected bundle": "store/writing/spool.py:_keep, locate_file",
    "record of a move": "store/lake/location.py:Move",
    "tables of a lake on a server": "store/lake/sql/server/committer.sql",
    "record of a move on a server": "store/lake/sql/server/create_move.sql",
    "manifest of an edition": "store/hub/edition_writer.py:_write_manifest",
    "record of what a command wrote": "store/commandline/outputs.py:RECORD, _mark, _read_record",
    "catalog of an edition": "store/hub/edition_writer.py:CATALOG, write_catalog, _derive_uuid",
    "files of an edition": "store/hub/edition_writer.py:write_shards, _cut_groups, SHARE",
    "queue of the judge service": "evaluators/service/sql/schema.sql",
    "recipe of a dataset": "pipelines/datasets/card.py:write, collect_facts",
    "folder of a dataset": "pipelines/datasets/materialize.py:Shards",
    "folder of a run": "trainers/runs/recording.py:open_state, write_state",
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


@pytest.mark.parametrize("room", ["store", "pipelines", "evaluators", "trainers"])
def test_every_room_says_its_version_and_commit(room: str, tmp_path: Path) -> None:
    import commands  # from tests/, which is on the path of tests alone

    answer = commands.run([room, "--version"], cwd=tmp_path)
    assert answer.stdout.strip() == store.describe_version()


def test_the_commit_is_that_of_the_checkout_and_of_no_repository_around_it(tmp_path: Path) -> None:
    commit = git(ROOT, "rev-parse", "HEAD") if (ROOT / ".git").exists() else ""
    assert store.describe_version() == store.__version__ + (commit and f"+g{commit[:8]}")
    # A wheel in somebody's repository, which is also the working directory.
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "theirs")
    rest = shutil.ignore_patterns("starter", "__pycache__")
    package = shutil.copytree(ROOT / "store", tmp_path / "store", ignore=rest)
    shutil.copy(ROOT / "catalog.yaml", package)
    code = "import store; print(store.__file__, store.describe_version())"
    answer = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert answer.stdout.split() == [str(package / "__init__.py"), store.__version__]


@pytest.fixture(scope="module")
def newer_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a lake of a later schema: it has a table, a column and a value of an enum more."""
    import builders

    folder = tmp_path_factory.mktemp("newer")
    later = json.loads(catalog.load().definition)
    later["schema"] += 1
    later["enums"]["policy_kind"].append("swarm")
    later["tables"]["policies"]["columns"]["mood"] = {"type": "VARCHAR", "about": "New."}
    later["tables"]["moods"] = later["tables"]["tags"] | {"checks": {}}
    (folder / "catalog.yaml").write_text(json.dumps(later), "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLYWHEEL_CATALOG", str(folder / "catalog.yaml"))
        patch.setattr("store.schema.migrate.describe_version", lambda: "9.9.0+gabcdef12")
        with store.writer(str(folder / "lake"), author="newer") as writer:
            swarm = builders.policy("bees") | {"kind": "swarm", "mood": "calm"}
            writer.append({"policies": [swarm], "kernels": [builders.kernel()]}, "newer")
    return folder / "lake"


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("store init", "write to"),
        ("store tag add v1", "write to"),
        ("store import starter", "write to"),
        ("store compact", "write to"),
        ("store expire --older-than-days 1", "write to"),
        ("store move {lake} {target}", "write to"),
        ("store publish lab/rows --tag v1", "publish"),
    ],
)
def test_what_writes_says_which_version_writes_to_a_newer_lake(
    words: str, what: str, newer_lake: Path, tmp_path: Path
) -> None:
    import commands

    before = hash_files(newer_lake)
    answer = commands.run(
        shlex.split(words.format(lake=newer_lake, target=tmp_path / "moved")), cwd=tmp_path,
        env=os.environ | {"FLYWHEEL_LAKE": str(newer_lake), "COLUMNS": "500"},
    )  # fmt: skip
    schema = catalog.load().schema
    assert answer.returncode == 1, answer.stderr
    assert (
        f"this lake was written by kernel-flywheel 9.9.0 (schema {schema + 1}); this is "
        f"{store.__version__} (schema {schema})"
    ) in answer.stderr
    assert f"Install kernel-flywheel 9.9.0 or newer to {what} it." in answer.stderr
    assert hash_files(newer_lake) == before
    assert not (tmp_path / "moved").exists()


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("store query --format=csv 'SELECT kind FROM policies'", "swarm"),
        ("store log", "newer"),
        ("store check", "clean"),
        ("store backup {target}", ""),
        ("store export jsonl {target} --tables=policies", ""),
    ],
)
def test_what_reads_reads_a_newer_lake(
    words: str, told: str, newer_lake: Path, tmp_path: Path
) -> None:
    import commands

    answer = commands.run(
        shlex.split(words.format(target=tmp_path / "target")), cwd=tmp_path,
        env=os.environ | {"FLYWHEEL_LAKE": str(newer_lake)},
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert told in answer.stdout
    if "backup" in words:
        with store.open(str(tmp_path / "target")) as copy:
            assert copy.sql("SELECT kind FROM policies").rows() == [{"kind": "swarm"}]


def hash_files(lake: Path) -> dict[str, str]:
    """Return the files with the content of a lake."""
    files = [lake / "catalog.sqlite", *(lake / "data").rglob("*.parquet")]
    return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def git(folder: Path, *arguments: str) -> str:
    author = ("-c", "user.name=tests", "-c", "user.email=tests@example.com")
    command = ["git", *author, *arguments]
    answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def describe_formats() -> dict[str, Any]:
    installed = catalog.load()
    formats = {name: hash_code(place) for name, place in FORMATS.items()}
    return {
        "schema": installed.schema,
        "catalog": installed.digest,
        "judge": judge.VERSION,
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
