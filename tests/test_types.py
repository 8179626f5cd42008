"""The annotations hold: pyright, strict on every room."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def _pyright(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyright", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow  # the rooms pull in torch's and TRL's types, which take minutes
def test_pyright_finds_nothing() -> None:
    probe = _pyright("--version")
    if probe.returncode:
        pytest.skip(f"pyright cannot start here: {probe.stderr.strip()[-200:]}")
    found = _pyright()
    assert found.returncode == 0, found.stdout
