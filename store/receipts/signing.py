"""Signatures of receipts: SSH keys, by the program ssh-keygen."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from tempfile import NamedTemporaryFile

from store.errors import FlywheelError
from store.receipts.receipt import ReceiptRefused

NAMESPACE = "receipt@kernel-flywheel"
"""What signatures are for, so that one of a receipt cannot be passed off as one of something else.
"""

_ARMOR = re.compile(
    r"-----BEGIN SSH SIGNATURE-----\n([A-Za-z0-9+/]+\n)*[A-Za-z0-9+/]+={0,2}\n"
    r"-----END SSH SIGNATURE-----\n"
)
"""ssh-keygen accepts anything behind a signature."""


def sign(content: bytes, key: Path) -> str:
    """Return the signature of some bytes by an SSH key, whose passphrase ssh-keygen may ask for.

    Raises FlywheelError if the key cannot sign.
    """
    done = _run(content, "sign", "-f", str(key))
    if done.returncode:
        raise FlywheelError(
            f"ssh-keygen cannot sign with {key}: {done.stderr.decode(errors='replace')}",
            "Give the file of a private SSH key; `ssh-keygen -t ed25519` makes one.",
        )
    return done.stdout.decode()


def find_signer(content: bytes, signature: str, allowed: Path | None) -> tuple[str | None, str]:
    """Return who signed some bytes, if the file of allowed signers says it, and the key.

    Raises ReceiptRefused if the signature is not of these bytes, or its key is not allowed.
    """
    with NamedTemporaryFile("w", suffix=".sig") as file:
        file.write(signature)
        file.flush()
        done = _run(content, "check-novalidate", "-s", file.name)
        if done.returncode or not _ARMOR.fullmatch(signature):
            raise ReceiptRefused(
                "the signature is not one of the receipt's content",
                "Ask its author for the file that `store receipt --sign` wrote.",
            )
        # Good "receipt@kernel-flywheel" signature with ED25519 key SHA256:…
        key = done.stdout.decode(errors="replace").strip().partition(" signature with ")[2]
        if allowed is None:
            return None, key
        if not allowed.is_file():
            raise FlywheelError(f"no file {allowed}", "It has one signer a line: NAME KEYTYPE KEY.")
        found = _run(b"", "find-principals", "-s", file.name, "-f", str(allowed))
        names = found.stdout.decode(errors="replace").splitlines()
        for name in names:
            options = ("-s", file.name, "-f", str(allowed), "-I", name)
            if not _run(content, "verify", *options).returncode:
                return name, key
    raise ReceiptRefused(
        f"the receipt is signed with {key}, which {allowed} does not allow",
        "Add a line for its signer, NAME KEYTYPE KEY, if you trust the key.",
    )


def _run(content: bytes, action: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    namespace = () if action == "find-principals" else ("-n", NAMESPACE)
    command = ["ssh-keygen", "-Y", action, *namespace, *options]
    try:
        return subprocess.run(command, input=content, capture_output=True, check=False)
    except FileNotFoundError as error:
        raise FlywheelError(
            "ssh-keygen is not installed, which makes and checks signatures", "Install OpenSSH."
        ) from error
