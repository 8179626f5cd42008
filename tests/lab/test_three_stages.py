"""The three-stage experiment: what is done is not done again, and one driver holds a folder."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lab.three_stages.plan import Step
from lab.three_stages.sizes import PRESETS
from lab.three_stages.study import Study

ROOT = Path(__file__).parents[2]


def driver(out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "lab.three_stages", str(out), *more]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        line, capture_output=True, text=True, check=False, cwd=out.parent, env=environment
    )


@pytest.mark.slow
def test_steps_are_done_once_and_the_rest_later(tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = driver(out, "--until", "import-test")
    assert first.returncode == 0, first.stderr
    assert [line.split()[0] for line in first.stdout.splitlines()] == [
        "import-train", "import-test", "all",
    ]  # fmt: skip
    assert (out / "result" / "tables" / "tasks.parquet").exists()
    assert (out / "result" / "stages.csv").exists()
    marker = out / "done" / "import-train.json"
    assert json.loads(marker.read_text("utf-8"))["words"][:3] == ["store", "import", "generated"]
    again = driver(out, "--until", "import-starter")
    assert again.stdout.count("done before") == 2
    # The marker alone proves nothing: what it stands for has to be there.
    (out / "lake").rename(tmp_path / "elsewhere")
    made = driver(out, "--until", "import-train")
    assert "done before" not in made.stdout
    spent = driver(out, "--total-s", "0")
    assert "no time left" in spent.stdout


def test_a_folder_has_one_driver(tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    with (out / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        refused = driver(out)
    assert refused.returncode == 1
    assert "another process is at work" in refused.stderr
    assert not (out / "lake").exists()


@pytest.mark.slow
def test_a_command_past_its_budget_is_interrupted_also_in_the_background(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text(
        """import time
try:
    print("begun", flush=True)
    time.sleep(500)
except KeyboardInterrupt:
    print("stored", flush=True)
"""
    )
    step = Step(name="long", words=lambda: ["long"], holds=lambda: True)
    study = Study(tmp_path, PRESETS["cpu-small"], 0, 1.0, 1.0)
    # As a shell leaves it to what it starts in the background.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert study.run_command(step, step.words(), 10.0) == (0, False)
    finally:
        signal.signal(signal.SIGINT, before)
    assert "stored" in (tmp_path / "logs" / "long.txt").read_text()


@pytest.mark.parametrize(
    ("devices", "last"),
    [
        ("cuda:0", ["bucket-0", "none-0", "bucket-1", "none-1"]),
        ("cuda:0,cuda:1", ["bucket-0 none-0", "bucket-1 none-1"]),
    ],
)
def test_trainings_run_side_by_side_where_there_are_devices(
    tmp_path: Path, devices: str, last: list[str]
) -> None:
    sizes = replace(PRESETS["h200"], device=devices)
    steps: list[Any] = []
    for group in Study(tmp_path, sizes, 0, 1.0, 1.0).list_steps():
        steps.append(group)
        if group[-1].name == "contrastive-none-1":
            break
    named = [" ".join(step.name.removeprefix("contrastive-") for step in group) for group in steps]
    assert named[-len(last) :] == last
    places = [step.place for step in steps[-1]]
    assert places == ([None] if devices == "cuda:0" else list(range(len(places))))
