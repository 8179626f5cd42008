"""Agent trajectories in ATIF, as Harbor writes them (trajectory.json, ATIF-v1.2 to v1.8).

Reads one trajectory.json or a folder with any number of them, in the models of harbor 0.25. A
trajectory gets a row in `sessions`, with its steps in `session_steps` and its tool calls, with what
was observed, in `tool_calls`. Each kernel that the agent writes is an attempt that continues the
one before it. Steps that are copied from an earlier trajectory are left out, and embedded subagents
are sessions of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import store
from store.errors import ImportFailed
from store.foreign.atif import EXTRA, OF_CALL, OF_SESSION, OF_STEP, ROLES, VERSIONS
from store.foreign.text_files import NOTHING_STORED, Fields
from store.importers.reading import pieces, sources
from store.importers.reading.sessions import SessionOrigin, SessionRows, read_content

NAME = "atif"


@dataclass(frozen=True, kw_only=True)
class Config(SessionOrigin):
    problem: str | None = None
    """Name of the task if the lake does not have it."""
    source: str = NAME


def recognize(path: Path) -> str | None:
    for file in sources.list_files(path, "*.json", "*/trajectory.json", "*/*/trajectory.json"):
        if '"ATIF-v' in sources.read_head(file)[:2000]:
            return f"{file.name} with an ATIF schema_version"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield each trajectory in a bundle or several."""
    root, files = sources.find_files(
        *(path, "trajectory.json", "a trajectory.json of Harbor, or a folder of them"),
        "Name the folder of Harbor's job.",
    )
    reading = pieces.Import(lake, NAME, config, source=config.source)
    parse = partial(_parse, root=root, problem=config.problem)
    yield from reading.read(
        (pieces.open_documents(None, [file], root, parse) for file in files),
        lambda: SessionRows(NAME, reading.task_id, config.kernel_file).add,
    )


def _parse(file: Path, root: Path, problem: str | None) -> Iterator[Fields]:
    document = pieces.parse_document(file, root)
    name = document.text("session_id") or pieces.hash_file(file)
    yield from _read_trajectory(document, document.text("trajectory_id") or name, None, problem)


def _read_trajectory(
    document: Fields, name: str, parent: str | None, problem: str | None
) -> Iterator[Fields]:
    """Yield the steps of a trajectory, then those of its subagents."""
    version = document.text("schema_version")
    if version not in VERSIONS:
        raise ImportFailed(
            f"{document.where}: schema_version is {version!a:.40}, not {VERSIONS[0]} to "
            f"{VERSIONS[-1]}",
            NOTHING_STORED,
        )
    agent, total = document.inner("agent"), document.inner("final_metrics")
    steps = document.list("steps")
    about = {
        "name": name,
        "model": agent.text("model_name") or next((s.text("model_name") for s in steps), None),
        "harness": " ".join(filter(None, (agent.text("name"), agent.text("version")))) or None,
        "problem": problem,
        "parent": parent,
        "prompt_tokens": total.values.get("total_prompt_tokens"),
        "completion_tokens": total.values.get("total_completion_tokens"),
        "cost_usd": total.number("total_cost_usd"),
        "started_at": steps[0].values.get("timestamp") if steps else None,
    } | _read_extra(document, OF_SESSION)
    number = 0
    for step in steps:
        if step.flag("is_copied_context"):
            continue
        source = step.text("source")
        if source not in ROLES:
            raise step.refuse("source", " or ".join(ROLES))
        metrics = step.inner("metrics")
        calls: dict[str, dict[str, Any]] = {}
        for call in step.list("tool_calls"):
            calls[call.require_text("tool_call_id")] = {
                "tool": call.text("function_name"),
                "arguments": call.values.get("arguments"),
            } | _read_extra(call, OF_CALL)
        loose: list[dict[str, Any]] = []
        for result in step.inner("observation").list("results"):
            text = read_content(result.values.get("content"))
            call = calls.get(result.text("source_call_id") or "")
            if call is None:
                loose.append({"tool": "observation", "result": text} | _read_extra(result, OF_CALL))
            else:
                call["result"] = text
        values: dict[str, Any] = {
            "session": about,
            "step": number,
            "role": ROLES[source],
            "content": read_content(step.values.get("message")),
            "reasoning": step.values.get("reasoning_content"),
            "model": step.text("model_name"),
            "at": step.values.get("timestamp"),
            "prompt_tokens": metrics.values.get("prompt_tokens"),
            "completion_tokens": metrics.values.get("completion_tokens"),
            "calls": [*calls.values(), *loose],
        } | _read_extra(step, OF_STEP)
        yield type(step)(values=values, where=step.where)
        number += 1
    for inner in document.list("subagent_trajectories"):
        identity = f"{name}/{inner.require_text('trajectory_id')}"
        kept = _read_extra(inner, ("name",)).get("name", identity)
        yield from _read_trajectory(inner, kept, name, problem)


def _read_extra(part: Fields, names: Sequence[str]) -> dict[str, Any]:
    """Return what `store export atif` has kept in a part of a trajectory."""
    kept = part.inner("extra").inner(EXTRA).values
    return {name: kept[name] for name in names if name in kept}
