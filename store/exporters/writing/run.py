"""Runs an exporter: it writes a folder, completely or not at all."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from store.errors import ExportRefused

if TYPE_CHECKING:
    from types import ModuleType

    from store.commandline.members import Member
    from store.lake.reader import Lake


class Exporter(Protocol):
    """What a module of store/exporters defines, beside `Config` with its options."""

    def write(self, lake: Lake, folder: Path, config: Any, /) -> dict[str, int]:
        """Write to an empty folder; return a count for each kind of item, such as {"kernels": 12}.

        Raises:
            ExportRefused: there is nothing to write; the hint says what would help.
        """
        ...


def export(lake: Lake, module: Exporter | ModuleType, target: Path, config: Any) -> dict[str, int]:
    """Write a lake's snapshot to a new folder with one exporter; return a count for each kind.

    Raises:
        ExportRefused: the folder exists and is not empty, it cannot be made, or there is nothing to
            write.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ExportRefused(f"{target} exists already", "Give a new folder, or an empty one.")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    except OSError as error:
        raise ExportRefused(
            f"cannot make the folder {target}: {error.strerror}",
            "Name a new folder in a place where you can write.",
        ) from error
    try:
        counts = module.write(lake, partial, config)
        partial.chmod(0o755)
        if target.exists():
            target.rmdir()
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return counts


def summarize(exporter: Member, counts: dict[str, int], target: Path, snapshot: int) -> str:
    """Return the result of an export in one line."""
    written = ", ".join(f"{count} {what}" for what, count in counts.items())
    return f"{exporter.name}: {written} → {target} (snapshot {snapshot})"
