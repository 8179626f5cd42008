"""`trainers run contrastive --preset tiny` as it is typed, also killed half-way and resumed.

`make test` trains the steps of test_replay, whose attempts are short and not judged.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl", reason="TRL is not installed")

import store
import trainers
from store.code.completion import parse_completion
from store.errors import LakeNotFound
from trainers import contrastive
from trainers.runs.job import Job
from trainers.training import short_answers

ROOT = Path(trainers.__file__).parent.parent
SQL = Path(trainers.__file__).parent / "training" / "sql"
WAIT_S = 900
SMALL = ("--steps", "1", "--tasks", "diag_matmul", "--prompts-per-step", "1")
"""Half of the preset, with a step of one prompt."""


@dataclass(frozen=True)
class Done:
    """What the run left, before and after the interruption."""

    lake: store.Lake
    out: Path
    halfway: list[dict[str, Any]]
    """Attempts of the second step, stored when the run was killed; none where it was not."""
    stdout: str
    stderr: str


def command(folder: Path, *more: str) -> list[str]:
    """Return the command with its folder of output, without the interpreter."""
    line = ["trainers", "run", "contrastive", "--preset", "tiny"]
    return [*line, "--out", str(folder / "run"), *more]


def environment() -> dict[str, str]:
    """Return the environment of the command: this checkout from any folder, the default lake."""
    own = {name: value for name, value in os.environ.items() if name != "FLYWHEEL_LAKE"}
    return own | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}


def attempts(url: str) -> list[dict[str, Any]]:
    """Return the attempts stored so far."""
    try:
        with store.open(url) as lake:
            return lake.sql(
                "SELECT generation_id, prompt_id, group_id, snapshot_id FROM generations "
                "WHERE source = 'trainers' ORDER BY ALL"
            ).rows()
    except LakeNotFound:
        return []


def kill_and_resume(folder: Path) -> Done:
    """Run the preset in an empty folder, kill it in its second step, and resume it."""
    url = str(folder / "lake")
    first = subprocess.Popen(
        [sys.executable, "-m", *command(folder)],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    until = time.monotonic() + WAIT_S
    checkpoint = folder / "run" / "checkpoint-1" / "trainer_state.json"
    stored: list[dict[str, Any]] = []
    while first.poll() is None and time.monotonic() < until:
        time.sleep(0.3)
        if checkpoint.exists() and len(stored := attempts(url)) > 8:
            break
    os.killpg(first.pid, signal.SIGKILL)
    said = first.communicate()[0].decode(errors="replace")
    assert len(stored) == 16, said[-4000:]
    early = {row["snapshot_id"] for row in stored}
    again = subprocess.run(
        [sys.executable, "-m", *command(folder, "--resume")],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert again.returncode == 0, again.stderr[-4000:]
    halfway = [row for row in stored if row["snapshot_id"] == max(early)]
    return Done(store.open(url), folder / "run", halfway, again.stdout, said + again.stderr)


def train_tiny(folder: Path) -> Done:
    """Run the preset in an empty folder."""
    done = subprocess.run(
        [sys.executable, "-m", *command(folder)],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return Done(store.open(str(folder / "lake")), folder / "run", [], done.stdout, done.stderr)


@pytest.mark.slow
def test_a_step_of_the_preset_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from trainers.cli.app import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FLYWHEEL_LAKE", raising=False)
    monkeypatch.setattr(sys, "argv", command(tmp_path, *SMALL))
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    said = capsys.readouterr()
    done = Done(store.open(str(tmp_path / "lake")), tmp_path / "run", [], said.out, said.err)
    check_judged(done, steps=1)
    check_rows(done, steps=1, tasks=1)
    check_exemplars(done)
    check_replayed(done)


@pytest.mark.slow
def test_the_preset_trains(tmp_path: Path) -> None:
    done = train_tiny(tmp_path)
    assert f"made a new lake at {done.lake.url}" in done.stderr
    check_judged(done)
    check_rows(done)
    check_exemplars(done)


@pytest.mark.slow
@pytest.mark.clock
def test_the_preset_trains_and_goes_on_after_a_kill(tmp_path: Path) -> None:
    done = kill_and_resume(tmp_path)
    check_judged(done)
    check_rows(done)
    check_done_again(done)
    check_exemplars(done)


def check_judged(done: Done, steps: int = 2) -> None:
    """Every kernel has a verdict, some are right, and an advantage is not zero."""
    [row] = done.lake.sql(
        "SELECT count(DISTINCT kernel_id) AS kernels, count(parse_error) AS unparsed "
        "FROM generations WHERE source = 'trainers'"
    ).rows()
    assert row["kernels"] >= 2
    judged = done.lake.sql(
        "SELECT count(*) AS n FROM generations AS made ANTI JOIN evaluations AS judged "
        "ON judged.kernel_id = made.kernel_id AND judged.task_id = made.task_id "
        "WHERE made.source = 'trainers' AND made.kernel_id IS NOT NULL"
    ).rows()
    assert judged == [{"n": 0}]
    rewards = done.lake.sql("SELECT step, raw, advantage FROM rewards").rows()
    assert {row["step"] for row in rewards} == set(range(steps))
    assert any(row["advantage"] for row in rewards)
    # The starter suite has verdicts of another device.
    judged_here = (
        "FROM evaluations JOIN devices USING (device_id) "
        "SEMI JOIN (FROM runs WHERE lake_id = $1) AS own USING (run_id)"
    )
    own = [done.lake.lake_id]
    statuses = done.lake.sql(f"SELECT DISTINCT status {judged_here}", own).rows()
    assert {"status": "correct"} in statuses
    devices = done.lake.sql(f"SELECT DISTINCT devices.name {judged_here}", own).rows()
    [judged_by] = done.lake.sql(
        "SELECT count(*) FILTER (WHERE protocol = 'training') AS training, "
        f"count(*) FILTER (WHERE protocol = 'full') AS \"full\" {judged_here}",
        own,
    ).rows()
    [timed] = done.lake.sql(
        "SELECT count(*) AS n FROM training_speedups WHERE device IN "
        f"(SELECT devices.name {judged_here})",
        own,
    ).rows()
    assert judged_by["training"]
    assert judged_by["full"] or not timed["n"], "the fastest of a task is judged in full"
    rewarded = done.lake.sql("SELECT DISTINCT config ->> '$.device' AS \"name\" FROM rewards")
    assert rewarded.rows() == devices


def check_rows(done: Done, steps: int = 2, tasks: int = 2) -> None:
    """What is left belongs to one run."""
    state = json.loads((done.out / "run.json").read_text("utf-8"))
    [run] = done.lake.sql("SELECT * FROM runs WHERE kind = 'training'").rows()
    assert run["run_id"] == state["run_id"]
    policies = done.lake.sql(
        "SELECT stage, count(*) AS n FROM policies WHERE kind = 'model' GROUP BY 1 ORDER BY 1"
    ).rows()
    # The random model, the overfitted one, the one in training, and the checkpoints.
    assert {row["stage"]: row["n"] for row in policies} == {
        "base": 1, "contrastive": 1 + steps, "sft": 1,
    }  # fmt: skip
    names = {row["name"] for row in done.lake.sql("SELECT DISTINCT name FROM metrics").rows()}
    assert {"loss", "kl", "reward", "frac_reward_zero_std", "prompts/snapshot"} <= names
    written = done.lake.sql(
        "SELECT count(*) AS n FROM analyses SEMI JOIN generations USING (generation_id)"
    ).rows()
    assert written[0]["n"] > 0
    assert (done.out / "final" / "model.safetensors").exists()
    assert done.stdout.startswith(f"contrastive: {steps} steps on {tasks} tasks")


def check_replayed(done: Done) -> None:
    """The first step is computed again from its tokens and verdicts, to the last bit."""
    rows = done.lake.sql("SELECT run_id FROM rollout_tokens").rows()
    assert len(rows) == 4
    job = Job(name="contrastive", lake_url=done.lake.url, out=done.out / "again", quiet=True)
    replayed = contrastive.replay(job, rows[0]["run_id"], 0, {})
    figures = {one["figure"]: one for one in replayed.figures}
    assert {"loss", "grad_norm", "kl", "reward by attempt", "ref_logprobs by attempt"} <= {*figures}
    assert {one["difference"] for one in replayed.figures} == {0.0}


def check_done_again(done: Done) -> None:
    """The step that was interrupted has the prompts and attempts that it had."""
    now = [row for row in attempts(done.lake.url) if row["group_id"] in _groups(done.halfway)]
    shown = {(row["group_id"], row["prompt_id"]) for row in done.halfway}
    assert len(shown) == 2
    assert {(row["group_id"], row["prompt_id"]) for row in now} == shown
    assert {row["snapshot_id"] for row in now} == {row["snapshot_id"] for row in done.halfway}
    # It was sampled again with the same outcome, and so is there once.
    assert now == done.halfway
    assert len(_groups(attempts(done.lake.url))) == 4
    doubled = done.lake.sql(
        # A kernel that leads its task has a full verdict beside that of the training. The starter
        # suite brings verdicts of other kernels, which are in no group.
        "SELECT kernel_id FROM evaluations "
        "WHERE status <> 'evaluator_error' AND protocol <> 'shape' "
        "AND kernel_id IN (SELECT kernel_id FROM generations WHERE group_id IS NOT NULL) "
        "GROUP BY kernel_id, task_id, protocol HAVING count(*) > 1"
    ).rows()
    assert doubled == []


def _groups(rows: list[dict[str, Any]]) -> set[str]:
    return {row["group_id"] for row in rows}


def check_exemplars(done: Done) -> None:
    """What a prompt shows was measured before it."""
    shown = done.lake.run((SQL / "exemplars_before.sql").read_text("utf-8")).rows()
    assert not any(row["shown_late"] for row in shown)
    # The first ones came with the starter suite, and no step wrote them.
    written = [row["written_at_step"] for row in shown]
    assert None in written
    assert all(step is None or step < row["step"] for step, row in zip(written, shown, strict=True))
    [counts] = done.lake.sql(
        "SELECT count(*) AS answers, "
        "count(*) FILTER (WHERE len(exemplar_kernel_ids) > 0) AS shown "
        "FROM generations WHERE source = 'trainers'"
    ).rows()
    assert counts["shown"] == counts["answers"]
    assert f"{counts['shown']} of {counts['answers']} answers had exemplars" in done.stdout


def test_every_answer_of_the_preset_parses() -> None:
    for task in short_answers.TEMPLATES:
        for answer in short_answers.make_answers(task):
            parsed = parse_completion(answer)
            assert parsed.parse_error is None
            assert parsed.code is not None
            assert parsed.fastest in (1, 2)
            assert parsed.design
