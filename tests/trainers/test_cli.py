"""The command line, in real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import commands
import pytest

import store

Command = Callable[..., "subprocess.CompletedProcess[str]"]
OWN = '''"""A trainer of my own."""

from dataclasses import dataclass

from trainers.runs.job import Training

PRESETS = {"small": {"steps": 7, "trl": ("a=1",)}}


@dataclass(frozen=True, kw_only=True)
class Config(Training):
    """Options."""

    steps: int = 100
    """Number of steps."""


def run(job, config):
    job.out.mkdir(parents=True)
    job.say("on its way")
    return f"{job.name}: {config.steps} steps, {config.trl}, seed {config.seed}"
'''


@pytest.fixture
def trainers(tmp_path: Path) -> Command:
    """Return a function that runs `trainers` in a temporary folder with a trainer of its own."""
    own = tmp_path / "flywheel" / "trainers"
    own.mkdir(parents=True)
    (own / "my_way.py").write_text(OWN)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return commands.run(["trainers", *arguments], cwd=tmp_path)

    return run


def test_help_loads_nothing_heavy(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from trainers.cli.app import main\n"
        "for words in (['--help'], ['run', '--help'], ['run', 'sft', '--help']):\n"
        "    if os.fork():\n"
        "        assert os.wait()[1] == 0, words\n"
        "        continue\n"
        "    sys.argv = ['trainers', *words]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code\n"
        "    heavy = {'torch', 'duckdb', 'transformers', 'trl', 'datasets'} & set(sys.modules)\n"
        "    assert not heavy, heavy\n"
        "    sys.exit()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=tmp_path)


def test_list_names_ours_and_those_of_the_working_directory(trainers: Command) -> None:
    found = json.loads(trainers("list", "--format", "json").stdout)
    assert {"sft", "self-supervised", "my-way"} <= {row["trainer"] for row in found}
    shown = trainers("show", "my-way").stdout
    for text in ("A trainer of my own.", "--steps = 100", "--preset small", "--steps 7"):
        assert text in shown


def test_options_win_over_the_preset_and_its_trl_settings_come_first(trainers: Command) -> None:
    done = trainers("run", "my-way", "--preset", "small", "--seed", "3", "--trl", "b=2")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "my-way: 7 steps, ('a=1', 'b=2'), seed 3\n"
    assert done.stderr == "on its way\n"
    assert trainers("run", "my-way", "--preset=small", "--steps", "1", "-q").stdout.startswith(
        "my-way: 1 steps, ('a=1',)"
    )
    assert "[default: 7]" in trainers("run", "my-way", "--preset", "small", "--help").stdout


def test_refusals_say_what_there_is(trainers: Command, tmp_path: Path) -> None:
    url = str(tmp_path / "lake")
    store.writer(url, author="tests").close()
    for words, texts in (
        (("show", "sftt"), ('Did you mean "sft"?',)),
        (("run", "my-way", "--preset", "smal"), ('Did you mean "small"?',)),
        (("run", "my-way", "--resume"), ("--resume needs the folder",)),
        (("run", "sft", "--lake", url), ("Give --model, or --preset tiny",)),
        (("run", "self-supervised", "--model", "http://h/v1#m"), ("cannot be trained",)),
    ):
        done = trainers(*words)
        assert done.returncode == 1, done.stderr
        assert done.stdout == ""
        assert all(text in done.stderr for text in texts), done.stderr
        assert "Traceback" not in done.stderr
    assert trainers("run", "my-way", "--stepz", "1").returncode != 0


def test_numbers_that_train_nothing_are_refused(tmp_path: Path) -> None:
    for name, *words in (
        ("sft", "--lora", "0"),
        ("contrastive", "--steps", "0"),
        ("contrastive", "--sampling-temperature", "0"),
        ("contrastive", "--top-p", "nan"),
        ("self-supervised", "--rounds", "0"),
        ("self-supervised", "--improvement-share", "1"),
    ):
        done = commands.run(["trainers", "run", name, *words], cwd=tmp_path)
        assert done.returncode == 2, done.stderr
        assert f"for {words[0]}. Must be" in done.stderr
