"""What the command lines of the four rooms share: help pages, common options, lists."""

from __future__ import annotations

import importlib
import inspect
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import commands as command_processes
import pytest
from cyclopts import App
from cyclopts.argument import Argument
from new_lakes import copy_starter_lake
from rich.console import Console

import store
from store.commandline import members
from store.commandline.members import CommandApp, HelpFormatter
from trainers.cli import kf

ROOT = Path(store.__file__).parents[1]
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["scripts"]
ROOMS = [name for name in SCRIPTS if name != "kf"]
MEMBERS = [
    "store import kernelbench-run",
    "store export cuda-l1",
    "pipelines run sft",
    "pipelines run contrastive-batch",
    "trainers run contrastive",
]


def app_of(room: str) -> App:
    return importlib.import_module(f"{room}.cli.app").app


def commands(app: App, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], App]]:
    for name in app:
        if not name.startswith("-"):
            yield (*path, name), app[name]
            yield from commands(app[name], (*path, name))


PATHS = [f"{room} {' '.join(path)}" for room in ROOMS for path, _ in commands(app_of(room))]


def command_of(words: str) -> App:
    room, *path = words.split()
    return dict(commands(app_of(room)))[tuple(path)]


def arguments_of(command: App) -> Iterator[Argument]:
    if command.default_command is not None:
        for argument in command.assemble_argument_collection(parse_docstring=True):
            if argument.show:
                yield argument


