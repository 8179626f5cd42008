"""Agent trajectories in ATIF, as Harbor writes them (trajectory.json, ATIF-v1.2 to v1.8).

Reads one trajectory.json or a folder with any number of them, in the models of harbor 0.25. A
trajectory gets a row in `sessions`, with its steps in `session_steps` and its tool calls, with what
was observed, in `tool_calls`. Each kernel that the agent writes, and each answer with token ids or
log-probabilities, is an attempt that continues the one before it. Steps that are copied from an
earlier trajectory are left out, and embedded subagents are sessions of their own. The trial's
result.json, or else its folder, names the task. The verifier's figures in result.json, reward.json
or reward.txt become claims on the last attempt with a kernel, with the end of its output.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import store
from store.errors import ImportFailed
from store.foreign import left_out
from store.foreign.atif import EXTRA, OF_CALL, OF_SESSION, OF_STEP, ROLES, TOKENS, VERSIONS
from store.foreign.text_files import NOTHING_STORED, Fields, clean, read_figure
from store.importers.reading import pieces, sources
from store.importers.reading.pieces import read_content
from store.importers.reading.sessions import (
    SessionOrigin,
    SessionRows,
    name_metric,
    read_call,
)

NAME = "atif"
_FILE = "trajectory.json"
_BASELINES = {"eager": "eager", "compile": "compile", "torch_compile": "compile"}
_QUOTED = 1_000
"""Characters of the verifier's output."""
_OUTPUTS = ("test-stdout.txt", "test_stdout.txt", "stdout.txt")


@dataclass(frozen=True, kw_only=True)
class Config(SessionOrigin):
    problem: str | None = None
    """Name of the task if the lake does not have it."""
    source: str = NAME


