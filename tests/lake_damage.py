"""Damages every kind of file of a lake in every way, and runs every command on the result.

`python tests/lake_damage.py` prints the table in docs/damage.md.
"""

from __future__ import annotations

import atexit
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import builders
import commands
import lake_commands

import store
from store.commandline import echo
from store.hub.edition_writer import Options, write_edition
from store.lake.location import FolderLocation
from store.upkeep import integrity
from store.upkeep.move import move

OTHER_USER = 65_534
FILES = {
    "catalog.sqlite": "catalog.sqlite",
    "catalog.sqlite-wal": "catalog.sqlite-wal",
    "catalog.sqlite-shm": "catalog.sqlite-shm",
    "a data file": "data/main/kernels/*.parquet",
    "data/flywheel.lake": "data/flywheel.lake",
    "lock": "lock",
    "readers": "readers",
    "keys.sqlite": "keys.sqlite",
    "a spooled bundle": "spool/*.open",
    "checked.json": "checked.json",
    "publish.salt": "publish.salt",
    "leases": "leases",
    "move.json": "move.json",
    "flywheel.json": "flywheel.json",
}
"""Kind of file to where it is in its lake."""
WAYS = (
    "empty",
    "cut",
    "flipped",
    "another lake's",
    "older",
    "removed",
    "another user's",
    "read-only",
)
CENTRAL = ("catalog.sqlite", "catalog.sqlite-wal", "a data file", "move.json", "flywheel.json")
"""Files that decide whether and what all commands read; the others are tried with fewer."""
SHOWN = {"store query": "query", "store tag add": "tag", "store check": "check"}
"""Commands in the table, and their words in it."""
TOUCHING = (
    "store query",
    "store report",
    "store check",
    "store backup",
    "store publish",
    *lake_commands.WRITES,
)


@dataclasses.dataclass(frozen=True)
class Lakes:
    """Folders of lakes to be copied: STATE/lake, and STATE/older and STATE/another beside it."""

    folder: Path
    names: dict[str, str]
    """What words in the arguments of commands stand for."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What commands did over a damaged lake."""

    answered: list[str]
    refused: list[str]
    faults: list[str]
    """What must not be: files that are gone, tracebacks, errors without a next step."""


def find_state(kind: str) -> str:
    """Return the state of the lakes that have a kind of file."""
    own = {"move.json": "moved", "flywheel.json": "edition"}
    journals = dict.fromkeys(("catalog.sqlite-wal", "catalog.sqlite-shm"), "crashed")
    return {**own, **journals}.get(kind, "plain")


