"""The annotations hold: pyright, strict on one folder, and on every room in `make test-all`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def _pyright(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pyright", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


# All rooms pull in torch's and TRL's types, which take minutes.
@pytest.mark.parametrize(
    "folders", [["pipelines/contract"], pytest.param([], marks=pytest.mark.slow)]
)
def test_pyright_finds_nothing(folders: list[str]) -> None:
    probe = _pyright("--version")
    if probe.returncode:
        pytest.skip(f"pyright cannot start here: {probe.stderr.strip()[-200:]}")
    found = _pyright(*folders)
    assert found.returncode == 0, found.stdout
