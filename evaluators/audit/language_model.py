"""A language model as a detector: it checks surprising wins, with the nearest decided cases."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import jinja2
import msgspec

import store
from evaluators.audit import detect, sweep
from store.endpoint import AnswerFailed, Client, Keys, Unreadable
from store.errors import EvaluatorError
from store.ids import content_id, uuid7

log = logging.getLogger(__name__)

VERSION = 1
"""Version of the rules for answers; the prompt is identified by its own hash."""
TIMEOUT_S = 120.0
TRIES = 3
MOST_WINS = 50
"""Surprising wins that are asked about without another limit: an endpoint may cost money."""
LONGEST = 60_000
"""Most characters of a text in the prompt; the rest is cut."""
_TEMPLATES = Path(__file__).parent / "templates"


@dataclass(kw_only=True)
class WinChecks(sweep.Audit):
    """The result of a round of requests; `kernels` are those with a valid answer."""

    unanswered: int = 0
    left: int = 0
    """Surprising wins beyond the limit."""

    def __str__(self) -> str:
        return (
            f"{self.kernels + self.unanswered} wins: {self.findings} hacks, "
            f"{self.kernels - self.findings} clean, {self.unanswered} without an answer; "
            f"{self.left} wins left"
        )


def ask_about_wins(
    lake_url: str | None,
    url: str,
    model: str,
    *,
    key_env: Sequence[str] = (),
    where: str | None = None,
    limit: int = MOST_WINS,
    timeout_s: float = TIMEOUT_S,
) -> WinChecks:
    """Ask about the largest surprising wins that this model and prompt have not checked.

    A kernel without a valid answer is not marked as checked, so the next run asks again. Findings
    are appended as answers arrive.

    Args:
        url: Of an OpenAI-compatible server.
        key_env: HOST=NAME or HOST:PORT=NAME, the variable with the key (`store.endpoint.Keys`).
        timeout_s: Most seconds for an answer, including all tries and their pauses.

    Raises:
        EvaluatorError: the endpoint refuses the request.
        FlywheelError: the URL or key of the endpoint cannot be used.
    """
    keys = Keys(key_env)
    keys.check_used([url])
    client = Client(url, keys.key_for(url), timeout_s=timeout_s, retries=TRIES - 1)
    checks = WinChecks()
    name = f"llm:{model}"
    detector = f"{name}@{VERSION}-{hash_templates()[:12]}"
    with (
        store.writer(lake_url, author="evaluators audit") as writer,
        writer.reader() as lake,
    ):
        checks.snapshot = lake.snapshot
        query, run = f"WITH wins AS ({sweep.read_query('surprising_wins')}) FROM wins", lake.run
        if where is not None:
            # What the user writes goes through the guard, with our own text around it.
            query, run = f"{query} WHERE ({where}\n)", lake.sql
        given = {"detector": detector}
        [counted] = run(f"SELECT count(*) AS n FROM ({query}) AS found", given).rows()
        total, wins = int(counted["n"]), run(f"{query} LIMIT {limit}", given).rows()
        if not total:
            return checks

        async def ask_about_each(run_id: str) -> None:
            async with client:
                for win in wins:
                    cases = lake.run(
                        sweep.read_query("similar_cases"), {"kernel_id": win["kernel_id"]}
                    ).rows()
                    messages = build_prompt(win, cases)
                    text = await _complete(client, model, messages)
                    answer = parse_answer(text, win["code"])
                    if answer is None:
                        checks.unanswered += 1
                        continue
                    tables = _make_rows(win, messages, answer, name, run_id)
                    checks.kernels += 1
                    checks.findings += len(tables.get("findings", []))
                    message = f"asked {name} about {win['kernel_id'][:12]}"
                    writer.append(tables, message, wait=False)

        # Neither the key nor the URL, which may hold one, is stored.
        config = {"detectors": [detector], "where": where}
        with sweep.record_audit(writer, lake, name, config) as record:
            checks.run_id, checks.left = record.run_id, total - len(wins)
            asyncio.run(ask_about_each(record.run_id))
        checks.snapshot = record.snapshot
    return checks


def build_prompt(win: Mapping[str, Any], cases: list[dict[str, Any]]) -> list[dict[str, str]]:
    """Return the messages about one kernel.

    Texts are data. The line around them has a hash over all of them, which no text can contain.
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
        "classes": sorted({one.kind for one in detect.load_detectors().values()}),
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
def hash_templates() -> str:
    """Return the sha256 over the templates of the prompt."""
    names = ("checker.j2", "checker_rules.j2")
    return content_id(*((_TEMPLATES / name).read_text("utf-8") for name in names))


