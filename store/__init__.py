"""Kernel history as versioned Parquet tables: `open` a lake to read it, get a `writer` to append.

>>> import store, tempfile
>>> url = tempfile.mkdtemp()
>>> with store.writer(url, author="example") as writer:
...     snapshot = writer.append({"policies": [
...         {"policy_id": "me", "name": "me", "kind": "person"}]}, "one author")
>>> with store.open(url, at=snapshot) as lake:
...     lake.sql("SELECT name, kind FROM policies").rows()
[{'name': 'me', 'kind': 'person'}]
"""

# What is imported for type checkers is what the room exports, loaded on first use.
# ruff: noqa: F401
# pyright: reportUnusedImport=false

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from store.exports import load_lazily

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any, Literal

    from store import errors, faults, ids
    from store.bounds import QueryLimits
    from store.code import constant_answers, cuda_facts, languages, python_syntax
    from store.code.completion import ParsedCompletion, clean_text, parse_completion
    from store.code.features import extract_features, extract_row_features
    from store.comparison.compare import Comparison, compare
    from store.dossier.pages import find_kernel, find_task
    from store.hub import viewer
    from store.importers.reading.pieces import run_import
    from store.lake.location import Location
    from store.lake.reader import Lake
    from store.lake.result import Result
    from store.lake.sql_files import (
        list_views,
        read_description,
        read_sql,
        read_statement,
        read_view,
    )
    from store.rollouts.rows import RolloutOrigin, make_rollout_rows
    from store.rollouts.run import Run
    from store.rollouts.trl import attach
    from store.schema import catalog
    from store.writing.bundle import Bundle, conform
    from store.writing.writer import RunRecord, Writer, make_end, make_run, record_run

__version__ = "0.13.0"


def open(
    url: str | None = None,
    at: str | int | None = None,
    limits: QueryLimits | None = None,
    *,
    include: Sequence[str] = (),
) -> Lake:
    """Open a lake for reading, pinned to a snapshot.

    Args:
        url: Folder or URL of the lake; None means FLYWHEEL_LAKE, else ./lake.
        at: Tag, snapshot number or ISO time (UTC unless it says otherwise); None is the newest.
        limits: Time and size that each query of `Lake.sql` may use; None means no limits.
        include: Rows that rankings and tables should include although they leave them out by
            default: "nonequivalent" (kernels that are another function than their task's
            module), "weak_tasks". "unheld" leaves out kernels that do not hold at other shapes.

    Raises:
        LakeNotFound: there is no lake.
        SnapshotNotFound: no such tag, number or time.
    """
    from store.lake.location import Location
    from store.lake.reader import Lake

    return Lake(Location.of(url), at, limits, include=include)


def writer(url: str | None = None, *, author: str) -> Writer:
    """Open a lake for appending; create it, or migrate it to catalog.yaml, where needed.

    Args:
        url: Folder or URL of the lake; None means FLYWHEEL_LAKE, else ./lake.
        author: Command or member that writes; recorded in every commit.

    Raises CatalogError if the lake cannot follow catalog.yaml.
    """
    from store.lake.location import Location
    from store.writing.writer import Writer

    return Writer(Location.of(url), author)


def run(
    name: str,
    *,
    lake: str | None = None,
    config: Mapping[str, Any] | None = None,
    rank: int | None = None,
    policy: str | None = None,
    license: str | None = None,
    vocabulary: int | None = None,
    on_error: Literal["raise", "warn"] = "raise",
) -> Run:
    """Begin a run that logs rollouts and metrics of any framework, or resume the one of this name.

    >>> import store, tempfile
    >>> url = tempfile.mkdtemp()
    >>> with store.run("my run", lake=url, config={"lr": 1e-6}) as run:
    ...     run.log_rollouts([{"prompt": "2 + 2?", "completion": "4", "reward": 1.0, "step": 0}])
    ...     run.log({"loss": 0.5}, step=0)
    >>> with store.open(url) as lake:
    ...     lake.sql("SELECT step, completion FROM generations").rows()
    [{'step': 0, 'completion': '4'}]

    Args:
        name: Name of the run in this lake.
        lake: Folder or URL of the lake; None means FLYWHEEL_LAKE, else ./lake.
        config: Options of the run. A run is resumed with those that it began with; None means
            them.
        rank: Number of this process; None means the variable RANK, else 0. Rank 0 stores how the
            run ends.
        policy: Name of the model that rollouts are of unless they name one; None means `name`.
        license: License of rollouts that state none.
        vocabulary: Number of token ids of the tokenizer, beyond which ids are refused.
        on_error: Whether a rollout that breaks a rule, or a full disk, raises an error; with
            "warn", the rollouts are kept aside, and the training goes on.
    """
    from store.lake.location import Location
    from store.rollouts.run import Run

    return Run(
        name,
        Location.of(lake),
        config,
        rank=rank,
        policy=policy,
        license=license,
        vocabulary=vocabulary,
        on_error=on_error,
    )


@functools.cache
def describe_version() -> str:
    """Return the version that runs, in a checkout with its commit, such as `0.2.0+g3a0a5698`.

    The commit is for people: nothing compares it. An installed package has none.
    """
    import subprocess
    from pathlib import Path

    root = Path(__file__).parents[1]
    # A wheel has its catalog in store/. Other folders in which it may be, and the working
    # directory, can be repositories of other projects.
    if not (root / "catalog.yaml").exists() or not (root / ".git").exists():
        return __version__
    command = ["git", f"--git-dir={root / '.git'}", "rev-parse", "--short=8", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return __version__
    return __version__ if answer.returncode else f"{__version__}+g{answer.stdout.strip()}"


__getattr__ = load_lazily(__name__, __file__)
