"""Turns rollouts, in the form that every framework can give, into rows of the lake.

A rollout is a mapping. Keys that are missing are NULL:

    prompt             text, or list of chat messages
    completion         text, or list of messages; several messages or tool calls are a session
    prompt_ids, completion_ids
    token_ends         where each token ends in the text of the completion, in characters
    loss_mask, sampler_logprobs, old_logprobs, ref_logprobs
    advantage          number, or list by token
    reward             number, or mapping of term to number
    task               id or name of a task of the lake, else the name of a problem
    group, sample      prompt group within the step, and position in the group
    step, policy, policy_step, micro_batch, rank
    finish_reason, sampling, tokenizer, license
    id                 the caller's own id: a rollout with an id is stored once

Lists may be arrays or tensors. A message of the assistant may have token lists of its own: then
each such message is an attempt, and otherwise the rollout is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias, cast

import numpy as np

from store.code.completion import ENTRY_POINT, clean_text
from store.errors import RolloutRejected, UnknownName, summarize_error
from store.ids import content_id, uuid7
from store.rollouts.attempt_rows import AttemptRows, read_content

Row: TypeAlias = "dict[str, Any]"
Rollout: TypeAlias = "Mapping[str, Any]"

LOGPROBS = ("sampler_logprobs", "old_logprobs", "ref_logprobs")
TOKEN_LISTS = ("prompt_ids", "completion_ids", "token_ends", "loss_mask", *LOGPROBS)
_OF_TRAINING = ("policy_step", "micro_batch", "rank", "tokenizer")
KEYS = (
    *("prompt", "completion", *TOKEN_LISTS, "advantage", "reward", "task", "group", "sample"),
    *("step", "policy", *_OF_TRAINING, "finish_reason", "sampling", "id", "license"),
)
ROLES = {role: role for role in ("system", "user", "assistant", "tool")} | {
    **{"developer": "system", "function": "tool"},  # OpenAI
    **{"human": "user", "ai": "assistant"},  # LangChain
    **{"gpt": "assistant", "model": "assistant"},  # ShareGPT, Gemini
}
"""The role of a message by the name that other programs give it."""
_LARGEST = float(np.finfo(np.float32).max)
_ROUNDING = 1e-3
"""How far above 0 a log-probability may be: frameworks compute them in low precision."""


@dataclass(frozen=True, kw_only=True)
class RolloutOrigin:
    """What all rollouts of one run or file have in common."""

    run_id: str
    policy: str
    """Author of rollouts that name none."""
    source: str = "store.run"
    license: str | None = None
    rank: int | None = None
    """Process that logs them."""
    vocabulary: int | None = None
    """Number of token ids."""
    find_task: Callable[[str], str | None] = lambda _: None
    """Returns the id of a task by its id or name, or None if the lake has no such task."""


def make_rollout_id(run_id: str, rollout: Rollout) -> str:
    """Return the generation_id of a rollout; it follows from the caller's id if there is one."""
    named = rollout.get("id")
    return uuid7() if named is None else content_id("rollout", run_id, str(named))


def make_rollout_rows(
    origin: RolloutOrigin,
    rollouts: Sequence[Rollout],
    refuse: Callable[[int, RolloutRejected], object] | None = None,
) -> dict[str, list[Row]]:
    """Return the rows of rollouts by table.

    Args:
        origin: What they have in common.
        rollouts: Mappings in the form that this module describes.
        refuse: Is called for each rollout that breaks a rule, with its number, and the rows of the
            others are returned. Without it, RolloutRejected is raised.
    """
    rows = AttemptRows(source=origin.source, license=origin.license, run_id=origin.run_id)
    for number, rollout in enumerate(rollouts):
        sizes = {table: len(keyed) for table, keyed in rows.tables.items()}
        made = _RolloutRows(origin, number, rollout, rows)
        try:
            try:
                made.add()
            except RolloutRejected:
                raise
            except Exception as error:  # values run the code of other programs
                raise made.refuse(None, f"cannot be read: {summarize_error(error)}") from error
        except RolloutRejected as error:
            if refuse is None:
                raise
            rows.shrink(sizes)
            refuse(number, error)
    return rows.list_tables()


