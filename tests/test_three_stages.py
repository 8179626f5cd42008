"""benchmarks/three_stages.py: what is done is not done again, and one driver holds a folder."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def driver(out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, str(ROOT / "benchmarks" / "three_stages.py"), str(out), *more]
    return subprocess.run(line, capture_output=True, text=True, check=False, cwd=out.parent)


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
