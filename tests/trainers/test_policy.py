"""Policies: a server on loopback with faults, a random model of this machine, a script."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import chat_server
import pytest
from chat_server import ChatServer, completion
from starlette.responses import Response

from store import faults
from store.errors import FlywheelError, UnknownName
from trainers.policies import local_model
from trainers.policies.interface import (
    Asked,
    Budget,
    BudgetReached,
    Completion,
    EndpointFailed,
    Policy,
    Prices,
    Sampling,
    Serving,
    open_policy,
    split_endpoint,
)

KEY = "sk-secret-0123456789"


def turns(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


def answers(
    one: Policy,
    texts: Sequence[str],
    n: int = 1,
    seeds: Sequence[int] | None = None,
    **sampling: Any,
) -> dict[int, list[Completion]]:
    settings = Sampling(**{"max_tokens": 50} | sampling)
    asked = Asked(prompts=[turns(text) for text in texts], n=n, sampling=settings, seeds=seeds)
    made: dict[int, list[Completion]] = {}
    for index, completions in one.sample(asked):
        made[index] = made.get(index, []) + completions
    return made


def sample_until_stop(
    one: Policy, prompts: int, n: int = 1, max_tokens: int = 50
) -> tuple[list[list[Completion]], FlywheelError]:
    """Return what came before sampling stopped, and why it did."""
    came: list[list[Completion]] = []
    settings = Sampling(max_tokens=max_tokens)
    try:
        for _, made in one.sample(Asked(prompts=[turns("a")] * prompts, n=n, sampling=settings)):
            came.append(made)
    except (BudgetReached, EndpointFailed) as error:
        return came, error
    raise AssertionError("it did not stop")


def echo(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer with what was asked, as often as was asked."""
    shown = asked["messages"][-1]["content"]
    return completion([f"{shown} {place}" for place in range(asked.get("n", 1))])


def answer_once(asked: dict[str, Any]) -> dict[str, Any]:
    """Answer once, whatever `n` says, as `transformers serve` does."""
    return completion([f"{asked['messages'][-1]['content']} seed {asked.get('seed')}"])


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(echo) as opened:
        yield opened


def address(server: ChatServer) -> str:
    return server.url.removeprefix("http://").removesuffix("/v1")


def open_at(server: ChatServer, **serving: Any) -> Policy:
    return open_policy(f"{server.url}#m", Serving(**{"retries": 2, "timeout_s": 120.0} | serving))


def test_n_completions_of_every_prompt(server: ChatServer) -> None:
    came = answers(open_at(server), ["a", "b", "c"], n=3, temperature=0.5, top_p=0.9, seed=7)
    assert {index: [one.text for one in made] for index, made in came.items()} == {
        index: [f"{name} {place}" for place in range(3)] for index, name in enumerate("abc")
    }
    assert len(server.requests) == 3
    asked = server.requests[0]
    assert (asked["model"], asked["max_tokens"], asked["n"]) == ("m", 50, 3)
    assert (asked["temperature"], asked["top_p"], asked["seed"]) == (0.5, 0.9, 7)
    one = came[0][0]
    assert (one.finish_reason, one.prompt_tokens, one.completion_tokens) == ("stop", 10, 5)
    assert one.cost_usd is None


def test_defaults_are_not_sent(server: ChatServer) -> None:
    answers(open_at(server), ["a"])
    assert set(server.requests[0]) == {"model", "messages", "max_tokens"}


def test_a_server_that_ignores_n_is_asked_n_times(server: ChatServer) -> None:
    server.answer = answer_once
    one = open_at(server)
    came = answers(one, ["a"], n=3, seed=5)
    assert sorted(made.text for made in came[0]) == ["a seed 5", "a seed 6", "a seed 7"]
    assert len(server.requests) == 3
    assert len(answers(one, ["a", "b"], n=2)[1]) == 2
    assert len(server.requests) == 3 + 4
    assert all("n" not in asked for asked in server.requests[1:])


