"""Agent sessions and multi-turn attempts in ATIF-v1.8, as Harbor and its tools read them.

Writes one folder with a trajectory.json for each session with its subagents, and for each
trajectory of several attempts outside of sessions. Token ids and log-probabilities are in
`metrics`. What ATIF has no field for is in `extra`, under "kernel-flywheel", so `store import atif`
gives the same sessions, steps and calls. Their ids differ, and a session without a name gets its id
as a name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

from store.commandline.display import list_rows
from store.dossier.pages import find_run
from store.errors import ExportRefused
from store.explore.page.texts import read_messages
from store.exporters.writing.run import OfRun
from store.foreign.atif import EXTRA, ROLES, TOKENS, VERSIONS
from store.lake.reader import Lake
from store.lake.sql_files import read_sql

Config = OfRun
_SOURCES = {role: source for source, role in ROLES.items()} | {"tool": "user"}
_TOKENS = ("prompt_tokens", "completion_tokens")
_TREES = 50
"""Number of sessions, each with its subagents, that are in memory at a time."""


def write(lake: Lake, folder: Path, config: OfRun) -> dict[str, int]:
    """Write NUMBER-NAME/trajectory.json for each session and each multi-turn attempt."""
    run_id = None if config.run is None else find_run(lake, config.run)
    counts = {"sessions": 0, "subagents": 0, "multi-turn attempts": 0, "steps": 0}

    def write_document(document: dict[str, Any], kind: str) -> None:
        number = counts["sessions"] + counts["multi-turn attempts"]
        counts[kind] += 1
        for one in _list_documents(document):
            counts["subagents"] += one is not document
            counts["steps"] += len(one["steps"])
        name = re.sub(r"\W+", "-", document["session_id"], flags=re.ASCII).strip("-")[:40]
        place = folder / f"{number:06}-{name}"
        place.mkdir()
        text = json.dumps(document, ensure_ascii=False, indent=2)
        (place / "trajectory.json").write_text(text + "\n", "utf-8")

    sessions = lake.run(read_sql(__file__, "sessions"), {"run": run_id}).rows()
    trees = [list(rows) for _, rows in groupby(sessions, itemgetter("root_id"))]
    for start in range(0, len(trees), _TREES):
        rows = [row for tree in trees[start : start + _TREES] for row in tree]
        asked = {"session_ids": [row["session_id"] for row in rows]}
        steps: dict[str, list[dict[str, Any]]] = {}
        for step in lake.run(read_sql(__file__, "session_steps"), asked).rows():
            steps.setdefault(step["session_id"], []).append(step)
        documents: dict[str, dict[str, Any]] = {}
        for row in rows:
            documents[row["session_id"]] = _make_session(row, steps.get(row["session_id"], []))
        for row in rows:
            document, parent = documents[row["session_id"]], row["parent_session_id"]
            if parent in documents:
                # The session is a subagent of its parent.
                document["trajectory_id"] = document["extra"][EXTRA]["name"] = document[
                    "session_id"
                ]
                documents[parent].setdefault("subagent_trajectories", []).append(document)
        for row in rows:
            if row["session_id"] == row["root_id"]:
                write_document(documents[row["session_id"]], "sessions")
    attempts = lake.run(read_sql(__file__, "trajectories"), {"run": run_id}).reader(1_000)
    rows = (row for batch in attempts for row in list_rows(batch))
    for _, turns in groupby(rows, itemgetter("trajectory_id")):
        write_document(_make_trajectory(list(turns)), "multi-turn attempts")
    if not counts["sessions"] + counts["multi-turn attempts"]:
        raise ExportRefused(
            "the lake has no agent session and no attempt of several turns"
            if run_id is None
            else f"run {run_id[:12]} has no agent session and no attempt of several turns",
            "`store export trl` writes the rollouts of a run, with one turn or several.",
        )
    return counts


def _list_documents(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield document
    for inner in document.get("subagent_trajectories", ()):
        yield from _list_documents(inner)


def _make_document(
    name: str,
    row: Mapping[str, Any],
    steps: Sequence[dict[str, Any]],
    totals: Mapping[str, int | None],
    **kept: Any,
) -> dict[str, Any]:
    harness, _, version = (row.get("harness") or "unknown").rpartition(" ")
    about = {
        "problem": row["named"],
        "source": row["source"],
        "license": row["license"],
        **kept,
    }
    return {
        "schema_version": VERSIONS[-1],
        "session_id": name,
        "agent": {
            # A harness without a space has no version.
            "name": harness or version,
            "version": version if harness else "",
            "model_name": row["model"],
        },
        "steps": list(steps),
        "final_metrics": _drop_missing({**totals, "total_steps": len(steps)}),
        "extra": {EXTRA: _drop_missing(about) | ({} if row.get("harness") else {"harness": None})},
    }


def _make_session(row: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    made = [_make_step(at, step) for at, step in enumerate(steps)]
    started = row["created_at"].isoformat()
    return _make_document(
        row["name"] or row["session_id"],
        row,
        made,
        {f"total_{name}": row[name] for name in _TOKENS},
        outcome=row["outcome"],
        started_at=None if made and made[0]["timestamp"] == started else started,
    )


def _make_trajectory(turns: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the attempts of a trajectory as one conversation."""
    said: list[tuple[str, str | None]] = []
    steps: list[dict[str, Any]] = []
    for turn in turns:
        messages = [
            (role if role in _SOURCES else "user", text)
            for role, text in read_messages(turn["messages"] or "[]")
        ]
        # A prompt continues the conversation, or is its beginning again, or is another one.
        common = messages[: len(said)] == said[: len(messages)]
        new = messages[len(said) :] if common else messages
        for role, content in new:
            row = {"role": role, "content": content, "created_at": turn["created_at"]}
            steps.append(_make_step(len(steps), row))
        answer = {"role": "assistant", "content": turn["completion"]}
        steps.append(_make_step(len(steps), {**turn, **answer}))
        said += [*new, ("assistant", turn["completion"])]
    return _make_document(turns[0]["trajectory_id"], turns[0], steps, {})


