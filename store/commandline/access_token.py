"""The token that a client of one of our servers must know, from an environment variable."""

from __future__ import annotations

import hmac
import os
import secrets

from store.errors import FlywheelError

SHORTEST = 8


class AccessToken:
    """A secret that is compared in constant time.

    >>> AccessToken("correct horse", "FLYWHEEL_MCP_TOKEN").matches("correct horse")
    True
    """

    def __init__(self, secret: str, variable: str) -> None:
        """Raise FlywheelError if the secret is too short.

        Args:
            secret: The secret.
            variable: Name of the environment variable that has it, for the error.
        """
        if len(secret) < SHORTEST:
            raise FlywheelError(
                f"the token in {variable} is too short",
                f"Give at least {SHORTEST} characters, such as {secrets.token_urlsafe(12)}.",
            )
        self.secret = secret

    @classmethod
    def read(cls, variable: str) -> AccessToken | None:
        """Return the token in an environment variable, or None if the variable is not set."""
        secret = os.environ.get(variable)
        return cls(secret, variable) if secret else None

    def matches(self, given: str) -> bool:
        """Return whether a client gave the secret."""
        return hmac.compare_digest(given.encode(), self.secret.encode())
