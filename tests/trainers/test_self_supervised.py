"""Stage 2: what a round comes to, when it stops, and rounds that really learn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import builders
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pipeline_lakes import Rows

import store
from store.errors import EvaluatorError
from trainers import self_supervised
from trainers.self_supervised import Config, RoundResult, check_judged, find_collapse

SQL = Path(self_supervised.__file__).parent / "sql"


def outcome(**counts: int) -> RoundResult:
    given = {"attempts": 10, "with_code": 8, "unique_kernels": 6, "executable": 7, "correct": 4}
    return RoundResult(**({"unique_correct": 3} | given | counts))


def test_an_outcome_counts_attempts_as_often_as_they_were_made(writer, lake_url: str) -> None:
    rows = Rows()
    rows.device()
    rows.policy("writer")
    task = rows.task("relu", family="pointwise", split="train")
    kernels = {name: rows.kernel(task, f"# {name}\n") for name in ("good", "bad", "cheat", "lost")}
    rows.add_verdict(task, kernels["good"])
    rows.add_verdict(task, kernels["bad"], "incorrect", reason="incorrect_numerical")
    rows.add_verdict(task, kernels["cheat"])
    rows.quarantine(kernels["cheat"])
    rows.add_verdict(task, kernels["lost"], "compile_error", reason="build_failed")
    kernels["faulty"] = rows.kernel(task, "# faulty\n")
    kernels["away"] = rows.kernel(task, "# away\n")  # the judge's service was away
    rows.add_verdict(task, kernels["faulty"], "evaluator_error")
    made = ["good", "good", "good", "bad", "cheat", "lost", None, "failed", "faulty", "away"]
    for number, name in enumerate(made):
        rows.add(
            "generations",
            {
                "generation_id": f"round-{number}", "task_id": task, "policy_id": "policy-writer",
                "kernel_id": kernels.get(name or ""), "group_id": "g", "sample_index": number,
                "finish_reason": "error" if name == "failed" else "stop",
                "created_at": builders.START,
            },
        )  # fmt: skip
    writer.append(rows.tables, "tests")
    with store.open(lake_url) as lake:
        lake.register("groups", pa.table({"group_id": ["g"]}))
        [row] = lake.run((SQL / "round_outcome.sql").read_text()).rows()
        repeats = lake.run((SQL / "repeats.sql").read_text()).rows()
    assert RoundResult(**row) == RoundResult(
        attempts=7, with_code=6, unique_kernels=4, executable=5, correct=3, unique_correct=1,
        unjudged=2,
    )  # fmt: skip
    assert {row["kernel_id"]: row["times"] for row in repeats}[kernels["good"]] == 3


def test_a_round_that_the_judge_failed_at_is_refused() -> None:
    check_judged(outcome(unjudged=8))
    with pytest.raises(EvaluatorError, match="9 of the round's 17 attempts with code have no verd"):
        check_judged(outcome(unjudged=9))


def test_an_outcome_without_attempts_divides_by_nothing() -> None:
    empty = outcome(attempts=0, with_code=0, unique_kernels=0, executable=0, correct=0)
    assert (empty.success_rate, empty.unique_share) == (0, 1)
    assert find_collapse(Config(), empty, 0.0) == "none of 0 attempts is correct"


def test_what_counts_as_collapse() -> None:
    config = Config(least_success=0.5, least_unique=0.25)
    assert find_collapse(config, outcome(), 0.0) is None
    assert find_collapse(config, outcome(), 0.8) is None
    assert "fell to 0.4 from 0.81" in str(find_collapse(config, outcome(), 0.81))
    assert "none of 10" in str(find_collapse(config, outcome(correct=0), 0.0))
    assert "8 attempts gave 1 distinct" in str(
        find_collapse(config, outcome(unique_kernels=1), 0.0)
    )
    assert find_collapse(config, outcome(unique_kernels=2), 0.0) is None


@given(st.integers(1, 50), st.integers(0, 50), st.floats(0, 1))
def test_a_rate_at_least_as_good_as_the_best_never_collapses(attempts, correct, share) -> None:
    correct = min(attempts, correct)
    one = outcome(attempts=attempts, with_code=attempts, unique_kernels=attempts, correct=correct)
    why = find_collapse(Config(least_success=share), one, one.success_rate)
    assert (why is None) == (correct > 0)


def rounds(url: str, out: str, *more: str) -> subprocess.Popen[str]:
    words = ["run", "self-supervised", "--preset", "tiny", "--lake", url, "--out", out, *more]
    return subprocess.Popen(
        [sys.executable, "-m", "trainers", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


@pytest.mark.slow
def test_killed_rounds_go_on_and_sample_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = str(tmp_path / "lake")
    subprocess.run(
        [sys.executable, "-m", "store", "import", "starter", "--lake", url],
        check=True, capture_output=True,
    )  # fmt: skip
    process = rounds(url, "run")
    deadline = time.monotonic() + 1200
    while not (tmp_path / "run" / "round-1").exists():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    again = rounds(url, "run", "--resume")
    out, err = again.communicate(timeout=1800)
    assert again.returncode == 0, err
    assert out.startswith("self-supervised: 2 rounds, ")
    with store.open(url) as lake:
        made = lake.sql(
            "SELECT generations.policy_id, count(*) AS n FROM generations "
            "JOIN runs ON runs.run_id = generations.run_id WHERE runs.kind = 'rollout' "
            "GROUP BY generations.policy_id"
        ).rows()
        metrics = lake.sql(
            "SELECT step, value FROM metrics WHERE name = 'success_rate' ORDER BY step"
        ).rows()
        policies = lake.sql(
            "SELECT DISTINCT round FROM policies WHERE stage = 'self-supervised' ORDER BY round"
        ).rows()
    # Two tasks, four attempts each, of the model before each of two rounds.
    assert [row["n"] for row in made] == [8, 8]
    assert [row["step"] for row in metrics] == [1, 2]
    assert [row["round"] for row in policies] == [1, 2]


@pytest.mark.slow
def test_a_model_that_writes_no_kernel_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = str(tmp_path / "lake")
    subprocess.run(
        [sys.executable, "-m", "store", "import", "starter", "--lake", url],
        check=True, capture_output=True,
    )  # fmt: skip
    process = rounds(url, "run", "--no-overfit", "--prompts", "1", "--max-tokens", "4")
    _, err = process.communicate(timeout=1200)
    assert process.returncode == 1
    assert "the policy has collapsed: none of 4 attempts is correct" in err
    assert "trainers run sft" in err