def test_a_server_that_refuses_n_is_asked_n_times(server: ChatServer) -> None:
    def refuse_several(asked: dict[str, Any]) -> Any:
        several = chat_server.status(400, "number must be at most 1")
        return several(asked) if asked.get("n", 1) > 1 else answer_once(asked)

    server.answer = refuse_several
    one = open_at(server)
    assert len(answers(one, ["a"], n=3)[0]) == 3
    assert [asked.get("n", 1) for asked in server.requests] == [3, 1, 1, 1]
    assert len(answers(one, ["a", "b"], n=2)[1]) == 2
    assert all("n" not in asked for asked in server.requests[1:])


def test_a_prompt_that_is_refused_is_asked_for_once_more_and_says_why(server: ChatServer) -> None:
    server.answer = chat_server.status(400, "too long")
    [made] = answers(open_at(server), ["a"], n=4)[0]
    assert made.error == "status 400: too long"
    assert [asked.get("n", 1) for asked in server.requests] == [4, 1]


def test_answers_of_single_requests_come_at_once(server: ChatServer) -> None:
    server.answer = answer_once
    one = open_at(server, concurrency=1)
    answers(one, ["a"], n=2)
    server.delay_s = 0.2
    came = one.sample(Asked(prompts=[turns("b")], n=3, sampling=Sampling(max_tokens=50)))
    first = next(came)
    assert first[0] == 0
    assert len(first[1]) == 1
    assert len(server.requests) < 2 + 3
    assert sum(len(made) for _, made in came) == 2


def test_refused_prompts_do_not_end_the_sampling_once_a_server_works(server: ChatServer) -> None:
    def refuse_long(asked: dict[str, Any]) -> Any:
        is_long = asked["messages"][0]["content"].startswith("long")
        return chat_server.status(400, "too long")(asked) if is_long else answer_once(asked)

    server.answer = refuse_long
    one = open_at(server, concurrency=1)
    prompts = ["short", *["long"] * 8, "short"]
    reasons = [made[0].finish_reason for _, made in sorted(answers(one, prompts).items())]
    assert reasons == ["stop", *["error"] * 8, "stop"]
    with pytest.raises(EndpointFailed, match="5 times in a row: status 400: too long"):
        answers(open_at(server, concurrency=1), ["long"] * 8)


def test_each_prompt_may_have_its_own_seed(server: ChatServer) -> None:
    server.answer = answer_once
    came = answers(open_at(server), ["a", "a"], n=2, seed=1, seeds=[5, 9])
    assert sorted(made.text for made in came[0]) == ["a seed 5", "a seed 6"]
    assert sorted(made.text for made in came[1]) == ["a seed 10", "a seed 9"]


def test_requests_run_side_by_side_up_to_a_bound(server: ChatServer) -> None:
    server.delay_s, server.awaited = 0.05, 3
    answers(open_at(server, concurrency=3), [str(place) for place in range(9)])
    assert server.most_at_once == 3


def test_a_rate_is_kept(server: ChatServer) -> None:
    began = time.monotonic()
    answers(open_at(server, requests_per_minute=600), ["a", "b", "c"])
    assert time.monotonic() - began >= 0.2  # 3 requests at 0, 0.1 and 0.2 s


@pytest.mark.slow
def test_repeated_tries_count_for_the_rate(server: ChatServer) -> None:
    server.faults = [chat_server.status(503), chat_server.status(503)]
    began = time.monotonic()
    one = open_at(server, requests_per_minute=30, concurrency=1, retries=5)
    answers(one, ["a", "b"])
    assert time.monotonic() - began >= 6  # 4 requests, 2 s each, after the first


