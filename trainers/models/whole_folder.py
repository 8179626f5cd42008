"""Model folders that appear whole or not at all, also if their process is killed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from store.commandline.outputs import open_partial, rename_over


def is_whole_model(folder: Path) -> bool:
    """Whether a folder has a model's configuration and weights, which are written in this order."""
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def write_once(
    target: Path,
    write: Callable[[Path], object],
    is_whole: Callable[[Path], bool] = is_whole_model,
) -> Path:
    """Return a folder, written if it is missing or was written in part.

    Several processes may do this at once: the first one to finish is the one whose folder stays.

    Args:
        target: The folder.
        write: Called with the path of a folder to make, which takes the target's name when it is
            complete.
        is_whole: Whether a folder is complete.
    """
    if is_whole(target):
        return target
    with open_partial(target.parent) as partial:
        folder = partial / target.name
        write(folder)
        try:
            folder.rename(target)
        except OSError:
            if not is_whole(target):
                rename_over(folder, target)
    return target