def page(words: str) -> str:
    """Return a help page as the command prints it, 80 columns wide."""
    done = subprocess.run(
        [sys.executable, "-m", *words.split(), "--help"],
        capture_output=True, text=True, check=True, env={"PATH": "", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stderr == ""
    return done.stdout


def help_of(words: str, app: App | None = None) -> str:
    """Return a help page of 80 columns, made in this process."""
    room, *path = words.split()
    text = io.StringIO()
    (app or app_of(room)).help_print(path, console=Console(file=text, width=80))
    return text.getvalue()


def check_page(text: str) -> None:
    assert max(map(len, text.splitlines())) <= 80
    for panel in text.split("╭")[1:]:
        # Lines that continue a description all begin in one column.
        continued = re.findall(r"^│( {12,})\S", panel, re.MULTILINE)
        assert len(set(continued)) <= 1, panel
    for noise in ("[default: ()]", "[default: False]", "[default: None]", "--empty-", "::"):
        assert noise not in text, noise


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("room", ROOMS)
def test_the_first_page_shows_its_examples(room: str) -> None:
    text = page(room)
    _, examples, rest = text.partition("\nExamples:\n")
    assert examples
    listed = rest.partition("\n\n")[0].splitlines()
    assert len(listed) >= 4
    assert all(re.match(rf"  (torchrun .* -m )?{room} ", line) for line in listed), listed
    assert "Every command takes --lake" in text
    check_page(text)


@pytest.mark.repeats(run=12)
@pytest.mark.parametrize("words", PATHS)
def test_help_pages_are_whole_and_tidy(words: str) -> None:
    text = help_of(words)
    check_page(text)
    command = command_of(words)
    examples = re.findall(r"^ +((?:store|pipelines|evaluators|trainers) .+)$", command.help, re.M)
    assert all(example in text for example in examples), examples
    for argument in arguments_of(command):
        assert argument.parameter.help, argument.name
    if command.default_command is not None:
        takes = inspect.signature(command.default_command).parameters
        if len(set(takes) - {"common", "format", "including", "limits"}) > 1:
            assert examples, "the page shows no example"


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("words", MEMBERS)
def test_help_pages_of_members_are_tidy(words: str) -> None:
    text = page(words)
    check_page(text)
    assert "--lake" in text


def test_choices_in_help_are_those_accepted() -> None:
    """Where a text names the choices too, it names all of them."""
    for words in PATHS:
        for argument in arguments_of(command_of(words)):
            listed = re.match(r"[\w-]+(, [\w-]+)* or [\w-]+", argument.parameter.help or "")
            choices = set(argument.get_choices() or ())
            named = set(re.split(", | or ", listed[0])) if listed else set[str]()
            assert not named & choices or named == choices, (words, argument.name)


def test_an_example_is_never_taken_for_a_section_of_the_docstring() -> None:
    app = CommandApp(name="tool")

    @app.command
    def do(name: str, /) -> None:
        """Do it.

        Two lines of one
        paragraph.

        Examples:
          tool do this-is-one-long-command-line --with-an-option-that-goes-beyond-eighty-columns

        Parameters
        ----------
        name
            What to do, in two
              lines.
        """

    text = help_of("tool do", app)
    assert "Two lines of one paragraph." in text
    assert "Examples:\n  tool do this-is-one-long-command-line --with-an-option-that-goes" in text
    assert "beyond-eighty-columns\n" in text
    assert "What to do, in two lines." in text


def test_help_comes_from_one_formatter() -> None:
    for room in ROOMS:
        assert isinstance(app_of(room).help_formatter, HelpFormatter)


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize(
    ("room", "words"),
    [
        ("store", ["log"]),
        ("store", ["tag", "list"]),
        ("evaluators", ["findings"]),
        ("trainers", ["rescore", "0199"]),
    ],
)
def test_common_options_may_stand_before_the_verb(
    room: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for before in (["--lake", "LAKE", "-q"], ["--quiet", "--lake=LAKE"]):
        given = [one.replace("LAKE", str(tmp_path / "mine")) for one in before]
        for argv in ([*given, *words], [words[0], *given, *words[1:]], [*words, *given]):
            with pytest.raises(SystemExit) as left:
                members.run(app_of(room), argv=argv)
            assert left.value.code == 1, argv
            assert f"no lake at {tmp_path / 'mine'}" in capsys.readouterr().err


def test_an_option_given_twice_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    for option in (["--no-robustness"], ["--calls", "3"]):
        with pytest.raises(SystemExit) as left:
            members.run(app_of("evaluators"), argv=["check", "a.py", "a_task", *option, *option])
        assert left.value.code == 2
        assert f"`evaluators check` takes {option[0]} once" in capsys.readouterr().err


@pytest.mark.slow
def test_common_options_may_stand_before_a_member(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pipelines", "--lake", str(tmp_path / "mine"), "run", "sft"],
        capture_output=True, text=True, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    assert f"no lake at {tmp_path / 'mine'}" in done.stderr


@pytest.mark.parametrize("room", ["pipelines", "evaluators", "trainers"])
def test_every_room_lists_its_members(room: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        members.run(app_of(room), argv=["list", "--format", "json"])
    assert left.value.code == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row[room.removesuffix("s")] for row in rows] == list(members.find_members(room))
    assert all(row["about"] for row in rows)


def test_each_verb_of_kf_is_a_command_of_a_room() -> None:
    for verb, (command, _) in kf.VERBS.items():
        assert command in PATHS, verb
    assert set(kf.VERBS) == {
        *("check", "add", "judge", "query", "show", "best", "explore", "report", "import"),
        *("compare", "dataset", "train", "publish", "pull", "serve", "receipt", "verify"),
    }
    check_page(help_of("kf", kf.app))


@pytest.mark.repeats(run=2)
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["best", "--help"], "Usage: kf best "),
        (["--lake", "nowhere", "train", "sft", "--help"], "Usage: kf train sft "),
        (["--help"], "Usage: kf COMMAND"),
    ],
)
def test_kf_runs_the_command_of_the_room(words: list[str], line: str, tmp_path: Path) -> None:
    done = command_processes.run(["kf", *words], cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(line)


def test_help_of_kf_imports_no_room() -> None:
    script = "import sys\nfrom trainers.__main__ import kf\nsys.argv[1:] = ['--help']\ntry: kf()\n"
    script += "except SystemExit: print({'duckdb', 'torch', 'store.cli.app'} & {*sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.endswith("\nset()\n")


def test_kf_alone_prints_the_state_of_the_lake_and_a_command_that_works(tmp_path: Path) -> None:
    url = str(tmp_path / "lake")
    missing = command_processes.run(["kf"], cwd=tmp_path)
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "`kf import starter`" in missing.stderr
    store.writer(url, author="tests").close()
    empty = command_processes.run(["kf", "--lake", url], cwd=tmp_path)
    assert empty.stdout.splitlines()[-1].startswith("next      `kf import starter`")
    copy_starter_lake(tmp_path / "full")
    full = command_processes.run(["kf", "--lake", str(tmp_path / "full")], cwd=tmp_path)
    lines = full.stdout.splitlines()
    assert lines[1] == "tasks     15"
    steps = [line.split() for line in lines[-3:]]
    assert steps[0][:3] == ["next", "kf", "judge"]
    for words in steps[1:]:
        assert words[0] == "kf"
        assert words[1] in kf.VERBS


@pytest.mark.repeats(run=1)
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("name", ["kf", "store"])
def test_completion_is_installed_with_commands_members_and_options(
    name: str, shell: str, tmp_path: Path
) -> None:
    words = [name, "--install-completion", "--shell", shell, "--output", str(tmp_path / "script")]
    done = command_processes.run(words, cwd=tmp_path, env={**os.environ, "HOME": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    script = (tmp_path / "script").read_text("utf-8")
    for word in ("best", "import", "kernelbench", "baseline"):
        assert word in script
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True)
