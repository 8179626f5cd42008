"""Policies, which write kernels: their interface, scripts, and endpoints of OpenAI's protocol.

An endpoint is any server that speaks OpenAI's chat completions: vLLM, SGLang, hosted models. Its
client retries temporary failures (429 with its Retry-After, 5xx, a malformed answer) with growing
pauses until the deadline of the answer. After that, a failed attempt is stored as a row with its
reason; a server that refuses requests or is gone ends the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import json
import logging
import math
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeAlias, cast

from cyclopts import Parameter
from cyclopts.validators import Number

from pipelines import Message
from store.commandline.members import Count, Positive
from store.endpoint import Address, AnswerFailed, Client, Keys, Unreadable
from store.errors import FlywheelError, UnknownName
from store.ids import content_id

KINDS = (
    "hf:FOLDER, hf:HUB/NAME or hf:FILE.gguf",
    "http(s)://HOST/v1#MODEL",
    "scripted:FILE.jsonl",
)
FAILED = "error"
"""Finish reason of an attempt without a text; `Completion.error` has the reason."""


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


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Prompts, and the completions that are wanted of each."""

    prompts: Sequence[list[Message]]
    n: int
    """Completions of each prompt."""
    sampling: Sampling
    seeds: Sequence[int] | None = None
    """A seed for each prompt, used instead of the one in `sampling`. A policy that draws prompts
    together may combine them."""


