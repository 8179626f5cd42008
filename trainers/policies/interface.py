"""The interface of policies, which write kernels; a scripted one; the policy that a word names."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias

from cyclopts import Parameter
from cyclopts.validators import Number

from pipelines import Message
from store.commandline.members import Count
from store.endpoint import Address
from store.errors import FlywheelError, UnknownName
from store.ids import content_id

KINDS = (
    "hf:FOLDER, hf:HUB/NAME or hf:FILE.gguf",
    "http(s)://HOST/v1#MODEL",
    "scripted:FILE.jsonl",
)
FAILED = "error"
"""Finish reason of an attempt without a text; `Completion.error` has the reason."""


Positive: TypeAlias = Annotated[float, Parameter(validator=Number(gt=0, lt=math.inf))]
Price: TypeAlias = Annotated[float, Parameter(validator=Number(gte=0, lt=math.inf))]


class BudgetReached(FlywheelError):
    """The budget does not allow another request; all results were yielded."""


class EndpointFailed(FlywheelError):
    """The endpoint refuses requests or is gone; all results were yielded."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How completions are drawn."""

    temperature: float = 1.0
    """Temperature of sampling; 0 always takes the most likely token."""
    top_p: float = 1.0
    """Sample from the most likely tokens with this total probability."""
    max_tokens: int = 2048
    """Maximum number of tokens of a completion."""
    seed: int | None = None
    """Random seed, for policies that support one."""

    def __post_init__(self) -> None:
        """Refuse numbers by which nothing can be sampled."""
        for option, value, is_valid in (
            ("temperature", self.temperature, 0 <= self.temperature < math.inf),
            ("top-p", self.top_p, 0 < self.top_p <= 1),
            ("max-tokens", self.max_tokens, self.max_tokens >= 1),
            ("seed", self.seed, self.seed is None or self.seed >= 0),
        ):
            if not is_valid:
                raise FlywheelError(
                    f"--{option} {value} is out of range",
                    "Temperature and seed are 0 or more, top-p is above 0 and at most 1, and "
                    "max-tokens is 1 or more.",
                )


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One answer of a policy."""

    text: str
    """The answer, without reasoning that the server sent separately."""
    finish_reason: str
    """Why sampling ended: stop, length …, or error."""
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None = None
    reasoning: str | None = None
    """Reasoning that the server sent separately."""
    error: str | None = None
    """Why there is no answer, if finish_reason is error."""

    @classmethod
    def fail(cls, why: str, prompt_tokens: int = 0) -> Completion:
        """Return an attempt without a text."""
        return cls(
            text="",
            finish_reason=FAILED,
            prompt_tokens=prompt_tokens,
            completion_tokens=0,
            error=why,
        )


class Policy(Protocol):
    """A model checkpoint, an endpoint or a script."""

    @property
    def row(self) -> dict[str, Any]:
        """Its row of `policies`; a checkpoint that the lake knows keeps the row stored there."""
        ...

    def sample(
        self,
        prompts: Sequence[list[Message]],
        n: int,
        sampling: Sampling,
        seeds: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, list[Completion]]]:
        """Yield (index of a prompt, completions of it) as they arrive, in any order.

        A prompt may come several times, until it has n. It has fewer only if an attempt fails, or
        if sampling stops, which raises an exception at the end.

        Args:
            prompts: The prompts.
            n: Number of completions of each prompt.
            sampling: How completions are drawn.
            seeds: A seed for each prompt, used instead of the one in `sampling`. A policy that
                draws prompts together may combine them.

        Raises:
            BudgetReached: the budget is spent.
            EndpointFailed: the endpoint refuses requests or is gone.
        """
        ...

    def close(self) -> None:
        """Release the model or the connections."""
        ...


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Price of tokens; None if unknown."""

    usd_per_mtok_in: Price | None = None
    """Price in USD of a million prompt tokens."""
    usd_per_mtok_out: Price | None = None
    """Price in USD of a million completion tokens."""

    def usd(self, tokens_in: float, tokens_out: float) -> float | None:
        """Return the price of these numbers of tokens, or None without prices.

        >>> Prices(usd_per_mtok_in=1.0, usd_per_mtok_out=4.0).usd(1000, 500)
        0.003
        """
        if self.usd_per_mtok_in is None and self.usd_per_mtok_out is None:
            return None
        paid = tokens_in * (self.usd_per_mtok_in or 0) + tokens_out * (self.usd_per_mtok_out or 0)
        return paid / 1e6


