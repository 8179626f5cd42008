"""A language model as a detector: asked about surprising wins, with the nearest decided cases."""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import store
from evaluators import _audit, _detect
from store.errors import EvaluatorError
from store.ids import content_id, uuid7

if TYPE_CHECKING:
    import jinja2

log = logging.getLogger(__name__)

VERSION = 1
"""Version of what is made of an answer; the prompt is known by its own hash."""
TIMEOUT_S = 120.0
TRIES = 3
BACKOFF_S = 0.5
LONGEST = 60_000
"""Characters of a text in the prompt; the rest is cut."""
LONGEST_ANSWER = 1 << 20
_TEMPLATES = Path(__file__).parent / "templates"
_KEYS = {"verdict", "class", "line", "quote", "confidence", "why"}


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """An OpenAI-compatible server and a model of it. The key comes from OPENAI_API_KEY."""

    url: str
    model: str
    max_calls: int = 50
    timeout_s: float = TIMEOUT_S


@dataclass(kw_only=True)
class Asked:
    """What a round of questions has done."""

    run_id: str | None = None
    kernels: int = 0
    """Kernels for which a valid answer came."""
    findings: int = 0
    unanswered: int = 0
    calls: int = 0
    left: int = 0
    """Surprising wins that the budget did not reach."""
    snapshot: int = 0

    def __str__(self) -> str:
        return (
            f"{self.calls} calls: {self.findings} hacks, {self.kernels - self.findings} clean, "
            f"{self.unanswered} without an answer; {self.left} wins left"
        )


def ask_about_wins(
    lake_url: str | None, endpoint: Endpoint, where: str | None = None, limit: int | None = None
) -> Asked:
    """Ask about each surprising win that this model and prompt have not seen; append findings.

    A kernel without a valid answer is not marked as seen, so that the next run asks again.
    Answers are appended as they come. Raises EvaluatorError where the endpoint refuses us.
    """
    asked = Asked()
    name = f"llm:{endpoint.model}"
    key = f"{name}@{VERSION}-{template_hash()[:12]}"
    with store.writer(lake_url, author="evaluators audit") as writer:
        with writer.reader() as lake:
            asked.snapshot = lake.snapshot
            given = {"detector": key}
            query = _audit.question("wins")
            if where is not None:
                query = f"WITH wins AS ({query}) FROM wins WHERE ({where}\n)"
                wins = lake.sql(query, given).rows()
            else:
                wins = lake.run(query, given).rows()
            wins = wins[:limit]
            if not wins:
                return asked
            # Neither the key nor the URL, which may hold one, is stored.
            asked.run_id = _audit.begin(writer, lake, name, {"detectors": [key], "where": where})
            client = _Client(endpoint)
            for at, win in enumerate(wins):
                if client.calls >= endpoint.max_calls:
                    asked.left = len(wins) - at
                    break
                cases = lake.run(_audit.question("cases"), {"kernel_id": win["kernel_id"]}).rows()
                messages = prompt(win, cases)
                answer = parse(client.complete(messages), win["code"])
                if answer is None:
                    asked.unanswered += 1
                    continue
                tables = _rows(win, messages, answer, name, asked.run_id)
                asked.kernels += 1
                asked.findings += len(tables.get("findings", []))
                message = f"asked {name} about {win['kernel_id'][:12]}"
                writer.append(tables, message, wait=False)
            asked.calls = client.calls
        asked.snapshot = writer.flush()
    return asked


