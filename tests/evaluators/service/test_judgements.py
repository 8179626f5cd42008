"""Judgements over HTTP: asked once, stored in the lake, waited for, withdrawn, late."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx2
import pytest
from judge_services import (
    Service,
    ToldJudges,
    count_evaluations,
    wait_until,
    write_evaluation,
    write_kernel,
)

import store
from evaluators.service.client import Client, SubmittedKernel
from evaluators.service.server import read_openapi


def test_the_same_request_is_one_judgement_and_one_verdict(
    service: Service, judges: ToldJudges
) -> None:
    first, again = service.submit("one"), service.submit("one", priority=9)
    assert first["id"] == again["id"]
    assert (first["status"], first["verdict"], first["fault"]) == ("queued", None, None)
    other = service.submit("one", policy="fp32_strict")
    assert other["id"] != first["id"]
    [case] = judges.claim()
    assert case["code"] == write_kernel("one")
    judges.answer(case)
    done = service.wait(first["id"])
    assert (done["status"], done["verdict"]["status"]) == ("done", "correct")
    assert done["judged_s"] > 0
    assert done["fresh"]
    stored = service.call("POST", "/v1/judgements", {"task": "square", "code": write_kernel("one")})
    assert stored.status_code == 200
    assert stored.json()["verdict"] == done["verdict"]
    # By another precision it needs no judge either: on a processor, precisions do not differ.
    [case] = judges.claim()
    judges.answer(case)
    service.wait(other["id"])
    assert count_evaluations(service.lake, f"kernel_id = '{done['kernel_id']}'") == 2
    with store.open(service.lake) as lake:
        [row] = lake.sql(
            "SELECT policies.name, runs.kind FROM generations JOIN policies USING (policy_id)"
            " JOIN runs ON runs.run_id = generations.run_id"
            f" WHERE kernel_id = '{done['kernel_id']}'"
        ).rows()
    assert row == {"name": "local", "kind": "evaluation"}


def test_a_verdict_of_the_lake_needs_no_judge(service: Service, judges: ToldJudges) -> None:
    kernel_id = store.ids.kernel_id({"kernel.py": write_kernel("known")}, "kernel.py")
    with store.open(service.lake) as lake:
        task = lake.sql("SELECT task_id FROM task_labels WHERE name = 'square'").rows()[0]
        sizes = lake.sql(
            f"SELECT workload_id FROM workloads WHERE task_id = '{task['task_id']}'"
        ).rows()[0]
    case = {"kernel_id": kernel_id} | task | sizes
    row = write_evaluation(case, judges.row["device_id"]) | {"status": "incorrect", "reason": "nan"}
    kernel = {
        "kernel_id": kernel_id, "code": write_kernel("known"), "path": "kernel.py",
        "entry_point": "ModelNew", "source": "tests",
    }  # fmt: skip
    with store.writer(service.lake, author="tests") as writer:
        writer.append({"kernels": [kernel], "evaluations": [row]}, "judged elsewhere")
    view = service.wait(service.submit("known")["id"])
    assert (view["verdict"]["status"], view["verdict"]["reason"]) == ("incorrect", "nan")
    assert not view["fresh"]


@pytest.mark.slow
def test_a_long_poll_and_a_stream_end_with_the_verdict(
    service: Service, judges: ToldJudges
) -> None:
    view = service.submit("watched")
    events: list[str] = []

    def follow() -> None:
        with httpx2.stream(
            "GET", f"{service.url}/v1/judgements/{view['id']}/events", timeout=300
        ) as stream:
            events.extend(line for line in stream.iter_lines() if line.startswith("event:"))

    following = threading.Thread(target=follow)
    following.start()
    [case] = judges.claim()
    running = service.call("GET", f"/v1/judgements/{view['id']}").json()
    assert running["status"] == "running"
    judges.answer(case)
    assert service.wait(view["id"])["status"] == "done"
    following.join(120)
    assert events[-1] == "event: done"
    assert set(events) <= {"event: queued", "event: running", "event: done"}


@pytest.mark.slow
def test_a_batch_is_stored_whole_or_not_at_all(service: Service, judges: ToldJudges) -> None:
    texts = [write_kernel(f"batch {i}") for i in range(3)]
    wanted = [{"task": "cube", "code": text} for text in texts]
    refused = service.call(
        "POST", "/v1/judgements/batch", {"judgements": [*wanted, {"task": "cube"}]}
    )
    assert refused.status_code == 422
    missing = "judgements[3]: Object missing required field `code`"
    assert missing in refused.json()["error"]["message"]
    assert judges.claim(wait_s=0.3) == []
    views = service.call("POST", "/v1/judgements/batch", {"judgements": wanted}).json()
    for _ in wanted:
        [case] = judges.claim()
        judges.answer(case)
    ends = [service.wait(view["id"])["status"] for view in views["judgements"]]
    assert ends == ["done"] * 3


@pytest.mark.slow
def test_a_client_withdraws_what_nobody_else_waits_for(
    service: Service, judges: ToldJudges
) -> None:
    service.submit("judged meanwhile")
    [held] = judges.claim()
    view = service.submit("unwanted")
    withdrawn = service.call("DELETE", f"/v1/judgements/{view['id']}").json()
    assert withdrawn["status"] == "cancelled"
    assert service.call("DELETE", f"/v1/judgements/{view['id']}").status_code == 404
    judges.answer(held)
    assert judges.claim(wait_s=0.3) == []
    assert service.submit("unwanted")["status"] == "queued"
    [case] = judges.claim()
    judges.answer(case)
    assert service.wait(view["id"])["status"] == "done"


@pytest.mark.slow
def test_a_host_that_cannot_judge_a_kernel_leaves_no_row(
    service: Service, judges: ToldJudges
) -> None:
    view = service.submit("builds C++")
    why = "the kernel builds a C++ extension, and this host cannot do so"
    for _ in range(2):
        [case] = judges.claim()
        judges.reply(case, {"unfit": why})
    end = service.wait(view["id"])
    assert (end["status"], end["verdict"]) == ("fault", None)
    assert end["fault"] == {"reason": "host_unfit", "message": why}
    assert count_evaluations(service.lake, f"kernel_id = '{end['kernel_id']}'") == 0


@pytest.mark.slow
def test_deadlines_of_waiting_and_of_judging_are_apart(
    service: Service, judges: ToldJudges
) -> None:
    view = service.submit("judged long", judge_s=0.01)
    [case] = judges.claim()
    waited = service.wait(service.submit("waits", queue_s=0.01)["id"])
    assert (waited["status"], waited["fault"]["reason"]) == ("fault", "queue_deadline")
    assert (waited["verdict"], waited["judged_s"]) == (None, None)
    late = service.wait(view["id"])
    assert (late["status"], late["fault"]["reason"]) == ("fault", "judge_deadline")
    # The verdict is right although it is late, and it is stored.
    judges.answer(case)
    done = wait_until(
        lambda: next((v for v in [service.wait(view["id"])] if v["status"] == "done"), None)
    )
    assert (done["verdict"]["status"], done["fault"]) == ("correct", None)


@pytest.mark.slow
def test_a_fault_of_the_judge_is_tried_again_and_is_no_verdict(
    service: Service, judges: ToldJudges
) -> None:
    view = service.submit("faulty")
    fault = {"status": "evaluator_error", "reason": "device_unavailable", "message": "no GPU"}
    for _ in range(2):
        [case] = judges.claim()
        judges.answer(case, **fault)
    end = service.wait(view["id"])
    assert (end["status"], end["verdict"]) == ("fault", None)
    assert end["fault"] == {"reason": "device_unavailable", "message": "no GPU"}
    assert count_evaluations(service.lake, f"kernel_id = '{end['kernel_id']}'") == 2
    assert service.submit("faulty")["status"] == "queued"  # it is judged again
    [case] = judges.claim()
    judges.answer(case)
    assert service.wait(view["id"])["status"] == "done"


def test_tasks_can_be_listed_and_read(service: Service) -> None:
    tasks = service.call("GET", "/v1/tasks?limit=1").json()
    assert (len(tasks["tasks"]), tasks["next"]) == (1, 1)
    rest = service.call("GET", "/v1/tasks?after=1").json()["tasks"]
    names = [task["name"] for task in [*tasks["tasks"], *rest]]
    assert sorted(names) == ["cube", "square"]
    one = service.call("GET", f"/v1/tasks/{rest[0]['task_id'][:8]}").json()
    assert "class Model" in one["code"]
    assert service.call("GET", "/v1/tasks?limit=0").status_code == 422
    assert service.call("GET", "/v1/tasks/nothing").json()["error"]["code"] == "unknown_task"


@pytest.mark.slow
def test_a_sick_device_is_shown_and_tried_again(service: Service, judges: ToldJudges) -> None:
    last, waiting = service.submit("before it is sick"), service.submit("after it is sick")
    [case] = judges.claim()
    row = write_evaluation(case, judges.row["device_id"]) | {"status": "crash", "reason": "signal"}
    judges.reply(case, {"tables": {"evaluations": [row]}, "sick": "uncorrectable ECC error"})
    assert service.wait(last["id"])["verdict"]["status"] == "crash"
    # The kernel that waits has no verdict by that device.
    [case] = judges.claim()
    assert case["code"] == write_kernel("after it is sick")
    assert "laptop cannot be measured on: uncorrectable ECC error" in service.log
    health = service.call("GET", "/v1/health").json()
    [one] = health["classes"].values()
    assert (health["status"], one["kind"], one["devices"]) == ("ok", "cpu", 1)
    metrics = service.call("GET", "/metrics").text
    assert 'flywheel_judge_devices_quarantined{device_class="laptop"} 0' in metrics
    judges.answer(case)
    assert service.wait(waiting["id"])["verdict"]["status"] == "correct"


def test_the_description_names_every_address_of_clients(service: Service) -> None:
    described = service.call("GET", "/v1/openapi.json").json()
    assert described == read_openapi()
    for path, methods in described["paths"].items():
        for method in methods.keys() - {"parameters"}:
            known = path.replace("{id}", "0" * 64).replace("{task}", "square")
            reply = service.call(method.upper(), known)
            code = reply.json()["error"]["code"] if not reply.is_success else ""
            assert code not in ("unknown_address", "unknown_method"), (method, path)


@pytest.mark.slow
def test_the_client_waits_and_tells_faults_apart(service: Service, judges: ToldJudges) -> None:
    client = Client(service.url, device_class="cpu")

    async def ask() -> list[Any]:
        first = client.judge("square", write_kernel("by client"))
        second = client.judge("cube", SubmittedKernel(code=write_kernel("other")))
        found = [*await asyncio.gather(first, second)]
        await client.close()
        return found

    def answer() -> None:
        for text in ("correct", "fault", "fault"):
            [case] = judges.claim()
            is_fault = case["code"] == write_kernel("other")
            fault = {"status": "evaluator_error", "reason": "internal"}
            del text
            judges.answer(case, **(fault if is_fault else {}))

    answering = threading.Thread(target=answer)
    answering.start()
    right, fault = asyncio.run(ask())
    answering.join(120)
    assert right.verdict.status == "correct"
    assert (fault.verdict, fault.reason) == (None, "internal")


def test_a_service_that_is_away_gives_no_verdict() -> None:
    async def ask() -> Any:
        return await Client("http://127.0.0.1:9", deadline_s=0.5).judge("square", "x")

    judgement = asyncio.run(ask())
    assert (judgement.verdict, judgement.reason) == (None, "unreachable")


@pytest.mark.parametrize("url", ["ftp://host", "http://user:secret@host", "http://"])
def test_a_url_that_cannot_be_used_is_refused(url: str) -> None:
    with pytest.raises(store.errors.FlywheelError):
        Client(url)
