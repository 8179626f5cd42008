"""Rollouts of Prime Intellect's verifiers: traces.jsonl of `vf-eval` and of training.

Reads trace version 1, as verifiers 0.4.0 writes it: one episode a line, with the traces of its
agents. A trace becomes a session: its messages are steps, and tool results belong to the calls that
they answer. Each kernel that the model writes, and each answer with tokens, is an attempt that
continues the one before it.
Rewards (score times weight) and metrics become claims on the last attempt. Episodes without a trace
and files of older versions (results.jsonl) are not read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import store
from store.errors import ImportFailed
from store.foreign import left_out, text_files
from store.foreign.text_files import NOTHING_STORED, Fields, read_figure
from store.importers.reading import pieces, sources
from store.importers.reading.pieces import read_content
from store.importers.reading.sessions import (
    MOST_TOKENS,
    SessionOrigin,
    SessionRows,
    name_metric,
    read_call,
)
from store.rollouts.follow import spread

NAME = "verifiers"
TRACE_VERSION = 1
TRACES = "traces.jsonl"


@dataclass(frozen=True, kw_only=True)
class Config(SessionOrigin):
    source: str = NAME


def recognize(path: Path) -> str | None:
    for file in sources.list_files(path, "*.jsonl", f"*/{TRACES}", f"*/*/{TRACES}")[:1]:
        if {"env", "task", "traces"} <= sources.read_first_object(file).keys():
            return f"{file.name}: episodes with env, task and traces"
    return None


def read(path: Path | None, config: Config, lake: store.Lake) -> Iterator[store.Bundle]:
    """Yield the rollouts of each file in bundles."""
    root, files = sources.find_files(
        path,
        TRACES,
        f"{TRACES} of verifiers, or a folder with it",
        "Name the run folder of verifiers.",
    )
    reading = pieces.Import(lake, NAME, config, source=config.source)
    yield from reading.read(
        (pieces.open_json_lines(file, root, _read_episodes) for file in files),
        lambda: SessionRows(NAME, reading.task_id, config.kernel_file).add,
    )


def _read_episodes(file: Path) -> Iterator[Fields]:
    for episode in text_files.read_lines(file):
        size = episode.size
        with left_out.errors():
            for trace in episode.list("traces"):
                with left_out.errors():
                    yield from _read_trace(trace, episode, size)
                size = 0


def _read_trace(trace: Fields, episode: Fields, size: int) -> Iterator[Fields]:
    """Yield the steps of a trace, then its results; the first has the size of the line."""
    version = trace.values.get("version")
    if trace.whole("version") != TRACE_VERSION:
        raise ImportFailed(
            f"{trace.where}: version is {version!a:.40}, not {TRACE_VERSION}", NOTHING_STORED
        )
    about = _read_session(trace, episode)
    nodes = trace.list("nodes")
    if not nodes and (trace.inner("rewards").values or trace.inner("metrics").values):
        raise ImportFailed(
            f"{trace.where}: it has rewards and no messages, so no attempt can have them",
            NOTHING_STORED,
        )
    messages = [node.inner("message") for node in nodes]
    answers = {
        identity: read_content(message.values.get("content"))
        for message in messages
        if (identity := message.text("tool_call_id")) is not None
    }
    calls = [message.list("tool_calls") for message in messages]
    call_of = {call.text("id"): at for at, listed in enumerate(calls) for call in listed}
    usage = {call.whole("node"): call.inner("usage") for call in trace.list("calls")}
    step_of: dict[int, int] = {}
    """Position of a node to its step; the result of a call is part of the call's step."""
    number = 0
    for at, (node, message) in enumerate(zip(nodes, messages, strict=True)):
        identity = message.text("tool_call_id")
        if identity is not None and call_of.get(identity, at) < at:
            step_of[at] = step_of[call_of[identity]]
            continue
        above = node.whole("parent")
        parent = None if above is None else step_of.get(above)
        used = usage.get(at) or Fields(values={}, where=node.where)
        step_of[at] = number
        values: dict[str, Any] = {
            "session": about,
            "step": number,
            "parent": parent if parent != number - 1 else None,
            "role": message.text("role"),
            "content": read_content(message.values.get("content")),
            "reasoning": message.values.get("reasoning_content"),
            "model": about["model"] if node.flag("sampled") else None,
            "at": node.values.get("timestamp"),
            "given": not node.flag("sampled"),
            "prompt_tokens": _sum([used], "prompt_tokens", "cached_input_tokens"),
            "completion_tokens": used.whole("completion_tokens", MOST_TOKENS),
            "tokens": _read_tokens(node) if node.flag("sampled") else {},
            "calls": [read_call(call, answers.get(call.text("id") or "")) for call in calls[at]],
        }
        yield Fields(values=values, where=node.where, size=size)
        size, number = 0, number + 1
    if not number:
        return
    rewards, metrics = trace.inner("rewards"), trace.inner("metrics")
    figures: list[tuple[str, float | None, None]] = []
    for label in rewards.values:
        with left_out.errors():
            figure = read_figure(rewards.values[label])
            if figure is None:  # not the product alone
                reward = rewards.inner(label)
                score, weight = reward.number("score"), reward.number("weight")
                figure = None if score is None else score * (1.0 if weight is None else weight)
            figures.append((name_metric("reward", label), read_figure(figure), None))
    for label in metrics.values:
        with left_out.errors():
            figures.append((name_metric("reported", label), metrics.number(label), None))
    name = about["name"]
    results = {"results_of": name, "figures": figures, "quote": f"trace {name}"}
    yield Fields(values=results, where=trace.where)


def _read_tokens(node: Fields) -> dict[str, Any]:
    """Return the lists by token of an answer; log-probabilities are those of sampled tokens."""
    ids, mask, logprobs = map(node.values.get, ("token_ids", "mask", "logprobs"))
    if not ids:
        return {}
    if isinstance(logprobs, list) and isinstance(mask, list):
        logprobs = spread(cast("list[float]", logprobs), cast("list[object]", mask))
    return {"completion_ids": ids, "loss_mask": mask, "sampler_logprobs": logprobs or None}


def _read_session(trace: Fields, episode: Fields) -> dict[str, Any]:
    calls = trace.list("calls")
    usages = [call.inner("usage") for call in calls]
    task = trace.inner("task")
    data = task.inner("data")
    environment = episode.inner("env").text("id")
    version = trace.inner("verifiers").text("version")
    errors = trace.list("errors")
    costs = [cost for one in usages if (cost := one.number("cost")) is not None]
    return {
        "name": trace.require_text("id"),
        "model": next((name for call in calls if (name := call.text("model"))), None)
        or trace.inner("agent").inner("config").text("model"),
        "harness": " ".join(filter(None, (NAME, version, environment))),
        "problem": data.text("name") or task.text("key") or data.text("idx"),
        "outcome": errors[-1].text("type") if errors else trace.text("stop_condition"),
        "prompt_tokens": _sum(usages, "prompt_tokens", "cached_input_tokens"),
        "completion_tokens": _sum(usages, "completion_tokens"),
        "cost_usd": sum(costs) if costs else None,
        "started_at": trace.inner("timing").values.get("start"),
    }


def _sum(usages: list[Fields], *names: str) -> int | None:
    counts = [
        count
        for one in usages
        for name in names
        if (count := one.whole(name, MOST_TOKENS)) is not None
    ]
    return sum(counts) if counts else None
