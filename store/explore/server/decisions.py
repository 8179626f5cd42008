"""Decisions on findings: a person who knows the token confirms or dismisses a finding."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode

import store
from store.commandline.listening import AccessToken
from store.errors import FlywheelError
from store.explore.server.protection import is_own_origin
from store.lake.host import name_user

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from store.explore.server.readers import Readers

TOKEN = "FLYWHEEL_EXPLORE_TOKEN"
"""Environment variable with the token. Without it, the server writes nothing."""
COOKIE = "flywheel_explore"
_DECISIONS = ("confirmed", "dismissed")
_LARGEST_BYTES = 16_384


class Decider:
    """Appends decisions to the lake, if it was given a token."""

    def __init__(self, lake_url: str | None, token: str | None) -> None:
        self._lake_url = lake_url
        self._token = None if token is None else AccessToken(token, TOKEN)
        # Servers on other ports of this machine get this cookie too, so it is not the token.
        self._session = hashlib.sha256(f"{secrets.token_hex(32)}{token}".encode()).hexdigest()

    @classmethod
    def from_environment(cls, lake_url: str | None) -> Decider:
        """Return the decider for the token in the environment variable TOKEN."""
        return cls(lake_url, os.environ.get(TOKEN) or None)

    @property
    def is_enabled(self) -> bool:
        """Whether there is a token."""
        return self._token is not None

    def knows(self, request: Request) -> bool:
        """Whether a request comes from a browser that has given the token before."""
        sent = request.cookies.get(COOKIE, "").encode()
        return self.is_enabled and hmac.compare_digest(sent, self._session.encode())

    async def decide(self, readers: Readers, request: Request) -> Response:
        """Append the decision that a form states, and lead back to the findings.

        Raises FlywheelError for a wrong token, a request from another site or a missing reason.
        """
        from starlette.responses import RedirectResponse

        form = await _read_form(request)
        if self._token is None:
            raise FlywheelError(
                "this server takes no decisions",
                f"Start it with the environment variable {TOKEN}, or run `evaluators quarantine`.",
            )
        if not is_own_origin(dict(request.headers)):
            raise FlywheelError("the decision was sent by another site", "Open the page again.")
        if not (self._token.matches(form.get("token", "")) or self.knows(request)):
            raise FlywheelError("the token is wrong", f"It is the value of {TOKEN}.")
        finding_id, decision, why = (form.get(name, "") for name in ("finding", "decision", "why"))
        if decision not in _DECISIONS or not why.strip():
            raise FlywheelError("a decision needs a reason", "Go back and fill in the field Why.")
        await asyncio.to_thread(self._append, finding_id, decision, why.strip())
        await readers.refresh()
        query = urlencode({name: form[name] for name in ("standing", "class") if form.get(name)})
        answer = RedirectResponse(f"/suspects?{query}", status_code=303)
        answer.set_cookie(COOKIE, self._session, httponly=True, samesite="strict")
        return answer

    def _append(self, finding_id: str, decision: str, why: str) -> None:
        row: dict[str, object] = {
            "standing_id": store.ids.uuid7(),
            "finding_id": finding_id,
            "decision": decision,
            "author": name_user(),
            "why": why,
        }
        with store.writer(self._lake_url, author="store explore") as writer:
            row["created_at"] = writer.choose_time("standings")
            writer.append({"standings": [row]}, f"{decision} the finding {finding_id[:12]}")


async def _read_form(request: Request) -> dict[str, str]:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _LARGEST_BYTES:
            raise FlywheelError("the form is too large", "Shorten the reason.")
    try:
        fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=20)
    except ValueError as error:
        raise FlywheelError("the form cannot be read", "Open the page again.") from error
    return {name: values[-1].replace("\0", "") for name, values in fields.items()}