@dataclass(kw_only=True)
class Budget:
    """Limits on the tokens and money of a run, shared by its policies."""

    tokens: int | None = None
    usd: float | None = None
    spent_tokens: int = 0
    spent_usd: float = 0.0
    held_tokens: int = 0
    """Sum of the reservations of pending requests."""
    held_usd: float = 0.0

    def hold(self, tokens: int, usd: float | None) -> bool:
        """Reserve the maximum of a request; return False if the budget does not allow it."""
        if self.tokens is not None and self.spent_tokens + self.held_tokens + tokens > self.tokens:
            return False
        if self.usd is not None and self.spent_usd + self.held_usd + (usd or 0) > self.usd:
            return False
        self.held_tokens += tokens
        self.held_usd += usd or 0
        return True

    def release(self, tokens: int, usd: float | None) -> None:
        """Release the reservation of a request that has ended."""
        self.held_tokens -= tokens
        self.held_usd -= usd or 0

    def spend(self, tokens: int, usd: float | None) -> None:
        """Record the cost of a request."""
        self.spent_tokens += tokens
        self.spent_usd += usd or 0


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Settings for running or reaching policies; each kind reads its own."""

    device: Annotated[str, Parameter(name="--model-on")] = "auto"
    """Device of local models: cpu, cuda, cuda:1 …; auto takes a GPU if there is one."""
    batch: Count = 32
    """Maximum number of sequences that a local model samples at once."""
    concurrency: Count = 8
    """Maximum number of simultaneous requests to an endpoint."""
    requests_per_minute: Positive | None = None
    """Maximum number of requests to an endpoint per minute."""
    timeout_s: float = 600.0
    """Time limit in seconds for an endpoint's answer, including retries and pauses."""
    retries: int = 5
    """Maximum number of retries of a request."""
    prices: Annotated[Prices, Parameter(name="*")] = field(default_factory=Prices)
    budget: Annotated[Budget, Parameter(parse=False)] = field(default_factory=Budget)
    key_env: Annotated[tuple[str, ...], Parameter(negative="", consume_multiple=False)] = ()
    """Environment variable with the key of an endpoint, as HOST=NAME or HOST:PORT=NAME. HOST alone
    means the default port (443 for https, 80 for http). https://api.openai.com gets OPENAI_API_KEY;
    other endpoints get no key unless you name them here. Repeat it for more endpoints."""
    terms: str | None = None
    """License or terms of what the policies write, stored in their rows."""


class Scripted:
    """A policy that answers from a file, for tests and for trying the loop without a model.

    Each line is {"text": …} with optional `contains` (only for prompts whose last turn contains
    this text), `finish_reason`, `completion_tokens` and `error`. The lines that match a prompt are
    used in turn, repeatedly.
    """

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            raise UnknownName(f"no file {file}", "scripted:FILE.jsonl names a file of answers.")
        self._lines: list[dict[str, Any]] = []
        for number, text in enumerate(file.read_text("utf-8").splitlines(), start=1):
            if not text.strip():
                continue
            try:
                line = json.loads(text)
            except ValueError as error:
                raise FlywheelError(f"{file}: line {number} is no JSON: {error}") from error
            if not isinstance(line, dict) or not isinstance(line.get("text"), str):
                raise FlywheelError(f'{file}: line {number} has no "text"')
            self._lines.append(line)
        self.row: dict[str, Any] = {
            "policy_id": content_id("scripted", hashlib.sha256(file.read_bytes()).hexdigest()),
            "name": file.stem,
            "kind": "script",
            "model": file.name,
        }
        self._turns: dict[str, Iterator[dict[str, Any]]] = {}

    def sample(
        self,
        prompts: Sequence[list[Message]],
        n: int,
        sampling: Sampling,
        seeds: Sequence[int] | None = None,
    ) -> Iterator[tuple[int, list[Completion]]]:
        """Yield the next n answers of each prompt.

        Raises:
            FlywheelError: no line fits a prompt.
        """
        for index, messages in enumerate(prompts):
            shown = messages[-1]["content"]
            if shown not in self._turns:
                fitting = [line for line in self._lines if line.get("contains", "") in shown]
                if not fitting:
                    raise FlywheelError(
                        f"{self.row['model']} has no answer to the prompt {shown[:60]!r}",
                        'A line without "contains" fits every prompt.',
                    )
                self._turns[shown] = itertools.cycle(fitting)
            words = sum(len(turn["content"].split()) for turn in messages)
            yield (
                index,
                [
                    Completion(
                        text=line["text"],
                        finish_reason=FAILED
                        if line.get("error")
                        else line.get("finish_reason", "stop"),
                        prompt_tokens=words,
                        completion_tokens=line.get("completion_tokens", len(line["text"].split())),
                        error=line.get("error"),
                    )
                    for line in itertools.islice(self._turns[shown], n)
                ],
            )

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def open_policy(spec: str, serving: Serving | None = None) -> Policy:
    """Return the policy that a word (one of KINDS) names, without loading or asking it yet.

    Raises:
        UnknownName: no such kind, folder or file.
        FlywheelError: the word cannot be used; the message says why.
    """
    serving = serving or Serving()
    kind, _, rest = spec.partition(":")
    if kind == "hf" and rest:
        from trainers.policies.local_model import Local

        return Local(rest, serving)
    if kind == "scripted" and rest:
        return Scripted(Path(rest))
    if kind in ("http", "https"):
        from trainers.policies.endpoint import Endpoint

        return Endpoint(*split_endpoint(spec), serving)
    near = " A folder is written hf:FOLDER." if Path(spec).exists() else ""
    raise UnknownName(f'no policy "{spec}"', f"Write {', or '.join(KINDS)}.{near}")


def split_endpoint(spec: str) -> tuple[str, str]:
    """Return base URL and model of "http(s)://HOST/v1#MODEL".

    >>> split_endpoint("http://localhost:8000/v1/#org/model")
    ('http://localhost:8000/v1', 'org/model')

    Raises:
        FlywheelError: the model is missing, or the URL carries what may be a secret.
    """
    url, _, model = spec.partition("#")
    Address.of(url)
    if not model:
        raise FlywheelError(f"{spec} names no model", f"Write {KINDS[1]}.")
    return url.rstrip("/"), model
