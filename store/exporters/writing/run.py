"""Runs an exporter: it writes a folder, completely or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from store.commandline.outputs import write_folder

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


def export(lake: Lake, module: ModuleType, target: Path, config: Any) -> dict[str, int]:
    """Write a lake's snapshot to a folder with one exporter; return a count for each kind.

    A folder that the same exporter has written is replaced.

    Raises:
        ExportRefused: the folder has something else, it cannot be made, or there is nothing to
            write.
    """
    name = module.__name__.rpartition(".")[2].replace("_", "-")
    with write_folder(target, f"store export {name}") as folder:
        return module.write(lake, folder, config)


def summarize(exporter: Member, counts: dict[str, int], target: Path, snapshot: int) -> str:
    """Return the result of an export in one line."""
    written = ", ".join(f"{count} {what}" for what, count in counts.items())
    return f"{exporter.name}: {written} → {target} (snapshot {snapshot})"
