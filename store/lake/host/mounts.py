"""The file system that a folder is on."""

from __future__ import annotations

import re
from pathlib import Path

from store.errors import LakeUnreachable

NETWORK = re.compile(r"nfs\d?|cifs|smb\w*|fuse\.sshfs|afs")
"""File systems on which SQLite's locks and shared memory do not protect a catalog."""


def find_filesystem(folder: Path, mounts: str | None = None) -> str | None:
    """Return the type of the file system of a folder, such as ext4, or None if it is unknown.

    Args:
        folder: A path; what of it does not exist yet is on the file system of its parent.
        mounts: The text of Linux's /proc/self/mountinfo; None reads it.
    """
    if mounts is None:
        try:
            mounts = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
        except OSError:
            return None  # not Linux
    found: tuple[int, str] | None = None
    for line in mounts.splitlines():
        # A later mount at the same point hides an earlier one.
        fields, _, rest = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields.split(" ")[4])
        if folder.is_relative_to(point) and (found is None or len(point) >= found[0]):
            found = len(point), rest.split(" ")[0]
    return None if found is None else found[1]


def require_local(folder: Path) -> None:
    """Raise LakeUnreachable if a folder is on a network file system."""
    kind = find_filesystem(folder)
    if kind is not None and NETWORK.fullmatch(kind):
        raise LakeUnreachable(
            f"{folder} is on a network file system ({kind}), which cannot hold the catalog of a "
            "lake: SQLite's locks do not work there",
            "Name a folder of a local disk, or keep the catalog on a PostgreSQL server and only "
            f"the data files there: postgresql://HOST/DATABASE?data={folder}/data "
            "(docs/cluster.md).",
        )
