"""The addresses that RL frameworks ask in forms of their own: slime's remote_rm, and NeMo Gym.

A completion without code has the reward 0. A kernel that was not judged gives 503 and no reward.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from evaluators.service.access import Access, Caller, read_json
from evaluators.service.client import read_judgement, write_request
from evaluators.service.completions import Rule, Scored, check_rule, parse_kernel, score_judgement
from evaluators.service.queue import Row
from evaluators.service.submission import Refused, Submission, parse_submission
from store.errors import UnknownName

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

Ask: TypeAlias = "Callable[[Caller, Submission, float], Awaitable[Row]]"

_MOST_BYTES = 16 << 20
REWARD_WAIT_S = 110.0
"""Seconds that /v1/reward waits: slime gives up after 120 s, and asks again."""
_VERIFY_WAIT_S = 3600.0


class FrameworkRoutes:
    """The endpoints."""

    def __init__(self, access: Access, ask: Ask) -> None:
        """Take the access rules, and what submits a kernel and waits for its judgment."""
        self._access, self._ask = access, ask

    def list_routes(self) -> list[BaseRoute]:
        """Return the routes."""
        from starlette.routing import Route

        guard = self._access.guard
        return [
            Route("/v1/reward", guard("judge", self._give_reward), methods=["POST"]),
            Route("/seed_session", guard("judge", self._seed_session), methods=["POST"]),
            Route("/verify", guard("judge", self._verify), methods=["POST"]),
        ]

    async def _give_reward(self, request: Request, caller: Caller) -> Response:
        """Answer slime: the body is prompt, response and label, and the answer is the number."""
        from starlette.responses import JSONResponse

        value = _read_object(await read_json(request, _MOST_BYTES))
        task = _read_field(value, "label")
        scored = await self._score(
            request, caller, task, _read_field(value, "response"), REWARD_WAIT_S
        )
        return JSONResponse(scored.reward)

    async def _seed_session(self, request: Request, _: Caller) -> Response:
        """Answer NeMo Gym: a session has no state here."""
        from starlette.responses import JSONResponse

        await read_json(request, _MOST_BYTES)
        return JSONResponse({})

    async def _verify(self, request: Request, caller: Caller) -> Response:
        """Answer NeMo Gym: the body is a dataset row with `task` and the model's response."""
        from starlette.responses import JSONResponse

        value = _read_object(await read_json(request, _MOST_BYTES))
        text = _read_response(value.get("response"))
        scored = await self._score(
            request, caller, _read_field(value, "task"), text, _VERIFY_WAIT_S
        )
        facts = {name: None if fact != fact else fact for name, fact in scored.facts.items()}
        return JSONResponse({**value, "reward": scored.reward, **facts})

    async def _score(
        self, request: Request, caller: Caller, task: str, text: str, wait_s: float
    ) -> Scored:
        """Return the reward of a completion. Raises Refused (503) where it was not judged."""
        rule = _read_rule(request)
        kernel = parse_kernel(text)
        if kernel is None:
            return Scored(reward=0.0, status="no_code")
        fields = write_request(task, kernel)
        device_class = request.query_params.get("device_class")
        if device_class is not None:
            fields["device_class"] = device_class
        view = await self._ask(caller, parse_submission(fields), wait_s)
        if view["status"] not in ("done", "fault", "cancelled"):
            raise Refused(503, "not_judged_yet", "the kernel waits; send the request again")
        scored = score_judgement(read_judgement(view), rule)
        if scored.reward is None:
            fault = view["fault"] or {"reason": view["status"], "message": None}
            raise Refused(503, "not_judged", f"no verdict: {fault['reason']}: {fault['message']}")
        return scored


def _read_rule(request: Request) -> Rule:
    try:
        return check_rule(request.query_params.get("rule", "speedup"))
    except UnknownName as error:
        raise Refused(422, "invalid", error.message, error.hint) from error


def _read_object(value: Any) -> Row:
    if not isinstance(value, dict):
        raise Refused(422, "invalid", "the body must be an object")
    return cast("Row", value)


def _read_field(value: Row, name: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise Refused(422, "invalid", f"{name} must be a text")
    return text


def _read_response(value: Any) -> str:
    """Return the last text of a response in OpenAI's Responses form."""
    texts: list[str] = []
    output = cast("Row", value).get("output") if isinstance(value, dict) else None
    for item in cast("list[Any]", output) if isinstance(output, list) else []:
        if isinstance(item, dict) and cast("Row", item).get("type") == "message":
            content = cast("Row", item).get("content")
            for part in cast("list[Any]", content) if isinstance(content, list) else []:
                if isinstance(part, dict) and isinstance(cast("Row", part).get("text"), str):
                    texts.append(cast("Row", part)["text"])
    if not texts:
        raise Refused(422, "invalid", "response has no message with a text")
    return texts[-1]
