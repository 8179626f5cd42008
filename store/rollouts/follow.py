"""Reads rollouts from the JSON Lines that other programs write, while they write them.

verl           files of `trainer.rollout_data_dir`: input, output, score, step, and figures by name
verifiers      traces.jsonl of version 0.4: each branch of a trace, with its tokens if it has them
OpenAI         logs of requests: objects with `request` and `response`, or `messages` and `choices`;
               the chunks of a stream as a list in `response` or `chunks`
store.run      rollouts as `log_rollouts` takes them, and the lines of its file of left-out ones

A line is read when it ends, so that a file may be incomplete. A file that was replaced is read
again, and the one before to its end if it is in the same folder. Lines are stored once, because
their ids are hashes of their content.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from store.errors import FlywheelError
from store.foreign import text_files
from store.ids import content_id
from store.rollouts.rows import KEYS

BATCH_LINES = 256
LONGEST_LINE = 256 << 20
_VERL = {"input", "output", "score", "step"}
_SETTINGS = ("temperature", "top_p", "top_k", "seed", "max_tokens", "max_completion_tokens", "n")


@dataclass
class Followed:
    """The files of a folder, or one file, and how far each has been read."""

    path: Path
    _places: dict[Path, tuple[int, int]] = field(default_factory=dict[Path, tuple[int, int]])
    """Inode and place of the first byte that has not been read."""
    _samples: Counter[str] = field(default_factory=Counter[str])

    def read(self, *, to_the_end: bool = False) -> Iterator[list[dict[str, Any] | FlywheelError]]:
        """Yield what was written since the last call, some lines at a time.

        A line that is no rollout is an error, which names its place, and so is a link out of the
        folder. Without `to_the_end`, a last line without its end waits.
        """
        is_folder = self.path.is_dir()
        files = (one for one in self.path.glob("**/*.jsonl") if one.is_file())
        for file in sorted(files) if is_folder else [self.path]:
            target = file.resolve()
            if is_folder and not target.is_relative_to(self.path.resolve()):
                yield [
                    FlywheelError(
                        f"{file} is a link to {target}, outside of {self.path}",
                        "Copy the file into the folder if it belongs there.",
                    )
                ]
                continue
            name = str(file.relative_to(self.path)) if is_folder else file.name
            state = file.stat()
            inode, place = self._places.get(file, (state.st_ino, 0))
            parts = [(file, place if place <= state.st_size else 0)]
            if inode != state.st_ino:
                # The file was replaced: read the rest of the one before, which may have a new name.
                with os.scandir(file.parent) as entries:
                    before = [Path(one) for one in entries if one.inode() == inode]
                parts = [*((one, place) for one in before), (file, 0)]
            for part, start in parts:
                yield from self._read_file(file, part, start, name, to_the_end or part != file)

    def _read_file(
        self, file: Path, part: Path, place: int, name: str, to_the_end: bool
    ) -> Iterator[list[dict[str, Any] | FlywheelError]]:
        """Yield what a file has from a place on; `part` is where it is now."""
        rollouts: list[dict[str, Any] | FlywheelError] = []
        with open(part, "rb") as handle:
            handle.seek(place)
            while line := handle.readline(LONGEST_LINE):
                length = len(line)
                while len(line) == LONGEST_LINE and not line.endswith(b"\n"):
                    rest = handle.readline(1 << 20)
                    length += len(rest)
                    if not rest or rest.endswith(b"\n"):
                        line = rest
                if not (line.endswith(b"\n") or to_the_end):
                    break
                try:
                    if length > LONGEST_LINE:
                        why = f"{part}, byte {place}: a line of {length >> 20:,} MiB"
                        raise FlywheelError(why)
                    rollouts += self._read_line(file, name, place, line)
                except FlywheelError as error:
                    rollouts.append(FlywheelError(error.message))
                place += length
                self._places[file] = (os.fstat(handle.fileno()).st_ino, place)
                if len(rollouts) >= BATCH_LINES:
                    yield rollouts
                    rollouts = []
        if rollouts:
            yield rollouts

    def count_others(self) -> dict[str, int]:
        """Return how many files of the folder are of other kinds, by suffix."""
        files = self.path.rglob("*") if self.path.is_dir() else ()
        return Counter(
            one.suffix or one.name for one in files if one.is_file() and one.suffix != ".jsonl"
        )

    def _read_line(self, file: Path, label: str, place: int, line: bytes) -> list[dict[str, Any]]:
        if not line.strip():
            return []
        where = f"{file}, byte {place}"
        try:
            text = line.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise FlywheelError(f"{where}: not UTF-8 at byte {error.start}") from error
        # A reward that is NaN is none, and its rollout is stored.
        given = dict(text_files.parse_object(text, where).values)
        name = content_id(label, line.decode(errors="replace"))
        identity = {"id": content_id(name, str(place))}
        if {"why", "rollout"} == given.keys() and isinstance(given["rollout"], dict):
            return [identity | given["rollout"]]
        if given.keys() >= _VERL:
            return [identity | self._read_verl(file, given)]
        why = "no rollout of verl, verifiers, OpenAI or store.run; it has "
        why += ", ".join(given)[:200] or "no names"
        rollouts: list[dict[str, Any]] = []
        try:
            if isinstance(given.get("traces"), list):
                rollouts, why = [*read_verifiers(given)], "no trace has messages"
            elif given.keys() & {"choices", "response", "chunks"}:
                rollouts = [
                    one | {"id": content_id(name, str(place), str(at))}
                    for at, one in enumerate(read_openai(given))
                ]
                why = f"a request without choices: {given!s:.200}"
            elif given and given.keys() <= {*KEYS}:
                rollouts = [identity | given]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"not the format that it resembles: {error!r:.200}"
        if not rollouts:
            raise FlywheelError(f"{where}: {why}")
        return rollouts

    def _read_verl(self, file: Path, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return a rollout of verl; equal prompts of a step are a group."""
        group = content_id(str(given["input"]))
        sample = self._samples[f"{file} {group}"]
        self._samples[f"{file} {group}"] += 1
        terms = {
            name: value
            for name, value in given.items()
            if name not in _VERL and isinstance(value, int | float)
        }
        return {
            "prompt": given["input"],
            "completion": given["output"],
            "reward": {"score": given["score"]} | terms,
            "step": given["step"],
            "group": group,
            "sample": sample,
        }