class Policy(Protocol):
    """A model checkpoint, an endpoint or a script."""

    @property
    def row(self) -> dict[str, Any]:
        """Its row of `policies`; a checkpoint that the lake knows keeps the row stored there."""
        ...

    def sample(self, asked: Asked) -> Iterator[tuple[int, list[Completion]]]:
        """Yield (index of a prompt, completions of it) as they arrive, in any order.

        A prompt may come several times, until it has n. It has fewer only if an attempt fails, or
        if sampling stops, which raises an exception at the end.

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

    def sample(self, asked: Asked) -> Iterator[tuple[int, list[Completion]]]:
        """Yield the next n answers of each prompt.

        Raises FlywheelError: no line fits a prompt.
        """
        for index, messages in enumerate(asked.prompts):
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
                    for line in itertools.islice(self._turns[shown], asked.n)
                ],
            )

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


log = logging.getLogger(__name__)

_AGAIN = "Run the same command again to go on; what came is stored."
_FAULTS = 5
"""Failed requests in a row, with no answer in between, after which the server counts as gone. A
prompt that a server refuses by a status 4xx does not count once the server has answered another."""
_WAIT_S = 0.01
_REFUSED = (401, 403, 404, 429)
_INVALID = (400, 422)
"""Statuses of a request whose arguments the server does not take."""
_BYTES_PER_TOKEN = 3
"""Estimate for a prompt that the server has not counted yet; low, to reserve more than needed."""
_TEMPLATE_TOKENS = 1 << 12
"""Tokens of a prompt beyond its bytes that a server may count: its template, a system prompt."""
_LONGEST_REASON = 40


class Endpoint:
    """One model of one server."""

    def __init__(self, url: str, model: str, serving: Serving) -> None:
        self.url, self.model, self.serving = url, model, serving
        self.key = Keys(serving.key_env).key_for(url)
        self.takes_n = True
        """Whether a request may ask for several completions, until the server shows otherwise."""
        self.limit = "max_tokens"
        """What the server calls the maximum number of tokens of a completion."""
        self.works = False
        """Whether the server has answered a request for this model, now or in an earlier command.
        Then one that it refuses is the fault of its prompt."""
        # The URL is a private column, and the key is not stored.
        self.row: dict[str, Any] = {
            "policy_id": content_id("endpoint", url, model),
            "name": model,
            "kind": "endpoint",
            "model": model,
            "endpoint": url,
            "output_terms": serving.terms,
        }

    def sample(self, asked: Asked) -> Iterator[tuple[int, list[Completion]]]:
        """Yield (index of a prompt, completions of one request) as they arrive.

        Requests continue while the caller processes the results. If an attempt at a prompt fails,
        this call makes no further requests for the prompt.

        Raises:
            BudgetReached: the budget does not allow another request; earlier results were yielded.
            EndpointFailed: the server refuses requests or is gone; earlier results were yielded.
        """
        requests = Requests(self, asked)
        thread = threading.Thread(target=requests.run, name="endpoint", daemon=True)
        thread.start()
        try:
            while (result := requests.results.get()) is not None:
                if isinstance(result, BaseException):
                    raise result
                yield result
        finally:
            requests.cancel()
            thread.join()

    def close(self) -> None:
        """Do nothing: there is no state between calls."""


class Requests:
    """The requests of one call of `sample`, in an event loop of its own thread."""

    def __init__(self, endpoint: Endpoint, asked: Asked) -> None:
        self._endpoint, self._asked, self._sampling = endpoint, asked, asked.sampling
        self.results = queue.SimpleQueue[tuple[int, list[Completion]] | BaseException | None]()
        self._serving = endpoint.serving
        self._budget = endpoint.serving.budget
        self._stop: FlywheelError | None = None
        self._flying = 0
        self._faults = 0
        self._next_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._begun = threading.Event()

    def run(self) -> None:
        """Make all requests; put the results into the queue, and an error or None at the end."""
        end: BaseException | None
        try:
            asyncio.run(self._request_all())
            end = self._stop
        except BaseException as error:
            end = error
        self._begun.set()
        self.results.put(end)

    def cancel(self) -> None:
        """Cancel pending requests; has no effect after the end."""
        self._begun.wait()
        if self._loop is not None and self._task is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def _request_all(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        self._places = asyncio.Semaphore(max(self._serving.concurrency, 1))
        self._freed = asyncio.Condition()
        self._begun.set()
        url, key, serving = self._endpoint.url, self._endpoint.key, self._serving
        client = Client(url, key, timeout_s=serving.timeout_s, retries=serving.retries)
        async with client, asyncio.TaskGroup() as group:
            for index in range(len(self._asked.prompts)):
                group.create_task(self._prompt(client, index))

    async def _prompt(self, client: Client, index: int) -> None:
        """Get the completions of one prompt; each request yields what it brings at once."""
        given = 0
        while given < self._asked.n and self._stop is None:
            missing = self._asked.n - given
            several = missing if self._endpoint.takes_n else 1
            seeds = range(given, given + (1 if several > 1 else missing))
            answers = await asyncio.gather(
                *(self._request(client, index, several, place) for place in seeds)
            )
            if any(one.finish_reason == FAILED for answer, _ in answers for one in answer):
                break
            for completions, requested in answers:
                given += len(completions)
                if 0 < len(completions) < requested:
                    self._endpoint.takes_n = False

    async def _request(
        self, client: Client, index: int, n: int, place: int
    ) -> tuple[list[Completion], int]:
        """Make one request when there is room in concurrency, rate and budget.

        Returns its completions and how many it requested, fewer than n if the budget allows fewer.
        """
        messages, seeds = self._asked.prompts[index], self._asked.seeds
        size = sum(len(turn["content"].encode(errors="replace")) for turn in messages)
        prompt_tokens = size // _BYTES_PER_TOKEN + 8 * len(messages)
        async with self._places:
            # Results that are not stored yet would be lost with this process, so limit their
            # number.
            while self.results.qsize() >= self._serving.concurrency:
                await asyncio.sleep(_WAIT_S)
            while True:
                most = prompt_tokens + n * self._sampling.max_tokens
                usd = self._serving.prices.usd(prompt_tokens, most - prompt_tokens)
                held = await self._hold(most, usd)
                if held or n == 1 or self._stop is not None:
                    break
                n //= 2
            if not held:
                if self._stop is None:
                    budget = self._budget
                    spent = f"{budget.spent_tokens} tokens"
                    if budget.usd is not None:
                        spent += f" and {budget.spent_usd:.4f} USD"
                    price = f" ({usd:.4f} USD)" if usd is not None else ""
                    self._stop = BudgetReached(
                        f"the budget is reached: {spent} spent, and the next request may take "
                        f"{most} tokens{price}",
                        f"Give a larger --budget-tokens or --budget-usd. {_AGAIN}",
                    )
                return [], 0
            try:
                if self._serving.requests_per_minute is not None:
                    await asyncio.sleep(self._take_turn() - time.monotonic())
                seed = self._sampling.seed if seeds is None else seeds[index]
                completions = await self._try_request(
                    client, messages, n, None if seed is None else seed + place
                )
            finally:
                async with self._freed:
                    self._flying -= 1
                    self._budget.release(most, usd)
                    self._freed.notify_all()
            if completions:
                self.results.put((index, completions))
        return completions, n

    async def _hold(self, tokens: int, usd: float | None) -> bool:
        """Reserve the budget of a request; return False if it is too large or the run stops."""
        async with self._freed:
            while self._stop is None:
                if self._budget.hold(tokens, usd):
                    self._flying += 1
                    return True
                if not self._flying:
                    return False
                # Pending requests reserve their maximum, and most of them use less.
                await self._freed.wait()
        return False

    def _take_turn(self) -> float:
        """Return the time of the next request within the rate limit, and put off later ones."""
        at = max(self._next_at, time.monotonic())
        self._next_at = at + 60 / (self._serving.requests_per_minute or math.inf)
        return at

    async def _try_request(
        self, client: Client, messages: list[Message], n: int, seed: int | None
    ) -> list[Completion]:
        """Return the completions of one request; a failure is a completion with the reason.

        Returns none if the run has to stop, and one if the server takes no request for several.
        """
        endpoint, sampling, tries = self._endpoint, self._sampling, itertools.count()

        def admit() -> bool:
            # The first try has had its turn already; repeated ones delay later requests.
            if next(tries) and self._serving.requests_per_minute is not None:
                self._take_turn()
            return True

        def read(body: Any) -> list[Completion]:
            return self._read(client, body, messages, n)

        while True:
            # Defaults are left out, because not every server knows every argument.
            arguments: dict[str, Any] = {
                "model": endpoint.model,
                "messages": messages,
                endpoint.limit: sampling.max_tokens,
            }
            if n > 1:
                arguments["n"] = n
            if sampling.temperature != 1.0:
                arguments["temperature"] = sampling.temperature
            if sampling.top_p != 1.0:
                arguments["top_p"] = sampling.top_p
            if seed is not None:
                arguments["seed"] = seed
            try:
                completions = await client.ask(arguments, read, admit=admit)
            except AnswerFailed as failed:
                named = "max_completion_tokens"
                if failed.status == 400 and endpoint.limit != named and named in failed.why:
                    endpoint.limit = named
                    continue
                # Many servers refuse n > 1, each in its own words.
                if failed.status in _INVALID and n > 1:
                    n = 1
                    continue
                is_redirect = failed.status is not None and 300 <= failed.status < 400
                if failed.unreachable:
                    self._give_up(failed.why)
                    return []
                if is_redirect or failed.status in _REFUSED:
                    self._give_up(f"answers with {failed.why}")
                    return []
                # Many failures in a row mean that the server is gone, except those of prompts that
                # a server refuses which has answered others.
                refused = failed.status is not None and 400 <= failed.status < 500
                self._faults += not (refused and endpoint.works)
                if self._faults >= _FAULTS:
                    self._give_up(f"has failed {self._faults} times in a row: {failed.why}")
                log.debug("%s: %s", endpoint.model, failed.why)
                return [Completion.fail(failed.why)]
            self._faults, endpoint.works = 0, True
            return completions

    def _read(self, client: Client, body: Any, messages: list[Message], n: int) -> list[Completion]:
        """Return an answer's completions, and record its cost; raises Unreadable."""
        match body:
            case {"choices": list(choices)}:
                texts = [read_choice(choice) for choice in cast("list[Any]", choices)[:n]]
            case _:
                raise Unreadable("malformed answer")
        shares = [len(text) + len(reasoning or "") + 1 for text, reasoning, _ in texts]
        received = sum(
            len((text + (more or "")).encode(errors="replace")) for text, more, _ in texts
        )
        size = sum(len(turn["content"].encode(errors="replace")) for turn in messages)
        counts: tuple[Any, Any] = (None, None)
        match body:
            case {"usage": {"prompt_tokens": given, "completion_tokens": taken}}:
                counts = (given, taken)
            case _:
                pass
        # Without a valid count, an estimate. Counts are limited to what is possible: a token has at
        # least one byte, and completions have at most the requested tokens, or the received bytes.
        tokens_in, tokens_out = (
            count
            if isinstance(count, int) and not isinstance(count, bool) and count >= 0
            else length // _BYTES_PER_TOKEN
            for count, length in zip(counts, (size, sum(shares)), strict=True)
        )
        tokens_in = min(tokens_in, size + _TEMPLATE_TOKENS)
        tokens_out = min(tokens_out, max(n * self._sampling.max_tokens, received))
        usd = self._serving.prices.usd(tokens_in, tokens_out)
        self._budget.spend(tokens_in + tokens_out, usd)
        if not texts:
            raise Unreadable("no choices")
        # A server counts the tokens of all its choices together.
        split = split_tokens(tokens_out, shares)
        price = self._serving.prices.usd
        return [
            Completion(
                text=client.hide_key(text),
                finish_reason=finish_reason,
                prompt_tokens=tokens_in,
                completion_tokens=tokens,
                cost_usd=price(tokens_in / len(texts), tokens),
                reasoning=reasoning and client.hide_key(reasoning),
            )
            for (text, reasoning, finish_reason), tokens in zip(texts, split, strict=True)
        ]

    def _give_up(self, why: str) -> None:
        self._stop = self._stop or EndpointFailed(
            f"the endpoint of {self._endpoint.model} {why}", f"Check it. {_AGAIN}"
        )


