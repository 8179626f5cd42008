"""How much of real repositories do the importers find? Imports checkouts, searches them plainly.

    python benchmarks/wild_imports.py CHECKOUTS

CHECKOUTS has a checkout of each repository under its name; those that are missing are left out.
Each is imported as a whole into a new lake. The plain search takes every file, source in a JSON
file and heredoc of a session that defines ModelNew or has device code, the last text per file of a
session, and asks whether a kernel of the lake has this text.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import store

KERNEL = re.compile(r"^class ModelNew\b|@triton\.jit|\b__global__\b", re.MULTILINE)
HEREDOC = re.compile(
    r"(?:cat\s*>\s*(\S+)\s*<<\s*'?(\w+)'?|cat\s*<<\s*'?(\w+)'?\s*>\s*(\S+))[^\n]*\n(.*?)^(?:\2|\3)\s*$",
    re.MULTILINE | re.DOTALL,
)


def search_sessions(root: Path) -> Iterator[str]:
    """Yield the last text of each file that a heredoc of a trajectory writes."""
    for file in root.rglob("trajectory.json"):
        texts: dict[str, str] = {}
        for step in json.loads(file.read_text())["steps"]:
            for call in step.get("tool_calls") or ():
                for match in HEREDOC.finditer(str(call["arguments"].get("keystrokes"))):
                    path = (match[1] or match[4]).removeprefix("/app/")
                    texts[path] = match[5]
        yield from texts.values()


def search_files(*patterns: str) -> Callable[[Path], Iterator[str]]:
    """Return a search of whole files."""

    def search(root: Path) -> Iterator[str]:
        for pattern in patterns:
            for file in root.rglob(pattern):
                yield file.read_text("utf-8", "replace")

    return search


def search_solutions(root: Path) -> Iterator[str]:
    """Yield the sources of each solution in a JSON file."""
    for file in root.rglob("*.json"):
        value: Any = json.loads(file.read_text("utf-8", "replace") or "null")
        for source in value.get("sources") or () if isinstance(value, dict) else ():
            yield source["content"]


SOURCES: dict[str, tuple[str, Callable[[Path], Iterator[str]]]] = {
    "lilian-muyaoli/kernelbench-harbor": ("atif", search_sessions),
    "Infatoshi/kernelbench.com": ("kernelbench-hard-runs", search_files("*solution.py.txt")),
    "zhang677/AccelOpt": ("flashinfer-trace", search_solutions),
    "NVIDIA/SOL-ExecBench": ("sol-execbench", search_solutions),
    "SakanaAI/robust-kbench": ("robust-kbench", search_files("*.cu")),
    "AMD-AGI/AgentKernelArena": (
        "agent-kernel-arena",
        search_files("tasks/**/*.hip", "tasks/**/*.py"),
    ),
    "algorithmicsuperintelligence/openevolve": ("openevolve", search_files("best_program.*")),
    "SakanaAI/ShinkaEvolve": ("shinka", search_files("*.cu")),
}


def main(folder: Path) -> None:
    """Print one row per checkout."""
    names = "repository | importer | files | unread | sessions | attempts | kernels | plain | found"
    print(f"| {names} |\n|---|---|---|---|---|---|---|---|---|")
    for repository, (importer, search) in SOURCES.items():
        root = folder / repository.rpartition("/")[2]
        if not root.is_dir():
            continue
        with tempfile.TemporaryDirectory() as scratch:
            lake = f"{scratch}/lake"
            command = [sys.executable, "-m", "store", "import", importer, str(root), "--lake", lake]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            sys.stderr.write(f"{repository}: {done.stdout}{done.stderr}")
            files = sum(one.is_file() for one in root.rglob("*"))
            plain = {text.strip() for text in search(root) if KERNEL.search(text)}
            row: dict[str, Any] = {"sessions": 0, "attempts": 0, "kernels": 0}
            stored: set[str] = set()
            if done.returncode == 0:
                with store.open(lake) as opened:
                    [row] = opened.run(
                        "SELECT (SELECT count(*) FROM sessions) AS sessions, "
                        "(SELECT count(*) FROM generations) AS attempts, "
                        "(SELECT count(*) FROM kernels) AS kernels"
                    ).rows()
                    texts = opened.run(
                        "SELECT code FROM kernels UNION ALL "
                        "SELECT unnest(other_files).code FROM kernels"
                    ).rows()
                    stored = {str(one["code"]).strip() for one in texts}
        unread = re.search(r"([0-9]+) files? not read", done.stdout)
        print(
            f"| {repository} | {importer} | {files} | {unread[1] if unread else 0} "
            f"| {row['sessions']} | {row['attempts']} | {row['kernels']} | {len(plain)} "
            f"| {len(plain & stored)} |",
            flush=True,
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
