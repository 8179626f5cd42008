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

from __future__ import annotations

from typing import TYPE_CHECKING

from store import errors, ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.lake.limits import QueryLimits
    from store.lake.reader import Lake
    from store.lake.result import Result
    from store.lake.sql_files import read_sql
    from store.writing.bundle import Bundle
    from store.writing.writer import Writer

__version__ = "0.1.0"

__all__ = ["Bundle", "Lake", "Result", "Writer", "errors", "ids", "open", "read_sql", "writer"]


def open(
    url: str | None = None,
    at: str | int | None = None,
    limits: QueryLimits | None = None,
    *,
    include: Sequence[str] = (),
) -> Lake:
    """Open a lake for reading, pinned to a snapshot.

    Args:
        url: Folder of the lake; None means FLYWHEEL_LAKE, else ./lake.
        at: Tag, snapshot number or ISO time (UTC unless it says otherwise); None is the newest.
        limits: What each question to `Lake.sql` may cost; None is without limits.
        include: What rankings and tables leave out by default and should include: "nonequivalent"
            (kernels that are another function than their task's module), "weak_tasks".

    Raises:
        LakeNotFound: nothing there.
        SnapshotNotFound: no such tag, number or time.
    """
    from store.lake.location import Location
    from store.lake.reader import Lake

    return Lake(Location.of(url), at, limits, include=include)


def writer(url: str | None = None, *, author: str) -> Writer:
    """Open a lake for appending; it is made, or migrated to catalog.yaml, where needed.

    Args:
        url: Folder of the lake; None means FLYWHEEL_LAKE, else ./lake.
        author: Command or member that writes; stands in every commit.

    Raises:
        CatalogError: the lake cannot follow catalog.yaml.
    """
    from store.lake.location import Location
    from store.writing.writer import Writer

    return Writer(Location.of(url), author)


def __getattr__(name: str) -> object:
    """Load the classes on first use, so that `import store` stays free of DuckDB and Arrow."""
    modules = {
        "Bundle": "store.writing.bundle",
        "Lake": "store.lake.reader",
        "Result": "store.lake.reader",
        "Writer": "store.writing.writer",
        "read_sql": "store.lake.sql_files",
    }
    if name not in modules:
        raise AttributeError(name)
    import importlib

    return getattr(importlib.import_module(modules[name]), name)
