"""`evaluators reproduce`: a receipt's kernel is judged again, and both figures are compared."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import builders as b
import commands
import pytest

import store
from evaluators.cli import reproduction
from evaluators.scheduling import contract
from store.errors import FlywheelError
from store.receipts.receipt import ReceiptRefused, make_receipt, write_receipt

EVALUATOR = '''"""Time every kernel with the same samples, which the options give."""

from dataclasses import dataclass

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Config:
    eager_ms: float = 2.0
    memory_gb: float = 8.0


def judge(case, bench, config):
    about = {
        "evaluation_id": "1", "kernel_id": case.kernel_id, "task_id": case.task_id,
        "workload_id": case.workload_id, "device_id": bench.row["device_id"],
    }
    wrong = "wrong" in case.code
    verdict = about | {
        "evaluator": "stopwatch", "evaluator_version": VERSION,
        "status": "incorrect" if wrong else "correct",
        "reason": "incorrect_numerical" if wrong else None,
    }
    arms = {"kernel": 1.0, "eager": config.eager_ms + len(case.axes) - 2}
    timings = [] if wrong else [
        about | {
            "timing_id": arm, "session_id": "1", "arm": arm, "clock": "throughput",
            "cache": "warm", "samples_ms": [ms] * 20,
            "blocks": list(range(20)), "inner_loops": 1, "noisy": False, "confirmed": False,
            "disturbed": False, "unresolved": False,
        }
        for arm, ms in arms.items()
    ]
    return {"evaluations": [verdict], "timings": timings}
'''
TASK, FAST, WRONG = b.task(), b.kernel("fast"), b.kernel("wrong")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an evaluator, a lake that it has judged, texts and receipts."""
    made = tmp_path_factory.mktemp("reproduce")
    (made / "flywheel" / "evaluators").mkdir(parents=True)
    (made / "flywheel" / "evaluators" / "stopwatch.py").write_text(EVALUATOR)
    (made / "fast.py").write_text(FAST["code"])
    (made / "task.py").write_text(TASK["code"])
    row = b.device(cores=4)
    run = b.run(config=json.dumps({"evaluator": {"eager_ms": 3.0, "memory_gb": 4096.0}}))
    fast, wrong = (
        b.evaluation(
            one, TASK, b.workload(TASK), row, status, evaluator="stopwatch", run_id=run["run_id"]
        )
        for one, status in ((FAST, "correct"), (WRONG, "incorrect"))
    )
    with store.writer(str(made / "lake"), author="tests") as writer:
        rows: dict[str, Any] = {
            "tasks": [TASK], "task_labels": [b.label(TASK)], "workloads": [b.workload(TASK)],
            "kernels": [FAST, WRONG], "devices": [row], "runs": [run],
            "evaluations": [fast, wrong],
            "timings": b.session(fast, [1.0] * 20, eager=[3.0] * 20),
        }  # fmt: skip
        writer.append(rows, "two kernels")
    with store.open(str(made / "lake")) as lake:
        for kernel, name in ((FAST, "fast"), (WRONG, "wrong")):
            receipt = make_receipt(lake, kernel["kernel_id"])
            (made / f"{name}.json").write_bytes(write_receipt(receipt))
    return made


def evaluators(folder: Path, *words: str) -> tuple[int, str, str]:
    """Run the command in a folder; return its exit code and output."""
    done = commands.run(["evaluators", *words], cwd=folder)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_the_same_kernel_is_judged_with_the_options_of_the_receipt(folder: Path) -> None:
    # Without the option, eager takes 2 ms.
    texts = ["--code", "fast.py", "--task", "task.py"]
    code, out, err = evaluators(folder, "reproduce", "fast.json", *texts, "--on", "cpu")
    assert (code, out.splitlines()[-1]) == (0, "this machine agrees"), err
    assert "over eager, clock throughput" in out
    assert "difference +0.0 %" in out
    assert "the receipt is of laptop and this machine is" in out


