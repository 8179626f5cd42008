"""One dataset to make, and the result."""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import store
from pipelines.contract.request import Request
from pipelines.contract.rows import Message
from pipelines.datasets.tokens import Counter
from pipelines.rendering.templates import template_hash
from pipelines.selection.sql_files import sql_hash
from store import list_views, read_view

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, kw_only=True)
class Job:
    """One dataset to make: a pipeline with its options over a pinned lake."""

    lake: store.Lake
    pipeline: str
    """Name of the member, such as contrastive-batch."""
    module: ModuleType
    config: Any
    request: Request
    name: str
    counter: Counter
    max_tokens: int | None = None

    @property
    def split(self) -> str:
        """Split of all rows: train, or test for evaluation."""
        return "test" if self.request.purpose == "eval" else "train"

    def recipe(self) -> dict[str, Any]:
        """Return everything that determines the rows, besides the lake and its snapshot."""
        file = Path(str(self.module.__file__))
        return {
            "pipeline": self.pipeline,
            "config": asdict(self.config),
            "request": asdict(self.request),
            "max_tokens": self.max_tokens,
            "tokens": self.counter.name,
            "template_hash": template_hash(self.module.TEMPLATE),
            "sql_hash": sql_hash(file.stem),
            "views_hash": views_hash(),
            "code_hash": hashlib.sha256(file.read_bytes()).hexdigest(),
        }


@dataclass(kw_only=True)
class Dataset:
    """A dataset that was written, or that a preview counted."""

    job: Job
    rows: int = 0
    tokens: int = 0
    num_bytes: int = 0
    dataset_type: str = ""
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    notes: dict[str, str] = field(default_factory=dict[str, str])
    licenses: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """Licenses of the texts, by ("task" or "kernel", id)."""
    example: dict[str, list[Message]] | None = None
    content_hash: str = ""
    lineage: list[pa.Table] = field(default_factory=list["pa.Table"])

    @property
    def dataset_id(self) -> str:
        """Return the sha256 over name, recipe, lake, snapshot and content."""
        job = self.job
        return store.ids.content_id(
            "dataset",
            job.name,
            json.dumps(job.recipe(), sort_keys=True),
            job.lake.lake_id,
            str(job.lake.snapshot),
            self.content_hash,
        )

    @property
    def folder_name(self) -> str:
        """Return the name of the version folder: snapshot and the start of the id."""
        return f"{self.job.lake.snapshot}-{self.dataset_id[:8]}"


@functools.cache
def views_hash() -> str:
    """Return the sha256 over the SQL of all views, which affect rows like a pipeline's SQL."""
    texts = [[name, read_view(name)] for name in list_views()]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()