def recognize(path: Path) -> str | None:
    below = "*.json" if path.is_file() else _FILE
    for file in sources.list_below(path, below):
        if '"ATIF-v' in sources.read_head(file)[:2000]:
            return f"{file.name} with an ATIF schema_version"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield each trajectory in a bundle or several."""
    root, files = sources.find_files(
        *(path, _FILE, "a trajectory.json of Harbor, or a folder of them"),
        "Name the folder of Harbor's job.",
    )
    reading = pieces.Import(lake, NAME, config, source=config.source)
    parse = partial(_parse, root=root, problem=config.problem)
    yield from reading.read(
        (
            pieces.open_documents(
                *(None, [file], root, parse),
                more=[*filter(None, _find_results(file, root).values())],
            )
            for file in files
        ),
        lambda: SessionRows(NAME, reading.task_id, config.kernel_file).add,
    )


def _find_results(file: Path, root: Path) -> dict[str, Path | None]:
    """Return the files of a trial that say how it ended, by what they are."""
    # A trial has agent/trajectory.json and verifier/reward.json, or all files in one folder.
    trial = file.parent.parent if file.parent.name == "agent" else file.parent
    if not trial.is_relative_to(root if root.is_dir() else root.parent):
        trial = file.parent

    def find(*names: str) -> Path | None:
        places = (trial / name for one in names for name in (f"verifier/{one}", one))
        return next((one for one in places if sources.is_inside(one, root)), None)

    return {
        "result": find("result.json"),
        "reward": find("reward.json", "reward.txt"),
        "output": find(*_OUTPUTS),
    }


def _parse(file: Path, root: Path, problem: str | None) -> Iterator[Fields]:
    document = pieces.parse_document(file, root)
    found = _find_results(file, root)
    result = Fields(values={}, where=str(file))
    rewards: dict[str, Any] = {}
    with left_out.errors():
        if (place := found["result"]) is not None:
            result = pieces.parse_document(place, root)
            rewards |= result.inner("verifier_result").inner("rewards").values
    with left_out.errors():
        if (place := found["reward"]) is not None and place.suffix == ".json":
            rewards |= pieces.parse_document(place, root).values
        elif place is not None:
            text = Fields(
                values={"reward": sources.read_text(place, root).strip()}, where=str(place)
            )
            rewards["reward"] = text.number("reward")
    trial = file.parent.parent if file.parent.name == "agent" else file.parent
    is_ours = EXTRA in document.inner("extra").values  # numbers name the folders of an export
    is_named = root.is_dir() and trial != root and not is_ours
    about = {
        "problem": problem or result.text("task_name") or (trial.name if is_named else None),
        "outcome": result.inner("exception_info").text("exception_type"),
    }
    name = document.text("trajectory_id") or document.text("session_id") or pieces.hash_file(file)
    yield from _read_trajectory(document, name, about)
    output = found["output"]
    text = None if output is None else sources.read_bytes(output, root).decode(errors="replace")
    said, error = (text or "")[-_QUOTED:].strip(), rewards.get("error")
    if isinstance(error, str) and error.strip():
        said = error[:_QUOTED]
    figures: list[tuple[str, float | None, str | None]] = []
    for label, value in rewards.items():
        figure = read_figure(float(value) if isinstance(value, bool) else value)
        baseline = _BASELINES.get(label.removeprefix("speedup_vs_"))
        kind = "reward" if "reward" in label else "reported"
        metric = "correct" if label == "correct" else name_metric(kind, label)
        figures.append((metric if baseline is None else "speedup", figure, baseline))
    quote = f"session {name}: {clean(said)}" if said else f"session {name}"
    values = {"results_of": name, "figures": figures, "quote": quote}
    yield Fields(values=values, where=str(found["reward"] or file))


def _read_trajectory(
    document: Fields, name: str, known: dict[str, str | None], parent: str | None = None
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
        "parent": parent,
        "prompt_tokens": total.values.get("total_prompt_tokens"),
        "completion_tokens": total.values.get("total_completion_tokens"),
        "cost_usd": total.number("total_cost_usd"),
        "started_at": steps[0].values.get("timestamp") if steps else None,
        **known,
    } | _read_extra(document, OF_SESSION)
    number = 0
    for step in steps:
        with left_out.errors():
            if step.flag("is_copied_context"):
                continue
            source = step.text("source")
            if source not in ROLES:
                raise step.refuse("source", " or ".join(ROLES))
            yield Fields(values=_read_step(step, about, number, ROLES[source]), where=step.where)
            number += 1
    for inner in document.list("subagent_trajectories"):
        with left_out.errors():
            identity = f"{name}/{inner.require_text('trajectory_id')}"
            kept = _read_extra(inner, ("name",)).get("name", identity)
            yield from _read_trajectory(inner, kept, known, parent=name)


def _read_step(step: Fields, about: dict[str, Any], number: int, role: str) -> dict[str, Any]:
    metrics = step.inner("metrics")
    calls: dict[str, dict[str, Any]] = {}
    for place, call in enumerate(step.list("tool_calls")):
        identity = call.text("tool_call_id") or f"call {place}"
        tool = {"tool": call.text("function_name")}
        calls[identity] = read_call(call) | tool | _read_extra(call, OF_CALL)
    loose: list[dict[str, Any]] = []
    for result in step.inner("observation").list("results"):
        text = read_content(result.values.get("content"))
        call = calls.get(result.text("source_call_id") or "")
        if call is None:
            loose.append({"tool": "observation", "result": text} | _read_extra(result, OF_CALL))
        else:
            call["result"] = text
    return {
        "session": about,
        "step": number,
        "role": role,
        "content": read_content(step.values.get("message")),
        "reasoning": step.values.get("reasoning_content"),
        "model": step.text("model_name"),
        "at": step.values.get("timestamp"),
        "prompt_tokens": metrics.values.get("prompt_tokens"),
        "completion_tokens": metrics.values.get("completion_tokens"),
        "tokens": {name: metrics.values.get(of_atif) for name, of_atif in TOKENS.items()},
        "calls": [*calls.values(), *loose],
    } | _read_extra(step, OF_STEP)


def _read_extra(part: Fields, names: Sequence[str]) -> dict[str, Any]:
    """Return what `store export atif` has kept in a part of a trajectory."""
    kept = part.inner("extra").inner(EXTRA).values
    return {name: kept[name] for name in names if name in kept}
