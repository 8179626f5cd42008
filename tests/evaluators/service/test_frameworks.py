"""Adapters in the code paths of the frameworks that call them.

TRL is installed with the tests. verifiers, OpenEnv and verl are not: their tests run where these
packages can be imported, and skip elsewhere.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from chat_server import ChatServer
from judge_services import ROOT, Service, ToldJudges, write_kernel
from starlette.responses import Response

from evaluators.frameworks.trl_reward import make_reward
from evaluators.frameworks.verl_reward import NotJudged, compute_score, open_client
from evaluators.service.client import Client
from evaluators.service.completions import parse_kernel
from store.errors import UnknownName

PAGES = ROOT / "docs" / "frameworks"
FAULT = {"status": "evaluator_error", "reason": "internal", "message": "ours"}
WRONG = {"status": "incorrect", "reason": "nan"}


def write_answer(text: str) -> str:
    """Return a completion with a kernel; a kernel of another test has its verdict already."""
    return f"An analysis.\n\n```python\n{write_kernel(text)}```\n"


class Answers:
    """Answers cases in a thread, by a word in each kernel, until closed."""

    def __init__(self, judges: ToldJudges) -> None:
        self._judges = judges
        self._ended = False
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Answers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended = True
        self._thread.join()

    def _run(self) -> None:
        while not self._ended:
            for case in self._judges.claim(wait_s=0.5):
                code = case["code"]
                changes = FAULT if "fault" in code else WRONG if "wrong" in code else {}
                self._judges.answer(case, **changes)


@pytest.mark.slow
def test_trl_gets_none_for_faults(service: Service, judges: ToldJudges) -> None:
    reward = make_reward(Client(service.url, deadline_s=300))
    logged: dict[str, float] = {}
    completions = [
        [{"role": "assistant", "content": write_answer("right")}],
        [{"role": "assistant", "content": write_answer("wrong")}],
        [{"role": "assistant", "content": write_answer("fault")}],
        [{"role": "assistant", "content": "I cannot."}],
    ]
    with Answers(judges):
        found = asyncio.run(
            reward(
                prompts=["p"] * 4,
                completions=completions,
                task=["square"] * 4,
                trainer_state=None,
                log_metric=lambda name, value: logged.update({name: value}),
            )
        )
    assert found == [1.0, 0.0, None, 0.0]
    assert logged == {"judge/correct": 0.25, "judge/no_code": 0.25, "judge/fault": 0.25}
    with pytest.raises(UnknownName):
        make_reward(Client(service.url), "fastest")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
def test_trl_trains_with_the_reward(
    service: Service, judges: ToldJudges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from trainers.models import loading

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = loading.find_model("tiny", tmp_path / "model", 0)
    texts = iter(["right", "wrong", "fault", "none"] * 50)
    inner = make_reward(Client(service.url, deadline_s=300))
    rewards: list[list[float | None]] = []

    async def reward(completions: list[Any], **columns: Any) -> list[float | None]:
        # The tiny model writes no kernels, so each of its answers stands for one.
        written = [write_answer(next(texts)) for _ in completions]
        found = await inner(completions=written, **columns)
        rewards.append(found)
        return found

    rows = [{"prompt": [{"role": "user", "content": "write"}], "task": "cube"}] * 2
    settings = GRPOConfig(
        output_dir=str(tmp_path / "out"), max_steps=1, per_device_train_batch_size=4,
        num_generations=4, max_completion_length=8, report_to=[], use_cpu=True, save_strategy="no",
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=str(folder), reward_funcs=reward, args=settings, train_dataset=Dataset.from_list(rows)
    )
    with Answers(judges):
        trainer.train()
    assert rewards[0] == [1.0, 0.0, None, 1.0], trl.__version__


@pytest.mark.slow
def test_verl_gets_the_same_keys_and_no_score_for_faults(
    service: Service, judges: ToldJudges
) -> None:
    texts = [write_answer("right"), write_answer("wrong"), "nothing"]

    async def score() -> list[Any]:
        asked = [
            compute_score("x", text, "square", {}, url=service.url, deadline_s=300)
            for text in [*texts, write_answer("fault")]
        ]
        found = await asyncio.gather(*asked, return_exceptions=True)
        await open_client(service.url, None, 300).close()
        return found

    with Answers(judges):
        *found, fault = asyncio.run(score())
    assert [one["score"] for one in found] == [1.0, 0.0, 0.0]
    assert found[0].keys() == found[1].keys() == found[2].keys()
    assert all(isinstance(value, float | str) for value in found[0].values())
    assert isinstance(fault, NotJudged)
    assert "internal" in str(fault)


@pytest.mark.slow
def test_verls_reward_manager_calls_the_function(service: Service, judges: ToldJudges) -> None:
    pytest.importorskip("verl", reason="verl is not installed")
    managers = pytest.importorskip("verl.experimental.reward_loop.reward_manager")
    import functools

    import numpy as np
    import torch
    from verl import DataProto

    class Tokenizer:
        def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
            return write_answer("through verl")

    async def run() -> Any:
        # As load_reward_manager binds reward_kwargs.
        bound = functools.partial(compute_score, url=service.url, deadline_s=300)
        manager = managers.get_reward_manager_cls("naive")(None, Tokenizer(), bound)
        data = DataProto.from_single_dict(
            {
                "responses": torch.ones(1, 3, dtype=torch.long),
                "attention_mask": torch.ones(1, 5, dtype=torch.long),
                "data_source": np.array(["kernels"], dtype=object),
                "reward_model": np.array([{"ground_truth": "square"}], dtype=object),
                "extra_info": np.array([{}], dtype=object),
            }
        )
        found = await manager.run_single(data)
        await open_client(service.url, None, 300).close()
        return found

    with Answers(judges):
        found = asyncio.run(run())
    version = importlib.metadata.version("verl")
    assert found["reward_score"] == 1.0, version
    assert found["reward_extra_info"]["status"] == "correct", version


@pytest.mark.slow
def test_slime_gets_a_number(service: Service, judges: ToldJudges) -> None:
    def ask(text: str) -> Any:
        body = {"prompt": "p", "response": text, "label": "square"}
        return service.call("POST", "/v1/reward?rule=success", body)

    with Answers(judges):
        assert ask(write_answer("right")).json() == 1.0
        assert ask(write_answer("wrong")).json() == 0.0
        assert ask("no code").json() == 0.0
        fault = ask(write_answer("fault"))
    assert (fault.status_code, fault.json()["error"]["code"]) == (503, "not_judged")
    assert service.call("POST", "/v1/reward", {"response": 1}).status_code == 422
    assert service.call("POST", "/v1/reward?rule=x", {"response": ""}).status_code == 422


@pytest.mark.slow
def test_nemo_gym_gets_its_row_back_with_a_reward(service: Service, judges: ToldJudges) -> None:
    def verify(text: str) -> Any:
        message = {"type": "message", "content": [{"type": "output_text", "text": text}]}
        row = {"responses_create_params": {"input": []}, "task": "square"}
        assert service.call("POST", "/seed_session", row).json() == {}
        return service.call("POST", "/verify", row | {"response": {"output": [message]}})

    with Answers(judges):
        right = verify(write_answer("right")).json()
        assert verify(write_answer("fault")).status_code == 503
    assert (right["reward"], right["correct"], right["task"]) == (1.0, 1.0, "square")
    assert right["speedup"] is None
    bare = {"task": "square", "response": {"output": []}}
    assert service.call("POST", "/verify", bare).status_code == 422


def stream_kernel(asked: dict[str, Any]) -> Response:
    """Return a streamed completion: a kernel that fails to be judged for the task cube."""
    word = "fault" if "cube" in json.dumps(asked["messages"]) else "right"
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}
    parts = [
        {"index": 0, "delta": {"role": "assistant", "content": write_answer(f"vf {word}")}},
        {"index": 0, "delta": {}, "finish_reason": "stop"},
    ]
    lines = [json.dumps(chunk | {"choices": [part]}) for part in parts]
    text = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
    return Response(text, media_type="text/event-stream")


def run_eval(folder: Path, chat: ChatServer, *words: str) -> list[dict[str, Any]]:
    """Run `vf-eval` with a model that a server plays; return its traces."""
    code = "import sys; from verifiers.v1.cli.eval.main import main; sys.exit(main())"
    ended = subprocess.run(
        [
            *(sys.executable, "-c", code, *words, "-m", "m", "--no-push", "--no-rich"),
            *("--client.base-url", chat.url, "--client.api-key-var", "MODEL_KEY"),
            *("--env.agent.harness.id", "null", "--env.agent.runtime.type", "subprocess"),
            *("-o", str(folder)),
        ],
        cwd=folder,
        env={
            **os.environ,
            "MODEL_KEY": "key",
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(PAGES), *filter(None, sys.path)]),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    files = list(folder.rglob("traces.jsonl"))
    assert files, ended.stdout[-3000:] + ended.stderr[-3000:]
    return [json.loads(line) for line in files[0].read_text().splitlines()]


@pytest.mark.slow
def test_verifiers_evaluates_a_model(service: Service, judges: ToldJudges, tmp_path: Path) -> None:
    pytest.importorskip("verifiers", reason="verifiers is not installed")
    chat = ChatServer(answer=stream_kernel)
    with chat, Answers(judges):
        traces = run_eval(
            tmp_path, chat, "flywheel_kernels", "-c", "1", "--env.taskset.split", "None",
            "--env.taskset.task.url", service.url,
        )  # fmt: skip
    version = importlib.metadata.version("verifiers")
    assert len(traces) == 2, version
    ends = {one["task"]["data"]["name"]: one["traces"][0] for one in traces}
    assert ends["square"]["rewards"]["kernel"]["score"] == 1.0, version
    assert ends["square"]["info"]["judgement"]["verdict"]["status"] == "correct", version
    assert ends["cube"]["rewards"].get("kernel") is None, version
    assert "not judged" in str(ends["cube"]["errors"]), version


@pytest.mark.slow
def test_verifiers_reads_the_form_of_nemo_gym(
    service: Service, judges: ToldJudges, tmp_path: Path
) -> None:
    pytest.importorskip("verifiers", reason="verifiers is not installed")
    rows = [
        {"task": task, "responses_create_params": {"input": [{"role": "user", "content": task}]}}
        for task in ("square", "cube")
    ]
    dataset = tmp_path / "rows.jsonl"
    dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = tmp_path / "eval.toml"
    config.write_text(
        f'[env.taskset]\nid = "nemo_gym"\ndataset = "{dataset}"\n'
        f'[env.taskset.task]\nresources_url = "{service.url}"\n'
    )
    with ChatServer(answer=stream_kernel) as chat, Answers(judges):
        found = run_eval(tmp_path, chat, "@", str(config))
    version = importlib.metadata.version("verifiers")
    ends = {one["task"]["data"]["row"]["task"]: one["traces"][0] for one in found}
    assert ends["square"]["rewards"]["nemo_gym"]["score"] == 1.0, version
    assert ends["cube"]["rewards"].get("nemo_gym") is None, version
    assert "503" in str(ends["cube"]["errors"]), version


@pytest.mark.slow
def test_openenv_serves_episodes(
    service: Service, judges: ToldJudges, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openenv.core.env_server", reason="OpenEnv is not installed")
    from starlette.testclient import TestClient

    monkeypatch.setenv("FLYWHEEL_JUDGE_URL", service.url)
    monkeypatch.syspath_prepend(str(PAGES))
    import openenv_kernels

    version = importlib.metadata.version("openenv")
    with (
        Answers(judges),
        TestClient(openenv_kernels.app) as client,
        client.websocket_connect("/ws") as socket,
    ):

        def send(kind: str, data: dict[str, Any]) -> dict[str, Any]:
            socket.send_json({"type": kind, "data": data})
            return socket.receive_json()["data"]

        first = send("reset", {"task": "square"})
        assert "class Model" in first["observation"]["reference"], version
        right = send("step", {"code": write_kernel("openenv right")})
        assert (right["reward"], right["observation"]["turns_left"]) == (1.0, 3), version
        fault = send("step", {"code": write_kernel("openenv fault")})
        assert (fault["reward"], fault["observation"]["turns_left"]) == (None, 3), version
        wrong = send("step", {"code": write_answer("openenv wrong")})
        assert (wrong["reward"], wrong["observation"]["status"]) == (0.0, "incorrect"), version


def test_a_completion_without_code_has_no_kernel() -> None:
    assert parse_kernel("nothing") is None
    found = parse_kernel(write_answer("x"))
    assert found is not None
    assert found.code == write_kernel("x")