@pytest.mark.slow
def test_a_wrong_kernel_from_the_lake_is_wrong_again(folder: Path) -> None:
    words = ["reproduce", "wrong.json", "--lake", "lake", "--on", "cpu", "--format", "json"]
    code, out, err = evaluators(folder, *words)
    assert code == 0, err
    assert json.loads(out)["verdicts"] == [["torch_default", "incorrect", "incorrect"]]


def judge_again(
    folder: Path, name: str = "fast", *, eager_ms: float = 3.0, status: str = "correct",
    device: str = "laptop", **columns: Any,
) -> reproduction.Reproduction:  # fmt: skip
    """Compare a receipt with what a machine could answer."""
    data = (folder / f"{name}.json").read_bytes()
    subject = reproduction.read_subject(data, folder / "fast.py", folder / "task.py", None)
    row = b.device(device, cores=4)
    [verdict] = subject.list_verdicts(row)
    case = subject.make_case(verdict)
    assert (case.code, case.task_code, case.trusted) == (FAST["code"], TASK["code"], False)
    judged = b.evaluation(
        FAST, TASK, b.workload(TASK), row, status, evaluator="stopwatch", **columns
    )
    timings = b.session(judged, [1.0] * 20, eager=[eager_ms] * 20) if status == "correct" else []
    tables: contract.Tables = {"evaluations": [judged], "timings": timings}
    return reproduction.compare(subject, row, [verdict], [tables])


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.slow
def test_a_machine_agrees_if_the_difference_is_within_both_errors(in_folder: Path) -> None:
    near, far = judge_again(in_folder, eager_ms=3.1), judge_again(in_folder, eager_ms=9.0)
    assert (near.agrees, far.agrees) == (True, False)
    [difference] = far.differences
    assert difference.low > 1
    assert difference.ratio == pytest.approx(3.0, rel=0.02)
    assert reproduction.format_lines(far)[-1] == "this machine differs"
    assert not judge_again(in_folder, status="incorrect").agrees


def test_on_another_device_model_only_verdicts_decide(in_folder: Path) -> None:
    done = judge_again(in_folder, eager_ms=9.0, device="another model")
    assert done.agrees
    assert [one.agrees for one in done.differences] == [False]
    assert any("another model" in line for line in reproduction.format_lines(done))
    assert not judge_again(in_folder, status="incorrect", device="another model").agrees


def test_a_disturbed_session_compares_nothing(in_folder: Path) -> None:
    with pytest.raises(FlywheelError, match="contended"):
        judge_again(in_folder, flags=["contended"])


@pytest.mark.slow
def test_texts_that_nobody_gives_and_other_texts_are_refused(in_folder: Path) -> None:
    data = (in_folder / "fast.json").read_bytes()
    with pytest.raises(FlywheelError, match="no lake") as refused:
        reproduction.read_subject(data, None, None, "nowhere")
    assert "--code and --task FILE" in str(refused.value.hint)
    with store.writer(str(in_folder / "empty"), author="tests"):
        pass
    with pytest.raises(FlywheelError, match="no kernel"):
        reproduction.read_subject(data, None, in_folder / "task.py", "empty")
    with pytest.raises(ReceiptRefused, match="not the text"):
        reproduction.read_subject(data, in_folder / "task.py", in_folder / "task.py", None)


def test_a_receipt_does_not_raise_the_limits_of_a_candidate(in_folder: Path) -> None:
    module = contract.load("stopwatch")
    options = {"eager_ms": 5.0, "memory_gb": 4096.0, "unknown": 1}
    made = reproduction.make_config(module, json.dumps({"evaluator": options}))
    assert made == module.Config(eager_ms=5.0, memory_gb=8.0)
    assert reproduction.make_config(module, "{}") == module.Config()
    for bad in ('{"evaluator": {"eager_ms": "many"}}', '{"evaluator": 3}', "[]", "{"):
        with pytest.raises(FlywheelError, match="cannot have the options"):
            reproduction.make_config(module, bad)
    usual = contract.load_default()
    stated = {"evaluator": {"calls": 7, "baselines": ["eager"], "timing_s": 1}}
    options = reproduction.make_config(usual, json.dumps(stated))
    assert (options.calls, options.baselines, options.draw_shapes) == (7, ("eager",), 0)