def _make_step(number: int, row: Mapping[str, Any]) -> dict[str, Any]:
    role, is_agent = row["role"], row["role"] == "assistant"
    told = {name: row.get(name) for name in ("reasoning", "model", *_TOKENS)}
    step: dict[str, Any] = {
        "step_id": number + 1,
        "timestamp": row["created_at"].isoformat(),
        "source": _SOURCES[role],
        "message": row["content"] or "",
    }
    if is_agent:
        metrics = {name: told[name] for name in _TOKENS}
        metrics |= {of_atif: row.get(name) for name, of_atif in TOKENS.items()}
        step |= {"model_name": told["model"], "reasoning_content": told["reasoning"]}
        step["metrics"] = _drop_missing(metrics) or None
        told = {}
    results: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for index, call in enumerate(row.get("calls") or ()):
        arguments = _read_arguments(call["arguments"])
        kept = {"is_error": call["is_error"]} if call["is_error"] is not None else {}
        # The importer would write other spaces, or has no text to begin with.
        if not is_agent or json.dumps(arguments) != call["arguments"]:
            kept["arguments"] = call["arguments"]
        if not is_agent:  # in ATIF, only agents call tools
            kept["tool"] = call["tool"]
            results.append({"content": call["result"], "extra": {EXTRA: kept}})
            continue
        name = f"call-{number}-{index}"
        made = {"tool_call_id": name, "function_name": call["tool"], "arguments": arguments}
        calls.append(made | ({"extra": {EXTRA: kept}} if kept else {}))
        if call["result"] is not None:
            results.append({"source_call_id": name, "content": call["result"]})
    kept = _drop_missing({**told, "parent": row.get("parent_step")})
    kept |= {"role": role} if role == "tool" else {}
    step |= {
        "tool_calls": calls or None,
        "observation": {"results": results} if results else None,
        "extra": {EXTRA: kept} if kept else None,
    }
    return _drop_missing(step)


def _read_arguments(text: str | None) -> dict[str, Any]:
    """Return the arguments of a call; those that are no JSON object are empty."""
    try:
        read: Any = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", read) if isinstance(read, dict) else {}


def _drop_missing(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