def test_what_the_server_cannot_answer_just_then_is_asked_again(server: ChatServer) -> None:
    server.faults = [chat_server.status(429, retry_after="1"), chat_server.status(503)]
    began = time.monotonic()
    assert answers(open_at(server), ["a"])[0][0].text == "a 0"
    assert time.monotonic() - began >= 1  # the pause that the server asked for
    assert len(server.requests) == 3


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize(
    "fault",
    [
        chat_server.body(b'{"choices": [{"mess'),
        chat_server.body(b"<html>busy</html>", "text/html"),
        chat_server.body(b'{"choices": []}'),
        chat_server.body(b'{"choices": [null]}'),
        chat_server.body(b'{"choices": {}}'),
        chat_server.body(b"[" * 100_000),
        chat_server.body(b""),
    ],
)
def test_a_malformed_answer_is_asked_for_again(
    server: ChatServer, fault: chat_server.Fault
) -> None:
    server.faults = [fault]
    assert answers(open_at(server), ["a"])[0][0].text == "a 0"
    assert len(server.requests) == 2


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (chat_server.body(b'{"choices": []}'), "no choices"),
        (chat_server.body(b"nonsense"), "malformed answer"),
        (chat_server.status(400, "context length exceeded"), "status 400: .*context length"),
        (chat_server.status(500, "sorry"), "status 500: .*sorry"),
    ],
)
def test_an_attempt_that_fails_for_good_says_why(
    server: ChatServer, fault: chat_server.Fault, why: str
) -> None:
    server.answer = lambda asked: fault(asked) if "bad" in str(asked) else echo(asked)
    came = answers(open_at(server, retries=0), ["bad", "good"], n=2)
    assert [one.text for one in came[1]] == ["good 0", "good 1"]
    failed = came[0][-1]
    assert (failed.text, failed.finish_reason) == ("", "error")
    assert failed.error is not None
    assert re.search(why, failed.error)


def test_a_server_that_never_answers_is_not_waited_for(server: ChatServer) -> None:
    server.delay_s = 600.0
    made = answers(open_at(server, timeout_s=0.2, retries=0), ["a"])[0][0]
    assert made.error == "no answer in 0.2 s"


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("code", [401, 403, 404, 429])
def test_a_server_that_refuses_us_ends_the_sampling(server: ChatServer, code: int) -> None:
    server.answer = chat_server.status(code, f"no access with {KEY}")
    with pytest.raises(EndpointFailed, match=f"status {code}") as caught:
        answers(open_at(server, retries=0), ["a", "b"])
    assert "go on" in str(caught.value)
    assert len(server.requests) <= 2


def test_a_server_that_is_gone_ends_the_sampling() -> None:
    with ChatServer(echo) as server:
        one = open_at(server, retries=0)
    with pytest.raises(EndpointFailed, match="cannot be reached"):
        answers(one, ["a"])


def test_a_server_that_only_fails_is_asked_a_few_times(server: ChatServer) -> None:
    server.answer = chat_server.status(500)
    came, error = sample_until_stop(open_at(server, retries=0, concurrency=1), 50)
    assert "has failed 5 times in a row: status 500" in str(error)
    assert len(server.requests) == 5
    assert [made.finish_reason for (made,) in came] == ["error"] * 5


def test_a_budget_of_tokens_is_never_exceeded_and_what_came_is_yielded(server: ChatServer) -> None:
    one = open_at(server, budget=Budget(tokens=200), concurrency=4)
    came, error = sample_until_stop(one, 40)
    assert isinstance(error, BudgetReached)
    assert "--budget-tokens" in str(error)
    assert "go on" in str(error)
    # A request may take 8 + 50 tokens and takes 15: the last to fit began at 142 or less.
    taken = sum(made.prompt_tokens + made.completion_tokens for (made,) in came)
    assert 142 < taken <= 142 + 15
    assert len(came) == len(server.requests)


def test_a_budget_of_money_goes_by_the_prices(server: ChatServer) -> None:
    prices = Prices(usd_per_mtok_in=100.0, usd_per_mtok_out=1000.0)
    one = open_at(server, budget=Budget(usd=0.075), prices=prices, concurrency=1)
    came, error = sample_until_stop(one, 40)
    assert "0.0300 USD spent" in str(error)
    assert [made.cost_usd for (made,) in came] == [pytest.approx(10 * 1e-4 + 5 * 1e-3)] * 5


