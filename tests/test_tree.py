"""What git tracks stays small enough to travel, and its history has the tables that left it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path

import commands
import pytest

ROOT = Path(__file__).parents[1]
BUDGET_BYTES = 33 << 20
RUNS = dict(
    re.findall(
        r"^\| `([\w-]+)` \| `([0-9a-f]{8,40})` \|",
        (ROOT / "docs" / "runs" / "README.md").read_text("utf-8"),
        flags=re.MULTILINE,
    )
)
"""Runs whose tables are not in the tree, each with the commit that its page names."""
OF_ITS_LAKE = {"h200": {"loop", "stages"}}
"""Queries whose result needs the lake of the run: its history, or rows that are not published."""
OF_DEVICES = {
    "history-2": {"drawn_settings": "both"}
    | dict.fromkeys(
        (
            "changed_knobs", "knobs", "labels", "setting_order", "supervised", "taught_settings",
            "uses",
        ),
        "H100",
    )
}  # fmt: skip
"""Queries of a run that need other verdicts than those of the H200."""


def run_git(*words: str, folder: Path = ROOT) -> str:
    """Run git and return its output."""
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", autouse=True)
def _has_git() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is not a clone of the repository, or git is not installed")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return an empty work tree with the history of the repository."""
    if run_git("rev-parse", "--is-shallow-repository") == "true\n":
        pytest.skip("this clone is shallow, so it lacks the commits with the tables")
    run_git("clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(tmp_path / "clone"))
    return tmp_path / "clone"


def bring_back(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the program that brings back the tables of a run."""
    program = str(ROOT / "benchmarks" / "run_tables.py")
    return subprocess.run(
        [sys.executable, program, name], cwd=folder, capture_output=True, text=True, check=False
    )


def test_tracked_files_stay_within_their_budget() -> None:
    names = run_git("ls-files", "-z").split("\0")[:-1]
    sizes = {name: (ROOT / name).lstat().st_size for name in names if (ROOT / name).exists()}
    largest = sorted(sizes, key=lambda name: -sizes[name])[:20]
    table = "\n".join(f"{sizes[name] / (1 << 20):6.2f} MiB  {name}" for name in largest)
    assert sum(sizes.values()) < BUDGET_BYTES, (
        f"tracked files take {sum(sizes.values()) / (1 << 20):.1f} MiB of "
        f"{BUDGET_BYTES >> 20} MiB. docs/runs/README.md (Tables of a run) says how to make room. "
        f"The largest:\n{table}"
    )


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("name", RUNS)
def test_tables_that_left_the_tree_come_back(clone: Path, name: str) -> None:
    path = f"docs/runs/{name}/tables"
    done = bring_back(name, clone)
    assert done.returncode == 0, done.stderr
    files = sorted((clone / path).iterdir())
    hashes = run_git("hash-object", *map(str, files), folder=clone).split()
    listed = run_git("ls-tree", RUNS[name], f"{path}/").splitlines()
    assert [line.split()[2] for line in listed] == hashes
    assert done.stdout.startswith(f"{path}: {len(files)} files of commit ")
    assert run_git("check-ignore", f"{path}/runs.parquet") == f"{path}/runs.parquet\n"


def test_tables_that_cannot_come_back_say_why(clone: Path, tmp_path: Path) -> None:
    unknown = bring_back("model-9", clone)
    assert unknown.returncode == 1
    assert unknown.stderr == (
        "No commit has docs/runs/model-9/tables. docs/runs/README.md lists the runs with tables.\n"
    )
    run_git("config", "uploadpack.allowFilter", "true", folder=clone)
    few = ("--quiet", "--no-checkout", "--depth", "1", "--filter", "blob:none")
    run_git("clone", *few, clone.as_uri(), str(tmp_path / "shallow"))
    shallow = bring_back("model-1", tmp_path / "shallow")
    assert shallow.returncode == 1
    assert "it is shallow. Fetch its history with `git fetch --unshallow`" in shallow.stderr
    outside = bring_back("model-1", tmp_path)
    assert outside.returncode == 1
    assert "Run this in a clone of the repository." in outside.stderr
    kept = bring_back("history-2", ROOT)
    assert kept.stdout == "docs/runs/history-2/tables is in the tree.\n"


def check_figures(
    tables: Path, page: Path, figures: Collection[str], lake: Path, device: str | None = None
) -> None:
    """Put the tables of a run into a lake, and compare its answers with the files of its page."""
    of_device = [] if device is None else ["--device", device]
    merge = ["lab.merge", str(lake), str(tables), *of_device]
    done = commands.run(merge, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for figure in sorted(figures):
        answer = lake.with_suffix(f".{figure}.csv")
        words = ["query", "--lake", str(lake), "--format", "csv", "--out", str(answer)]
        query = str(page.parent / f"{figure}.sql")
        done = commands.run(["store", *words, "--file", query], cwd=ROOT)
        assert done.returncode == 0, done.stderr
        assert answer.read_text("utf-8") == (page / f"{figure}.csv").read_text("utf-8"), figure


def list_figures(page: Path) -> set[str]:
    """Return the queries whose answers are files of a page."""
    queries = {file.stem for file in page.parent.glob("*.sql")}
    return ({file.stem for file in page.glob("*.csv")} & queries) - OF_ITS_LAKE.get(
        page.name, set()
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_tables_that_come_back_give_the_figures_of_their_page(
    clone: Path, name: str, tmp_path: Path
) -> None:
    assert bring_back(name, clone).returncode == 0
    page = ROOT / "docs" / "runs" / name
    figures = list_figures(page)
    assert "control" in figures
    check_figures(clone / "docs" / "runs" / name / "tables", page, figures, tmp_path / "lake")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["history-1", "history-2"])
def test_tables_in_the_tree_give_the_figures_of_their_page(name: str, tmp_path: Path) -> None:
    page = ROOT / "docs" / "runs" / name
    devices: defaultdict[str | None, set[str]] = defaultdict(set)
    for figure in list_figures(page):
        device = OF_DEVICES[name].get(figure, "H200") if name in OF_DEVICES else None
        devices[device].add(figure)
    for device, figures in devices.items():
        lake = tmp_path / f"lake-{device}"
        check_figures(page / "tables", page, figures, lake, None if device == "both" else device)
