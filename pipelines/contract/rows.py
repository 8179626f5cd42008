"""The selection of a pipeline, and the rows that its renderer gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    import pyarrow as pa


class Message(TypedDict):
    """One turn of a conversation, as TRL's conversational datasets have it."""

    role: str
    content: str


@dataclass(frozen=True, kw_only=True)
class Task:
    """Reference code as a renderer sees it."""

    task_id: str
    name: str
    """Name in the suite, such as level1/12; the first characters of the id where it has none."""
    title: str | None
    code: str
    license: str | None = None
    """SPDX identifier that its source states."""


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """Stored code as a renderer sees it: text to show, never to run."""

    kernel_id: str
    code: str
    path: str
    other_files: tuple[tuple[str, str], ...] = ()
    """Further files: (path, text)."""
    license: str | None = None
    """SPDX identifier that its source states."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row to render: its task, its kernels in order, and the columns that select() gave it."""

    task: Task
    kernels: tuple[Kernel, ...]
    columns: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The rows of a dataset before their text is made.

    `rows` has one row per dataset row, in their final order: `task_id`, `kernel_ids` (kernels of
    the row, in the order in which the renderer wants them) and the columns that the dataset is to
    carry. Columns that begin with an underscore reach the renderer and are not written.
    """

    rows: pa.Table
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    """Reason to number of tasks, kernels or rows that were left out for it."""
    notes: dict[str, str] = field(default_factory=dict[str, str])
    """Choices that the pipeline made on its own, for the summary and the card."""
    dataset_type: str | None = None
    """Set if it differs from the module's DATASET_TYPE."""
    improvement_share: float | None = None
    """Share of the dataset's rows that are to be improvements, which are the rows with a `gain`.
    Rows are chosen for it after duplicates, long rows and contaminated rows are left out."""
