"""One edition of a lake: the folder of files that is published, written from one snapshot.

The same lake, snapshot and options give the same bytes, so that publishing again finds everything
in place, and an edition with more rows shares its older files with the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from store.hub import frozen_catalog
from store.hub.shards import Shard
from store.lake.location import EDITION_MANIFEST

if TYPE_CHECKING:
    import pyarrow as pa

MANIFEST = EDITION_MANIFEST
TOP = ("README.md", "figure.png", MANIFEST, frozen_catalog.CATALOG)
"""Files of an edition beside data/."""
FORMAT = 1
SPLIT = "train"
"""Split of the rows of a table; the Hub requires one."""
BATCH_ROWS = 10_000

Quarantined: TypeAlias = Literal["mark", "leave-out"]
Unlicensed: TypeAlias = Literal["stop", "leave-out"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of an edition."""

    tag: str
    """Name of the edition."""
    tables: tuple[str, ...] | None = None
    """Tables; None is all, or with datasets the tables that the datasets refer to."""
    datasets: tuple[str, ...] = ()
    """Datasets made by pipelines, as NAME or NAME@TAG."""
    license: str | None = None
    """License granted for texts that this lake's own runs wrote and that state none."""
    quarantined: Quarantined = "mark"
    """Whether quarantined kernels are marked, or left out with the rows that refer to them."""
    unlicensed: Unlicensed = "stop"
    """Whether texts without a license stop the command, or are left out in the same way."""


@dataclass(kw_only=True)
class Edition:
    """An edition in a folder, ready to be uploaded."""

    folder: Path
    repo: str
    tag: str
    lake_id: str
    snapshot: int
    moment: datetime
    """When the snapshot was taken."""
    tables: dict[str, list[Shard]] = field(default_factory=dict[str, "list[Shard]"])
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict[str, "dict[str, Any]"])
    """Name to lineage and files of a dataset."""
    schemas: dict[str, pa.Schema] = field(default_factory=dict[str, "pa.Schema"])
    """Config to the schema of its files."""
    licenses: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    """Table, license, rows."""
    left_out: dict[str, int] = field(default_factory=dict[str, int])
    """Table to the number of rows that stay behind."""
    quarantined: int = 0
    """Kernels in quarantine."""
    hashed: dict[str, int] = field(default_factory=dict[str, int])
    scrubbed: dict[str, int] = field(default_factory=dict[str, int])
    unchanged: dict[str, int] = field(default_factory=dict[str, int])
    """Column to the number of verbatim texts that name a person's folder."""
    notices: list[str] = field(default_factory=list[str])
    """Decisions to tell the user."""

    def files(self) -> dict[str, Path]:
        """Return every file by its path in the repository, sorted."""
        found = [file for file in self.folder.iterdir() if file.name in TOP]
        found += self.folder.glob("data/**/*.parquet")
        return {file.relative_to(self.folder).as_posix(): file for file in sorted(found)}

    def split(self, config: str) -> str:
        """Return the split that a config's rows are in."""
        return str(self.datasets[config]["split"]) if config in self.datasets else SPLIT

    def shards(self, config: str) -> list[Shard]:
        """Return the files of a table or dataset."""
        if config in self.tables:
            return self.tables[config]
        return [Shard(**one) for one in self.datasets[config]["files"]]
