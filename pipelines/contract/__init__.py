"""The contract of a pipeline: its request, its selection, and the rows that its renderer gets."""

# No annotations from __future__: a Config in another module extends these classes, and its __init__
# would look for the names of these types there.
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypedDict

from cyclopts import Parameter

from store.commandline.members import AuthorOption
from store.errors import DatasetError
from store.schema.baselines import Baseline, describe_baseline
from store.schema.clocks import Clock

if TYPE_CHECKING:
    import pyarrow as pa


__all__ = ["Baseline", "Evidence", "describe_baseline"]

Evidence: TypeAlias = Literal["measured", "claimed"]


Purpose: TypeAlias = Literal["train", "eval"]
Shapes: TypeAlias = Literal["any", "honest", "held"]
PerAuthor: TypeAlias = Annotated[int, Parameter(name="--per-author")]
"""How many kernels of one author a dataset takes for a task."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What every pipeline is asked."""

    purpose: Purpose = "train"
    """train: tasks of the train split. eval: tasks of the test split; every row records that."""
    seed: int = 0
    """Random seed."""
    limit: int | None = None
    """Write at most N rows (default: no limit)."""
    include_trivial: bool = False
    """Include trivial tasks, which an answer without their inputs passes."""
    include_nonequivalent: bool = False
    """Include correct kernels that compute a different function than their task."""
    include_doubted: bool = False
    """Include published kernels with an open finding of a confidence from 0.5 to 0.8, such as a
    sign of cheating that nobody has decided on."""
    shapes: Shapes = "honest"
    """held: take only kernels that are correct at every other shape of the task that was tried.
    honest: leave out those that are wrong at another shape. any: take those as well."""
    tasks: Annotated[tuple[str, ...] | None, Parameter(parse=False)] = None
    """Ids of the only tasks to select rows for (default: all of the purpose). Their rows are those
    that a request for all tasks gives, unless it has a limit, which counts the rows of all tasks.
    An improvement share is refused. Commands have no option for it."""

    def __post_init__(self) -> None:
        """Refuse a limit that leaves nothing, and a seed that no column can have."""
        if self.limit is not None and self.limit < 1:
            raise DatasetError(f"--limit {self.limit} leaves no row", "Give 1 or more.")
        if self.limit is not None and self.limit >= 2**31:
            raise DatasetError(f"--limit {self.limit} is out of range", "Give less than 2^31.")
        if not 0 <= self.seed < 2**63:
            raise DatasetError(f"--seed {self.seed} is out of range", "Give 0 to 2^63 - 1.")


Strategy: TypeAlias = Literal["bucket", "random", "none", "island", "top", "shuffled"]


@dataclass(frozen=True, kw_only=True)
class ExemplarOptions:
    """Options of everything that shows scored kernels in a prompt."""

    exemplars: int = 2
    """Number of kernels shown in a prompt (CUDA-L1: 2)."""
    temperature: float = 1.0
    """Temperature of the softmax over buckets, in standard deviations of their mean scores: near 0,
    the fastest is always taken; at 10, all are almost equally likely. Our choice; CUDA-L1 publishes
    none."""
    bucket_width: float = 0.25
    """Width of a score bucket, in units of speedup. Our choice; CUDA-L1 does not publish it."""
    islands: int = 4
    """Number of islands that strategy island divides the kernels of a task into."""
    baseline: Baseline = "eager"
    """Baseline of the speedups shown."""
    clock: Clock | None = None
    """Clock of the speedups shown, which the prompt then names (default: the clock that ranks:
    gpu on a GPU, throughput on a CPU). Published speedups have no clock."""


@dataclass(frozen=True, kw_only=True)
class DrawOptions(ExemplarOptions):
    """Options of a draw in SQL."""

    strategy: Strategy = "bucket"
    """bucket: draw by softmax over score buckets. island: the same within one of several islands
    of kernels. random: draw any kernels. top: show the fastest. none: show only the reference.
    shuffled: like bucket, with the scores of a prompt shuffled among its kernels, as a control."""
    per_task: int | None = None
    """Number of prompts per task (default: 1, or as many as --limit needs)."""


@dataclass(frozen=True, kw_only=True)
class Improvements(ExemplarOptions):
    """Options of a choice of improvements."""

    margin: float = 1.1
    """Minimum ratio between the lower bound of the answer's speedup and the upper bound of each
    exemplar's."""
    per_task: int = 4
    """Maximum number of rows per task: its fastest kernel, each time beside other exemplars."""
    strategy: Literal["bucket", "island", "random", "top"] = "bucket"
    """How exemplars are drawn among the slower kernels; as in contrastive-batch."""
    device: str | None = None
    """Device whose speedups count (default: the one that this lake measured last, else the one
    with the most)."""
    policy: AuthorOption | None = None
    """Id or name of the author of the answers (default: all)."""
    round: int | None = None
    """Round in which the author wrote the answers (default: all)."""


def copy_exemplar_options(options: ExemplarOptions) -> dict[str, Any]:
    """Return the options of exemplars alone, as arguments of another class that extends them."""
    return {field.name: getattr(options, field.name) for field in fields(ExemplarOptions)}


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

    rows: "pa.Table"
    dropped: dict[str, int] = field(default_factory=dict[str, int])
    """Reason to number of tasks, kernels or rows that were left out for it."""
    notes: dict[str, str] = field(default_factory=dict[str, str])
    """Choices that the pipeline made on its own, for the summary and the card."""
    dataset_type: str | None = None
    """Set if it differs from the module's DATASET_TYPE."""
    improvement_share: float | None = None
    """Share of the dataset's rows that are to be improvements, which are the rows with a `gain`.
    Rows are chosen for it after duplicates, long rows and contaminated rows are left out."""