def test_a_small_budget_asks_for_fewer_completions_at_once(server: ChatServer) -> None:
    came = answers(open_at(server, budget=Budget(tokens=150)), ["a"], n=8)
    assert len(came[0]) == 8
    assert server.requests[0]["n"] == 2


def test_the_cost_of_a_request_is_shared_by_its_completions(server: ChatServer) -> None:
    usage = {"prompt_tokens": 100, "completion_tokens": 90}
    server.answer = lambda asked: completion(["a" * 9, "b" * 19, ""], usage=usage)
    prices = Prices(usd_per_mtok_in=1.0, usd_per_mtok_out=2.0)
    came = answers(open_at(server, prices=prices), ["a"], n=3)[0]
    assert [made.completion_tokens for made in came] == [29, 58, 3]
    assert {made.prompt_tokens for made in came} == {100}
    assert sum(made.cost_usd or 0 for made in came) == pytest.approx((100 + 2 * 90) / 1e6)


def test_reasoning_stays_apart_from_the_answer(server: ChatServer) -> None:
    for name in ("reasoning_content", "reasoning"):
        server.answer = lambda asked, name=name: completion(["done"], **{name: "class ModelNew"})
        made = answers(open_at(server), ["a"])[0][0]
        assert (made.text, made.reasoning) == ("done", "class ModelNew")