@cache
def make_lakes() -> Lakes:
    """Make the lakes, which a process does once."""
    folder = Path(tempfile.mkdtemp(prefix="flywheel-damage-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    names: dict[str, str] = {}
    for role in ("lake", "another"):
        location = FolderLocation(folder / "made" / role)
        names = lake_commands.make_lake(location.root) | (names if role == "another" else {})
        integrity.check(location, full=False)
        location.open_leases().close()
        if role == "lake":
            for state in ("plain", "crashed", "moved", "edition"):
                shutil.copytree(location.root, folder / state / "older")
        with store.writer(location.url, author="tests") as writer:
            rows = [builders.kernel(f"{role} later {number}") for number in range(30)]
            writer.append({"kernels": rows}, "later")
            shutil.copytree(location.root, folder / "crashed" / role)
            writer.append({"kernels": [builders.kernel(f"{role} waits")]}, "waits", wait=False)
        shutil.copytree(location.root, folder / "plain" / role)
    return Lakes(folder, names)


@cache
def make_state(state: str) -> Path:
    """Return the folder of the lakes of a state, which a process makes once."""
    folder = make_lakes().folder
    for role in ("lake", "another"):
        location = FolderLocation(folder / "made" / role)
        if state == "edition":
            edition = folder / "edition" / role
            edition.mkdir(parents=True)
            with store.open(location.url, at="v1") as lake, store.open(location.url) as now:
                options = Options(tag="v1")
                write_edition(lake, now, edition, "someone/lake", options, location.read_salt())
        elif state == "moved":
            left = FolderLocation(folder / "moved" / role)
            shutil.copytree(location.root, left.root)
            with store.writer(left.url, author="tests") as writer:
                writer.flush()
            move(left, FolderLocation(folder / "moved" / f"{role} now"))
    return folder / state


def damage(lake: Path, kind: str, way: str) -> Path | None:
    """Damage a file of a copied lake; return it, or None where the way does not apply."""
    state = make_state(find_state(kind))
    files = sorted(lake.glob(FILES[kind]))
    if not files:
        return None
    file = files[-1]  # the newest data file, which compaction has not replaced
    content = file.read_bytes()
    if way == "empty":
        file.write_bytes(b"")
    elif way == "cut":
        file.write_bytes(content[: len(content) // 2])
    elif way == "flipped":
        # Of a database, the beginning of a page: other places may be free.
        middle = len(content) // 2
        middle -= middle % 4096 if middle > 4096 else 0
        flipped = bytes(byte ^ 0xFF for byte in content[middle : middle + 64])
        file.write_bytes(content[:middle] + flipped + content[middle + 64 :])
    elif way in ("another lake's", "older"):
        role = {"another lake's": "another", "older": "older"}[way]
        others = sorted((state / role).glob(FILES[kind]))
        if not others or others[-1].read_bytes() == content:
            return None
        shutil.copyfile(others[-1], file)
    elif way == "removed":
        file.unlink()
    elif way == "another user's":
        os.chown(file, OTHER_USER, OTHER_USER)
        file.chmod(0o600)
    else:
        file.chmod(0o444)
    return file


def list_commands(kind: str) -> list[str]:
    """Return the commands that are tried on the damage of a kind of file."""
    every = [*lake_commands.READS, *lake_commands.WRITES]
    return every if kind in CENTRAL else [name for name in every if name in TOUCHING]


def run_commands(kind: str, way: str, names: Iterable[str], folder: Path) -> Outcome:
    """Run commands, each on a fresh copy of a damaged lake."""
    lakes = make_lakes()
    outcome = Outcome([], [], [])
    for name in names:
        work = folder / name.replace(" ", "-")
        work.mkdir()
        lake = work / "lake"
        shutil.copytree(make_state(find_state(kind)) / "lake", lake)
        file = damage(lake, kind, way)
        if file is None:
            break
        before = _list_content(lake)
        words = lake_commands.list_words(name, {**lakes.names, "LAKE": str(lake)})
        env = {
            **os.environ,
            "FLYWHEEL_LAKE": str(lake),
            "HF_HUB_OFFLINE": "1",
            "TMPDIR": str(work),
            commands.ORPHAN_AGE_S: "0",
        }
        done = commands.run(words, cwd=work, env=env, unprivileged=not os.getuid())
        (outcome.refused if done.returncode else outcome.answered).append(name)
        after = _list_content(lake)
        lost = [path for path, content in before.items() if after.get(path) != content]
        told = done.stderr.strip().splitlines()
        wrong = {
            f"exit code {done.returncode}": done.returncode not in (0, 1, 3),
            "a traceback": "Traceback" in done.stderr,
            "called a bug": "This is a bug" in done.stderr,
            "no next step": done.returncode == 1 and len(told) < 2,
            f"lost or changed: {', '.join(lost)}": bool(lost),
        }
        outcome.faults.extend(
            f"{name} ({what}): {done.stderr[-600:]}" for what, is_so in wrong.items() if is_so
        )
        shutil.rmtree(work)
    return outcome


def _list_content(lake: Path) -> dict[str, bytes]:
    """Return the files whose content is nowhere else, but for the catalog, which writers change.

    A bundle that waits may be committed, and then its file goes.
    """
    return {
        str(file.relative_to(lake)): file.read_bytes()
        for file in sorted(lake.rglob("*"))
        if file.is_file()
        and (file.suffix == ".parquet" or file.name in ("publish.salt", "flywheel.json"))
    }


def print_table() -> None:
    """Print the table of docs/damage.md."""
    echo.print_result(f"| file | {' | '.join(WAYS)} |")
    echo.print_result(f"|{'---|' * (len(WAYS) + 1)}")
    for kind in FILES:
        cells: list[str] = []
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                outcome = run_commands(kind, way, SHOWN, Path(folder))
            for fault in outcome.faults:
                echo.print_note(f"{kind}, {way}: {fault}")
            words = " ".join(SHOWN[name] for name in outcome.answered)
            if len(outcome.answered) == len(SHOWN):
                words = "all"
            tried = outcome.answered or outcome.refused
            cells.append((words or "none") if tried else "")
        echo.print_result(f"| {kind} | {' | '.join(cells)} |")


if __name__ == "__main__":
    print_table()
