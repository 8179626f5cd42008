"""The file beside a catalog with the secret under which editions hash names."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from store import faults
from store.errors import FlywheelError

SALT_BYTES = 32


def read_salt_file(file: Path) -> bytes:
    """Return the salt in a file that only its owner can read; the first call makes it.

    Raises FlywheelError if it cannot be made or read.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    except OSError as error:
        raise FlywheelError(
            f"no salt can be kept at {file}: {error.strerror}",
            "Names are hashed with it: publish from a lake that you may write to.",
        ) from error
    else:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(secrets.token_bytes(SALT_BYTES))
            handle.flush()
            os.fsync(handle.fileno())
    with faults.at(file):
        found = file.read_bytes()
    if len(found) < SALT_BYTES:
        raise FlywheelError(
            f"{file} is not whole", "Put it back from a copy, or delete it to begin anew."
        )
    return found