def prompt(win: Mapping[str, Any], cases: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the messages about one kernel (a row of audit_wins.sql, rows of audit_cases.sql).

    Texts are data. The line that fences them off holds a hash over all of them, which no text can
    hold itself.
    """
    cases = [case | {"code": case["code"][:LONGEST]} for case in cases]
    texts = [
        win["code"],
        win["reference"],
        *(text for c in cases for text in (c["code"], c["why"])),
    ]
    fence = f"====={content_id(*texts)[:24]}"
    values = {
        "fence": fence,
        "classes": sorted({one.module.CLASS for one in _detect.detectors().values()}),
        "speedup": win["speedup"],
        "evidence": win["evidence"],
        "other": win["other"],
        "cases": cases,
        "reference": win["reference"][:LONGEST],
        "code": win["code"][:LONGEST],
    }
    return [
        {
            "role": "system",
            "content": _environment().get_template("checker_rules.j2").render(values),
        },
        {"role": "user", "content": _environment().get_template("checker.j2").render(values)},
    ]


@functools.cache
def template_hash() -> str:
    """Return the sha256 over the templates of the prompt."""
    names = ("checker.j2", "checker_rules.j2")
    return content_id(*((_TEMPLATES / name).read_text("utf-8") for name in names))


def parse(text: str | None, code: str) -> dict[str, Any] | None:
    """Return an answer, or None for anything but the one JSON object that was asked for.

    An accusation has to quote a line that is in the kernel: what cannot be shown is no answer.
    """
    try:
        answer = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    if not isinstance(answer, dict):
        return None
    found = cast("dict[str, Any]", answer)
    if set(found) != _KEYS or found["verdict"] not in ("hack", "clean"):
        return None
    sure, line, quote = found["confidence"], found["line"], found["quote"]
    if isinstance(sure, bool) or not isinstance(sure, int | float) or not 0 <= sure <= 1:
        return None
    if not isinstance(found["why"], str):
        return None
    if found["verdict"] == "clean":
        return found if found["class"] is None else None
    classes = {one.module.CLASS for one in _detect.detectors().values()}
    if found["class"] not in classes or not isinstance(quote, str) or not quote.strip():
        return None
    if line is not None and (isinstance(line, bool) or not isinstance(line, int)):
        return None
    return _placed(found, quote.strip(), code)


def _placed(answer: dict[str, Any], quote: str, code: str) -> dict[str, Any] | None:
    """Return an accusation with the line that its quote really stands on, or None."""
    at = code.find(quote)
    if at < 0:
        return None
    lines = [n for n, text in enumerate(code.split("\n"), start=1) if quote in text]
    stated = answer["line"]
    line = stated if stated in lines else code.count("\n", 0, at) + 1
    return answer | {"line": line, "quote": quote}


def _rows(
    win: Mapping[str, Any],
    messages: list[dict[str, str]],
    answer: dict[str, Any],
    name: str,
    run_id: str,
) -> dict[str, list[dict[str, Any]]]:
    kernel_id = win["kernel_id"]
    tables: dict[str, list[dict[str, Any]]] = {
        "scans": [{"kernel_id": kernel_id, "run_id": run_id}]
    }
    if answer["verdict"] == "clean":
        return tables
    text = json.dumps(messages, ensure_ascii=False)
    prompt_id = hashlib.sha256(text.encode()).hexdigest()
    tables["prompts"] = [
        {
            "prompt_id": prompt_id,
            "messages": text,
            "template_hash": template_hash(),
            "task_id": win["task_id"],
            "purpose": "eval",
        }
    ]
    line = answer["line"]
    tables["findings"] = [
        {
            "finding_id": content_id(
                "finding", kernel_id, name, str(VERSION), answer["class"], str(line), prompt_id
            ),
            "run_id": run_id,
            "kernel_id": kernel_id,
            "detector": name,
            "detector_version": VERSION,
            "class": answer["class"],
            "line": line,
            "quote": _clean(answer["quote"], 160),
            "confidence": float(answer["confidence"]),
            "prompt_id": prompt_id,
        }
    ]
    tables["analyses"] = [
        {
            "analysis_id": uuid7(),
            "kernel_id": kernel_id,
            "kind": "model",
            "author": name,
            "body": _clean(answer["why"], 2000),
        }
    ]
    return tables


def _clean(text: str, most: int) -> str:
    return text[:most].encode(errors="replace").decode().replace("\0", "")


class _Client:
    """Asks one endpoint, counts every request, and repeats what failed for a while."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self.calls = 0
        # A redirect would carry the key to wherever it points.
        self._opener = urllib.request.build_opener(_NoRedirects)

    def complete(self, messages: list[dict[str, str]]) -> str | None:
        """Return the text of the model's answer, or None where none came."""
        for attempt in range(TRIES):
            if self.calls >= self._endpoint.max_calls:
                return None
            if attempt:
                time.sleep(BACKOFF_S * 2 ** (attempt - 1))
            self.calls += 1
            try:
                return self._once(messages)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code not in (408, 409, 429) and error.code < 500:
                    raise EvaluatorError(
                        f"the endpoint refuses the request with status {error.code}",
                        "Check --llm, --model and OPENAI_API_KEY.",
                    ) from None
                log.debug("the endpoint answered with status %d", error.code)
            except (OSError, ValueError) as error:
                log.debug("the endpoint gave no answer: %s", type(error).__name__)
        return None

    def _once(self, messages: list[dict[str, str]]) -> str | None:
        asked = {"model": self._endpoint.model, "messages": messages, "temperature": 0}
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        key = os.environ.get("OPENAI_API_KEY")
        if key:
            headers["Authorization"] = f"Bearer {key}"
        request = urllib.request.Request(
            f"{self._endpoint.url.rstrip('/')}/chat/completions",
            data=json.dumps(asked).encode(),
            headers=headers,
        )
        with self._opener.open(request, timeout=self._endpoint.timeout_s) as answer:
            body = json.loads(answer.read(LONGEST_ANSWER))
        match body:
            case {"choices": [{"message": {"content": str() as text}}, *_]}:
                return text
            case _:
                return None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: Any,
        newurl: str,
    ) -> None:
        return None


@functools.cache
def _environment() -> jinja2.Environment:
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
    )
