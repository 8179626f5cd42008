"""New lakes of tests in folders are copies of one lake, which each test process makes once.

It takes half a second to make a lake, and most tests begin with one. Copies have the same id and
the same first snapshot. A writer makes a new lake itself if the folder exists, if its parent does
not, or if the test has a catalog of its own.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from store.lake.location import FolderLocation, Location
from store.schema import catalog
from store.writing.writer import Writer

_make = Writer.__init__


def copy_new_lakes() -> None:
    """Make writers of this process start new lakes from a copy."""
    Writer.__init__ = _start_from_copy


@cache
def make_template() -> Path:
    """Make the lake that is copied, and return its folder."""
    folder = Path(tempfile.mkdtemp(prefix="flywheel-tests-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    writer = Writer.__new__(Writer)
    _make(writer, FolderLocation(folder / "lake"), "tests")
    writer.close()
    return folder / "lake"


@cache
def _read_shipped_definition() -> str:
    return catalog.load().definition


def _start_from_copy(self: Writer, location: Location, author: str) -> None:
    if (
        isinstance(location, FolderLocation)
        and not location.root.exists()
        and location.root.parent.is_dir()
        and catalog.load().definition == _read_shipped_definition()
    ):
        shutil.copytree(make_template(), location.root)
    _make(self, location, author)
