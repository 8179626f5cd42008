"""What workers send: messages of other forms are refused, and none ends the judge."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from example_counts import count_examples
from forged_workers import (
    HOSTILE,
    TASK_REQUESTS,
    Forge,
    HandleUnderAttack,
    attack_reference,
    packets,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.processes import schema
from evaluators.processes.messages import Malformed

Judged = Callable[..., dict[str, Any]]
DEEP: dict[str, Any] = {"value": 1}
for _ in range(9):
    DEEP = {"list": [DEEP]}
PLACED = {"tensor": ["float32", [4], [1], 4096, 0]}
BOXED = {"tensor": ["float32", [4], [1], 0, 16, 0, 0]}
PROFILE = {
    "kernels": [["relu", 1, 1]],
    "busy_ns": 1,
    "wall_ns": 2,
    "launches": 1,
    "waits": 0,
    "own_code": False,
}
HANDLE = "0f" * 64


def call(spec: Any) -> dict[str, Any]:
    return {"output": spec, "devices": ["cpu"]}


GENUINE: list[tuple[schema.Loop, str, dict[str, Any]]] = [
    ("candidate", "prepare", {"handles": [HANDLE, HANDLE]}),
    ("candidate", "load", {"found": True}),
    ("candidate", "construct", {}),
    ("candidate", "state", {"state": [["weight", "float32", [4, 0]]], "total": 1}),
    ("candidate", "current_state", {"values": {"list": [BOXED]}}),
    ("candidate", "call", call({"dict": [["a", PLACED], ["b", {"value": float("nan")}]]})),
    ("candidate", "call", call(PLACED) | {"pieces": [[0, 512, HANDLE]], "boxed": BOXED}),
    # An expanded number: its bytes exceed 64 bits.
    ("candidate", "call", call({"tensor": ["float32", [2**31, 2**31], [0, 0], 4096, 0]})),
    ("candidate", "call", call({"tensor": ["float32", [1] * 65, [1] * 65, 4096, 0]})),
    ("candidate", "call", {"odd": {"type": "Later", "lazy": True}}),
    ("candidate", "time", {"places": [[[4096], [16]], [[], []]]}),
    ("candidate", "describe", {"outputs": [call(PLACED), call({"tuple": []})]}),
    ("candidate", "clocks", {"replaced": ["time.time"]}),
    ("candidate", "variant", {"seconds": 0.5}),
    ("candidate", "profile", PROFILE),
    ("candidate", "call", {"error": {"type": "E", "types": ["E"], "text": "\ud800", "trace": ""}}),
    ("task", "inputs", {"place": "cpu", "spec": {"list": [BOXED]}}),
    ("task", "inputs", {"place": "cpu", "needs": 4096}),
    (
        "task",
        "answer",
        {"place": "cpu", "spec": BOXED, "draws": False, "changed": [0]}
        | {"keeps": False, "places": False},
    ),
    ("task", "state", {"place": "cpu", "needs": 1, "page": [["w", True, 0]], "total": 1}),
    ("task", "count", {"moved_bytes": 1, "operations": 2, "single": True}),
    ("task", "count_bytes", {"result": [1, 2]}),
    ("task", "count_bytes", {"result": None}),
    ("task", "reset", {"error": "ValueError: no", "lost": False}),
]


@pytest.mark.parametrize(("loop", "request_", "reply"), GENUINE)
def test_genuine_messages_are_of_the_schema(
    loop: schema.Loop, request_: str, reply: dict[str, Any]
) -> None:
    schema.check_reply(loop, request_, reply)


@pytest.mark.parametrize(
    ("request_", "reply"),
    [
        *(
            ("call", call(spec))
            for spec in [
                None,
                {},
                5,
                {"tensor": ["float32", [4], [1]]},
                {"tensor": ["float32", [4], [-1], 4096, 0]},
                {"tensor": ["float32", [4], [1, 1], 4096, 0]},
                {"tensor": ["float32", [1e9], [1], 4096, 0]},
                {"tensor": ["float32", [True], [1], 4096, 0]},
                {"tensor": ["object", [4], [1], 4096, 0]},
                {"tensor": [["float32"], [4], [1], 4096, 0]},
                {"tensor": ["float32", [4], [1], -4096, 0]},
                {"tensor": ["float32", [4], [1], "here", 0]},
                {"tensor": ["float32", [4], [1], 10**30, 0]},
                {"tensor": ["float32", [4], [1], (1 << 63) - 4, 0]},
                {"tensor": ["float32", [2**39, 2**39, 0], [1, 1, 1], 4096, 0]},
                {"tensor": ["float32", [2**39, 2**39], [0, 0], 4096, 0]},
                {"tensor": ["float32", [2**31, 2**31], [2**31, 1], 4096, 0]},
                {"tensor": ["float32", [1] * 1001, [1] * 1001, 4096, 0]},
                {"list": {"value": 1}},
                {"list": [5]},
                {"dict": [5]},
                {"dict": [[]]},
                {"dict": [[1.5, {"value": 1}]]},
                {"dict": [["a", {"value": 1}], ["a", {"value": 1}]]},
                {"dict": {"a": {"value": 1}}},
                {"value": {"a": 1}},
                {"value": 1, "list": []},
                {"pickle": "gASVBQAAAAAAAABL"},
                DEEP,
            ]
        ),
        ("call", {"output": PLACED}),
        ("call", call(PLACED) | {"devices": [1]}),
        ("call", call(PLACED) | {"verdict": "correct"}),
        *(
            ("call", call(PLACED) | {"pieces": pieces})
            for pieces in [
                {},
                [[1, 2]],
                [[1, 2, 3]],
                [[-1, 2, HANDLE]],
                [[1, 0, HANDLE]],
                [[1, 2, "0f"]],
                [[1, 2, HANDLE]] * 65,
            ]
        ),
        ("call", {"odd": {"type": 1, "lazy": True}}),
        ("call", {"odd": None}),
        ("describe", {"outputs": [None]}),
        ("describe", {"outputs": call(PLACED)}),
        ("time", {"outputs": [call(PLACED)]}),
        ("time", {"places": [[[4096], []]]}),
        ("load", {"found": 1}),
        ("construct", {"found": True}),
        ("state", {"state": [["\ud800", "float32", []]], "total": 1}),
        ("state", {"state": [["weight", "float32", [4]]] * 257, "total": 257}),
        ("state", {"state": [["weight", "float32", "44"]], "total": 1}),
        ("current_state", {"values": {"dict": [5]}}),
        (
            "current_state",
            {"values": {"tensor": ["float32", [2**39, 2**39, 0], [0, 0, 1], 0, 0, 0, 0]}},
        ),
        ("current_state", {"values": PLACED}),
        ("clocks", {"replaced": [1]}),
        ("variant", {"seconds": float("nan")}),
        ("variant", {"seconds": 10**400}),
        *(
            ("profile", PROFILE | change)
            for change in [
                {"kernels": None},
                {"kernels": [["a", 1, 1]] * 101},
                {"kernels": [["a" * 201, 1, 1]]},
                {"kernels": [["a", -1, 1]]},
                {"kernels": [["a", 1]]},
                {"busy_ns": 1.5},
                {"wall_ns": 10**16},
                {"launches": True},
                {"own_code": 1},
            ]
        ),
        ("call", {"error": "no"}),
        ("call", {"error": {"type": "E", "types": 5, "text": "", "trace": ""}}),
    ],
)
def test_messages_of_another_form_are_malformed(request_: str, reply: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        schema.check_reply("candidate", request_, reply)


FORGING = """
import sys

MESSAGES = sys.modules["evaluators.processes.messages"]
REAL = MESSAGES.send
MESSAGES.send = lambda end, message, fds=(): REAL(end, change(dict(message)), fds)


def change(message):
    if {field!r} in message:
        message[{field!r}] = {forged!r}
    return message
"""


@pytest.mark.parametrize(
    ("field", "forged"),
    [
        ("output", {"tensor": ["float32", [2**39, 2**39, 0], [1, 1, 1], 4096, 0]}),
        pytest.param("values", {"dict": [5]}, marks=pytest.mark.slow),
    ],
)
def test_a_worker_that_forges_its_answers_is_rejected(
    field: str, forged: Any, judge_code: Judged, right_candidate: str
) -> None:
    row = judge_code(FORGING.format(field=field, forged=forged) + right_candidate)
    assert (row["status"], row["reason"]) == ("rejected", "malformed_output"), row


def test_an_expanded_number_beyond_64_bits_has_another_shape(
    judge_code: Judged, candidate: Callable[[str], str]
) -> None:
    row = judge_code(candidate("return x.new_zeros(1).expand(2**31, 2**31)"))
    assert (row["status"], row["reason"]) == ("incorrect", "incorrect_shape"), row


@pytest.fixture(scope="module")
def handle_under_attack() -> Iterator[HandleUnderAttack]:
    opened = HandleUnderAttack()
    yield opened
    opened.close()


def send_genuine(_: str, reply: dict[str, Any]) -> bytes:
    return json.dumps(reply).encode()


@pytest.mark.slow
def test_workers_in_threads_are_genuine(handle_under_attack: HandleUnderAttack) -> None:
    for request in handle_under_attack.requests:
        assert handle_under_attack.attack(request, send_genuine) == "accepted"
    for request in TASK_REQUESTS:
        assert attack_reference(request, send_genuine) == "accepted"


@pytest.mark.slow
@settings(max_examples=count_examples(2000), deadline=None)
@given(st.data())
def test_no_message_of_a_candidate_ends_the_judge(
    handle_under_attack: HandleUnderAttack, data: st.DataObject
) -> None:
    handle_under_attack.attack(
        data.draw(st.sampled_from(handle_under_attack.requests)), data.draw(packets())
    )


@pytest.mark.slow
@settings(max_examples=count_examples(1000), deadline=None)
@given(st.sampled_from(TASK_REQUESTS), packets())
def test_no_message_of_a_task_ends_the_judge(request_: str, forge: Forge) -> None:
    attack_reference(request_, forge)


@pytest.mark.slow
def test_real_workers_that_forge_at_random_never_end_the_judge(
    judge_code: Judged, right_candidate: str
) -> None:
    for seed in range(30):
        row = judge_code(HOSTILE.format(seed=seed) + right_candidate)
        assert row["status"] != "evaluator_error", (seed, row)
