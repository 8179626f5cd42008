"""Everything this software raises on purpose.

FlywheelError            message and hint; the shell prints both and exits 1
├── CatalogError         catalog.yaml is wrong, or a lake cannot follow it
├── UnknownName          a member, table, tag or task that does not exist; suggests the nearest
├── LakeNotFound         no lake at the URL
├── LakeUnreachable      the URL names a kind of lake that cannot be opened
├── SnapshotNotFound     no such tag, number or time
├── UnsafeSQL            user SQL that is not one plain SELECT
├── CommitConflict       another program holds the lake's catalog
├── ImportFailed         a source that cannot be read
├── RowsRejected         rows that break a rule: table, rule, count, three examples (exit 3)
├── DatasetError         EmptyDataset, LeakageFound
└── EvaluatorError       DeviceUnavailable, SandboxFailed
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class FlywheelError(Exception):
    """A refusal with its reason and what to do next."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class CatalogError(FlywheelError):
    """catalog.yaml is wrong, or a lake cannot be migrated to it."""


class UnknownName(FlywheelError):
    """A name that nothing answers to."""

    @classmethod
    def among(cls, kind: str, name: str, known: Iterable[str]) -> UnknownName:
        """Build the error with the nearest known name, or the first few, as the hint."""
        names = sorted(known)
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        if near:
            return cls(f'no {kind} "{name}"', f'Did you mean "{near[0]}"?')
        listed = ", ".join(names[:12]) + (" …" if len(names) > 12 else "")
        hint = f"There are: {listed}" if names else "There are none yet."
        return cls(f'no {kind} "{name}"', hint)


class LakeNotFound(FlywheelError):
    """Nothing at the URL is a lake."""


class LakeUnreachable(FlywheelError):
    """The URL is not one that this version can open."""


class SnapshotNotFound(FlywheelError):
    """No snapshot has that tag, number or time."""


class UnsafeSQL(FlywheelError):
    """User SQL that is not one SELECT over the lake's tables and views."""


class CommitConflict(FlywheelError):
    """Another program holds the lake's catalog, and did not let go of it in time."""


class ImportFailed(FlywheelError):
    """A source file or folder that cannot be read; nothing of it is stored."""


class ExportRefused(FlywheelError):
    """An export that would overwrite something, or hold nothing; nothing is written."""


class RowsRejected(FlywheelError):
    """Rows that break a rule of the catalog; nothing of their bundle is stored."""

    exit_code = 3

    def __init__(self, table: str, rule: str, count: int, examples: list[str]) -> None:
        shown = "".join(f"\n  {example}" for example in examples)
        super().__init__(f"{table}: {count} row{'s' * (count != 1)} break the rule: {rule}{shown}")
        self.table = table
        self.rule = rule
        self.count = count
        self.examples = examples

    def __reduce__(self) -> tuple[type[RowsRejected], tuple[str, str, int, list[str]]]:
        return RowsRejected, (self.table, self.rule, self.count, self.examples)


class DatasetError(FlywheelError):
    """A dataset that must not be written."""


class EmptyDataset(DatasetError):
    """No row is left for the dataset."""


class LeakageFound(DatasetError):
    """A task of the test split would reach a training row."""


class EvaluatorError(FlywheelError):
    """Our own measuring machinery failed; never the candidate's fault."""


class DeviceUnavailable(EvaluatorError):
    """The device asked for is not there."""


class SandboxFailed(EvaluatorError):
    """A candidate could not be started under its limits."""
