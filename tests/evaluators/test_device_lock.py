"""Judges of one machine: a timed section has its device for itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluators.scheduling.device_lock import DeviceLock

HOLDER = """
import sys, time
from evaluators.scheduling.device_lock import DeviceLock
lock = DeviceLock.of(sys.argv[3:])
with getattr(lock, sys.argv[1])():
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the locks of this machine out of it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)


def hold(how: str, seconds: float, *names: str) -> subprocess.Popen[str]:
    """Start a process that holds a lock for some time; returns once it has it."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, how, str(seconds), *names], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_who_times_waits_for_all_others_and_they_for_it() -> None:
    with hold("shared", 0.5, "gpu-a"), hold("shared", 0.5, "gpu-a"):
        with DeviceLock.of(["gpu-a"]).exclusive() as waited_s:
            assert waited_s > 0.1
    with hold("exclusive", 0.5, "gpu-a"), DeviceLock.of(["gpu-a"]).shared() as waited_s:
        assert waited_s > 0.1


def test_other_devices_are_not_waited_for() -> None:
    with hold("exclusive", 60, "gpu-a", "cpu-1") as process:
        with DeviceLock.of(["gpu-b", "cpu-2"]).exclusive() as waited_s:
            assert waited_s < 30
        process.kill()


def test_who_times_is_not_passed_by_those_who_share() -> None:
    with hold("shared", 1.0, "gpu-a"):
        waiting = subprocess.Popen([sys.executable, "-c", HOLDER, "exclusive", "1.0", "gpu-a"])
        time.sleep(0.5)  # it stands in the turnstile now, or will in a moment
        with DeviceLock.of(["gpu-a"]).shared():
            pass
        waiting.wait()
    assert waiting.returncode == 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_holder_that_dies_lets_go(number: int) -> None:
    with hold("exclusive", 600, "gpu-a") as process:
        process.send_signal(number)
        with DeviceLock.of(["gpu-a"]).exclusive() as waited_s:
            assert waited_s < 60


def test_a_lock_that_is_a_link_or_a_pipe_is_none(tmp_path: Path) -> None:
    folder = tmp_path / "flywheel-locks"
    folder.mkdir()
    target = tmp_path / "target"
    (folder / "gpu-a.turn").symlink_to(target)
    os.mkfifo(folder / "gpu-b.turn")
    assert DeviceLock.of(["gpu-a", "gpu-b"]).fds == []
    assert not target.exists()