def read_choice(choice: Any) -> tuple[str, str | None, str]:
    """Return text, reasoning and finish reason of one choice; raises Unreadable."""
    match choice:
        case {"message": dict(found)}:
            message = cast("dict[str, Any]", found)
        case _:
            raise Unreadable("malformed answer")
    content = message.get("content")
    if isinstance(content, list):
        parts = [one for one in cast("list[Any]", content) if isinstance(one, dict)]
        content = "".join(str(one.get("text") or "") for one in cast("list[dict[str, Any]]", parts))
    text = content if isinstance(content, str) else ""
    calls = message.get("tool_calls")
    if not text and isinstance(calls, list):
        # A model may pass the file to a tool that was not offered.
        text = "\n".join(
            f"<tool_call>{json.dumps(call)}</tool_call>" for call in cast("list[Any]", calls)
        )
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    reason = cast("dict[str, Any]", choice).get("finish_reason")
    refusal = message.get("refusal")
    if not text and isinstance(refusal, str):
        text = refusal
    return (
        text,
        reasoning if isinstance(reasoning, str) else None,
        reason[:_LONGEST_REASON] if isinstance(reason, str) and reason != FAILED else "stop",
    )


def split_tokens(total: int, shares: list[int]) -> list[int]:
    """Split a whole number by shares; the parts add up to it.

    >>> split_tokens(10, [1, 1, 2])
    [2, 3, 5]
    """
    parts: list[int] = []
    seen = given = 0
    for share in shares:
        seen += share
        part = total * seen // sum(shares) - given
        parts.append(part)
        given += part
    return parts


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
        return Endpoint(*split_endpoint(spec), serving)
    near = " A folder is written hf:FOLDER." if Path(spec).exists() else ""
    raise UnknownName(f'no policy "{spec}"', f"Write {', or '.join(KINDS)}.{near}")


def split_endpoint(spec: str) -> tuple[str, str]:
    """Return base URL and model of "http(s)://HOST/v1#MODEL".

    >>> split_endpoint("http://localhost:8000/v1/#org/model")
    ('http://localhost:8000/v1', 'org/model')

    Raises FlywheelError: the model is missing, or the URL carries what may be a secret.
    """
    url, _, model = spec.partition("#")
    Address.of(url)
    if not model:
        raise FlywheelError(f"{spec} names no model", f"Write {KINDS[1]}.")
    return url.rstrip("/"), model
