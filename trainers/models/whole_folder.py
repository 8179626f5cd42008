"""Model folders that appear whole or not at all, also if their process is killed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from store.ids import uuid7


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
        write: Called with a folder beside the target, which takes the target's name when it is
            complete.
        is_whole: Whether a folder is complete.
    """
    if is_whole(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = _name_beside(target)
    try:
        write(partial)
        if not is_whole(target):
            replace_folder(partial, target, is_whole)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def replace_folder(
    partial: Path, target: Path, is_whole: Callable[[Path], bool] | None = None
) -> None:
    """Give a folder another name, in place of what has this name.

    Args:
        partial: The folder.
        target: Its new name.
        is_whole: If another process has put a folder there meanwhile for which this is true, that
            one stays.
    """
    old = _name_beside(target)
    try:
        try:
            partial.rename(target)
        except OSError:
            if is_whole is not None and is_whole(target):
                return
            # A folder cannot take the name of another one that has files.
            target.rename(old)
            partial.rename(target)
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _name_beside(target: Path) -> Path:
    return target.with_name(f".{target.name}-{uuid7()[-12:]}.partial")