def add_tokens(rows: AttemptRows, generation_id: str, tokens: Rollout) -> None:
    """Add the lists by token of an imported attempt; raises RolloutRejected."""
    origin = RolloutOrigin(run_id=rows.run_id, policy="")
    _RolloutRows(origin, 0, tokens, rows).add_tokens(generation_id, tokens, None, None)


@dataclass
class _RolloutRows:
    """The rows of one rollout."""

    origin: RolloutOrigin
    number: int
    rollout: Rollout
    rows: AttemptRows

    def add(self) -> None:
        given, origin = self.rollout, self.origin
        if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise self.refuse(None, f"it is {type(given).__name__}, not a dict")
        if not given:
            raise self.refuse(None, "it is empty")
        for key in given:
            if key not in KEYS:
                unknown = UnknownName.among("key of a rollout", str(key), KEYS)
                raise self.refuse(None, unknown.message, unknown.hint)
        given = self.rollout = {key: self.unwrap(key, value) for key, value in given.items()}
        rollout_id = make_rollout_id(origin.run_id, given)
        if (rollout_id,) in self.rows.tables.get("generations", {}):
            return  # an earlier rollout of the batch has its id
        policy = self.text("policy") or origin.policy
        self.rows.add_policy(policy, "model")
        task = self.text("task")
        task_id = None if task is None else origin.find_task(task)
        prompt, completion = self.messages("prompt"), self.messages("completion")
        self.rows = self.rows.under(self.text("license") or origin.license)
        shown = [
            {"role": one["role"], "content": _read_text(one.get("content")) or ""} for one in prompt
        ]
        prompt_key = self.rows.add_prompt(shown, task_id, "train")
        # More than the text of an answer.
        is_session = len(completion) > 1 or any(
            one["role"] != "assistant" or one.get("tool_calls") or _read_reasoning(one)
            for one in completion
        )
        session_id = content_id("session", rollout_id) if is_session else None
        step, group = self.whole("step"), given.get("group")
        sampling = given.get("sampling")
        problem = task if task_id is None else None
        common: Row = {
            "task_id": task_id,
            "problem": problem,
            "policy": policy,
            "prompt_id": prompt_key,
            "group_id": group
            if group is None
            else content_id("group", origin.run_id, str(step), str(group)),
            "sample_index": self.whole("sample"),
            "step": step,
            "trajectory_id": session_id or rollout_id,
            "sampling": sampling if sampling is None else self.json("sampling", sampling),
        }
        answers = [one for one in completion if one["role"] == "assistant"]
        # Each answer that has tokens of its own is an attempt; otherwise the rollout is one.
        turns = [one for one in answers if any(one.get(name) is not None for name in TOKEN_LISTS)]
        of_rollout = next((name for name in TOKEN_LISTS if given.get(name) is not None), None)
        if turns and of_rollout:
            why = "is given for the rollout and by messages of its completion"
            raise self.refuse(of_rollout, why, "Give token lists for one of the two.")
        parent: str | None = None
        attempt_of: dict[int, str] = {}
        for turn, answer in enumerate(turns or [None]):
            is_last = turn == len(turns or [None]) - 1
            generation_id = rollout_id if is_last else content_id("turn", rollout_id, str(turn))
            tokens = given if answer is None else answer
            said = answers if answer is None else [answer]
            texts = [text for one in said if (text := _read_text(one.get("content"))) is not None]
            text = "\n".join(texts) if texts else None
            self.add_attempt(
                generation_id,
                text,
                turn=turn,
                parent_generation_id=parent,
                prompt_tokens=_count(tokens.get("prompt_ids")),
                completion_tokens=_count(tokens.get("completion_ids")),
                **common,
            )
            self.add_tokens(generation_id, tokens, step, text)
            for one in said:
                attempt_of[id(one)] = generation_id
            parent = generation_id
        self.add_rewards(rollout_id, step)
        if session_id is not None:
            session: Row = {
                "session_id": session_id,
                "run_id": origin.run_id,
                "policy_id": policy,
                "task_id": task_id,
                "problem": problem,
                "name": None if given.get("id") is None else str(given["id"]),
                "outcome": self.text("finish_reason"),
                **self.rows.origin(),
            }
            self.rows.add("sessions", (session_id,), session)
            self.add_steps(session_id, [*prompt, *completion], attempt_of)

    def add_attempt(self, generation_id: str, text: str | None, **columns: Any) -> None:
        """Add an attempt, with the kernel that it defines if the lake has its task."""
        finish = self.text("finish_reason")
        kernel_id, row = None, {"completion": text}
        if text is not None and columns["task_id"] is not None and ENTRY_POINT in text:
            kernel_id, row = self.rows.parse_completion(text, finish or "stop")
        row |= {"kernel_id": kernel_id, "finish_reason": finish}
        self.rows.add_attempt([], generation_id=generation_id, **row, **columns)

    def add_tokens(
        self, generation_id: str, tokens: Rollout, step: int | None, text: str | None
    ) -> None:
        """Add the tokens of an attempt, which a rollout or a message has; `text` is its text."""
        lists = {name: self.tokens(tokens, name) for name in TOKEN_LISTS}
        ends = lists["token_ends"]
        if ends is not None and text is not None:
            beyond = f"beyond the text of {len(text)} characters"
            self.require("token_ends", ends, ends <= len(text), beyond)
        advantage = self.rollout.get("advantage")
        by_token = None
        if advantage is not None and not _is_number(advantage):
            by_token, advantage = self.floats("advantage", advantage), None
        elif advantage is not None:
            advantage = self.finite("advantage", advantage)
        of_completion = {**lists, "advantage": by_token}
        del of_completion["prompt_ids"]
        lengths = {name: len(one) for name, one in of_completion.items() if one is not None}
        whole = next(iter(lengths), "")
        for name, length in lengths.items():
            if length != lengths[whole]:
                raise self.refuse(
                    name,
                    f"has {length} values, and {whole} has {lengths[whole]}",
                    "Give one value for each token of the completion, without padding.",
                )
        of_training: Row = {
            "policy_step": self.whole("policy_step"),
            "micro_batch": self.whole("micro_batch"),
            "tokenizer": self.text("tokenizer"),
        }
        row = {**lists, "advantage": advantage, "token_advantages": by_token, **of_training}
        if any(value is not None for value in row.values()):
            rank = self.whole("rank")
            row |= {"rank": self.origin.rank if rank is None else rank, "step": step}
            row |= {"generation_id": generation_id, "run_id": self.origin.run_id}
            self.rows.add("rollout_tokens", (generation_id,), row)

    def add_rewards(self, generation_id: str, step: int | None) -> None:
        reward, advantage = self.rollout.get("reward"), self.rollout.get("advantage")
        if reward is None:
            return
        terms = (
            cast("Mapping[object, Any]", reward)
            if isinstance(reward, Mapping)
            else {"reward": reward}
        )
        for term, value in terms.items():
            if value is None:
                continue
            name = "reward" if terms is not reward else f"reward[{term!a:.80}]"
            rule, raw = clean_text(str(term)), self.finite(name, unwrap(value))
            if (generation_id, rule) in self.rows.tables.get("rewards", {}):
                raise self.refuse(name, f"is the second term {rule!a:.80}")
            self.rows.add_reward(
                generation_id,
                rule,
                raw,
                step=step,
                advantage=float(cast("Any", advantage)) if _is_number(advantage) else None,
            )

    def add_steps(
        self, session_id: str, messages: Sequence[Rollout], attempt_of: Mapping[int, str]
    ) -> None:
        """Add the messages of a session as steps; the result of a call is part of the call."""
        calls: dict[str, Row] = {}
        number = 0
        for message in messages:
            answered = str(message.get("tool_call_id"))
            text = _read_text(message.get("content"))
            if message["role"] == "tool" and answered in calls and "result" not in calls[answered]:
                calls[answered]["result"] = text
                is_error = message.get("is_error")
                calls[answered]["is_error"] = is_error if isinstance(is_error, bool) else None
                continue
            step: Row = {
                "session_id": session_id,
                "step": number,
                "role": message["role"],
                "content": text,
                "reasoning": _read_reasoning(message),
                "generation_id": attempt_of.get(id(message)),
            }
            self.rows.add("session_steps", (session_id, str(number)), step)
            for index, call in enumerate(cast("Sequence[Any]", message.get("tool_calls") or ())):
                if not isinstance(call, Mapping):
                    raise self.refuse("completion", f"a tool call is {type(call).__name__}")
                made = cast("Mapping[str, Any]", call)
                function = made.get("function")
                named = (
                    cast("Mapping[str, Any]", function) if isinstance(function, Mapping) else made
                )
                arguments = named.get("arguments")
                row: Row = {
                    "session_id": session_id,
                    "step": number,
                    "call_index": index,
                    "tool": clean_text(str(named.get("name") or "unknown")),
                    "arguments": _read_text(arguments),
                }
                self.rows.add("tool_calls", (session_id, str(number), str(index)), row)
                if made.get("id") is not None:
                    calls[str(made["id"])] = row
            number += 1

    def refuse(self, key: str | None, why: str, hint: str | None = None) -> RolloutRejected:
        return RolloutRejected(self.number, key, why, hint)

    def unwrap(self, key: str, value: Any) -> Any:
        try:
            return unwrap(value)
        except Exception as error:  # a tensor on the meta device, for example
            raise self.refuse(key, f"cannot be read: {summarize_error(error)}") from error

    def text(self, key: str) -> str | None:
        value = self.rollout.get(key)
        if value is None or isinstance(value, str):
            return None if value is None else clean_text(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        raise self.refuse(key, f"is {type(value).__name__}, not a text")

    def whole(self, key: str) -> int | None:
        """Return a value as a whole number, at least 0."""
        value = self.rollout.get(key)
        if value is None:
            return None
        if not _is_number(value) or not 0 <= value < 2**31 or int(value) != value:
            raise self.refuse(key, f"is {value!a:.60}, not a whole number from 0")
        return int(value)

    def finite(self, key: str, value: Any) -> float:
        """Return a finite number of 32 bits, in which trainers compute; true counts as 1."""
        is_number = isinstance(value, bool | int | float | Decimal | np.number)
        if not is_number or not abs(value) <= _LARGEST:
            raise self.refuse(key, f"is {value!a:.60}, not a finite number of 32 bits")
        return float(value)

    def json(self, key: str, value: Any) -> str:
        try:
            return clean_text(json.dumps(value, default=str, ensure_ascii=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise self.refuse(key, f"is not JSON: {error}") from error

    def messages(self, key: str) -> list[dict[str, Any]]:
        """Return a prompt or completion as messages; a text is one message."""
        value = self.rollout.get(key)
        if value is None:
            return []
        if isinstance(value, str):
            return [{"role": "user" if key == "prompt" else "assistant", "content": value}]
        messages = [value] if isinstance(value, Mapping) else value
        if not isinstance(messages, Sequence):
            raise self.refuse(key, f"is {type(value).__name__}, no text and no list of messages")
        read: list[dict[str, Any]] = []
        for at, message in enumerate(cast("Sequence[Any]", messages)):
            if isinstance(message, Mapping) and "from" in message and "role" not in message:
                # ShareGPT
                message = {**message, "role": message["from"], "content": message.get("value")}
            role = message.get("role") if isinstance(message, Mapping) else None
            if not isinstance(role, str) or role not in ROLES:
                said = f"role is {role!a:.40}" if isinstance(message, Mapping) else "is no dict"
                raise self.refuse(
                    f"{key}[{at}]",
                    said,
                    "A message is a dict with role (system, user, assistant, tool).",
                )
            if not isinstance(message.get("tool_calls"), list | tuple | None):
                raise self.refuse(f"{key}[{at}]", "has tool_calls that are no list")
            made = {**message, "role": ROLES[role]}
            if made.get("content") is None:
                made["content"] = made.get("refusal")
            if made.get("function_call"):  # of OpenAI before there were tool_calls
                made.setdefault("tool_calls", [made["function_call"]])
            read.append(made)
        return read

    def tokens(self, tokens: Rollout, key: str) -> np.ndarray[Any, Any] | None:
        """Return a list by token as an array of the type that its column has."""
        value = tokens.get(key)
        if value is None:
            return None
        if key in LOGPROBS:
            numbers = self.floats(key, value)
            self.require(key, numbers, numbers <= _ROUNDING, "not a log-probability, at most 0")
            return numbers
        array = self.array(key, value)
        if key == "loss_mask":
            if len(array) and array.dtype.kind not in "biuf":
                raise self.refuse(key, f"has values like {array.tolist()[0]!a:.40}, not 0 or 1")
            self.require(key, array, (array == 0) | (array == 1), "not 0 or 1")
            return array.astype(np.bool_)
        if len(array) and array.dtype.kind not in "iu":
            raise self.refuse(key, f"has values like {array.tolist()[0]!a:.40}, not token ids")
        self.require(key, array, (array >= 0) & (array < 2**31), "beyond what a token id can be")
        if key == "token_ends":
            in_order = array >= np.maximum.accumulate(array) if len(array) else array == array
            self.require(key, array, in_order, "before the end of an earlier token")
        elif self.origin.vocabulary is not None:
            known = f"beyond the vocabulary of {self.origin.vocabulary}"
            self.require(key, array, array < self.origin.vocabulary, known)
        return array.astype(np.int32)

    def floats(self, key: str, value: Any) -> np.ndarray[Any, Any]:
        array = self.array(key, value)
        if len(array) and array.dtype.kind not in "iuf":
            raise self.refuse(key, f"has values like {array.tolist()[0]!a:.40}, not numbers")
        numbers = array.astype(np.float32)
        self.require(key, array, np.isfinite(numbers), "not a finite number")
        return numbers

    def array(self, key: str, value: Any) -> np.ndarray[Any, Any]:
        """Return a list, array or tensor of one dimension as an array."""
        try:
            array = np.asarray(self.unwrap(key, value))
        except (ValueError, OverflowError) as error:
            raise self.refuse(key, f"is not a list of numbers: {error}") from error
        if array.ndim != 1:
            raise self.refuse(key, f"has {array.ndim} dimensions, not one")
        return array

    def require(self, key: str, values: np.ndarray[Any, Any], are_good: Any, rule: str) -> None:
        """Refuse the rollout for the first value that is not good."""
        if not are_good.all():
            at = int(np.argmin(are_good))
            raise self.refuse(f"{key}[{at}]", f"is {values[at]}, {rule}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def unwrap(value: Any) -> Any:
    """Return a tensor, also one of a GPU or in bfloat16, as plain numbers; arrays stay."""
    is_array = isinstance(value, np.ndarray) and value.ndim > 0
    return value.tolist() if hasattr(value, "tolist") and not is_array else value


def _count(ids: Any) -> int | None:
    return len(ids) if hasattr(ids, "__len__") else None


def _read_reasoning(message: Mapping[str, Any]) -> str | None:
    return _read_text(message.get("reasoning_content") or message.get("reasoning"))


def _read_text(content: Any) -> str | None:
    """Return the text of a message's content as it can be stored."""
    text = read_content(content)
    return None if text is None else clean_text(text)
