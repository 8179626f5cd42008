"""`evaluators check --watch`, and what a terminal shows while a kernel is judged."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

KERNEL = """
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * {factor}
"""
TASK = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2
def get_inputs():
    return [torch.ones(64, 64)]
"""
PATIENT = (
    "from store.commandline import interrupts; interrupts.GRACE_S = 600; "
    "interrupts.start('evaluators.cli.app')"
)
"""`python -m evaluators` that has the time to end its judge on a busy host, too."""


@pytest.mark.slow
def test_each_save_gives_a_line_and_an_interrupt_ends_cleanly(tmp_path: Path) -> None:
    kernel, task = tmp_path / "kernel.py", tmp_path / "task.py"
    kernel.write_text(KERNEL.format(factor=3))
    task.write_text(TASK)
    ours, theirs = pty.openpty()
    shown = bytearray()

    def read_terminal() -> None:
        try:
            while part := os.read(ours, 1 << 16):
                shown.extend(part)
        except OSError:  # the other end is closed
            pass

    words = ["check", "kernel.py", "--task", "task.py", "--on", "cpu", "--watch"]
    with subprocess.Popen(
        [sys.executable, "-c", PATIENT, *words, "--protocol", "training", "--total-s", "900"],
        cwd=tmp_path,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    ) as command:
        os.close(theirs)
        reader = threading.Thread(target=read_terminal)
        reader.start()
        assert command.stdout is not None
        first = command.stdout.readline()
        assert ": incorrect (incorrect_numerical): call 1" in first, shown.decode()
        kernel.write_text(KERNEL.format(factor="("))
        assert ": compile_error (syntax_error): SyntaxError" in command.stdout.readline()
        kernel.unlink()
        kernel.write_text(KERNEL.format(factor=2))
        assert ": correct" in command.stdout.readline()
        command.send_signal(signal.SIGINT)
        assert command.wait(300) == 0
        assert command.stdout.read() == ""
        reader.join(120)
    os.close(ours)
    steps = shown.decode()
    assert "starting the judge" in steps
    assert "building and importing the kernel" in steps or "checking its answers" in steps
    assert "Traceback" not in steps