def test_other_forms_of_a_message_become_text(server: ChatServer) -> None:
    call = {"function": {"name": "write", "arguments": '{"code": "x = 1"}'}}
    for message, text in (
        (
            {"content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
            "one two",
        ),
        ({"content": None, "tool_calls": [call]}, f"<tool_call>{json.dumps(call)}</tool_call>"),
        ({"content": None, "refusal": "I will not."}, "I will not."),
        ({"content": None}, ""),
    ):
        server.answer = lambda asked, message=message: completion([""], **message)
        made = answers(open_at(server), ["a"])[0][0]
        assert (made.text, made.finish_reason) == (text, "stop")


def test_a_server_that_wants_the_newer_name_of_the_limit(server: ChatServer) -> None:
    refusal = chat_server.status(400, "Use 'max_completion_tokens' instead.")
    server.answer = lambda asked: refusal(asked) if "max_tokens" in asked else echo(asked)
    one = open_at(server)
    assert answers(one, ["a"])[0][0].text == "a 0"
    assert answers(one, ["b"])[0][0].text == "b 0"
    assert len(server.requests) == 3


def test_the_key_comes_from_the_environment_and_appears_nowhere(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_KEY", KEY)
    server.answer = lambda asked: completion([f"you are {KEY}"], reasoning=f"it is {KEY}")
    one = open_at(server, key_env=(f"{address(server)}=LOCAL_KEY",))
    made = answers(one, ["a"])[0][0]
    assert server.keys == [f"Bearer {KEY}"]
    server.answer = chat_server.status(401, f"bad key {KEY}")
    with pytest.raises(EndpointFailed) as caught:
        answers(one, ["a"])
    server.answer = chat_server.status(400, f"bad key {'x' * 181}{KEY}")
    failed = answers(one, ["a"])[0][0]
    said = repr([made, failed, one.row, str(caught.value)])
    assert KEY not in said
    assert KEY[:9] not in said  # nor what is left of it where a message is cut


def test_a_key_goes_to_the_host_and_port_that_it_was_named_for_alone(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "general")
    monkeypatch.setenv("LOCAL_KEY", "special")
    answers(open_at(server, key_env=(f"{address(server)}=LOCAL_KEY",)), ["a"])
    answers(open_at(server, key_env=(f"{address(server)}=OPENAI_API_KEY",)), ["a"])
    for other in ("127.0.0.1=LOCAL_KEY", "127.0.0.1:1=LOCAL_KEY", "example.com=LOCAL_KEY"):
        answers(open_at(server, key_env=(other,)), ["a"])
    answers(open_at(server), ["a"])
    assert server.keys == ["Bearer special", "Bearer general", "", "", "", ""]
    with pytest.raises(FlywheelError, match="MISSING_KEY is not set"):
        open_at(server, key_env=(f"{address(server)}=MISSING_KEY",))


USAGES = {
    "negative": {"prompt_tokens": -5, "completion_tokens": -(10**40)},
    "huge": {"prompt_tokens": 10**400, "completion_tokens": 2**63},
    "fractions": {"prompt_tokens": 1e308, "completion_tokens": 0.5},
    "texts": {"prompt_tokens": "7", "completion_tokens": "many"},
    "truths": {"prompt_tokens": True, "completion_tokens": True},
    "lists": {"prompt_tokens": [1], "completion_tokens": {}},
    "null": {"prompt_tokens": None, "completion_tokens": None},
    "half": {"prompt_tokens": 3},
}


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("name", list(USAGES))
def test_absurd_usage_becomes_a_possible_count(server: ChatServer, name: str) -> None:
    server.answer = lambda asked: completion(["a" * 300], usage=cast("Any", USAGES[name]))
    prices, budget = Prices(usd_per_mtok_in=1.0, usd_per_mtok_out=2.0), Budget(tokens=10**6)
    made = answers(open_at(server, prices=prices, budget=budget), ["a" * 90])[0][0]
    assert 0 <= made.prompt_tokens <= 90 + 4096
    assert 0 <= made.completion_tokens <= 300
    assert made.cost_usd == pytest.approx((made.prompt_tokens + 2 * made.completion_tokens) / 1e6)
    assert budget.spent_tokens == made.prompt_tokens + made.completion_tokens


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize("count", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_usage_that_json_has_no_number_for(server: ChatServer, count: str) -> None:
    whole = json.dumps(completion(["a" * 300]))
    data = whole.replace('"completion_tokens": 5', f'"completion_tokens": {count}').encode()
    server.answer = chat_server.body(data)
    made = answers(open_at(server, retries=0), ["a"])[0][0]
    assert 0 <= made.completion_tokens <= 300
    assert made.finish_reason == ("error" if len(count) > 4300 else "stop")


def test_wrong_types_of_an_answer_never_end_the_run(server: ChatServer) -> None:
    for message, text in (
        ({"content": 7}, ""),
        ({"content": [1, {"text": ["x"]}]}, "['x']"),
        ({"content": None, "tool_calls": 5}, ""),
        ({"content": None, "tool_calls": {"a": 1}}, ""),
        ({"content": "x", "reasoning": {"a": 1}}, "x"),
    ):
        server.answer = lambda asked, message=message: completion([""], **message)
        made = answers(open_at(server), ["a"])[0][0]
        assert (made.text, made.reasoning, made.finish_reason) == (text, None, "stop")


def test_a_redirect_is_not_followed(server: ChatServer) -> None:
    with ChatServer(echo) as other:
        server.answer = lambda asked: Response(status_code=307, headers={"Location": other.url})
        with pytest.raises(EndpointFailed, match=r"a redirect to .*, which is not followed"):
            answers(open_at(server), ["a"])
        assert (len(server.requests), other.requests) == (1, [])


def test_sampling_that_is_given_up_ends_its_requests(server: ChatServer) -> None:
    server.delay_s = 0.05
    many = Asked(prompts=[turns("a")] * 4000, n=1, sampling=Sampling())  # 100 s
    came = open_at(server, concurrency=2).sample(many)
    next(came)
    came.close()  # pyright: ignore
    asked = len(server.requests)
    time.sleep(1)  # in which 40 others would come
    on_their_way = 2
    assert len(server.requests) <= asked + on_their_way < 4000


def test_the_row_of_an_endpoint() -> None:
    row = open_policy("http://localhost:8000/v1/#org/model").row
    assert (row["name"], row["model"], row["kind"]) == ("org/model", "org/model", "endpoint")
    assert row["endpoint"] == "http://localhost:8000/v1"
    assert "localhost" not in row["policy_id"]
    assert row["policy_id"] == open_policy("http://localhost:8000/v1#org/model").row["policy_id"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("http://localhost:8000/v1", "names no model"),
        ("http://#m", "names no host"),
        ("http://user:pass@localhost/v1#m", "a password"),
        ("http://localhost/v1?key=abc#m", "a query"),
        ("http://localhost:nonsense/v1#m", "is no URL"),
        ("http://[::1/v1#m", "is no URL"),
        ("ftp://localhost/v1#m", 'no policy "ftp'),
        ("gpt-4", 'no policy "gpt-4"'),
        ("hf:", 'no policy "hf:"'),
        ("scripted:missing.jsonl", "no file missing.jsonl"),
        ("hf:./missing", "no model at ./missing"),
    ],
)
def test_words_that_name_no_policy(spec: str, message: str) -> None:
    with pytest.raises(FlywheelError, match=message) as caught:
        open_policy(spec)
    assert "abc" not in str(caught.value)
    assert "pass@" not in str(caught.value)


def test_a_path_without_its_kind_gets_a_suggestion(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="hf:FOLDER"):
        open_policy(str(tmp_path))


def test_parts_of_an_endpoint_keep_what_belongs_to_the_model() -> None:
    assert split_endpoint("https://h/v1#a#b") == ("https://h/v1", "a#b")


def test_a_script_answers_in_turn(tmp_path: Path) -> None:
    file = tmp_path / "s.jsonl"
    lines = [{"text": "one"}, {"text": "two"}, {"text": "relu", "contains": "relu"}]
    file.write_text("\n".join(map(json.dumps, lines)))
    one = open_policy(f"scripted:{file}")
    assert [made.text for made in answers(one, ["sigmoid"], n=3)[0]] == ["one", "two", "one"]
    assert [made.text for made in answers(one, ["sigmoid"], n=1)[0]] == ["two"]
    assert [made.text for made in answers(one, ["relu"], n=3)[0]] == ["one", "two", "relu"]
    assert one.row["kind"] == "script"
    file.write_text("{}")
    with pytest.raises(FlywheelError, match='line 1 has no "text"'):
        open_policy(f"scripted:{file}")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a random Llama of some 30,000 parameters with a tokenizer of bytes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("model") / "bytes"
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: place for place, letter in enumerate(["<end>", "<pad>", *letters])}
    tokens: Any = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokens, eos_token="<end>", pad_token="<pad>"
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
    torch.manual_seed(0)
    made = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary), hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            bos_token_id=None, eos_token_id=0, pad_token_id=1, initializer_range=0.5,
        )
    )  # fmt: skip
    # What a published model brings along, and what must not change how we draw.
    made.generation_config.update(top_k=1, repetition_penalty=5.0, do_sample=True)
    tokenizer.save_pretrained(str(folder))
    made.save_pretrained(str(folder))
    return folder