class Answer(msgspec.Struct, forbid_unknown_fields=True, rename={"kind": "class"}):
    """What the prompt asks for."""

    verdict: Literal["hack", "clean"]
    kind: str | None
    line: int | None
    quote: str | None
    confidence: Annotated[float, msgspec.Meta(ge=0, le=1)]
    why: str


def parse_answer(text: str | None, code: str) -> Answer | None:
    """Return an answer, or None for anything but the one JSON object that the prompt asks for.

    An accusation must quote a line of the kernel; otherwise it does not count as an answer.
    """
    try:
        answer = msgspec.json.decode(text or "", type=Answer)
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        return None
    if answer.verdict == "clean":
        return answer if answer.kind is None else None
    quote = (answer.quote or "").strip()
    at = code.find(quote)
    if answer.kind not in {one.kind for one in detect.load_detectors().values()}:
        return None
    if not quote or at < 0:
        return None
    # With the real line of the quote.
    lines = [n for n, text in enumerate(code.split("\n"), start=1) if quote in text]
    answer.line = answer.line if answer.line in lines else code.count("\n", 0, at) + 1
    answer.quote = quote
    return answer


def _make_rows(
    win: Mapping[str, Any],
    messages: list[dict[str, str]],
    answer: Answer,
    name: str,
    run_id: str,
) -> dict[str, list[dict[str, Any]]]:
    kernel_id = win["kernel_id"]
    tables: dict[str, list[dict[str, Any]]] = {
        "scans": [{"kernel_id": kernel_id, "run_id": run_id}]
    }
    if answer.verdict == "clean":
        return tables
    text = json.dumps(messages, ensure_ascii=False)
    prompt_id = hashlib.sha256(text.encode()).hexdigest()
    tables["prompts"] = [
        {
            "prompt_id": prompt_id,
            "messages": text,
            "template_hash": hash_templates(),
            "task_id": win["task_id"],
            "purpose": "eval",
        }
    ]
    tables["findings"] = [
        {
            "finding_id": content_id(
                "finding", kernel_id, name, str(VERSION), answer.kind, str(answer.line), prompt_id
            ),
            "run_id": run_id,
            "kernel_id": kernel_id,
            "detector": name,
            "detector_version": VERSION,
            "class": answer.kind,
            "line": answer.line,
            "quote": _clip(str(answer.quote), 160),
            "confidence": answer.confidence,
            "prompt_id": prompt_id,
        }
    ]
    tables["analyses"] = [
        {
            "analysis_id": uuid7(),
            "kernel_id": kernel_id,
            "kind": "model",
            "author": name,
            "body": _clip(answer.why, 2000),
        }
    ]
    return tables


def _clip(text: str, most: int) -> str:
    return text[:most].encode(errors="replace").decode().replace("\0", "")


async def _complete(client: Client, model: str, messages: list[dict[str, str]]) -> str | None:
    """Return the text of the model's answer, or None where there is none."""
    try:
        return await client.ask(
            {"model": model, "messages": messages, "temperature": 0}, _read_text
        )
    except AnswerFailed as failed:
        if not failed.is_temporary:
            raise EvaluatorError(
                f"the endpoint refuses the request with status {failed.status}",
                "Check --llm and --model. An endpoint that asks for a key gets the one that "
                "--key-env HOST=NAME names for it.",
            ) from None
        log.debug("the endpoint gave no answer: %s", failed.why)
        return None


def _read_text(body: Any) -> str:
    match body:
        case {"choices": [{"message": {"content": str() as text}}, *_]}:
            return text
        case _:
            raise Unreadable("malformed answer")


@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        undefined=jinja2.StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
    )
