"""Judgements over HTTP: asked once, stored in the lake, waited for, withdrawn, late."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import httpx2
import pytest
from judge_services import (
    FakeWorker,
    Service,
    count_evaluations,
    wait_until,
    write_evaluation,
    write_kernel,
)

import store
from evaluators.service.client import Client, Kernel
from evaluators.service.server.app import read_openapi


def test_the_same_request_is_one_judgement_and_one_verdict(
    service: Service, worker: FakeWorker
) -> None:
    first, again = service.submit("one"), service.submit("one", priority=9)
    assert first["id"] == again["id"]
    assert (first["status"], first["verdict"], first["fault"]) == ("queued", None, None)
    other = service.submit("one", policy="fp32_strict")
    assert other["id"] != first["id"]
    [claim] = worker.claim()
    assert claim["judgement_id"] == first["id"]
    assert claim["case"]["code"] == write_kernel("one")
    assert worker.answer(claim, judged_s=0.25).json() == {"accepted": True}
    done = service.wait(first["id"])
    assert (done["status"], done["verdict"]["status"]) == ("done", "correct")
    assert done["judged_s"] == 0.25
    assert done["fresh"]
    stored = service.call("POST", "/v1/judgements", {"task": "square", "code": write_kernel("one")})
    assert stored.status_code == 200
    assert stored.json()["verdict"] == done["verdict"]
    # By another precision it needs no judge either: on a processor, precisions do not differ.
    [claim] = worker.claim()
    worker.answer(claim)
    service.wait(other["id"])
    assert count_evaluations(service.lake, f"kernel_id = '{done['kernel_id']}'") == 2
    with store.open(service.lake) as lake:
        [row] = lake.sql(
            "SELECT policies.name, runs.kind FROM generations JOIN policies USING (policy_id)"
            " JOIN runs ON runs.run_id = generations.run_id"
            f" WHERE kernel_id = '{done['kernel_id']}'"
        ).rows()
    assert row == {"name": "local", "kind": "evaluation"}


def test_a_verdict_of_the_lake_needs_no_judge(service: Service, worker: FakeWorker) -> None:
    kernel_id = store.ids.kernel_id({"kernel.py": write_kernel("known")}, "kernel.py")
    with store.open(service.lake) as lake:
        task = lake.sql("SELECT task_id FROM task_labels WHERE name = 'square'").rows()[0]
        sizes = lake.sql(
            f"SELECT workload_id FROM workloads WHERE task_id = '{task['task_id']}'"
        ).rows()[0]
    case = {"kernel_id": kernel_id} | task | sizes
    row = write_evaluation(case, worker.row["device_id"]) | {"status": "incorrect", "reason": "nan"}
    kernel = {
        "kernel_id": kernel_id, "code": write_kernel("known"), "path": "kernel.py",
        "entry_point": "ModelNew", "source": "tests",
    }  # fmt: skip
    with store.writer(service.lake, author="tests") as writer:
        writer.append({"kernels": [kernel], "evaluations": [row]}, "judged elsewhere")
    view = service.wait(service.submit("known")["id"])
    assert (view["verdict"]["status"], view["verdict"]["reason"]) == ("incorrect", "nan")
    assert not view["fresh"]


def test_a_long_poll_and_a_stream_end_with_the_verdict(
    service: Service, worker: FakeWorker
) -> None:
    view = service.submit("watched")
    events: list[str] = []

    def follow() -> None:
        with httpx2.stream(
            "GET", f"{service.url}/v1/judgements/{view['id']}/events", timeout=120
        ) as stream:
            events.extend(line for line in stream.iter_lines() if line.startswith("event:"))

    following = threading.Thread(target=follow)
    following.start()
    [claim] = worker.claim()
    worker.keep_alive([view["id"]])
    running = service.call("GET", f"/v1/judgements/{view['id']}").json()
    assert running["status"] == "running"
    worker.answer(claim)
    assert service.wait(view["id"])["status"] == "done"
    following.join(60)
    assert events[-1] == "event: done"
    assert set(events) <= {"event: queued", "event: running", "event: done"}


def test_a_batch_is_stored_whole_or_not_at_all(service: Service, worker: FakeWorker) -> None:
    texts = [write_kernel(f"batch {i}") for i in range(3)]
    wanted = [{"task": "cube", "code": text} for text in texts]
    refused = service.call(
        "POST", "/v1/judgements/batch", {"judgements": [*wanted, {"task": "cube"}]}
    )
    assert refused.status_code == 422
    assert "judgements[3]: code" in refused.json()["error"]["message"]
    assert worker.claim(wait_s=0) == []
    views = service.call("POST", "/v1/judgements/batch", {"judgements": wanted}).json()
    for _ in wanted:
        [claim] = worker.claim()
        worker.answer(claim)
    ends = [service.wait(view["id"])["status"] for view in views["judgements"]]
    assert ends == ["done"] * 3


def test_a_client_withdraws_what_nobody_else_waits_for(
    service: Service, worker: FakeWorker
) -> None:
    view = service.submit("unwanted")
    withdrawn = service.call("DELETE", f"/v1/judgements/{view['id']}").json()
    assert withdrawn["status"] == "cancelled"
    assert service.call("DELETE", f"/v1/judgements/{view['id']}").status_code == 404
    assert worker.claim(wait_s=0) == []
    assert service.submit("unwanted")["status"] == "queued"
    [claim] = worker.claim()
    worker.answer(claim)
    assert service.wait(view["id"])["status"] == "done"


def test_a_host_that_cannot_judge_a_kernel_leaves_no_row(
    service: Service, worker: FakeWorker
) -> None:
    view = service.submit("builds C++")
    why = "the kernel builds a C++ extension, and this host cannot do so"
    for _ in range(2):
        [claim] = worker.claim()
        answer = {
            "judgement_id": claim["judgement_id"],
            "lease": claim["lease"],
            "device_id": worker.row["device_id"],
            "judged_s": 0.1,
            "tables": None,
            "fault": why,
            "unfit": True,
        }
        worker.post(f"/v1/workers/{worker.worker_id}/answers", answer)
        worker.held.remove(claim["judgement_id"])
    end = service.wait(view["id"])
    assert (end["status"], end["verdict"]) == ("fault", None)
    assert end["fault"] == {"reason": "host_unfit", "message": why}
    assert count_evaluations(service.lake, f"kernel_id = '{end['kernel_id']}'") == 0


def test_deadlines_of_waiting_and_of_judging_are_apart(
    service: Service, worker: FakeWorker
) -> None:
    waited = service.wait(service.submit("waits", queue_s=0.01)["id"])
    assert (waited["status"], waited["fault"]["reason"]) == ("fault", "queue_deadline")
    assert (waited["verdict"], waited["judged_s"]) == (None, None)
    view = service.submit("judged long", judge_s=0.01)
    [claim] = worker.claim()
    worker.keep_alive([view["id"]])
    late = service.wait(view["id"])
    assert (late["status"], late["fault"]["reason"]) == ("fault", "judge_deadline")
    # The verdict is right although it is late, and it is stored.
    assert worker.answer(claim).json() == {"accepted": True}
    done = wait_until(
        lambda: next((v for v in [service.wait(view["id"])] if v["status"] == "done"), None)
    )
    assert (done["verdict"]["status"], done["fault"]) == ("correct", None)


def test_a_fault_of_the_judge_is_tried_again_and_is_no_verdict(
    service: Service, worker: FakeWorker
) -> None:
    view = service.submit("faulty")
    fault = {"status": "evaluator_error", "reason": "device_unavailable", "message": "no GPU"}
    for _ in range(2):
        [claim] = worker.claim()
        worker.answer(claim, **fault)
    end = service.wait(view["id"])
    assert (end["status"], end["verdict"]) == ("fault", None)
    assert end["fault"] == {"reason": "device_unavailable", "message": "no GPU"}
    assert count_evaluations(service.lake, f"kernel_id = '{end['kernel_id']}'") == 2
    assert service.submit("faulty")["status"] == "queued"  # it is judged again
    [claim] = worker.claim()
    worker.answer(claim)
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


def test_health_and_metrics_show_sick_devices(service: Service, worker: FakeWorker) -> None:
    worker.keep_alive(sick="uncorrectable ECC error")
    health = service.call("GET", "/v1/health").json()
    assert health["status"] == "degraded"
    [one] = health["classes"].values()
    assert list(one["quarantined"].values()) == ["uncorrectable ECC error"]
    assert (one["kind"], one["devices"]) == ("cpu", 0)
    metrics = service.call("GET", "/metrics").text
    assert 'flywheel_judge_devices_quarantined{device_class="laptop"} 1' in metrics
    worker.keep_alive()
    assert service.call("GET", "/v1/health").json()["status"] == "ok"


def test_the_description_names_every_address_of_clients(service: Service) -> None:
    described = service.call("GET", "/v1/openapi.json").json()
    assert described == read_openapi()
    for path, methods in described["paths"].items():
        for method in methods.keys() - {"parameters"}:
            known = path.replace("{id}", "0" * 64).replace("{task}", "square")
            reply = service.call(method.upper(), known)
            code = reply.json()["error"]["code"] if not reply.is_success else ""
            assert code not in ("unknown_address", "unknown_method"), (method, path)


def test_the_client_waits_and_tells_faults_apart(service: Service, worker: FakeWorker) -> None:
    client = Client(service.url, device_class="cpu")

    async def ask() -> list[Any]:
        found = await client.judge_all(
            [("square", write_kernel("by client")), ("cube", Kernel(code=write_kernel("other")))]
        )
        await client.close()
        return found

    def answer() -> None:
        for text in ("correct", "fault", "fault"):
            [claim] = worker.claim()
            is_fault = claim["case"]["code"] == write_kernel("other")
            fault = {"status": "evaluator_error", "reason": "internal"}
            del text
            worker.answer(claim, **(fault if is_fault else {}))

    answering = threading.Thread(target=answer)
    answering.start()
    right, fault = asyncio.run(ask())
    answering.join(60)
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
