"""Brings back tables of runs that only the history of git has, into docs/runs/NAME/tables.

python benchmarks/run_tables.py NAME [NAME …]

NAME is a folder in docs/runs, such as model-1. Run it in a clone of the repository that has its
history. The files are those of the last commit that had them. Git ignores them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path


def run_git(*words: str, folder: str | None = None) -> str:
    """Run git and return its output; exit with what it says if it fails."""
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        sys.exit("git is not installed. Install it: the tables are in the history of git.")
    if done.returncode:
        sys.exit(f"git {words[0]}: {done.stderr.strip()}\nRun this in a clone of the repository.")
    return done.stdout.strip()


def bring_back(name: str, root: str) -> None:
    """Write the tables of a run as they were before the commit that removed them."""
    path = f"docs/runs/{name}/tables"
    if run_git("ls-files", "--", path, folder=root):
        print(f"{path} is in the tree.")
        return
    removal = run_git("log", "-1", "--diff-filter=D", "--format=%H", "--", path, folder=root)
    if not removal:
        if run_git("rev-parse", "--is-shallow-repository", folder=root) == "true":
            sys.exit(
                f"This clone has no commit with {path}: it is shallow. "
                "Fetch its history with `git fetch --unshallow`, then run this again."
            )
        sys.exit(f"No commit has {path}. docs/runs/README.md lists the runs with tables.")
    commit = run_git("rev-parse", "--short=8", f"{removal}^", folder=root)
    run_git("restore", f"--source={commit}", "--worktree", "--", path, folder=root)
    print(f"{path}: {len(list(Path(root, path).iterdir()))} files of commit {commit}")


def main() -> None:
    """Bring back the tables of each run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", metavar="NAME", nargs="+", help="a folder in docs/runs")
    root = run_git("rev-parse", "--show-toplevel")
    for name in parser.parse_args().names:
        bring_back(name, root)


if __name__ == "__main__":
    main()
