"""The file beside a catalog with the secret under which editions hash names."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile

from store import faults
from store.errors import FlywheelError

SALT_BYTES = 32


def read_salt_file(file: Path) -> bytes:
    """Return the salt in a file that only its owner can read; the first call makes it.

    Raises FlywheelError if it cannot be made or read.
    """
    try:
        if not file.exists():
            # A file gets this name when it is whole, and only if no other process was faster.
            with NamedTemporaryFile(
                dir=file.parent, prefix=f"{file.name}.", suffix=".partial"
            ) as new:
                new.write(secrets.token_bytes(SALT_BYTES))
                new.flush()
                os.fsync(new.fileno())
                with suppress(FileExistsError):
                    os.link(new.name, file)
    except OSError as error:
        raise FlywheelError(
            f"no salt can be kept at {file}: {error.strerror}",
            "Names are hashed with it: publish from a lake that you may write to.",
        ) from error
    with faults.at(file):
        found = file.read_bytes()
    if len(found) < SALT_BYTES:
        raise FlywheelError(
            f"{file} is not whole", "Put it back from a copy, or delete it to begin anew."
        )
    return found