def local(model: Path, **serving: Any) -> Policy:
    return open_policy(f"hf:{model}", Serving(**{"device": "cpu"} | serving))


def test_a_batch_gives_the_same_greedy_tokens_as_one_by_one(model: Path) -> None:
    texts = ["a", "a much longer prompt than the first one", "middle size"]
    together = answers(local(model, batch=8), texts, temperature=0.0, max_tokens=12)
    alone = answers(local(model, batch=1), texts, temperature=0.0, max_tokens=12)
    assert together == alone
    assert len({made.text for (made,) in alone.values()}) == 3
    assert [together[place][0].prompt_tokens for place in range(3)] == [len(t) + 1 for t in texts]


def test_sequences_that_end_leave_the_batch_and_change_no_other(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(model, tmp_path / "bytes")
    vocabulary = json.loads((model / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    texts = [letter * size for letter, size in zip("abcdefgh", range(1, 9), strict=True)]
    whole = answers(local(model), texts, temperature=0.0, max_tokens=24)
    letters = [text for place in whole for text in whole[place][0].text[4:12] if text in vocabulary]
    end = max(sorted(set(letters)), key=letters.count)
    file = tmp_path / "bytes" / "generation_config.json"
    given = json.loads(file.read_text("utf-8")) | {"eos_token_id": vocabulary[end]}
    file.write_text(json.dumps(given), "utf-8")
    monkeypatch.setattr(local_model, "LEG", 5)
    legs = answers(local(tmp_path / "bytes"), texts, temperature=0.0, max_tokens=24)
    assert [legs[place][0].text for place in range(8)] == [
        whole[place][0].text.partition(end)[0] for place in range(8)
    ]
    reasons = {made.finish_reason for (made,) in legs.values()}
    assert reasons == {"stop", "length"}
    drawn = answers(local(tmp_path / "bytes"), texts, n=4, seed=3, max_tokens=24)
    assert drawn == answers(local(tmp_path / "bytes"), texts, n=4, seed=3, max_tokens=24)


def test_a_seed_repeats_the_draws_and_none_does_not(model: Path) -> None:
    one = local(model)
    first = answers(one, ["a", "b"], n=4, seed=1, max_tokens=8)
    assert first == answers(one, ["a", "b"], n=4, seed=1, max_tokens=8)
    assert first != answers(one, ["a", "b"], n=4, seed=2, max_tokens=8)
    assert first == answers(one, ["a", "b"], n=4, seeds=[1, 1], max_tokens=8)
    two = answers(one, ["a", "a"], n=4, seeds=[1, 2], max_tokens=8)
    assert two == answers(one, ["a", "a"], n=4, seeds=[1, 2], max_tokens=8)
    assert two[0] != two[1]
    assert two != answers(one, ["a", "a"], n=4, seeds=[1, 3], max_tokens=8)
    assert answers(one, ["a"], n=4, max_tokens=8) != answers(one, ["a"], n=4, max_tokens=8)
    # The model's own top_k of 1 would make all alike.
    assert len({made.text for made in first[0]}) == 4


@pytest.mark.gpu
def test_a_gpu_samples_in_bf16_and_greedily_as_one_by_one(model: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    texts = ["a", "a much longer prompt than the first one"]
    together = answers(local(model, device="cuda"), texts, n=2, temperature=0.0, max_tokens=12)
    for place, text in enumerate(texts):
        alone = answers(
            local(model, device="cuda", batch=1), [text], temperature=0.0, max_tokens=12
        )
        # bf16 rounds: where two tokens are equally likely a batch may take the other one.
        assert together[place][0].text[:2] == alone[0][0].text[:2]
        assert together[place][0] == together[place][1]


def test_memory_that_torch_cannot_have_is_a_fault_of_the_host() -> None:
    import torch

    with pytest.raises(RuntimeError) as failed:
        torch.empty(1 << 50)
    assert "there is not enough memory" in str(faults.explain(failed.value))


@pytest.mark.gpu
def test_memory_that_a_gpu_does_not_have_is_a_fault_of_the_host() -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    with pytest.raises(torch.OutOfMemoryError) as failed:
        torch.empty(1 << 44, device="cuda")
    fault = faults.explain(failed.value)
    assert fault is not None
    assert "the GPU has not enough memory" in fault.message
    assert "nvidia-smi" in str(fault.hint)


def test_more_completions_than_a_batch_holds(model: Path) -> None:
    came = answers(local(model, batch=2), ["a", "b"], n=5, max_tokens=4)
    assert [len(came[place]) for place in range(2)] == [5, 5]


def test_why_sampling_ended_and_how_long_it_was(model: Path) -> None:
    # So hot that each of the 258 tokens is about as likely as any other.
    drawn = answers(local(model), ["a"], n=32, seed=0, max_tokens=40, temperature=50.0)[0]
    ended = [made for made in drawn if made.finish_reason == "stop"]
    assert 0 < len(ended) < 32
    assert all(made.completion_tokens == 40 for made in drawn if made not in ended)
    assert all(0 < made.completion_tokens <= 40 for made in ended)
    assert all("<end>" not in made.text and "<pad>" not in made.text for made in drawn)


def test_a_prompt_without_room_is_an_attempt_that_failed(model: Path) -> None:
    came = answers(local(model), ["x" * 400, "a", "y" * 250], max_tokens=8)
    assert came[0][0].error == "a prompt of 401 tokens leaves no room in a context of 256"
    assert came[1][0].completion_tokens > 0
    assert came[2][0].completion_tokens <= 5


def test_a_model_is_known_by_its_weights(model: Path, tmp_path: Path) -> None:
    import shutil

    copied = Path(shutil.copytree(model, tmp_path / "elsewhere"))
    row = local(model).row
    assert row["policy_id"] == local(copied).row["policy_id"]
    assert (row["kind"], row["name"]) == ("model", "bytes")
    with open(copied / "model.safetensors", "r+b") as handle:
        handle.seek(-4, 2)
        handle.write(b"\1\2\3\4")
    assert local(copied).row["policy_id"] != row["policy_id"]


def test_a_gguf_file_is_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainers.models import loading

    monkeypatch.setenv("FLYWHEEL_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "small.gguf"
    weights = write_gguf(file)
    one = open_policy(f"hf:{file}", Serving(device="cpu"))
    [folder] = (tmp_path / "cache" / "models").glob("small-*")
    assert (folder / "model.safetensors").exists()
    made = answers(one, ["a b"], temperature=0.0, max_tokens=3)[0][0]
    assert made.completion_tokens > 0
    config = json.loads((folder / "config.json").read_text())
    assert config["hidden_size"] == 32
    assert "quantization_config" not in config
    from safetensors.torch import load_file

    stored = load_file(folder / "model.safetensors")
    assert {str(one.dtype) for one in stored.values()} == {"torch.bfloat16"}
    kept = stored["model.norm.weight"].float().numpy()
    assert kept == pytest.approx(weights["output_norm.weight"], rel=1e-2)
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert loading.unpack_gguf(file, folder.parent) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    write_gguf(file, seed=1)
    assert loading.unpack_gguf(file, folder.parent) != folder


def test_what_is_no_gguf_file_is_refused(tmp_path: Path) -> None:
    from trainers.models import loading

    file = tmp_path / "no.gguf"
    file.write_bytes(b"PK\3\4")
    with pytest.raises(FlywheelError, match="is no GGUF file"):
        loading.unpack_gguf(file, tmp_path / "out")
    file.write_bytes(b"GGUF" + b"\0" * 64)
    with pytest.raises(FlywheelError, match="cannot be read as a model"):
        loading.unpack_gguf(file, tmp_path / "out")
    assert not list(tmp_path.glob("out/*"))


def write_gguf(file: Path, seed: int = 0) -> dict[str, Any]:
    """Write a Llama of two layers with quantised matrices; return its weights."""
    import gguf
    import numpy as np

    hidden, heads, inner = 32, 4, 64
    letters = [chr(place) for place in range(33, 127)]
    words = ["<unk>", "<s>", "</s>", "\u2581", *letters]
    kinds = [2, 3, 3] + [1] * (len(words) - 3)
    numbers = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(hidden)
    writer.add_block_count(2)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_rope_dimension_count(hidden // heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(words))
    writer.add_tokenizer_model("llama")
    writer.add_token_list(words)
    writer.add_token_scores([-float(place) for place in range(len(words))])
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    shapes = {"token_embd.weight": (len(words), hidden), "output.weight": (len(words), hidden)}
    for layer in range(2):
        shapes |= {
            f"blk.{layer}.{name}.weight": shape
            for name, shape in {
                "attn_q": (hidden, hidden), "attn_k": (hidden, hidden), "attn_v": (hidden, hidden),
                "attn_output": (hidden, hidden), "ffn_gate": (inner, hidden),
                "ffn_up": (inner, hidden), "ffn_down": (hidden, inner),
            }.items()
        }  # fmt: skip
    weights = {
        name: numbers.normal(size=shape).astype(np.float32) for name, shape in shapes.items()
    }
    norms = ["output_norm.weight"] + [
        f"blk.{layer}.{name}.weight" for layer in range(2) for name in ("attn_norm", "ffn_norm")
    ]
    weights |= {name: numbers.normal(size=hidden).astype(np.float32) for name in norms}
    for name, values in weights.items():
        if values.ndim == 1:
            writer.add_tensor(name, values)
        else:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights
