"""What a service refuses, with a status each; nothing is lost, and nothing of the server leaks."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import commands
import httpx2
import pytest
from example_counts import count_examples
from judge_services import (
    Service,
    ToldJudges,
    count_evaluations,
    wait_until,
    write_kernel,
    write_lake,
)

from evaluators.service.queue import SCOPES, Database, create_token, revoke_token
from store.errors import FlywheelError, UnknownName
from store.lake.location import Location

POLLS = count_examples(300)


def test_tokens_are_needed_once_there_are_any(guarded: Service, keys: dict[str, str]) -> None:
    def code(method: str, address: str, token: str | None, body: Any = None) -> int:
        return guarded.call(method, address, body, token).status_code

    kernel = {"task": "square", "code": write_kernel("x")}
    wrong = keys["judge"][:-1] + ("A" if keys["judge"][-1] != "A" else "B")
    for token in (None, wrong, "x", "fw_000000000000_" + "A" * 43, keys["judge"] + "A"):
        assert code("GET", "/v1/health", token) == 401
        assert code("POST", "/v1/judgements", token, kernel) == 401
    assert code("GET", "/v1/tasks", keys["read"]) == 200
    assert code("POST", "/v1/judgements", keys["read"], kernel) == 403
    assert code("GET", "/v1/health", keys["admin"]) == 200
    assert keys["judge"] not in guarded.log


def test_a_revoked_token_ends_at_once(guarded: Service) -> None:
    database = Database(Location.of(guarded.lake))
    token = create_token(database, "brief", ["read"])
    with pytest.raises(FlywheelError, match="has a token already"):
        create_token(database, "brief", ["read"])
    assert guarded.call("GET", "/v1/health", token=token).status_code == 200
    revoke_token(database, "brief")
    assert guarded.call("GET", "/v1/health", token=token).status_code == 401
    with pytest.raises(UnknownName):
        revoke_token(database, "brief")
    secret = token.rpartition("_")[2].encode()
    assert all(secret not in file.read_bytes() for file in Path(guarded.lake).glob("service*"))


def test_clients_withdraw_their_own_work_only(guarded: Service, keys: dict[str, str]) -> None:
    view = guarded.submit("shared", token=keys["judge"])
    assert guarded.submit("shared", token=keys["other"])["id"] == view["id"]
    address = f"/v1/judgements/{view['id']}"
    assert guarded.call("DELETE", address, token=keys["admin"]).status_code == 404
    assert guarded.call("DELETE", address, token=keys["judge"]).json()["status"] == "queued"
    assert guarded.call("DELETE", address, token=keys["other"]).json()["status"] == "cancelled"


def test_a_full_queue_refuses_who_has_its_share(guarded: Service, keys: dict[str, str]) -> None:
    for number in range(4):
        guarded.submit(f"fills {number}", token=keys["judge"])
    body = {"task": "square", "code": write_kernel("too many")}
    full = guarded.call("POST", "/v1/judgements", body, keys["judge"])
    assert (full.status_code, full.json()["error"]["code"]) == (429, "queue_full")
    assert int(full.headers["retry-after"]) >= 1
    # What is there already may be asked for again, and another client has a share of its own.
    assert guarded.submit("fills 0", token=keys["judge"])["status"] == "queued"
    assert guarded.submit("too many", token=keys["other"])["status"] == "queued"


@pytest.fixture(scope="module")
def guarded(empty_lake: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Yield a service with tokens, a short queue and a judge that never answers."""
    lake = write_lake(tmp_path_factory.mktemp("guarded") / "lake", empty_lake)
    judges = ToldJudges()
    with Service(lake, "--on", "cpu", "--queue", "5", judges=judges) as started:
        wait_until(started.has_device)
        started.submit("never answered")
        assert judges.claim()
        yield started
    judges.close()


@pytest.fixture(scope="module")
def keys(guarded: Service) -> dict[str, str]:
    """Return a token of every scope, and another one to judge."""
    database = Database(Location.of(guarded.lake))
    made = {name: create_token(database, name, [name]) for name in SCOPES}
    return made | {"other": create_token(database, "other", ["judge"])}


GOOD = {"task": "square", "code": "x"}
BODIES = {
    "no JSON": b"{",
    "no object": b"[]",
    "deep": b'{"task":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "a name twice": b'{"task": "square", "task": "cube", "code": "x"}',
    "no UTF-8": b'{"task": "\xff"}',
    "half a pair": b'{"task": "square", "code": "\\ud800"}',
    "a NUL": b'{"task": "square", "code": "a\\u0000b"}',
    "a NUL beside a file of any name": json.dumps(
        GOOD | {"code": "a\0b", "files": [{"path": "code", "code": "x"}]}
    ).encode(),
    "a number of many digits": b'{"task": "square", "code": "x", "priority": ' + b"9" * 5000 + b"}",
    "no code": json.dumps({"task": "square"}).encode(),
    "empty code": json.dumps(GOOD | {"code": ""}).encode(),
    "long code": json.dumps(GOOD | {"code": "x" * 400_001}).encode(),
    "another field": json.dumps(GOOD | {"run": 1}).encode(),
    "another policy": json.dumps(GOOD | {"policy": "fast"}).encode(),
    "a priority out of range": json.dumps(GOOD | {"priority": 10}).encode(),
    "a priority of another type": json.dumps(GOOD | {"priority": True}).encode(),
    "a deadline in the past": json.dumps(GOOD | {"queue_s": -1}).encode(),
    "an endless deadline": b'{"task": "square", "code": "x", "judge_s": 1e999999, "queue_s": 1e9}',
    "a path that leads out": json.dumps(
        GOOD | {"files": [{"path": "../x.py", "code": "x"}]}
    ).encode(),
    "a path twice": json.dumps(GOOD | {"files": [{"path": "kernel.py", "code": "x"}]}).encode(),
    "a path of another language": json.dumps(GOOD | {"path": "kernel.md"}).encode(),
    "files of another form": json.dumps(GOOD | {"files": [1]}).encode(),
    "an unknown device": json.dumps(GOOD | {"device_class": "TPU"}).encode(),
}


@pytest.mark.repeats(run=8)
@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_is_refused_with_its_reason(
    service: Service, judges: ToldJudges, name: str
) -> None:
    headers = {"content-type": "application/json"}
    reply = service.call("POST", "/v1/judgements", headers=headers, content=BODIES[name])
    error = reply.json()["error"]
    assert reply.status_code == 422, error
    assert error["message"]
    assert "Traceback" not in reply.text
    assert str(Path(__file__).parents[3]) not in reply.text
    assert judges.claim(wait_s=0.1) == []


def test_bodies_of_other_sizes_and_types_are_refused(service: Service) -> None:
    large = service.call("POST", "/v1/judgements", GOOD | {"code": "x" * (5 << 20)})
    assert large.status_code == 413

    def stream() -> Iterator[bytes]:
        yield from (b" " * (1 << 20) for _ in range(6))

    headers = {"content-type": "application/json"}
    unknown = service.call("POST", "/v1/judgements", headers=headers, content=stream())
    assert unknown.status_code == 413
    form = service.call("POST", "/v1/judgements", data={"task": "square"})
    assert form.status_code == 415
    assert service.call("POST", "/v1/judgements", GOOD | {"task": "nothing"}).status_code == 404
    assert service.call("GET", f"/v1/judgements/{'0' * 64}").status_code == 404
    assert service.call("GET", "/v1/judgements/x?wait=nan").status_code == 422
    assert service.call("GET", "/v2/judgements").status_code == 404
    assert service.call("PUT", "/v1/judgements").status_code == 405


def test_a_page_of_another_site_cannot_ask(service: Service) -> None:
    assert service.call("GET", "/v1/health", headers={"host": "evil.example"}).status_code == 421


def test_slow_clients_keep_nobody_waiting(service: Service) -> None:
    slow: list[socket.socket] = []
    try:
        for _ in range(50):
            opened = socket.create_connection(("127.0.0.1", service.port))
            opened.sendall(
                b"POST /v1/judgements HTTP/1.1\r\nhost: localhost\r\n"
                b"content-type: application/json\r\ncontent-length: 1000\r\n\r\n{"
            )
            slow.append(opened)
        assert service.call("GET", "/v1/health").status_code == 200
    finally:
        for opened in slow:
            opened.close()


@pytest.mark.slow
def test_many_long_polls_end_with_one_verdict(service: Service, judges: ToldJudges) -> None:
    view = service.submit("awaited by many")

    async def poll(client: httpx2.AsyncClient) -> str:
        reply = await client.get(f"{service.url}/v1/judgements/{view['id']}?wait=120")
        return reply.json()["status"]

    async def poll_all() -> list[str]:
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(timeout=200, limits=limits) as client:
            polls = [asyncio.create_task(poll(client)) for _ in range(POLLS)]
            [case] = await asyncio.to_thread(judges.claim)
            judges.answer(case)
            return await asyncio.gather(*polls)

    assert asyncio.run(poll_all()) == ["done"] * POLLS


def test_a_judge_that_lies_is_refused(service: Service, judges: ToldJudges) -> None:
    view = service.submit("lied about")
    before = count_evaluations(service.lake)
    for lie in ({"kernel_id": "0" * 64}, {"evaluator_version": 1}):
        [case] = judges.claim()
        judges.answer(case, **lie)
    end = service.wait(view["id"])
    assert (end["status"], end["verdict"], end["fault"]["reason"]) == ("fault", None, "internal")
    assert "refused" in end["fault"]["message"]
    # Two rows say that the evaluator failed; no row is about another kernel.
    assert count_evaluations(service.lake) == before + 2
    assert count_evaluations(service.lake, f"kernel_id = '{'0' * 64}'") == 0


def run_serve(lake: str, *options: str) -> subprocess.CompletedProcess[str]:
    words = ("evaluators", "serve", "--lake", lake, "--port", "0", *options)
    return commands.run(words, cwd=Path(lake).parent)


def test_other_addresses_need_tokens_and_a_queue_has_one_server(
    service: Service, tmp_path: Path, empty_lake: Path
) -> None:
    bare = run_serve(write_lake(tmp_path / "lake", empty_lake), "--host", "0.0.0.0", "--on", "cpu")
    assert (bare.returncode, "there are no tokens" in bare.stderr) == (1, True)
    second = run_serve(service.lake, "--on", "cpu")
    assert (second.returncode, "another server" in second.stderr) == (1, True)
    unknown = run_serve(service.lake, "--on", "tpu")
    assert (unknown.returncode, 'no device "tpu"' in unknown.stderr) == (1, True)
