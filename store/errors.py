"""The errors that this software raises on purpose; the shell prints message and hint."""

from __future__ import annotations

import difflib
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager

FIRST_ROWS = (
    "`store import starter` brings 15 tasks with 101 kernels; `store import --help` lists other "
    "sources."
)
"""What to do about a lake without kernels."""


class FlywheelError(Exception):
    """An error with its reason and what to do next."""

    exit_code = 1
    """Exit code of the command that the error ends."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class UsageError(FlywheelError):
    """A command line names options or commands that do not exist, or lacks some."""

    exit_code = 2


class CatalogError(FlywheelError):
    """catalog.yaml is wrong, or a lake cannot be migrated to it."""


class UnknownName(FlywheelError):
    """No member, table, tag or task has the name."""

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str]) -> UnknownName:
        """Return the error with the nearest known name, or the first few, as its hint."""
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        if near:
            return cls(f'no {kind} "{name}"', f'Did you mean "{near[0]}"?')
        listed = ", ".join(names[:12]) + (" …" if len(names) > 12 else "")
        hint = f"There are: {listed}" if names else f"There is no {kind} yet."
        return cls(f'no {kind} "{name}"', hint)


class LakeNotFound(FlywheelError):
    """There is no lake at the URL."""


class LakeUnreachable(FlywheelError):
    """This version cannot open the URL."""


class SnapshotNotFound(FlywheelError):
    """No snapshot has that tag, number or time."""


class UnsafeSQL(FlywheelError):
    """User SQL that is not one SELECT over the lake's tables and views."""


class ServerBusy(FlywheelError):
    """A server has too many requests; a later one may be answered."""


class CommitConflict(FlywheelError):
    """Another program holds the lake's catalog, or has committed to it meanwhile."""


class ImportFailed(FlywheelError):
    """A source file or folder cannot be read; none of its rows are stored."""

    def __init__(self, message: str, hint: str | None = "Correct it, or leave it out.") -> None:
        super().__init__(message, hint)


class ExportRefused(FlywheelError):
    """An export would overwrite a file, or write none; no file is written."""


class RowsRejected(FlywheelError):
    """Rows break a rule of the catalog; no row of their bundle is stored."""

    exit_code = 3

    def __init__(self, table: str, rule: str, count: int, examples: list[str]) -> None:
        shown = "".join(f"\n  {example}" for example in examples)
        broken = "1 row breaks" if count == 1 else f"{count} rows break"
        super().__init__(f"{table}: {broken} the rule: {rule}{shown}")
        self.table = table
        self.rule = rule
        self.count = count
        self.examples = examples
        self.args = (table, rule, count, examples)  # by which a copy in another process is made


class RolloutRejected(FlywheelError):
    """A rollout breaks a rule; no rollout of its call is stored."""

    exit_code = 3

    def __init__(self, number: int, key: str | None, why: str, hint: str | None = None) -> None:
        super().__init__(f"rollout {number}: {'' if key is None else f'{key} '}{why}", hint)
        self.number = number
        self.key = key
        self.why = why
        self.args = (number, key, why, hint)


class DatasetError(FlywheelError):
    """A dataset must not be written."""


class EmptyDataset(DatasetError):
    """No row is left for the dataset."""


class LeakageFound(DatasetError):
    """A task of the test split would reach a training row."""


class EvaluatorError(FlywheelError):
    """Our own measuring machinery failed; never the candidate's fault."""


class DeviceUnavailable(EvaluatorError):
    """The requested device is not there."""


class HostUnfit(EvaluatorError):
    """This host lacks what a kernel needs, such as a compiler: the kernel gets no verdict."""

    exit_code = 4


class SandboxFailed(EvaluatorError):
    """A candidate could not be started under its limits."""


def summarize_error(error: Exception) -> str:
    """Return the first line of an error's message, at most 160 characters of it."""
    return (str(error).splitlines() or [repr(error)])[0][:160]


@contextmanager
def name_condition(where: str) -> Generator[None]:
    """Name a user's --where in an error of the query around it, whose lines are not the user's."""
    try:
        yield
    except FlywheelError as error:
        why, _, _ = error.message.partition("\nLINE ")
        if not re.match(r"\w+ Error: ", why):  # as DuckDB's errors begin
            raise
        raise FlywheelError(
            f"--where {' '.join(where.split())!a:.200} is no condition here: {why.strip()}",
            "Write what may follow WHERE, such as \"task_name LIKE '%softmax%'\"; the help of the "
            "command names the columns.",
        ) from error
