"""One dataset to make, and the result."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import store
from pipelines.contract import Message, Request
from pipelines.rendering.messages import template_hash
from pipelines.selection.queries import sql_hash
from store import list_views, read_view
from store.errors import DatasetError
from store.schema.baselines import describe_baseline, list_baselines

if TYPE_CHECKING:
    import pyarrow as pa


_FOLDERS = ("contract", "rendering", "selection", "datasets")
_STORE_FILES = ("code/constants.py", "code/languages.py", "schema/clocks.py")
"""Code of the store that makes text of prompts: names of constants, of languages, of clocks."""


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
        """Return what determines the rows, besides the lake, its snapshot and other packages.

        It has the options and hashes of the code, the SQL, the templates and the words of prompts.
        """
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
            "shared_hash": shared_hash(),
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


@functools.cache
def shared_hash() -> str:
    """Return the sha256 over what affects the rows of every pipeline besides SQL and templates.

    This is the code that selects, renders and writes rows, and the code and words of the store that
    prompts contain.
    """
    rooms = {"pipelines": Path(__file__).parents[1], "store": Path(store.__file__).parent}
    names = [("pipelines", f"{folder}/*.py") for folder in _FOLDERS]
    names += [("store", name) for name in _STORE_FILES]
    texts = [
        [f"{room}/{file.relative_to(rooms[room]).as_posix()}", file.read_text("utf-8")]
        for room, name in names
        for file in sorted(rooms[room].glob(name))
    ]
    words = [[name, describe_baseline(name)] for name in list_baselines()]
    return hashlib.sha256(json.dumps([texts, words]).encode()).hexdigest()


Count: TypeAlias = Callable[[list[str]], list[int]]
BYTES_PER_TOKEN = 4


@dataclass(frozen=True, kw_only=True)
class Counter:
    """Counts the tokens of texts; special tokens of a chat template are not counted."""

    name: str
    """Part of the recipe: the estimate's rule, or the hash of the tokenizer file."""
    words: str
    """A description for people."""
    count: Count


def make_counter(tokenizer: Path | None) -> Counter:
    """Return the counter of a tokenizer.json (or its folder); None estimates.

    Raises DatasetError: no such file, or the tokenizers package is not installed.
    """
    if tokenizer is None:
        return Counter(
            name=f"utf-8 bytes / {BYTES_PER_TOKEN}",
            words=f"estimated as bytes / {BYTES_PER_TOKEN}",
            count=lambda texts: [-(-len(text.encode()) // BYTES_PER_TOKEN) for text in texts],
        )
    file = tokenizer / "tokenizer.json" if tokenizer.is_dir() else tokenizer
    if not file.is_file():
        raise DatasetError(
            f"no tokenizer at {file}", "Give a tokenizer.json, or the model folder that holds it."
        )
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise DatasetError(
            "counting tokens needs the package tokenizers",
            'Install "kernel-flywheel[train]", or leave --tokenizer out for an estimate.',
        ) from error
    data = file.read_bytes()
    try:
        loaded = Tokenizer.from_buffer(data)
    except ValueError as error:
        raise DatasetError(f"{file} is no tokenizer: {error}") from error
    return Counter(
        name=f"sha256:{hashlib.sha256(data).hexdigest()}",
        words=f"by {file.parent.name}/{file.name}",
        count=lambda texts: [
            len(one.ids) for one in loaded.encode_batch_fast(texts, add_special_tokens=False)
        ],
    )