def read_openai(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a rollout for each answer to a request of the chat or the completions API."""
    request = _parse(given.get("request")) or given
    response = _parse(given.get("response")) or given.get("chunks") or given
    if isinstance(response, list):
        response = join_chunks(cast("list[Any]", response))
    if not isinstance(request, Mapping) or not isinstance(response, Mapping):
        return
    asked = cast("Mapping[str, Any]", _parse(request.get("body")) or request)
    answered = cast("Mapping[str, Any]", _parse(response.get("body")) or response)
    choices = cast("list[Mapping[str, Any]]", answered.get("choices") or [])
    if any("delta" in choice for choice in choices):
        raise ValueError("a chunk of a stream; log its chunks together as a list")
    for at, choice in enumerate(choices):
        rollout: dict[str, Any] = {
            "prompt": asked.get("messages") or asked.get("prompt"),
            "completion": choice.get("message") or choice.get("text"),
            "policy": answered.get("model") or asked.get("model"),
            "finish_reason": choice.get("finish_reason"),
            "sampling": {name: asked[name] for name in _SETTINGS if name in asked} or None,
            "group": answered.get("id") if len(choices) > 1 else None,
            "sample": at if len(choices) > 1 else None,
        }
        tokens = choice.get("logprobs") or {}
        logprobs = [one["logprob"] for one in tokens.get("content") or ()]
        logprobs = logprobs or tokens.get("token_logprobs") or []
        if logprobs and None not in logprobs:  # of an echoed prompt, the first has none
            rollout["sampler_logprobs"] = [min(one, 0) for one in logprobs]
        yield {name: value for name, value in rollout.items() if value is not None}


def join_chunks(chunks: Sequence[Any]) -> dict[str, Any]:
    """Return the answer that the chunks of a stream of the chat or the completions API make.

    >>> chunks = [{"choices": [{"delta": {"content": text}}]} for text in ("a", "b")]
    >>> join_chunks(chunks)["choices"][0]["message"]["content"]
    'ab'
    """
    answer: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        answer |= {name: chunk[name] for name in ("id", "model") if chunk.get(name)}
        for part in chunk.get("choices") or ():
            message: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": []}
            choice = choices.setdefault(
                part.get("index") or 0, {"message": message, "logprobs": {"content": []}}
            )
            message, calls = choice["message"], choice["message"]["tool_calls"]
            delta = part.get("delta") or {"content": part.get("text")}
            for name in ("content", "refusal", "reasoning_content", "reasoning"):
                if isinstance(delta.get(name), str):
                    message[name] = (message.get(name) or "") + delta[name]
            for call in delta.get("tool_calls") or ():
                at = call.get("index") or 0
                calls += ({"function": {}} for _ in range(len(calls), min(at, len(calls)) + 1))
                made = calls[min(at, len(calls) - 1)]
                made |= {"id": call["id"]} if call.get("id") else {}
                for name, text in (call.get("function") or {}).items():
                    made["function"][name] = made["function"].get(name, "") + (text or "")
            choice["logprobs"]["content"] += (part.get("logprobs") or {}).get("content") or ()
            choice |= {"finish_reason": part.get("finish_reason") or choice.get("finish_reason")}
    return answer | {"choices": [choices[at] for at in sorted(choices)]}


def _parse(value: Any) -> Any:
    """Return the object that a text of JSON states; other values stay."""
    return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value


def spread(figures: Iterable[float], mask: Iterable[object]) -> list[float]:
    """Return figures of the tokens in a mask as a list over all tokens, with 0 for the others.

    >>> spread([-0.5, -0.25], [False, True, True])
    [0.0, -0.5, -0.25]
    """
    of_sampled = iter(figures)
    return [next(of_sampled, 0.0) if is_sampled else 0.0 for is_sampled in mask]


def read_verifiers(episode: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a rollout for each branch of each trace of an episode.

    The prompt ends before the first message that was sampled. Figures by token are those of sampled
    tokens alone, and 0 elsewhere, where the mask is false.
    """
    for trace in cast("list[dict[str, Any]]", episode["traces"]):
        nodes = cast("list[dict[str, Any]]", trace.get("nodes") or [])
        parents = {node.get("parent") for node in nodes}
        task = trace.get("task") or {}
        data = task.get("data") or {}
        model = next(
            (call["model"] for call in trace.get("calls") or [] if call.get("model")), None
        )
        rewards = {
            name: reward["score"] * (1.0 if reward.get("weight") is None else reward["weight"])
            for name, reward in (trace.get("rewards") or {}).items()
            if reward is not None and reward["score"] is not None
        }
        metrics = {f"metric/{name}": one for name, one in (trace.get("metrics") or {}).items()}
        for leaf in (at for at in range(len(nodes)) if at not in parents):
            path: list[dict[str, Any]] = []
            at: int | None = leaf
            while at is not None and len(path) <= len(nodes):
                path.insert(0, nodes[at])
                at = nodes[at].get("parent")
            first = next((at for at, node in enumerate(path) if node.get("sampled")), len(path))
            answers = path[first:]

            def join(name: str, answers: list[dict[str, Any]] = answers) -> list[float] | None:
                if not any(node.get(name) for node in answers):
                    return None
                return [
                    one for node in answers for one in spread(node.get(name) or (), node["mask"])
                ]

            ids = [token for node in answers for token in node.get("token_ids") or ()]
            rollout: dict[str, Any] = {
                "id": f"{trace['id']} {leaf}",
                "prompt": [node["message"] for node in path[:first]],
                "completion": [node["message"] for node in answers],
                "policy": model or (trace.get("agent") or {}).get("config", {}).get("model"),
                "task": data.get("name") or task.get("key"),
                "group": (episode.get("group") or {}).get("id"),
                "reward": rewards | metrics or None,
                "finish_reason": trace.get("stop_condition"),
            }
            if ids:
                rollout |= {
                    "prompt_ids": [token for node in path[:first] for token in node["token_ids"]],
                    "completion_ids": ids,
                    "loss_mask": [one for node in answers for one in node["mask"]],
                    "sampler_logprobs": join("logprobs"),
                    "old_logprobs": join("trainer_logprobs"),
                    "ref_logprobs": join("reference_logprobs"),
                    "advantage": join("advantages"),
                }
            yield {name: value for name, value in rollout.items() if value is not None}
