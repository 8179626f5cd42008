"""A policy behind any server that speaks OpenAI's chat completions: vLLM, SGLang, hosted models.

The client retries temporary failures (429 with its Retry-After, 5xx, a malformed answer) with
growing pauses until the deadline of the answer. After that, a failed attempt is stored as a row
with its reason; a server that refuses requests or is gone ends the run.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from pipelines import Message
from store.endpoint import Client, Keys
from store.ids import content_id
from trainers.policies.endpoint_requests import Requests
from trainers.policies.interface import (
    Completion,
    Sampling,
    Serving,
    split_endpoint,
)

log = logging.getLogger(__name__)


class Endpoint:
    """One model of one server."""

    def __init__(self, url: str, model: str, serving: Serving) -> None:
        self.url, self.model = url, model
        self._serving = serving
        self._key = Keys(serving.key_env).key_for(url)
        self._takes_n = True
        """Whether a request may ask for several completions, until the server shows otherwise."""
        self._limit = "max_tokens"
        self.works = False
        """Whether the server has answered a request for this model, now or in an earlier command.
        Then one that it refuses is the fault of its prompt."""
        self._row = {
            "policy_id": content_id("endpoint", url, model),
            "name": model,
            "kind": "endpoint",
            "model": model,
            "endpoint": url,
            "output_terms": serving.terms,
        }

    @classmethod
    def of(cls, spec: str, serving: Serving) -> Endpoint:
        """Return the policy of "http(s)://HOST/v1#MODEL"; raises FlywheelError."""
        return cls(*split_endpoint(spec), serving)

    @property
    def row(self) -> dict[str, Any]:
        """Its row of `policies`; the URL is a private column, and the key is not stored."""
        return self._row

    def sample(
        self,
        prompts: Sequence[list[Message]],
        n: int,
        sampling: Sampling,
        seeds: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, list[Completion]]]:
        """Yield (index of a prompt, completions of one request) as they arrive.

        Requests continue while the caller processes the results. If an attempt at a prompt fails,
        this call makes no further requests for the prompt.

        Raises:
            BudgetReached: the budget does not allow another request; earlier results were yielded.
            EndpointFailed: the server refuses requests or is gone; earlier results were yielded.
        """
        results: queue.SimpleQueue[tuple[int, list[Completion]] | BaseException | None]
        results = queue.SimpleQueue()
        round_ = Requests(self, prompts, n, sampling, seeds, results)
        thread = threading.Thread(target=round_.run, name="endpoint", daemon=True)
        thread.start()
        try:
            while (result := results.get()) is not None:
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            round_.cancel()
            thread.join()

    def close(self) -> None:
        """Do nothing: there is no state between calls."""

    def client(self) -> Client:
        """Return a client of the server, which holds its key."""
        serving = self._serving
        return Client(self.url, self._key, timeout_s=serving.timeout_s, retries=serving.retries)

    def make_arguments(
        self, messages: list[Message], n: int, sampling: Sampling, seed: int | None
    ) -> dict[str, Any]:
        """Return the arguments of one request, without those that are defaults."""
        given: dict[str, Any] = {
            "model": self.model,
            "messages": messages,
            self._limit: sampling.max_tokens,
        }
        if n > 1:
            given["n"] = n
        if sampling.temperature != 1.0:
            given["temperature"] = sampling.temperature
        if sampling.top_p != 1.0:
            given["top_p"] = sampling.top_p
        if seed is not None:
            given["seed"] = seed
        return given

    def learn(self, message: str) -> bool:
        """Adapt to a refusal; return whether to repeat the request in the new form."""
        if self._limit == "max_tokens" and "max_completion_tokens" in message:
            self._limit = "max_completion_tokens"
            return True
        return False

    @property
    def takes_n(self) -> bool:
        """Whether a request may ask for several completions."""
        return self._takes_n

    def note_given(self, asked: int, given: int) -> None:
        """Record how many completions one request returned."""
        if 0 < given < asked:
            self._takes_n = False

    @property
    def serving(self) -> Serving:
        """Settings of the requests."""
        return self._serving
