"""The options that `make test-sample` runs a sixth of the slow tests with."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = """
import pytest
import slow_sample

def pytest_addoption(parser):
    slow_sample.add_options(parser)

def pytest_collection_modifyitems(config, items):
    slow_sample.select(config, items)

def pytest_runtest_setup(item):
    slow_sample.skip_late(item)
"""
MANY = """
import pytest

@pytest.mark.parametrize("number", range(60))
def test_a_number(number):
    assert number != 7
"""
HANGING = """
import time

def test_that_hangs():
    time.sleep(600)

def test_that_passes():
    pass
"""


RUNS = """
import sys
import pytest

for options in sys.stdin.read().splitlines():
    print("exit code", int(pytest.main([*sys.argv[1:], *options.split()])))
"""


def run_pytest(folder: Path, module: str, *runs: str) -> list[str]:
    """Run pytest on a module with each of the options, with the hooks of the sample alone.

    Return what each run printed; its last line has the exit code.
    """
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_module.py").write_text(module)
    (folder / "pytest.ini").write_text("[pytest]")
    done = subprocess.run(
        [sys.executable, "-c", RUNS, "-p", "no:cacheprovider"],
        input="\n".join(runs),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parent),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
    )
    return re.findall(r".*?exit code \d+\n", done.stdout, flags=re.DOTALL)


@pytest.mark.slow
def test_the_six_sixths_are_all_tests(tmp_path: Path) -> None:
    hashes = ["0", "1", "2", "3", "4", f"{'ab' * 19}a1"]
    assert [int(text, 16) % 6 for text in hashes] == [0, 1, 2, 3, 4, 5]
    texts = run_pytest(tmp_path, MANY, *(f"--collect-only -q --sixth {text}" for text in hashes))
    numbers = [re.findall(r"test_a_number\[(\d+)\]", text) for text in texts]
    assert sorted(int(number) for part in numbers for number in part) == list(range(60))
    assert all(numbers)


def test_late_tests_are_named_and_a_failure_in_time_counts(tmp_path: Path) -> None:
    late, failed = run_pytest(
        tmp_path, MANY, "-rs --no-fold-skipped --start-until 0", "-q --start-until 1e12"
    )
    names = re.findall(r"^SKIPPED (\S+) - .*not run: the time for the sample", late, flags=re.M)
    assert names == [f"test_module.py::test_a_number[{number}]" for number in range(60)]
    assert "60 skipped" in late
    assert late.endswith("exit code 0\n")
    assert "1 failed, 59 passed" in failed
    assert failed.endswith("exit code 1\n")


@pytest.mark.slow
def test_a_test_that_hangs_fails_and_the_others_run(tmp_path: Path) -> None:
    limit = "-o faulthandler_timeout=30 -o faulthandler_exit_on_timeout=true"
    [text] = run_pytest(tmp_path, HANGING, f"-p xdist -n 1 {limit}")
    assert "1 failed, 1 passed" in text
    assert "crashed while running 'test_module.py::test_that_hangs'" in text
    assert "in test_that_hangs" in text
    assert text.endswith("exit code 1\n")
